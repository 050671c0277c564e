package agent_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/perduretest"
)

// TestHostileModel: whatever a model writes, each call has one result, the
// conversation is one that a provider takes, and nothing runs that is no tool.
func TestHostileModel(t *testing.T) {
	many := make([]llm.Call, 200)
	for i := range many {
		many[i] = call("note", fmt.Sprintf(`{"id":"%d"}`, i))
	}
	same := func(id string, n int) llm.Message {
		m := llm.Message{Role: llm.RoleAssistant}
		for range n {
			m.Parts = append(m.Parts, llm.Part{Call: &llm.Call{ID: id, Name: "note", Args: `{"id":"x"}`}})
		}
		return m
	}
	mixed := calls(call("note", `{"id":"1"}`))
	mixed.Parts = append([]llm.Part{llm.Text("first ")}, append(mixed.Parts, llm.Text("then"), llm.Part{Call: &llm.Call{ID: "c0", Name: "note", Args: `{"id":"2"}`}})...)
	cases := map[string]struct {
		m     llm.Message
		notes int // calls that are made
		says  string
	}{
		"equal ids":             {same("x", 5), 5, ""},
		"empty ids":             {same("", 5), 5, ""},
		"ids of garbage":        {same("\xff/\x00|", 2), 2, ""},
		"an id like ours":       {calls(llm.Call{ID: "", Name: "note", Args: `{"id":"1"}`}, llm.Call{ID: "call_1", Name: "note", Args: `{"id":"2"}`}), 2, ""},
		"200 calls":             {calls(many...), 200, ""},
		"a name with slashes":   {calls(call("../../note/approve", `{"id":"1"}`)), 0, "There is no tool"},
		"a name with NULs":      {calls(call("note\x00\n|#", `{"id":"1"}`)), 0, "There is no tool"},
		"no name":               {calls(call("", `{"id":"1"}`)), 0, "There is no tool"},
		"a name of 1 MB":        {calls(call(strings.Repeat("n", 1<<20), `{}`)), 0, "There is no tool"},
		"names like frames":     {calls(call("result", `{}`), call("serial", `{}`), call("credential-x", `{}`)), 0, "There is no tool"},
		"half a surrogate":      {calls(call("note", `{"id":"\ud800"}`)), 0, `\ud800 in a text is half of a surrogate pair`},
		"arguments of 5 MB":     {calls(call("note", `{"id":"`+strings.Repeat("x", 5<<20)+`"}`)), 1, ""},
		"garbage of 5 MB":       {calls(call("note", strings.Repeat("[", 5<<20))), 0, "are wrong"},
		"arguments cut off":     {calls(call("note", `{"id":"1`)), 0, "are wrong"},
		"two values":            {calls(call("note", `{"id":"1"} {"id":"2"}`)), 0, "are wrong"},
		"a bracket too many":    {calls(call("note", `{"id":"1"}}`)), 0, "are wrong"},
		"a value and a bracket": {calls(call("note", `{"id":"1"}]{"id":"2"}`)), 0, "are wrong"},
		"no object":             {calls(call("note", `["1"]`)), 0, "are wrong"},
		"another case":          {calls(call("note", `{"ID":"1"}`)), 0, "are wrong"},
		"unknown arguments":     {calls(call("note", `{"id":"1","force":true}`)), 0, "are wrong"},
		"a huge number":         {calls(call("note", `{"id":"1","amount":1e999}`)), 0, "are wrong"},
		"1.0 for an int":        {calls(call("note", `{"id":"1","amount":1.0}`)), 1, ""},
		"out of bounds":         {calls(call("note", `{"id":"1","amount":101}`)), 0, "are wrong"},
		"a transfer":            {calls(call("transfer_to_agent", `{"agent":"clerk"}`)), 0, "not handed over"},
		"text and calls":        {mixed, 2, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var n tally
			model := &brain{think: func(r *llm.Request) llm.Message {
				if replies(r) == 0 {
					return c.m
				}
				return llm.Assistant("done")
			}}
			perduretest.Virtual(t, flows(agent.New("clerk", model, agent.Options{Tools: []agent.Tool{noted(&n, "note")}})), func(t *testing.T, e *perduretest.Env) {
				e.Start("t", "flow", "go")
				if got := text(t, e.Wait("t", perdure.Succeeded)); got != "done" {
					t.Errorf("got %q", got)
				}
			})
			seen := model.requests()
			answer := last(&seen[1])
			if len(answer.Parts) != len(c.m.Calls()) {
				t.Errorf("%d calls have %d results", len(c.m.Calls()), len(answer.Parts))
			}
			if got := n.of("note"); got != c.notes {
				t.Errorf("%d calls were made, want %d", got, c.notes)
			}
			ids := map[string]bool{}
			for _, p := range answer.Parts {
				ids[p.Result.Call] = true
				if p.Result.Error != (c.says != "") || !strings.Contains(p.Result.Text, c.says) || len(p.Result.Text) > 6<<20 {
					t.Errorf("a result is %.200q", p.Result.Text)
				}
			}
			if len(ids) != len(answer.Parts) || ids[""] {
				t.Errorf("the results are for %d calls of %d", len(ids), len(answer.Parts))
			}
		})
	}
}

