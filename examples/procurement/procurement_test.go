package procurement_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/examples/procurement"
	"github.com/perdure/perdure/perduretest"
)

func yes(by string) perdure.Answer { return perdure.Answer{Decision: agent.DecisionApprove, By: by} }

// stage returns how far the run is, as a person is told.
func stage(run *perdure.Run) string {
	done := 0
	for _, s := range run.Plan {
		if s.Done {
			done++
		}
	}
	return fmt.Sprintf("step %d of %d: %s", done+1, len(run.Plan), run.Plan[done].Name)
}

// TestThreeApprovalsOverThreeDays has a manager who does not answer, a process
// that is killed each day, and a supplier who gets one order.
func TestThreeApprovalsOverThreeDays(t *testing.T) {
	book := procurement.FileSupplier(filepath.Join(t.TempDir(), "orders.jsonl"))
	flow := procurement.Flow(procurement.Options{Pace: 50 * time.Millisecond, Supplier: book})
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{flow}}, func(t *testing.T, e *perduretest.Env) {
		waits := func(stageWant, who string) perdure.AskInfo {
			t.Helper()
			run := e.Wait("t", perdure.Suspended)
			if len(run.Asks) != 1 || stage(run) != stageWant || !cmp.Equal(run.Asks[0].Who, []string{who}) {
				t.Fatalf("%s, with the asks %+v, want %s of %s", stage(run), run.Asks, stageWant, who)
			}
			return run.Asks[0]
		}
		e.Start("t", "procurement", procurement.Invoice)
		ask := waits("step 1 of 3: budget", "manager")
		if err := e.Runtime().Answer(t.Context(), perdure.AskAnswer{Ask: ask.ID, Answer: yes("cfo")}); !errors.Is(err, perdure.ErrForbidden) {
			t.Errorf("the answer of someone else: %v", err)
		}
		e.Advance(25 * time.Hour)
		waits("step 1 of 3: budget", "deputy-manager")
		e.Restart()
		e.Answer("t", "/budget/ask-deputy", yes("deputy-manager"))
		waits("step 2 of 3: compliance", "compliance")
		e.Advance(20 * time.Hour)
		e.Restart()
		e.Answer("t", "/compliance/ask", yes("compliance"))
		waits("step 3 of 3: signature", "cfo")
		e.Advance(20 * time.Hour)
		e.Restart()
		e.Answer("t", "/signature/ask", yes("cfo"))
		out, err := perdure.Output[procurement.Outcome](e.Wait("t", perdure.Succeeded))
		want := procurement.Outcome{Ordered: true, Letter: "Dear supplier, we confirm our order PO-1. Please deliver to the usual address, and send the final invoice with this number."}
		if err != nil || out != want {
			t.Errorf("got %+v, %v", out, err)
		}

		asked := map[string]int{}
		for ev, err := range e.Runtime().Events(t.Context(), "t", perdure.EventOptions{Replay: true}) {
			if err != nil {
				t.Fatal(err)
			}
			if ev.Kind == "asked" {
				asked[ev.Path]++
			}
		}
		if want := map[string]int{"/budget/ask": 1, "/budget/ask-deputy": 1, "/compliance/ask": 1, "/signature/ask": 1}; !cmp.Equal(asked, want) {
			t.Errorf("it asked %v", asked)
		}
		at, err := e.Runtime().StateAt(t.Context(), "t", 0)
		if err != nil {
			t.Fatal(err)
		}
		facts := map[string]string{}
		for k, v := range at.Facts {
			facts[k] = string(v)
		}
		if diff := cmp.Diff(facts, map[string]string{
			"supplier": `"S-204"`, "total": `31200`,
			"decided": `["budget: approve by deputy-manager","compliance: approve by compliance","signature: approve by cfo"]`,
		}); diff != "" {
			t.Errorf("the facts: %s", diff)
		}
	})
}

// TestNoAnswerIsANo lets two days pass.
func TestNoAnswerIsANo(t *testing.T) {
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{procurement.Flow(procurement.Options{})}}, func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "procurement", procurement.Invoice)
		e.Advance(49 * time.Hour)
		out, err := perdure.Output[procurement.Outcome](e.Wait("t", perdure.Succeeded))
		if want := (procurement.Outcome{Why: "no budget"}); err != nil || out != want {
			t.Errorf("got %+v, %v", out, err)
		}
	})
}

// TestANoEndsIt rejects at the second of three.
func TestANoEndsIt(t *testing.T) {
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{procurement.Flow(procurement.Options{})}}, func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "procurement", procurement.Invoice)
		e.Answer("t", "/budget/ask", yes("manager"))
		e.Answer("t", "/compliance/ask", perdure.Answer{Decision: agent.DecisionReject, By: "compliance"})
		out, err := perdure.Output[procurement.Outcome](e.Wait("t", perdure.Succeeded))
		if want := (procurement.Outcome{Why: "no compliance"}); err != nil || out != want {
			t.Errorf("got %+v, %v", out, err)
		}
	})
}

// counter is a supplier who counts, and remembers.
type counter struct{ fx *perduretest.Effects }

func (c counter) Order(ctx context.Context, key string, o procurement.Order) (string, error) {
	c.fx.CountOnce(ctx, "order")
	return "PO-7", nil
}

func (c counter) Find(ctx context.Context, key string) (string, error) {
	if c.fx.Of("order") == 0 {
		return "", nil
	}
	return "PO-7", nil
}

// TestSurvivesACrashAnywhere cuts it at every write; the manager never answers.
// A day is short here, but longer than a crash takes: workers count its seconds.
func TestSurvivesACrashAnywhere(t *testing.T) {
	var fx perduretest.Effects
	perduretest.CrashEverywhere(t, perduretest.Crash{
		Flows:   []perdure.Flow{procurement.Flow(procurement.Options{Supplier: counter{&fx}, Patience: 5 * time.Minute})},
		Start:   []perdure.StartRequest{{Flow: "procurement", Input: procurement.Invoice}},
		Effects: &fx,
		Want:    perdure.Succeeded,
		Outside: func(ctx context.Context, rt *perdure.Runtime, run *perdure.Run) error {
			for _, a := range run.Asks {
				if a.Who[0] == "manager" {
					return nil
				}
				if err := rt.Answer(ctx, perdure.AskAnswer{Ask: a.ID, Answer: yes(a.Who[0])}); err != nil {
					return err
				}
			}
			return nil
		},
	})
}
