package agent_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/perduretest"
)

// Promise: a sequential agent reads which sub-agent was at work and goes on
// there. Those before it are not asked again, and their words are there.
func TestSeedADKSequentialResumesAtTheNextAgent(t *testing.T) {
	var n tally
	plan := teller(&n, "plan", false, "the plan", agent.Options{OutputKey: "plan"})
	draft := teller(&n, "draft", true, "the draft", agent.Options{Instruction: "Follow {plan}."})
	check := teller(&n, "check", false, "checked", agent.Options{})
	play(t, agent.Sequential("all", plan, draft, check), func(t *testing.T, e *perduretest.Env) {
		e.Advance(time.Second) // it hangs in the second one
		e.Restart()
		if got := text(t, e.Wait("t", perdure.Succeeded)); got != "checked" {
			t.Errorf("got %q", got)
		}
	})
	n.want(t, "check:1 draft:2 plan:1")
}

// Promise: a loop goes on from the round and the child where it was. The
// children of finished rounds, and those before it in its round, do not run.
func TestSeedADKLoopResumesInItsRoundAtItsChild(t *testing.T) {
	var n tally
	round := func(in agent.Content) string { return fmt.Sprint(strings.Count(in.Text(), "+")) }
	child := func(name string, dies string) agent.Agent {
		return agent.Func(name, func(ctx context.Context, in agent.Content) (string, error) {
			return perdure.Step(ctx, "work", func(ctx context.Context) (string, error) {
				at := name + round(in)
				if n.add(at) == 1 && at == dies {
					return "", hang(ctx)
				}
				return in.Text() + "+", nil
			})
		})
	}
	loop := agent.Loop("loop", 3, child("critic", ""), child("writer", "writer3"))
	perduretest.Virtual(t, flows(loop), func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "flow", "x")
		e.Advance(time.Second)
		e.Restart()
		if got := text(t, e.Wait("t", perdure.Succeeded)); got != "x++++++" {
			t.Errorf("after three rounds of two it says %q", got)
		}
	})
	n.want(t, "critic0:1 critic2:1 critic4:1 writer1:1 writer3:2 writer5:1")
}

// Promise: a parallel agent runs only the children that have not finished.
func TestSeedADKParallelRunsOnlyUnfinishedChildren(t *testing.T) {
	var n tally
	all := agent.Parallel("all", teller(&n, "a", false, "A", agent.Options{}), teller(&n, "b", true, "B", agent.Options{}), teller(&n, "c", false, "C", agent.Options{}))
	play(t, all, func(t *testing.T, e *perduretest.Env) {
		e.Advance(time.Second)
		e.Restart()
		if got := string(e.Wait("t", perdure.Succeeded).Output); got != `{"a":"A","b":"B","c":"C"}` {
			t.Errorf("got %s", got)
		}
	})
	n.want(t, "a:1 b:2 c:1")
}

// Where the peer fails: its parallel children stay marked as finished from the
// round before, and a crash in a later round skips them.
func TestSeedADKParallelInsideLoopRunsAllChildrenOfALaterRound(t *testing.T) {
	var n tally
	child := func(name, dies string) agent.Agent {
		return agent.Func(name, func(ctx context.Context, in agent.Content) (string, error) {
			return perdure.Step(ctx, "work", func(ctx context.Context) (string, error) {
				at := fmt.Sprintf("%s%d", name, strings.Count(in.Text(), "["+name+"]"))
				if n.add(at) == 1 && at == dies {
					return "", hang(ctx)
				}
				return in.Text(), nil
			})
		})
	}
	loop := agent.Loop("loop", 2, agent.Parallel("both", child("l", ""), child("r", "r1")))
	perduretest.Virtual(t, flows(loop), func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "flow", "x")
		e.Advance(time.Second)
		e.Restart()
		e.Wait("t", perdure.Succeeded)
	})
	n.want(t, "l0:1 l1:1 r0:1 r1:2")
}

