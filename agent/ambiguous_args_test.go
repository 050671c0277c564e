package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/perduretest"
)

// TestApprovalByPredicateIsNotFooledByNames: a tool of another system reads
// "sum", and the predicate's Go type would read other spellings of it, the last
// one of which wins.
func TestApprovalByPredicateIsNotFooledByNames(t *testing.T) {
	type money struct {
		Sum   int `json:"sum"`
		Limit struct {
			Max int `json:"Max"`
		} `json:"limit"`
	}
	for _, args := range []string{
		`{"sum":1000,"ſum":1}`,
		`{"sum":1000,"\u017fum":1}`,
		`{"sum":1000,"sum":1000}`,
		`{"sum":1,"limit":{"Max":1000,"max":1}}`,
		`{"Sum":1000}`,
		`{"sUm":1}`, // the tool finds no sum, and may take another one than the predicate
		`{"sum":1,"limit":{"MAX":1}}`,
	} {
		var n tally
		pay := agent.RawTool("pay", "Pays.", json.RawMessage(`{"type":"object"}`), func(context.Context, json.RawMessage) (agent.Output, error) {
			n.add("pay")
			return agent.Output{Text: "paid"}, nil
		}, agent.ApprovalIf(func(m money) bool { return m.Sum > 100 || m.Limit.Max > 100 }))
		clerk := agent.New("clerk", scripted(calls(call("pay", args)), llm.Assistant("end")), agent.Options{Tools: []agent.Tool{pay}})
		perduretest.Virtual(t, flows(clerk), func(t *testing.T, e *perduretest.Env) {
			e.Start("t", "flow", "go")
			// A worker that looks between the hint and the journal looks again soon.
			run, err := e.Runtime().Wait(t.Context(), "t", "")
			if err != nil {
				t.Fatal(err)
			}
			if n.of("pay") != 0 || run.Status != perdure.Suspended {
				t.Errorf("%s ran without approval", args)
			}
		})
	}
}

// TestWhatAPersonSeesIsWhatRuns, to the last digit and however the model wrote
// it.
func TestWhatAPersonSeesIsWhatRuns(t *testing.T) {
	for _, args := range []string{
		`{"n":9007199254740993,"f":0.1000000000000000055511151231257827,"e":1e2,"s":"<&>\u2028é"}`,
		`{"n":1,"n":2}`,
		`{"b":1,"a":{"z":1,"y":2}}`,
		" {\n\"a\" : [1 , 2]}\n",
	} {
		var ran string
		pay := agent.RawTool("pay", "Pays.", json.RawMessage(`{"type":"object"}`), func(_ context.Context, a json.RawMessage) (agent.Output, error) {
			ran = string(a)
			return agent.Output{Text: "paid"}, nil
		}, agent.NeedsApproval())
		clerk := agent.New("clerk", scripted(calls(call("pay", args)), llm.Assistant("end")), agent.Options{Tools: []agent.Tool{pay}})
		perduretest.Virtual(t, flows(clerk), func(t *testing.T, e *perduretest.Env) {
			e.Start("t", "flow", "go")
			ask := asked(t, e, "t", 1)[0]
			var data struct{ Args json.RawMessage }
			if err := json.Unmarshal(ask.Data, &data); err != nil {
				t.Fatal(err)
			}
			reply(t, e, ask, perdure.Answer{Decision: agent.DecisionApprove, By: "ann"})
			e.Wait("t", perdure.Succeeded)
			if !sameJSON(t, data.Args, []byte(ran)) {
				t.Errorf("the person saw %s and %s ran", data.Args, ran)
			}
			if strings.Contains(args, "9007199254740993") && !strings.Contains(ran, "9007199254740993") {
				t.Errorf("the number changed: %s", ran)
			}
		})
	}
}

// sameJSON compares JSON, its numbers as they are written.
func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	var v [2]any
	for i, raw := range [][]byte{a, b} {
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		if err := d.Decode(&v[i]); err != nil {
			t.Fatal(err)
		}
	}
	return cmp.Equal(v[0], v[1])
}

// TestArgumentsNestedTooDeepAreAMistake of the model, and not the run's end.
func TestArgumentsNestedTooDeepAreAMistake(t *testing.T) {
	var n tally
	pay := agent.RawTool("pay", "Pays.", json.RawMessage(`{"type":"object"}`), func(context.Context, json.RawMessage) (agent.Output, error) {
		n.add("pay")
		return agent.Output{}, nil
	}, agent.NeedsApproval())
	args := `{"a":` + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + `}`
	clerk := agent.New("clerk", scripted(calls(call("pay", args)), llm.Assistant("end")), agent.Options{Tools: []agent.Tool{pay}})
	perduretest.Virtual(t, flows(clerk), func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "flow", "go")
		e.Wait("t", perdure.Succeeded)
		n.want(t, "")
	})
}

// TestLargeNumbersOfAPendingCallAreKept.
func TestLargeNumbersOfAPendingCallAreKept(t *testing.T) {
	type ref struct {
		ID int64 `json:"id"`
	}
	job := agent.NewTool("job", "Starts.", func(context.Context, ref) (string, error) { return "", agent.Pending("j") })
	clerk := agent.New("clerk", scripted(calls(call("job", `{"id":9007199254740993}`)), llm.Assistant("end")), agent.Options{Tools: []agent.Tool{job}})
	perduretest.Virtual(t, flows(clerk), func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "flow", "go")
		if ask := asked(t, e, "t", 1)[0]; !strings.Contains(string(ask.Data), "9007199254740993") {
			t.Errorf("the ask shows %s", ask.Data)
		}
	})
}

// TestEditedArgumentsAreCheckedAsTheModelsAre.
func TestEditedArgumentsAreCheckedAsTheModelsAre(t *testing.T) {
	var n tally
	clerk := agent.New("clerk", scripted(calls(call("pay", `{"id":"A"}`)), llm.Assistant("end")), agent.Options{Tools: []agent.Tool{noted(&n, "pay", agent.NeedsApproval())}})
	perduretest.Virtual(t, flows(clerk), func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "flow", "go")
		ask := asked(t, e, "t", 1)[0]
		for _, bad := range []string{`{"ID":"B"}`, `{"id":"B","Id":"C"}`, `{"id":1}`, `null`, `"x"`, `[]`, `{"id":"B","amount":99999999999999999999}`} {
			err := e.Runtime().Answer(t.Context(), perdure.AskAnswer{Ask: ask.ID, Answer: perdure.Answer{Decision: agent.DecisionEdit, Value: json.RawMessage(bad)}})
			if err == nil {
				t.Fatalf("%s was taken", bad)
			}
		}
		reply(t, e, ask, perdure.Answer{Decision: agent.DecisionEdit, Value: json.RawMessage(`{"amount":2,"id":"B"}`)})
		e.Wait("t", perdure.Succeeded)
		n.want(t, "pay:1")
	})
}