// TestModelThatSaysNothing: the next run's conversation has no empty message,
// which providers refuse.
func TestModelThatSaysNothing(t *testing.T) {
	for name, empty := range map[string]llm.Message{
		"no parts":      {Role: llm.RoleAssistant},
		"an empty text": llm.Assistant(""),
	} {
		t.Run(name, func(t *testing.T) {
			model := &brain{think: func(r *llm.Request) llm.Message {
				for _, m := range r.Messages {
					if len(m.Parts) == 0 || m.Text() == "" {
						return llm.Assistant("there is an empty message")
					}
				}
				if last(r).Text() == "go" {
					return empty
				}
				return llm.Assistant("fine")
			}}
			perduretest.Virtual(t, flows(agent.New("clerk", model, agent.Options{})), func(t *testing.T, e *perduretest.Env) {
				e.Start("t", "flow", "go")
				if got := text(t, e.Wait("t", perdure.Succeeded)); got != "" {
					t.Errorf("got %q", got)
				}
				e.Start("t", "flow", "and?")
				if got := text(t, e.Wait("t", perdure.Succeeded)); got != "fine" {
					t.Errorf("got %q", got)
				}
			})
		})
	}
}

// TestMistakesHaveALimit: a model that does not learn ends the run, and one that
// does may make mistakes again later.
func TestMistakesHaveALimit(t *testing.T) {
	var n tally
	good, bad, unknown := calls(call("note", `{"id":"1"}`)), calls(call("note", `{}`)), calls(call("nota", `{}`))
	tools := []agent.Tool{noted(&n, "note")}
	perduretest.Virtual(t, flows(agent.New("clerk", scripted(bad, unknown, good, bad, unknown, good, llm.Assistant("done")), agent.Options{Tools: tools})), func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "flow", "go")
		e.Wait("t", perdure.Succeeded)
	})
	n.want(t, "note:2")
	for limit, want := range map[int]int{0: 3, 1: 1, 5: 5} {
		model := scripted(bad)
		perduretest.Virtual(t, flows(agent.New("clerk", model, agent.Options{Tools: tools, Limits: agent.Limits{Mistakes: limit}})), func(t *testing.T, e *perduretest.Env) {
			e.Start("t", "flow", "go")
			if run := e.Wait("t", perdure.Failed); !errors.Is(run.Err, agent.ErrMistakes) {
				t.Errorf("it failed with %v", run.Err)
			}
		})
		if got := len(model.requests()); got != want {
			t.Errorf("with a limit of %d the model was asked %d times, want %d", limit, got, want)
		}
	}
}

type verdict struct {
	Good  bool   `json:"good"`
	Grade string `json:"grade" schema:"enum=a|b"`
}