func abc(n *tally) []agent.Tool {
	c := agent.NewTool("c", "Does c.", func(ctx context.Context, o order) (string, error) {
		if n.add("c") == 1 {
			return "", hang(ctx)
		}
		return "c " + o.ID, nil
	})
	return []agent.Tool{noted(n, "a"), noted(n, "b"), c}
}

// Promise: results of tools A and B are reinstated, and C, during which the
// process died, runs again.
func TestSeedADKToolsAandBAreReinstatedAndCRunsAgain(t *testing.T) {
	one := func(name string) llm.Message { return calls(call(name, `{"id":"1"}`)) }
	cases := map[string][]llm.Message{
		"a call a message": {one("a"), one("b"), one("c"), llm.Assistant("done")},
		// The peer writes the results of one message together, and loses those of
		// A and B here.
		"all in one message": {calls(call("a", `{"id":"1"}`), call("b", `{"id":"1"}`), call("c", `{"id":"1"}`)), llm.Assistant("done")},
	}
	for name, ms := range cases {
		t.Run(name, func(t *testing.T) {
			var n tally
			model := scripted(ms...)
			play(t, agent.New("clerk", model, agent.Options{Tools: abc(&n)}), func(t *testing.T, e *perduretest.Env) {
				e.Advance(time.Second)
				e.Restart()
				e.Wait("t", perdure.Succeeded)
			})
			n.want(t, "a:1 b:1 c:2")
			if got := len(model.requests()); got != len(ms) {
				t.Errorf("the model was asked %d times for %d replies", got, len(ms))
			}
			all := ""
			seen := model.requests()
			for _, m := range seen[len(seen)-1].Messages {
				all += results(m)
			}
			if all != "a=a 1;b=b 1;c=c 1;" {
				t.Errorf("in the end the model read %q", all)
			}
		})
	}
}

// Promise: a custom agent with steps of its own can be resumed. Here it needs
// no state class and no checkpoints: its steps are enough.
func TestSeedADKCustomAgentResumesByItsSteps(t *testing.T) {
	var n tally
	step := func(ctx context.Context, name string) (string, error) {
		return perdure.Step(ctx, name, func(ctx context.Context) (string, error) {
			if n.add(name) == 1 && name == "publish" {
				return "", hang(ctx)
			}
			return name, nil
		})
	}
	writer := teller(&n, "writer", false, "a story", agent.Options{})
	custom := agent.Func("custom", func(ctx context.Context, in agent.Content) (string, error) {
		if _, err := step(ctx, "outline"); err != nil {
			return "", err
		}
		story, err := agent.Run(ctx, writer, in)
		if err != nil {
			return "", err
		}
		_, err = step(ctx, "publish")
		return story + ", published", err
	})
	play(t, custom, func(t *testing.T, e *perduretest.Env) {
		e.Advance(time.Second)
		e.Restart()
		if got := text(t, e.Wait("t", perdure.Succeeded)); got != "a story, published" {
			t.Errorf("got %q", got)
		}
	})
	n.want(t, "outline:1 publish:2 writer:1")
}

