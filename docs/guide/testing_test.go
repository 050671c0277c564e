package guide_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/script"
	"github.com/perdure/perdure/perduretest"
)

var mails perduretest.Effects

var welcome = perdure.NewFlow("welcome", func(ctx context.Context, name string) (bool, error) {
	_, err := perdure.Step(ctx, "mail", func(ctx context.Context) (string, error) {
		mails.Count(ctx, "mail") // and here: send it, with perdure.Key(ctx)
		return "sent to " + name, nil
	})
	if err != nil {
		return false, err
	}
	return perdure.Ask[bool](ctx, "confirmed", perdure.Question{Prompt: "Did it arrive?"})
})

func yes(ctx context.Context, rt *perdure.Runtime, run *perdure.Run) error {
	for _, ask := range run.Asks {
		if err := rt.Answer(ctx, perdure.AskAnswer{Ask: ask.ID, Answer: perdure.Answer{Value: true}}); err != nil {
			return err
		}
	}
	return nil
}

func TestWelcomeSurvives(t *testing.T) {
	perduretest.CrashEverywhere(t, perduretest.Crash{
		Flows:   []perdure.Flow{welcome},
		Start:   []perdure.StartRequest{{Flow: "welcome", Input: "ann"}},
		Effects: &mails,
		Outside: yes,
		Want:    perdure.Succeeded,
	})
}

// A model for tests says what the test needs, without a network.
func Example_script() {
	model := script.New(
		script.Call("add", `{"a": 2, "b": 3}`),
		script.Say("It is 5."),
	)
	type sum struct{ A, B int }
	add := agent.NewTool("add", "Add two numbers.", func(_ context.Context, s sum) (int, error) {
		return s.A + s.B, nil
	})
	flow := agent.NewFlow("sums", agent.New("sums", model, agent.Options{Tools: []agent.Tool{add}}))
	p, run := run("sums", "What is 2 + 3?", flow)
	defer p.stop()
	fmt.Println(must(perdure.Output[string](run)))
	// Output:
	// It is 5.
}

var _ llm.Model = (*script.Model)(nil)
