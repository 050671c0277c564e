package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/schema"
	"github.com/perdure/perdure/llm"
)

type request struct {
	Request string `json:"request" jsonschema:"what is to be done, with everything that has to be known for it"`
}

// AsTool makes an agent a tool of other agents. It works in a context of its own: it
// sees the request but not the conversation, and returns only its final text. Its asks
// are put to people as usual.
func AsTool(a Agent, opts ...ToolOption) Tool {
	if a == nil {
		return Tool{&tool{err: errors.New("AsTool makes a tool of no agent")}}
	}
	about := cmp.Or(a.description(), "Lets "+a.Name()+" do something.")
	t := NewTool(a.Name(), about, func(ctx context.Context, r request) (string, error) { return runAlone(ctx, a, r.Request) },
		append([]ToolOption{UsesVerbs()}, opts...)...)
	t.agents = []Agent{a}
	return t
}

// runAlone lets an agent do a task in a context of its own.
func runAlone(ctx context.Context, a Agent, task string) (string, error) {
	r, err := a.run(ctx, a.Name(), visit{in: Content{llm.User(task)}, alone: true})
	if err != nil {
		return "", err
	}
	return r.Text, nil
}

type task struct {
	Agent string `json:"agent" jsonschema:"who is to do it"`
	Task  string `json:"task" jsonschema:"what is to be done, with everything that has to be known for it"`
}

// Delegate is a tool by which a model gives tasks to agents, each in a context of its
// own. Several calls in one message run concurrently.
func Delegate(agents ...Agent) Tool {
	by := map[string]Agent{}
	var about strings.Builder
	about.WriteString("Lets another agent do a task in a context of its own. The agents are:")
	var enum []any
	var err error
	if len(agents) == 0 {
		err = errors.New("there is no agent to delegate to")
	}
	for _, a := range agents {
		if a == nil {
			err = errors.New("one of the agents to delegate to is nil")
			continue
		}
		by[a.Name()] = a
		enum = append(enum, a.Name())
		fmt.Fprintf(&about, "\n- %s: %s", a.Name(), a.description())
	}
	slices.SortFunc(enum, func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
	t := NewTool("delegate", about.String(), func(ctx context.Context, t task) (string, error) {
		return runAlone(ctx, by[t.Agent], t.Task) // the schema names them
	}, UsesVerbs())
	t.agents = slices.DeleteFunc(slices.Clone(agents), func(a Agent) bool { return a == nil })
	if err == nil && t.err == nil {
		s := t.schema.Source().CloneSchemas()
		s.Properties["agent"].Enum = enum
		t.schema, err = schema.New(s)
	}
	t.err = errors.Join(t.err, err)
	return t
}

type question struct {
	Question string   `json:"question" jsonschema:"what the person is asked"`
	Choices  []string `json:"choices,omitempty" jsonschema:"answers to choose from, if there are only some"`
}

// AskPerson is a tool by which a model asks a person. It opens an ask of kind
// [KindQuestion], and the run waits as long as it takes. The answer's value is a
// text, one of the choices if the model gives any. If who is empty, anyone may answer.
func AskPerson(who ...string) Tool {
	return NewTool("ask_person", "Asks a person and waits for the answer. Use it when you cannot go on without one.",
		func(ctx context.Context, q question) (string, error) {
			ask := perdure.Question{Kind: KindQuestion, Prompt: q.Question, Who: who, Schema: json.RawMessage(`{"type":"string"}`)}
			if len(q.Choices) > 0 {
				raw, err := json.Marshal(map[string]any{"type": "string", "enum": q.Choices})
				if err != nil {
					return "", err
				}
				ask.Schema, ask.Data = raw, map[string]any{"choices": q.Choices}
			}
			return perdure.Ask[string](ctx, "person", ask)
		}, UsesVerbs())
}