// TestStructuredOutput takes JSON that fits, fenced too, and lets the model try
// again when it does not.
func TestStructuredOutput(t *testing.T) {
	cases := map[string]struct {
		says []string
		ok   bool
	}{
		"valid":              {[]string{`{"good":true,"grade":"a"}`}, true},
		"with space":         {[]string{"\n {\"good\":true,\"grade\":\"a\"} \n"}, true},
		"fenced":             {[]string{"```json\n{\"good\":true,\"grade\":\"a\"}\n```"}, true},
		"fenced plainly":     {[]string{"```\n{\"good\":true,\"grade\":\"a\"}```"}, true},
		"mended":             {[]string{`{"good":1}`, `good`, `{"good":true,"grade":"a"}`}, true},
		"a bracket too many": {[]string{`{"good":true,"grade":"a"}}`, `{"good":true,"grade":"a"}]`, `{"good":true,"grade":"a"}`}, true},
		"two values":         {[]string{`{"good":true,"grade":"a"} {"good":false,"grade":"b"}`, `{"good":true,"grade":"a"}`}, true},
		"never":              {[]string{`{"good":true,"grade":"c"}`}, false},
		"empty":              {[]string{``}, false},
		"null":               {[]string{`null`}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var ms []llm.Message
			for _, s := range c.says {
				ms = append(ms, llm.Assistant(s))
			}
			asked := 0
			model := &brain{think: func(r *llm.Request) llm.Message {
				for i, m := range r.Messages {
					if len(m.Parts) == 0 {
						t.Errorf("message %d of request %d is empty, which providers refuse", i, asked+1)
					}
				}
				asked++
				return ms[min(asked, len(ms))-1]
			}}
			judge := agent.New("judge", model, agent.Options{Output: agent.OutputOf[verdict](), OutputKey: "verdict"})
			flow := perdure.NewFlow("flow", func(ctx context.Context, in string) (verdict, error) { return agent.RunTo[verdict](ctx, judge, in) })
			perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{flow}}, func(t *testing.T, e *perduretest.Env) {
				e.Start("t", "flow", "judge")
				if !c.ok {
					if run := e.Wait("t", perdure.Failed); !errors.Is(run.Err, agent.ErrMistakes) {
						t.Errorf("it failed with %v", run.Err)
					}
					return
				}
				run := e.Wait("t", perdure.Succeeded)
				if v, err := perdure.Output[verdict](run); err != nil || v != (verdict{true, "a"}) {
					t.Errorf("got %v, %v", v, err)
				}
				at, err := e.Runtime().StateAt(t.Context(), "t", 0)
				if err != nil || string(at.State["verdict"]) != `{"good":true,"grade":"a"}` {
					t.Errorf("the state has %s, %v", at.State["verdict"], err)
				}
				if asked != len(c.says) {
					t.Errorf("the model was asked %d times, want %d", asked, len(c.says))
				}
			})
		})
	}
}

// TestTransferToItselfAndBackAndForthHasALimit has agents that only hand over.
func TestTransferToItselfAndBackAndForthHasALimit(t *testing.T) {
	to := func(name string) llm.Message {
		return calls(call("transfer_to_agent", fmt.Sprintf(`{"agent":%q}`, name)))
	}
	b := agent.New("b", scripted(to("a")), agent.Options{})
	a := agent.New("a", scripted(to("b")), agent.Options{Transfer: []agent.Agent{b}})
	perduretest.Virtual(t, flows(a), func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "flow", "go")
		if run := e.Wait("t", perdure.Failed); !errors.Is(run.Err, agent.ErrLimit) {
			t.Errorf("it failed with %v", run.Err)
		}
	})
	self := agent.New("self", scripted(to("self")), agent.Options{Transfer: []agent.Agent{b}})
	perduretest.Virtual(t, flows(self), func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "flow", "go")
		if run := e.Wait("t", perdure.Failed); !errors.Is(run.Err, agent.ErrMistakes) {
			t.Errorf("it failed with %v", run.Err)
		}
	})
}
