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

// Promise: an approval of three steps over three days, each by another person
// and in another session, with the steps that are done, how often it was
// resumed, and what went wrong on the way.
func TestSeedPersistenceThreeApprovalsOverDays(t *testing.T) {
	var n tally
	steps := []struct{ name, who string }{{"manager_approval", "manager"}, {"compliance_review", "compliance"}, {"cfo_sign", "cfo"}}
	var agents []agent.Agent
	for _, s := range steps {
		sign := agent.NewTool("sign", "Signs.", func(ctx context.Context, o order) (string, error) {
			n.add(s.name)
			if s.name == "compliance_review" && perduretest.Attempt(ctx) == 1 {
				return "", errors.New("the register is closed")
			}
			return "signed by " + s.who, nil
		}, agent.WithApproval(agent.Approval{Who: []string{s.who}}), agent.Retry(perdure.RetryPolicy{Attempts: 2, Wait: time.Hour}))
		agents = append(agents, agent.New(s.name, &brain{think: func(r *llm.Request) llm.Message {
			if replies(r) == 0 {
				return calls(call("sign", `{"id":"50K"}`))
			}
			return llm.Assistant(results(last(r)))
		}}, agent.Options{Tools: []agent.Tool{sign}}))
	}
	invoice := perdure.NewFlow("invoice", func(ctx context.Context, in string) (string, error) {
		if err := perdure.Plan(ctx, steps[0].name, steps[1].name, steps[2].name); err != nil {
			return "", err
		}
		out := ""
		for _, a := range agents {
			said, err := agent.Run(ctx, a, in)
			if err != nil {
				return "", err
			}
			out += said
		}
		return out, nil
	})
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{invoice}}, func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "invoice", "approve 50K")
		for i, s := range steps {
			ask := asked(t, e, "t", 1)[0]
			run, err := e.Runtime().GetRun(t.Context(), "t", "")
			if err != nil {
				t.Fatal(err)
			}
			done := ""
			for _, p := range run.Plan {
				done += fmt.Sprint(p.Name, " ", p.Done, ";")
			}
			want := ""
			for j, p := range steps {
				want += fmt.Sprint(p.name, " ", j < i, ";")
			}
			if done != want {
				t.Errorf("on day %d the plan is %s, want %s", i+1, done, want)
			}
			if run.Since.IsZero() {
				t.Error("nothing says since when it waits")
			}
			if i > 0 && run.Resumes == 0 {
				t.Error("nothing says that it was resumed")
			}
			wrong := perdure.AskAnswer{Ask: ask.ID, Answer: perdure.Answer{Decision: agent.DecisionApprove, By: "intern"}}
			if err := e.Runtime().Answer(t.Context(), wrong); !errors.Is(err, perdure.ErrForbidden) {
				t.Errorf("the intern approves as %s: %v", s.who, err)
			}
			e.Advance(24 * time.Hour)
			e.Restart()
			reply(t, e, ask, perdure.Answer{Decision: agent.DecisionApprove, By: s.who})
		}
		run := e.Wait("t", perdure.Succeeded)
		if got := text(t, run); got != "sign=signed by manager;sign=signed by compliance;sign=signed by cfo;" {
			t.Errorf("got %q", got)
		}
		if run.Resumes < 3 {
			t.Errorf("it was resumed %d times, want 3 at least", run.Resumes)
		}
		if len(run.Errors) != 1 || !strings.Contains(run.Errors[0].Error, "the register is closed") || !strings.Contains(run.Errors[0].Path, "compliance_review") {
			t.Errorf("the error log is %v", run.Errors)
		}
	})
	n.want(t, "cfo_sign:1 compliance_review:2 manager_approval:1")
}

// Promise: two tabs on one session do not overwrite each other. Here none has
// to reload: one is refused with the run that is busy, waits its turn, or is
// heard by the agent at work.
func TestSeedPersistenceTwoTabsDoNotLoseUpdates(t *testing.T) {
	var n tally
	model := &brain{think: func(r *llm.Request) llm.Message {
		if last(r).Text() == "one" {
			return calls(call("pay", `{"id":"1"}`))
		}
		var heard []string
		for _, m := range r.Messages {
			if m.Role == llm.RoleUser {
				heard = append(heard, m.Text())
			}
		}
		return llm.Assistant(strings.Join(heard, ","))
	}}
	clerk := agent.New("clerk", model, agent.Options{Tools: []agent.Tool{noted(&n, "pay", agent.NeedsApproval())}})
	start := func(t *testing.T, e *perduretest.Env, in string, p perdure.Policy) (*perdure.Run, error) {
		return e.Runtime().Start(t.Context(), perdure.StartRequest{Thread: "t", Flow: "flow", Input: in, Policy: p})
	}
	for _, policy := range []perdure.Policy{perdure.Reject, perdure.Enqueue, perdure.Steer} {
		t.Run(string(policy), func(t *testing.T) {
			n = tally{}
			perduretest.Virtual(t, flows(clerk), func(t *testing.T, e *perduretest.Env) {
				first, err := start(t, e, "one", policy)
				if err != nil {
					t.Fatal(err)
				}
				ask := asked(t, e, "t", 1)[0]
				second, err := start(t, e, "two", policy)
				if policy == perdure.Reject {
					busy, ok := errors.AsType[*perdure.BusyError](err)
					if !ok || busy.Run != first.ID {
						t.Errorf("the second tab gets %v, want that run %s is busy", err, first.ID)
					}
				} else if err != nil {
					t.Fatal(err)
				}
				e.Restart()
				reply(t, e, ask, perdure.Answer{Decision: agent.DecisionApprove})
				run, err := e.Runtime().WaitEnd(t.Context(), "t", first.ID)
				if err != nil {
					t.Fatal(err)
				}
				want := map[perdure.Policy]string{perdure.Reject: "one", perdure.Enqueue: "one", perdure.Steer: "one,two"}[policy]
				if got := text(t, run); got != want {
					t.Errorf("the first says %q, want %q", got, want)
				}
				if policy != perdure.Enqueue {
					return
				}
				if run, err = e.Runtime().WaitEnd(t.Context(), "t", second.ID); err != nil {
					t.Fatal(err)
				}
				if got := text(t, run); got != "one,two" {
					t.Errorf("the second says %q, which does not know the first", got)
				}
			})
			n.want(t, "pay:1")
		})
	}
}
