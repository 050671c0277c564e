package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/perduretest"
)

// payer is an agent that pays once, if it may.
func payer(n *tally, a agent.Approval) agent.Agent {
	return agent.New("clerk", &brain{think: func(r *llm.Request) llm.Message {
		if replies(r) == 0 {
			return calls(call("pay", `{"id":"1"}`))
		}
		return llm.Assistant(results(last(r)))
	}}, agent.Options{Tools: []agent.Tool{noted(n, "pay", agent.WithApproval(a))}})
}

// TestForgedAnswersAreRefused and leave the run as it is.
func TestForgedAnswersAreRefused(t *testing.T) {
	var n tally
	perduretest.Virtual(t, flows(payer(&n, agent.Approval{Who: []string{"ann"}, Decisions: []string{agent.DecisionApprove, agent.DecisionReject, agent.DecisionEdit}})), func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "flow", "go")
		e.Start("other", "flow", "go")
		ask, other := asked(t, e, "t", 1)[0], asked(t, e, "other", 1)[0]
		approve := perdure.Answer{Decision: agent.DecisionApprove, By: "ann"}
		edit := func(v any) perdure.Answer {
			return perdure.Answer{Decision: agent.DecisionEdit, Value: v, By: "ann"}
		}
		cases := map[string]struct {
			answers []perdure.AskAnswer
			want    error
		}{
			"by nobody":                   {[]perdure.AskAnswer{{Ask: ask.ID, Answer: perdure.Answer{Decision: agent.DecisionApprove}}}, perdure.ErrForbidden},
			"by another":                  {[]perdure.AskAnswer{{Ask: ask.ID, Answer: perdure.Answer{Decision: agent.DecisionApprove, By: "Ann"}}}, perdure.ErrForbidden},
			"an unknown decision":         {[]perdure.AskAnswer{{Ask: ask.ID, Answer: perdure.Answer{Decision: "APPROVE", By: "ann"}}}, perdure.ErrAnswer},
			"no decision":                 {[]perdure.AskAnswer{{Ask: ask.ID, Answer: perdure.Answer{Value: true, By: "ann"}}}, perdure.ErrAnswer},
			"a decision that is not open": {[]perdure.AskAnswer{{Ask: ask.ID, Answer: perdure.Answer{Decision: agent.DecisionRespond, Value: "x", By: "ann"}}}, perdure.ErrAnswer},
			"always, which is not open":   {[]perdure.AskAnswer{{Ask: ask.ID, Answer: perdure.Answer{Decision: agent.DecisionAlways, By: "ann"}}}, perdure.ErrAnswer},
			"approve with a value":        {[]perdure.AskAnswer{{Ask: ask.ID, Answer: perdure.Answer{Decision: agent.DecisionApprove, Value: order{ID: "2"}, By: "ann"}}}, perdure.ErrAnswer},
			"edit without arguments":      {[]perdure.AskAnswer{{Ask: ask.ID, Answer: edit(nil)}}, perdure.ErrAnswer},
			"edit with more":              {[]perdure.AskAnswer{{Ask: ask.ID, Answer: edit(map[string]any{"id": "1", "x": 1})}}, perdure.ErrAnswer},
			"edit out of bounds":          {[]perdure.AskAnswer{{Ask: ask.ID, Answer: edit(order{ID: "1", Amount: 1000})}}, perdure.ErrAnswer},
			"an unknown ask":              {[]perdure.AskAnswer{{Ask: ask.ID + "x", Answer: approve}}, perdure.ErrNoAsk},
			"no ask":                      {[]perdure.AskAnswer{{Answer: approve}}, perdure.ErrNoAsk},
			"a path":                      {[]perdure.AskAnswer{{Ask: "../" + ask.ID, Answer: approve}}, perdure.ErrNoAsk},
		}
		for name, c := range cases {
			if err := e.Runtime().Answer(t.Context(), c.answers...); !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
		}
		// Asks of two threads, or one good and one bad: all or none.
		if err := e.Runtime().Answer(t.Context(), perdure.AskAnswer{Ask: ask.ID, Answer: approve}, perdure.AskAnswer{Ask: other.ID, Answer: approve}); err == nil {
			t.Error("asks of two threads were answered together")
		}
		if err := e.Runtime().Tenant("evil").Answer(t.Context(), perdure.AskAnswer{Ask: ask.ID, Answer: approve}); !errors.Is(err, perdure.ErrNoAsk) {
			t.Errorf("another tenant answers: %v", err)
		}
		e.Restart()
		asked(t, e, "t", 1)
		n.want(t, "")
		reply(t, e, ask, approve)
		e.Wait("t", perdure.Succeeded)
		asked(t, e, "other", 1) // the answer was for one thread
	})
	n.want(t, "pay:1")
}