// Promise: a long-running function pauses the agent; how it goes on can be
// told, and its result comes later, to another process. The function is not
// called again.
func TestSeedADKLongRunningFunctionIsAnsweredInAnotherProcess(t *testing.T) {
	var n tally
	ship := agent.NewTool("ship", "Ships.", func(ctx context.Context, o order) (string, error) {
		n.add("ship")
		agent.Progress(ctx, "packed")
		return "", agent.Pending("parcel-" + o.ID)
	})
	model := scripted(calls(call("ship", `{"id":"7"}`), call("note", `{"id":"7"}`)), llm.Assistant("done"))
	clerk := agent.New("clerk", model, agent.Options{Tools: []agent.Tool{ship, noted(&n, "note")}})
	play(t, clerk, func(t *testing.T, e *perduretest.Env) {
		ask := asked(t, e, "t", 1)[0]
		if ask.Kind != agent.KindPending || !strings.Contains(string(ask.Data), "parcel-7") {
			t.Errorf("the ask is %s with %s", ask.Kind, ask.Data)
		}
		e.Advance(30 * time.Hour)
		e.Restart()
		if err := e.Runtime().Progress(t.Context(), ask.ID, "half way", perdure.Note{}); err != nil {
			t.Fatal(err)
		}
		if got := asked(t, e, "t", 1)[0].Progress; got != 1 {
			t.Errorf("the ask has %d news, want 1", got)
		}
		if len(model.requests()) != 1 {
			t.Error("the model was asked before the call had its result")
		}
		e.Restart()
		reply(t, e, ask, perdure.Answer{Value: map[string]any{"delivered": true}, By: "carrier"})
		e.Wait("t", perdure.Succeeded)
		seen := model.requests()
		if got := results(last(&seen[1])); got != `ship={"delivered":true};note=note 7;` {
			t.Errorf("the model read %q", got)
		}
		for _, r := range said(t, e, "t") {
			if len(r.Message.Parts) > 0 && r.Message.Parts[0].Result != nil && r.Message.Parts[0].Result.Name == "ship" {
				if r.Pending != "parcel-7" || r.By != "carrier" || len(r.Progress) != 1 {
					t.Errorf("the record does not say what it was: %s", raw(r))
				}
			}
		}
	})
	n.want(t, "note:1 ship:1")
}

// Promise: none; the document says that a stopped workflow must not be changed.
// Here a change is found out before anything runs, and the old code goes on.
func TestSeedADKChangedWorkflowIsBlockedNotGuessed(t *testing.T) {
	var n tally
	gate := agent.New("gate", scripted(calls(call("pay", `{"id":"1"}`)), llm.Assistant("paid")), agent.Options{Tools: []agent.Tool{noted(&n, "pay", agent.NeedsApproval())}})
	first := teller(&n, "first", false, "1", agent.Options{})
	extra := teller(&n, "extra", false, "2", agent.Options{})
	changes := map[string]agent.Agent{
		"another one before it": agent.Sequential("all", extra, first, gate),
		"one is gone":           agent.Sequential("all", gate),
		"another order":         agent.Sequential("all", gate, first),
	}
	for name, changed := range changes {
		t.Run(name, func(t *testing.T) {
			n = tally{}
			play(t, agent.Sequential("all", first, gate), func(t *testing.T, e *perduretest.Env) {
				ask := asked(t, e, "t", 1)[0]
				e.Stop()
				rt, err := perdure.New(t.Context(), e.Store, perdure.Options{Version: "2", Lease: time.Minute}, agent.NewFlow("flow", changed))
				if err != nil {
					t.Fatal(err)
				}
				if err := rt.Answer(t.Context(), perdure.AskAnswer{Ask: ask.ID, Answer: perdure.Answer{Decision: agent.DecisionApprove}}); err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithCancel(t.Context())
				worked := make(chan error)
				go func() { worked <- rt.Work(ctx) }()
				run, err := rt.Wait(t.Context(), "t", "")
				if err != nil || run.Status != perdure.Blocked || run.Diff == "" {
					t.Errorf("the run is %s (%v), diff %q", run.Status, err, run.Diff)
				}
				stop()
				if err := <-worked; err != nil {
					t.Error(err)
				}
				n.want(t, "first:1")
				e.Restart() // the code that fits
				if err := e.Runtime().Retry(t.Context(), "t", "", perdure.Note{}); err != nil && !errors.Is(err, perdure.ErrNothingToDo) {
					t.Error(err) // a worker with other code may have tried it by itself
				}
				if got := text(t, e.Wait("t", perdure.Succeeded)); got != "paid" {
					t.Errorf("got %q", got)
				}
			})
			n.want(t, "first:1 pay:1")
		})
	}
}

