// Package story writes a short story with five agents: a writer, a critic and a
// reviser who improve it in a loop, and two who check its grammar and its tone.
// If the tone is negative, the writer begins again.
//
//	go run ./examples/story/run
//
// The order of work, with its condition, is a plain Go function. It has no class
// for its state and saves no position: each agent that it runs is a step, and a
// step that is done returns what it came to. Killed in the second round of the
// loop, it goes on there.
package story

import (
	"context"
	_ "embed"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/examples/internal/pace"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/script"
)

//go:embed script.yaml
var lines []byte

// Topic is one that the script makes a good story of.
const Topic = "a robot that keeps a lighthouse"

// Options of the flow. The zero value is ready to use.
type Options struct {
	Model llm.Model     // of all agents; nil is a script, which needs no network
	Pace  time.Duration // between two pieces of a reply
}

// What the agents leave for each other, under the keys that their instructions
// name.
var (
	draft = perdure.NewState[string]("story")
	tone  = perdure.NewState[string]("tone")
)

// Flow returns the flow "story". Its input is a topic, its output the story.
func Flow(o Options) perdure.Flow { return agent.NewFlow("story", Agent(o)) }

// Agent returns the agent that the flow is made of, for use in others.
func Agent(o Options) agent.Agent {
	if o.Model == nil {
		o.Model = script.Must(script.Parse("story/script.yaml", lines))
	}
	model := pace.Model(o.Model, o.Pace)

	writer := agent.New("writer", model, agent.Options{
		Instruction: "You are the writer. Write a story of a few sentences about the topic that you are given. Say nothing else.",
		OutputKey:   "story",
	})
	critic := agent.New("critic", model, agent.Options{
		Instruction: "You are the critic. Say in one sentence what would make the story better. If nothing would, call exit_loop.\n\nThe story:\n{story}",
		OutputKey:   "criticism",
		Tools:       []agent.Tool{agent.ExitLoop},
	})
	reviser := agent.New("reviser", model, agent.Options{
		Instruction: "You are the reviser. Change the story as the critic wants. Say nothing but the new story.\n\nThe critic:\n{criticism}\n\nThe story:\n{story}",
		OutputKey:   "story",
	})
	grammar := agent.New("grammar", model, agent.Options{
		Instruction: "You check the grammar. List what is wrong, or say that all is well.\n\nThe story:\n{story}",
		OutputKey:   "grammar",
	})
	judge := agent.New("judge", model, agent.Options{
		Instruction: "You judge the tone. Say one word: positive, neutral or negative.\n\nThe story:\n{story}",
		OutputKey:   "tone",
	})
	improve := agent.Loop("improve", 3, critic, reviser)
	check := agent.Sequential("check", grammar, judge)

	return agent.Func("story", func(ctx context.Context, topic agent.Content) (string, error) {
		if _, err := agent.Run(ctx, writer, topic); err != nil {
			return "", err
		}
		if _, err := agent.Run(ctx, improve, "What do you think of the story?"); err != nil {
			return "", err
		}
		if _, err := agent.Run(ctx, check, "Check the story."); err != nil {
			return "", err
		}
		found, err := tone.Get(ctx)
		if err != nil {
			return "", err
		}
		if found == "negative" {
			// The writer has run in this frame already, so this goes into one of its own.
			return perdure.Scope(ctx, "again", func(ctx context.Context) (string, error) {
				return agent.Run(ctx, writer, "The tone is negative. Write it again, so that it ends well.")
			})
		}
		return draft.Get(ctx)
	})
}
