package agent_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/agent/files"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/perduretest"
)

// oneEach fails if a call in a transcript has not exactly one result.
func oneEach(t *testing.T, all []agent.Record) {
	t.Helper()
	open := map[string]int{}
	for _, r := range all {
		turn, _, _ := strings.Cut(r.ID[strings.LastIndex(r.ID, "/turn-")+1:], "/")
		for _, p := range r.Message.Parts {
			if p.Call != nil {
				open[r.Agent+turn+p.Call.ID]++
			}
			if p.Result != nil {
				open[r.Agent+turn+p.Result.Call]--
			}
		}
	}
	for id, n := range open {
		if n != 0 {
			t.Errorf("the call %s has %d results", id, 1-n)
		}
	}
}

// TestPendingWithoutARefWaitsAllTheSame.
func TestPendingWithoutARefWaitsAllTheSame(t *testing.T) {
	for _, opts := range [][]agent.ToolOption{nil, {agent.UsesVerbs()}} {
		job := agent.NewTool("job", "Starts.", func(context.Context, struct{}) (string, error) { return "", agent.Pending("") }, opts...)
		clerk := agent.New("clerk", scripted(calls(call("job", "{}")), llm.Assistant("end")), agent.Options{Tools: []agent.Tool{job}})
		perduretest.Virtual(t, flows(clerk), func(t *testing.T, e *perduretest.Env) {
			e.Start("t", "flow", "go")
			ask := asked(t, e, "t", 1)[0]
			if ask.Kind != agent.KindPending || strings.Contains(string(ask.Data), `"ref":""`) {
				t.Errorf("the ask is %s with %s", ask.Kind, ask.Data)
			}
			reply(t, e, ask, perdure.Answer{Value: "done"})
			e.Wait("t", perdure.Succeeded)
			oneEach(t, said(t, e, "t"))
		})
	}
}

// TestAfterToolSeesTheResultOfAPendingCall: what takes secrets out of outputs
// sees those that come later too.
func TestAfterToolSeesTheResultOfAPendingCall(t *testing.T) {
	for _, opts := range [][]agent.ToolOption{nil, {agent.UsesVerbs()}} {
		var n tally
		job := agent.NewTool("job", "Starts.", func(context.Context, struct{}) (string, error) { return "", agent.Pending("j") }, opts...)
		clerk := agent.New("clerk", scripted(calls(call("job", "{}")), llm.Assistant("end")), agent.Options{Tools: []agent.Tool{job},
			Callbacks: agent.Callbacks{AfterTool: func(_ context.Context, _ agent.ToolCall, out *agent.Output) error {
				n.add("after " + out.Text)
				out.Text = "[hidden]"
				return nil
			}}})
		perduretest.Virtual(t, flows(clerk), func(t *testing.T, e *perduretest.Env) {
			e.Start("t", "flow", "go")
			reply(t, e, asked(t, e, "t", 1)[0], perdure.Answer{Value: "secret"})
			e.Wait("t", perdure.Succeeded)
			if got := string(raw(said(t, e, "t"))); strings.Contains(got, "secret") || !strings.Contains(got, "[hidden]") {
				t.Errorf("the transcript is %s", got)
			}
			n.want(t, "after secret:1")
		})
	}
}

// TestSerialCallsWithAndWithoutCredentials are in one message, of which some
// wait for a login, also two whose names look alike.
func TestSerialCallsWithAndWithoutCredentials(t *testing.T) {
	t.Setenv("PERDURE_KEYS", "k1:"+strings.Repeat("QUFB", 10)+"QUE=")
	var n tally
	free := noted(&n, "free", agent.Serial())
	mail := noted(&n, "mail", agent.Serial(), agent.Needs(agent.Credential{Name: "my login"}))
	post := noted(&n, "post", agent.Needs(agent.Credential{Name: "my_login"}))
	clerk := agent.New("clerk", scripted(calls(call("free", `{"id":"1"}`), call("mail", `{"id":"2"}`), call("post", `{"id":"3"}`)), llm.Assistant("end")),
		agent.Options{Tools: []agent.Tool{free, mail, post}})
	perduretest.Virtual(t, flows(clerk), func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "flow", "go")
		for _, ask := range asked(t, e, "t", 2) {
			if err := agent.Provide(t.Context(), e.Runtime(), perdure.AskAnswer{Ask: ask.ID}, "a secret"); err != nil {
				t.Fatal(err)
			}
		}
		e.Wait("t", perdure.Succeeded)
		n.want(t, "free:1 mail:1 post:1")
		oneEach(t, said(t, e, "t"))
	})
}