// TestForkNeedsAnApprovalOfItsOwn: its ask has another id, and what was answered
// on the other thread later does not reach it.
func TestForkNeedsAnApprovalOfItsOwn(t *testing.T) {
	var n tally
	perduretest.Virtual(t, flows(payer(&n, agent.Approval{})), func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "flow", "go")
		ask := asked(t, e, "t", 1)[0]
		if _, err := e.Runtime().Fork(t.Context(), perdure.ForkRequest{Thread: "t", As: "fork"}); err != nil {
			t.Fatal(err)
		}
		reply(t, e, ask, perdure.Answer{Decision: agent.DecisionApprove})
		e.Wait("t", perdure.Succeeded)
		if err := e.Runtime().Resume(t.Context(), "fork", "", perdure.Note{}); err != nil {
			t.Fatal(err)
		}
		mine := asked(t, e, "fork", 1)[0]
		if mine.ID == ask.ID {
			t.Error("the fork's ask has the same id")
		}
		n.want(t, "pay:1")
		reply(t, e, mine, perdure.Answer{Decision: agent.DecisionReject})
		e.Wait("fork", perdure.Succeeded)
	})
	n.want(t, "pay:1")
}

// TestForkReplaysNoApproval: wherever a thread is forked on the way from the
// question to the call's result, also behind a rule that is revoked since, the
// call is made there only when someone approves it there.
func TestForkReplaysNoApproval(t *testing.T) {
	for _, decision := range []string{agent.DecisionApprove, agent.DecisionAlways, agent.DecisionEdit, agent.DecisionReject} {
		var n tally
		all := agent.Approval{Decisions: []string{agent.DecisionApprove, agent.DecisionAlways, agent.DecisionEdit, agent.DecisionReject}}
		perduretest.Virtual(t, flows(payer(&n, all)), func(t *testing.T, e *perduretest.Env) {
			rt, rules := e.Runtime(), agent.RulesOf(e.Runtime())
			e.Start("t", "flow", "go")
			answer := perdure.Answer{Decision: decision, By: "ann"}
			if decision == agent.DecisionEdit {
				answer.Value = json.RawMessage(`{"id":"2"}`)
			}
			reply(t, e, asked(t, e, "t", 1)[0], answer)
			e.Wait("t", perdure.Succeeded)
			list, err := rules.List(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range list {
				if err := rules.Revoke(t.Context(), r.ID, "ann"); err != nil {
					t.Fatal(err)
				}
			}
			made := n.of("pay")
			open, forked := false, 0
			for ev, err := range rt.Events(t.Context(), "t", perdure.EventOptions{Replay: true}) {
				if err != nil {
					t.Fatal(err)
				}
				open = open && !(ev.Kind == "step" && (strings.HasSuffix(ev.Path, "/run") || strings.HasSuffix(ev.Path, "/result"))) || ev.Kind == "answered"
				if !open {
					continue
				}
				forked++
				as := fmt.Sprint("fork-", ev.Seq)
				if _, err := rt.Fork(t.Context(), perdure.ForkRequest{Thread: "t", At: ev.Seq, As: as}); err != nil {
					t.Fatal(err)
				}
				if err := rt.Resume(t.Context(), as, "", perdure.Note{}); err != nil {
					t.Fatal(err)
				}
				ask := asked(t, e, as, 1)[0]
				if n.of("pay") != made {
					t.Fatalf("%s: the fork at %d made the call by itself\n%s", decision, ev.Seq, e.Trace(as))
				}
				reply(t, e, ask, perdure.Answer{Decision: agent.DecisionApprove, By: "bob"})
				e.Wait(as, perdure.Succeeded)
				if made++; n.of("pay") != made {
					t.Fatalf("%s: the fork at %d made %d calls", decision, ev.Seq, n.of("pay")-made+1)
				}
				at, err := rt.StateAt(t.Context(), as, 0)
				if err != nil {
					t.Fatal(err)
				}
				records, err := agent.Transcript(at.State)
				if i := slices.IndexFunc(records, func(r agent.Record) bool { return r.Decision != "" }); err != nil || i < 0 || records[i].By != "bob" {
					t.Errorf("%s: the transcript of the fork says %+v %v", decision, records, err)
				}
			}
			if forked == 0 {
				t.Error("there was nothing to be forked")
			}
		})
	}
}

// TestApprovalIsOfThisCall: each call of the same tool with the same arguments
// has an ask of its own, whose guard is the hash of this call alone.
func TestApprovalIsOfThisCall(t *testing.T) {
	var n tally
	same := call("pay", `{"id":"1"}`)
	model := scripted(calls(same, same), calls(same), llm.Assistant("done"))
	clerk := agent.New("clerk", model, agent.Options{Tools: []agent.Tool{noted(&n, "pay", agent.NeedsApproval())}})
	perduretest.Virtual(t, flows(clerk), func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "flow", "go")
		asks := asked(t, e, "t", 2)
		reply(t, e, asks[0], perdure.Answer{Decision: agent.DecisionApprove})
		asked(t, e, "t", 1)
		n.want(t, "pay:1")
		reply(t, e, asks[1], perdure.Answer{Decision: agent.DecisionApprove})
		asks = append(asks, asked(t, e, "t", 1)...)
		n.want(t, "pay:2")
		guards := map[string]bool{}
		for _, a := range asks {
			guards[a.Guards] = true
		}
		if len(guards) != 3 || guards[""] {
			t.Errorf("three calls have the guards %v", guards)
		}
		reply(t, e, asks[2], perdure.Answer{Decision: agent.DecisionApprove})
		e.Wait("t", perdure.Succeeded)
	})
}