// Promise: confirmations. Here also after the process changed, and with edited
// arguments, which the peer cannot do.
func TestSeedADKConfirmationAfterAProcessChange(t *testing.T) {
	cases := []struct {
		answer perdure.Answer
		want   string
		runs   string
	}{
		{perdure.Answer{Decision: agent.DecisionApprove}, "pay=pay 1;", "pay:1"},
		{perdure.Answer{Decision: agent.DecisionEdit, Value: order{ID: "2"}}, "pay=[A person changed the arguments before the call was made. It was made with {\"id\":\"2\"}. The result:]\npay 2;", "pay:1"},
		{perdure.Answer{Decision: agent.DecisionReject, Message: "no money", By: "ann"}, "pay=The call was rejected by ann and was not made: no money\nDo not make the same call again.;", ""},
		{perdure.Answer{Decision: agent.DecisionRespond, Value: "paid by hand"}, "pay=paid by hand;", ""},
	}
	for _, c := range cases {
		t.Run(c.answer.Decision, func(t *testing.T) {
			var n tally
			model := scripted(calls(call("pay", `{"id":"1"}`)), llm.Assistant("done"))
			clerk := agent.New("clerk", model, agent.Options{Tools: []agent.Tool{noted(&n, "pay", agent.NeedsApproval())}})
			play(t, clerk, func(t *testing.T, e *perduretest.Env) {
				ask := asked(t, e, "t", 1)[0]
				e.Restart()
				e.Stop() // a kill in the middle of the call would let it run twice
				reply(t, e, ask, c.answer)
				e.Restart()
				e.Wait("t", perdure.Succeeded)
				// The same answer again has no second effect, another one is refused.
				if err := e.Runtime().Answer(t.Context(), perdure.AskAnswer{Ask: ask.ID, Answer: c.answer}); err != nil {
					t.Errorf("the same answer again: %v", err)
				}
				other := perdure.AskAnswer{Ask: ask.ID, Answer: perdure.Answer{Decision: agent.DecisionRespond, Value: "other"}}
				if err := e.Runtime().Answer(t.Context(), other); !errors.Is(err, perdure.ErrAnswered) {
					t.Errorf("another answer: %v", err)
				}
			})
			n.want(t, c.runs)
			seen := model.requests()
			if got := results(last(&seen[len(seen)-1])); got != c.want {
				t.Errorf("the model read %q, want %q", got, c.want)
			}
		})
	}
}

// TestSeedADKAnotherOrderOfFunctionsIsBlocked: agents of code have no message
// that is recorded, and are told apart by what they are given.
func TestSeedADKAnotherOrderOfFunctionsIsBlocked(t *testing.T) {
	one := agent.Func("one", func(ctx context.Context, in agent.Content) (string, error) { return in.Text() + "1", nil })
	two := agent.Func("two", func(ctx context.Context, in agent.Content) (string, error) {
		_, err := perdure.Ask[bool](ctx, "ok", perdure.Question{})
		return in.Text() + "2", err
	})
	perduretest.Virtual(t, flows(agent.Sequential("all", one, two)), func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "flow", "x")
		asked(t, e, "t", 1)
		e.Stop()
		rt, err := perdure.New(t.Context(), e.Store, perdure.Options{Version: "2", Lease: time.Minute}, agent.NewFlow("flow", agent.Sequential("all", two, one)))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		worked := make(chan error)
		go func() { worked <- rt.Work(ctx) }()
		e.Answer("t", "/all/two/ok", perdure.Answer{Value: true})
		run, err := rt.Wait(t.Context(), "t", "")
		if err != nil || run.Status != perdure.Blocked {
			t.Errorf("the run is %s with %s, %v", run.Status, run.Output, err)
		}
		stop()
		if err := <-worked; err != nil {
			t.Error(err)
		}
	})
}