// TestRetryAfterAFatalToolKeepsItsSiblings: a person retries the run, and what
// was finished beside the failed call is not done again.
func TestRetryAfterAFatalToolKeepsItsSiblings(t *testing.T) {
	var n tally
	bad := agent.NewTool("bad", "Fails.", func(context.Context, struct{}) (string, error) {
		if n.add("bad") == 1 {
			return "", agent.Fatal(errors.New("no disk"))
		}
		return "good", nil
	})
	model := scripted(calls(call("note", `{"id":"1"}`), call("bad", `{}`), call("line", `{"id":"2"}`), call("job", `{"id":"3"}`)), llm.Assistant("end"))
	clerk := agent.New("clerk", model, agent.Options{Tools: []agent.Tool{noted(&n, "note"), bad, noted(&n, "line", agent.Serial()), noted(&n, "job", agent.UsesVerbs())}})
	perduretest.Virtual(t, flows(clerk), func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "flow", "go")
		run := e.Wait("t", perdure.Failed)
		if !errors.Is(run.Err, agent.ErrFatal) {
			t.Fatalf("it failed with %v", run.Err)
		}
		if err := e.Runtime().Retry(t.Context(), "t", run.ID, perdure.Note{By: "ann"}); err != nil {
			t.Fatal(err)
		}
		e.Wait("t", perdure.Succeeded)
		n.want(t, "bad:2 job:1 line:1 note:1")
		if got := len(model.requests()); got != 2 {
			t.Errorf("the model was asked %d times", got)
		}
		oneEach(t, said(t, e, "t"))
		if got := results(last(&model.requests()[1])); got != "note=note 1;bad=good;line=line 2;job=job 3;" {
			t.Errorf("the model read %s", got)
		}
	})
}

// TestLargeOutputsOfCallsWithOneIdAreKeptApart: models that give no ids, or the
// same in each turn, do not overwrite what they were told to read.
func TestLargeOutputsOfCallsWithOneIdAreKeptApart(t *testing.T) {
	big := agent.NewTool("big", "Says much.", func(_ context.Context, o order) (string, error) { return strings.Repeat(o.ID, 100), nil }, agent.MaxOutput(30))
	model := scripted(calls(call("big", `{"id":"A"}`)), calls(call("big", `{"id":"B"}`)), llm.Assistant("end"))
	clerk := agent.New("clerk", model, agent.Options{Tools: []agent.Tool{big}, Files: files.State()})
	perduretest.Virtual(t, flows(clerk), func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "flow", "go")
		e.Wait("t", perdure.Succeeded)
		files := map[string]bool{}
		for _, r := range said(t, e, "t") {
			if r.File != "" {
				files[r.File] = true
			}
		}
		if len(files) != 2 {
			t.Errorf("two outputs are in the files %v", files)
		}
	})
}

// TestDuplicateIdsAndATransferBesideOtherCalls: every call has its result.
func TestDuplicateIdsAndATransferBesideOtherCalls(t *testing.T) {
	var n tally
	second := scripted(llm.Assistant("end"))
	b := agent.New("b", second, agent.Options{})
	same := func(c llm.Call) llm.Call { c.ID = "same"; return c }
	m := calls(same(call("note", `{"id":"1"}`)), same(call("transfer_to_agent", `{"agent":"b"}`)), same(call("note", `{"id":"2"}`)), same(call("gone", `{}`)), call("note", `{`))
	a := agent.New("a", scripted(m), agent.Options{Tools: []agent.Tool{noted(&n, "note")}, Transfer: []agent.Agent{b}})
	perduretest.Virtual(t, flows(a), func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "flow", "go")
		e.Wait("t", perdure.Succeeded)
		n.want(t, "note:2")
		oneEach(t, said(t, e, "t"))
	})
}