// TestWhatIsShownIsWhatRuns: the arguments in the ask are those that the tool
// gets, however the model writes them.
func TestWhatIsShownIsWhatRuns(t *testing.T) {
	for _, args := range []string{`{"id":"shown","id":"run"}`, `{"amount":7,"id":"\u0078"}`, ` { "id" : "x" } `, `{"id":"<b>&\u2028"}`} {
		var got order
		pay := agent.NewTool("pay", "Pays.", func(_ context.Context, o order) (string, error) { got = o; return "", nil }, agent.NeedsApproval())
		clerk := agent.New("clerk", scripted(calls(call("pay", args)), llm.Assistant("done")), agent.Options{Tools: []agent.Tool{pay}})
		perduretest.Virtual(t, flows(clerk), func(t *testing.T, e *perduretest.Env) {
			e.Start("t", "flow", "go")
			ask := asked(t, e, "t", 1)[0]
			reply(t, e, ask, perdure.Answer{Decision: agent.DecisionApprove})
			e.Wait("t", perdure.Succeeded)
			var shown struct{ Args order }
			decode(t, ask.Data, &shown)
			if shown.Args != got {
				t.Errorf("of %s the person saw %v and the tool got %v", args, shown.Args, got)
			}
		})
	}
}

// TestExpiredApprovalTakesItsDefault, which is no without one.
func TestExpiredApprovalTakesItsDefault(t *testing.T) {
	for _, c := range []struct{ def, want, runs string }{
		{"", "in time", ""},
		{agent.DecisionReject, "in time", ""},
		{agent.DecisionApprove, "pay 1", "pay:1"},
	} {
		var n tally
		perduretest.Virtual(t, flows(payer(&n, agent.Approval{Expires: time.Hour, Default: c.def, Who: []string{"ann"}})), func(t *testing.T, e *perduretest.Env) {
			e.Start("t", "flow", "go")
			e.Advance(time.Minute)
			ask := asked(t, e, "t", 1)[0]
			e.Restart()
			if got := text(t, e.Wait("t", perdure.Succeeded)); !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			late := perdure.AskAnswer{Ask: ask.ID, Answer: perdure.Answer{Decision: agent.DecisionApprove, By: "ann"}}
			if err := e.Runtime().Answer(t.Context(), late); !errors.Is(err, perdure.ErrAskOver) {
				t.Errorf("a late answer: %v", err)
			}
		})
		n.want(t, c.runs)
	}
}
