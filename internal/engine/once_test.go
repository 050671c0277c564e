package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

func TestKeyIsTheSameOnEveryAttemptAndOtherwiseUnique(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		keys := map[string]map[string]bool{} // by thread, run and path
		note := func(where string, ctx context.Context) {
			mu.Lock()
			defer mu.Unlock()
			if keys[where] == nil {
				keys[where] = map[string]bool{}
			}
			keys[where][perdure.Key(ctx)] = true
		}
		var c kit.Tally
		flow := perdure.NewFlow("f", func(ctx context.Context, id string) (int, error) {
			leaf := func(where string) func(context.Context) (int, error) {
				return func(ctx context.Context) (int, error) {
					note(id+where, ctx)
					if c.Hit(id+where) < 3 {
						return 0, errSpec
					}
					return 1, nil
				}
			}
			_, err1 := perdure.Step(ctx, "x", leaf("/x"), retry(3, 10*time.Second))
			if errors.Is(err1, perdure.ErrSuspended) {
				return 0, err1
			}
			_, err2 := perdure.Step(ctx, "y", leaf("/y"), retry(3, 0))
			_, err3 := perdure.Scope(ctx, "s", func(ctx context.Context) (int, error) {
				return perdure.Step(ctx, "x", leaf("/s/x"), retry(3, 0))
			})
			g := perdure.NewGroup(ctx)
			for _, name := range []string{"a", "b"} {
				g.Go(name, func(ctx context.Context) error {
					_, err := perdure.Step(ctx, "x", leaf("/"+name+"/x"), retry(3, 0))
					return err
				})
			}
			return 1, errors.Join(err1, err2, err3, g.Wait())
		})
		k := kit.New(t, nil, perdure.Options{}, flow)
		for _, run := range []string{"t one", "t two", "u three"} {
			thread, _, _ := strings.Cut(run, " ")
			k.StartOn(thread, "f", run)
			k.WaitFor(thread, perdure.Succeeded)
		}
		all := map[string]string{}
		for where, of := range keys {
			if len(of) != 1 {
				t.Errorf("%s has the keys %v", where, of)
			}
			for key := range of {
				if key == "" || all[key] != "" {
					t.Errorf("%s has the key %q of %s", where, key, all[key])
				}
				all[key] = where
			}
		}
		if len(all) != 15 {
			t.Errorf("%d keys", len(all))
		}
	})
}

func TestOptionsOfAtMostOnceAreChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kit.RunOnce(t, perdure.Succeeded, func(ctx context.Context) error {
			rec := perdure.Reconcile(func(context.Context) (int, perdure.Outcome, error) { return 0, 0, nil })
			for what, opts := range map[string][]perdure.StepOption{
				"AtMostOnce without Timeout":   {perdure.AtMostOnce()},
				"Reconcile without AtMostOnce": {rec, perdure.Timeout(time.Second)},
				"negative Timeout":             {perdure.Timeout(-1)},
			} {
				var c kit.Tally
				if err := c.OK(ctx, "x", opts...); !errors.Is(err, perdure.ErrOption) || c.Of("x") != 0 {
					t.Errorf("%s: %v", what, err)
				}
			}
			return nil
		})
	})
}

func TestTheIntentIsRecordedBeforeTheFunctionStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k *kit.Kit
		k = kit.New(t, nil, perdure.Options{}, kit.FlowOf(func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "pay", func(ctx context.Context) (int, error) {
				k.WantLines("intent /pay")
				return 1, nil
			}, kit.AtMostOnce()...)
			return err
		}))
		k.StartOn("t", "f", struct{}{})
		k.WaitFor("t", perdure.Succeeded)
		if got, want := k.Trace("t"), "created\nqueued {}\nclaimed\nintent /pay\nstep /pay 1\nended {} succeeded\n"; got != want {
			t.Errorf("the journal is\n%s", got)
		}
	})
}

func TestOnlyNotDoneIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c kit.Tally
		k, _ := kit.RunOnce(t, perdure.Succeeded, func(ctx context.Context) error {
			err := c.Step(ctx, "heals", []error{perdure.NotDone(errSpec), perdure.NotDone(errSpec), nil}, kit.AtMostOnce(retry(3, 0))...)
			if err != nil {
				return err
			}
			// Out of attempts it fails, and nothing is unknown.
			if err := c.Step(ctx, "fails", []error{perdure.NotDone(errSpec)}, kit.AtMostOnce(retry(2, 0))...); err == nil || !strings.Contains(err.Error(), "boom") {
				t.Errorf("out of attempts: %v", err)
			}
			if err := c.Step(ctx, "fails once", []error{perdure.NotDone(errSpec)}, kit.AtMostOnce()...); err == nil {
				t.Error("no attempts left")
			}
			return nil
		})
		kit.NoDiff(t, cmp.Diff(map[string]int{"heals": 3, "fails": 2, "fails once": 1}, c.All()))
		if kinds := k.KindsOf("t"); kinds["intent"] != 6 || kinds["asked"] != 0 {
			t.Errorf("the journal is\n%s", k.Trace("t"))
		}
	})
}

// unknowns are the ways in which the outcome of an attempt is not known
// although its worker lives.
var unknowns = map[string]func(context.Context) (int, error){
	"error":   func(context.Context) (int, error) { return 0, errSpec },
	"panic":   func(context.Context) (int, error) { panic("boom") },
	"timeout": func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, context.Cause(ctx) },
}

func TestAnUnknownOutcomeIsAskedAbout(t *testing.T) {
	type want struct {
		status perdure.Status
		ran    int
		out    string
	}
	for how, fail := range unknowns {
		for decision, want := range map[string]want{
			perdure.DecisionDone:    {perdure.Succeeded, 1, "77"},
			perdure.DecisionNotDone: {perdure.Succeeded, 2, "5"},
			perdure.DecisionFail:    {perdure.Failed, 1, ""},
		} {
			kit.Bubble(t, how+" "+decision, func(t *testing.T) {
				ran := 0
				flow := perdure.NewFlow("f", func(ctx context.Context, _ struct{}) (int, error) {
					return perdure.Step(ctx, "pay", func(ctx context.Context) (int, error) {
						if ran++; ran > 1 {
							return 5, nil
						}
						return fail(ctx)
					}, kit.AtMostOnce(retry(5, 0))...)
				})
				k := kit.New(t, nil, perdure.Options{}, flow)
				k.StartOn("t", "f", struct{}{})
				run := k.WaitFor("t", perdure.Suspended)
				if len(run.Asks) != 1 {
					t.Fatalf("asks %+v", run.Asks)
				}
				ask := run.Asks[0]
				all := []string{perdure.DecisionDone, perdure.DecisionNotDone, perdure.DecisionFail}
				if ask.Kind != perdure.KindOutcome || ask.Path != "/pay" || !strings.Contains(ask.Prompt, "/pay") || !cmp.Equal(ask.Decisions, all) {
					t.Errorf("the ask is %+v", ask)
				}
				if len(run.Errors) == 0 {
					t.Error("the error log does not say what went wrong")
				}
				kit.WantErr(t, "another decision", k.Answer(t.Context(), perdure.AskAnswer{Ask: ask.ID, Answer: perdure.Answer{Decision: "maybe"}}), perdure.ErrAnswer)
				a := perdure.Answer{Decision: decision, Message: "looked it up", By: "ann"}
				if decision == perdure.DecisionDone {
					a.Value = 77
				}
				k.AnswerAt(run, "/pay", a)
				run = k.WaitFor("t", want.status)
				if ran != want.ran || string(run.Output) != want.out {
					t.Errorf("it ran %d times, output %s", ran, run.Output)
				}
				if decision == perdure.DecisionFail && (!errors.Is(run.Err, perdure.ErrUnknownOutcome) || !strings.Contains(run.Error, "looked it up")) {
					t.Errorf("error %v", run.Err)
				}
			})
		}
	}
}

// Whoever may allow a step also says what came of it, and sees what it is about.
func TestAskOutcomeSaysWhoDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ran := 0
		flow := perdure.NewFlow("f", func(ctx context.Context, _ struct{}) (int, error) {
			return perdure.Step(ctx, "pay", func(context.Context) (int, error) {
				if ran++; ran == 1 {
					return 0, errSpec
				}
				return 5, nil
			}, kit.AtMostOnce(perdure.AskOutcome(perdure.Question{Prompt: "Paid?", Data: map[string]string{"to": "bob"}, Who: []string{"group:staff"}}))...)
		})
		k := kit.New(t, nil, perdure.Options{}, flow)
		k.StartOn("t", "f", struct{}{})
		ask := k.WaitFor("t", perdure.Suspended).Asks[0]
		if ask.Kind != perdure.KindOutcome || ask.Prompt != "Paid?" || string(ask.Data) != `{"to":"bob"}` || len(ask.Decisions) != 3 {
			t.Errorf("the ask is %+v", ask)
		}
		answer := perdure.AskAnswer{Ask: ask.ID, Answer: perdure.Answer{Decision: perdure.DecisionNotDone, By: "eve"}}
		kit.WantErr(t, "anyone's answer", k.Answer(t.Context(), answer), perdure.ErrForbidden)
		answer.Groups = []string{"staff"}
		kit.WantErr(t, "an answer of staff", k.Answer(t.Context(), answer), nil)
		kit.WantOutput(t, k.WaitFor("t", perdure.Succeeded), 5)
	})
}

func TestADoneAnswerOfTheWrongKindIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flow := perdure.NewFlow("f", func(ctx context.Context, _ struct{}) (int, error) {
			return perdure.Step(ctx, "pay", func(ctx context.Context) (int, error) { return 0, errSpec }, kit.AtMostOnce()...)
		})
		k := kit.New(t, nil, perdure.Options{}, flow)
		k.StartOn("t", "f", struct{}{})
		run := k.WaitFor("t", perdure.Suspended)
		for what, v := range map[string]any{"a string": "seven", "an object": map[string]any{}, "nothing": nil} {
			err := k.Answer(t.Context(), perdure.AskAnswer{Ask: run.Asks[0].ID, Answer: perdure.Answer{Decision: perdure.DecisionDone, Value: v}})
			if !errors.Is(err, perdure.ErrAnswer) {
				t.Errorf("done with %s for a number: %v", what, err)
			}
		}
		if run, err := k.GetRun(t.Context(), "t", ""); err != nil || run.Status != perdure.Suspended {
			t.Fatalf("an invalid answer did not leave the run suspended: %+v, %v", run, err)
		}
		k.AnswerAt(run, "/pay", perdure.Answer{Decision: perdure.DecisionDone, Value: 7})
		if out, err := perdure.Output[int](k.WaitFor("t", perdure.Succeeded)); out != 7 || err != nil {
			t.Errorf("output %d, %v", out, err)
		}
	})
}

// reconciledStep is what a Reconcile function does, and what then holds.
type reconciledStep struct {
	find  func(context.Context) (int, perdure.Outcome, error)
	ran   int  // how often the step's function ran in all
	asked bool // a person was asked
	out   string
}

var reconciles = map[string]reconciledStep{
	"done":     {func(context.Context) (int, perdure.Outcome, error) { return 9, perdure.OutcomeDone, nil }, 1, false, "9"},
	"not done": {func(context.Context) (int, perdure.Outcome, error) { return 9, perdure.OutcomeNotDone, nil }, 2, false, "5"},
	"unknown":  {func(context.Context) (int, perdure.Outcome, error) { return 9, perdure.OutcomeUnknown, nil }, 1, true, "77"},
	"error":    {func(context.Context) (int, perdure.Outcome, error) { return 9, perdure.OutcomeDone, errSpec }, 1, true, "77"},
	"panic":    {func(context.Context) (int, perdure.Outcome, error) { panic("boom") }, 1, true, "77"},
	"verb": {func(ctx context.Context) (int, perdure.Outcome, error) {
		return 9, perdure.OutcomeDone, perdure.Emit(ctx, "x", 1)
	}, 1, true, "77"},
	"slow": {func(ctx context.Context) (int, perdure.Outcome, error) {
		<-ctx.Done()
		return 9, perdure.OutcomeDone, ctx.Err()
	}, 1, true, "77"},
	"nonsense": {func(ctx context.Context) (int, perdure.Outcome, error) { return 9, perdure.Outcome(42), nil }, 1, true, "77"},
}

func reconcileFlow(t *testing.T, ran *int, first func(context.Context) (int, error), find func(context.Context) (int, perdure.Outcome, error)) perdure.Flow {
	return perdure.NewFlow("f", func(ctx context.Context, _ struct{}) (int, error) {
		key := ""
		return perdure.Step(ctx, "pay", func(ctx context.Context) (int, error) {
			key = perdure.Key(ctx)
			if *ran++; *ran > 1 {
				return 5, nil
			}
			return first(ctx)
		}, kit.AtMostOnce(perdure.Reconcile(func(ctx context.Context) (int, perdure.Outcome, error) {
			if key != "" && perdure.Key(ctx) != key {
				t.Error("Reconcile has another key than its step")
			}
			return find(ctx)
		}))...)
	})
}

func TestReconcileDecidesAnUnknownOutcome(t *testing.T) {
	for how, fail := range unknowns {
		for what, want := range reconciles {
			kit.Bubble(t, how+" "+what, func(t *testing.T) {
				ran := 0
				k := kit.New(t, nil, perdure.Options{}, reconcileFlow(t, &ran, fail, want.find))
				k.StartOn("t", "f", struct{}{})
				reconcileEnd(k, want, &ran)
			})
		}
	}
}

func reconcileEnd(k *kit.Kit, want reconciledStep, ran *int) {
	k.T.Helper()
	if want.asked {
		k.AnswerAt(k.WaitFor("t", perdure.Suspended), "/pay", perdure.Answer{Decision: perdure.DecisionDone, Value: 77})
	}
	run := k.WaitFor("t", perdure.Succeeded)
	if *ran != want.ran || string(run.Output) != want.out || k.KindsOf("t")["asked"] > 0 != want.asked {
		k.T.Errorf("it ran %d times, output %s:\n%s", *ran, run.Output, k.Trace("t"))
	}
}

// The worker dies inside the function. Another one takes over and sits out the
// time in which the first may still be at it.
func TestAfterACrashTheOutcomeIsDecidedNoEarlierThanTimeoutAfterTheClaim(t *testing.T) {
	for what, want := range reconciles {
		kit.Bubble(t, what, func(t *testing.T) {
			ran, inner, entered := 0, memstore.New(), make(chan bool)
			var found []time.Time
			flow := reconcileFlow(t, &ran, func(ctx context.Context) (int, error) {
				close(entered)
				<-ctx.Done()
				return 0, ctx.Err()
			}, func(ctx context.Context) (int, perdure.Outcome, error) {
				found = append(found, time.Now())
				return want.find(ctx)
			})
			m := kit.NewMortal(t, inner, perdure.Options{}, flow)
			m.StartOn("t", "f", struct{}{})
			<-entered
			m.Die()
			k := kit.New(t, inner, perdure.Options{}, flow)
			reconcileEnd(k, want, &ran)
			if len(found) == 0 {
				t.Fatal("Reconcile was not called")
			}
			claimed := claimsOf(k)
			if len(claimed) < 2 || found[0].Before(claimed[1].Add(time.Minute)) {
				t.Errorf("claimed at %v, reconciled at %v", claimed, found)
			}
		})
	}
}

// claimsOf returns when the run was claimed.
func claimsOf(k *kit.Kit) []time.Time {
	var times []time.Time
	for _, e := range k.EventsOf("t") {
		if e.Kind == "claimed" {
			times = append(times, e.Time)
		}
	}
	return times
}

func TestAfterACrashThePersonIsAskedNoEarlierThanTimeoutAfterTheClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, entered := memstore.New(), make(chan bool, 9)
		ran := 0
		flow := kit.FlowOf(func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "pay", func(ctx context.Context) (int, error) {
				ran++
				entered <- true
				<-ctx.Done()
				return 0, ctx.Err()
			}, kit.AtMostOnce()...)
			return err
		})
		first := kit.NewMortal(t, inner, perdure.Options{}, flow)
		first.StartOn("t", "f", struct{}{})
		<-entered
		first.Die()
		// The second dies while it waits for the timeout; the third starts
		// over.
		second := kit.NewMortal(t, inner, perdure.Options{}, flow)
		second.Until("it is taken over", func() bool { return len(claimsOf(second.Kit)) == 2 })
		time.Sleep(50 * time.Second)
		second.Die()
		k := kit.New(t, inner, perdure.Options{}, flow)
		run := k.WaitFor("t", perdure.Suspended)
		claims := claimsOf(k)
		if len(claims) != 3 || run.Asks[0].Asked.Before(claims[2].Add(time.Minute)) {
			t.Errorf("claims at %v, asked at %v", claims, run.Asks[0].Asked)
		}
		if ran != 1 {
			t.Errorf("it was started %d times", ran)
		}
		k.AnswerAt(run, "/pay", perdure.Answer{Decision: perdure.DecisionDone, Value: 1})
		k.WaitFor("t", perdure.Succeeded)
	})
}

// A worker that freezes after the intent finds its lease expired when it wakes,
// and does not start the function.
func TestTheFunctionStartsOnlyInsideTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ran, inner := 0, memstore.New()
		flow := kit.FlowOf(func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "pay", func(ctx context.Context) (int, error) { ran++; return 1, nil }, kit.AtMostOnce()...)
			return err
		})
		var m *kit.Mortal
		frozen, thaw := make(chan bool, 1), make(chan bool)
		m = kit.NewMortal(t, inner, perdure.Options{Observer: kit.Committed(func(e perdure.Event) {
			if e.Kind == "intent" {
				m.Die() // its renewals are lost too
				frozen <- true
				<-thaw
			}
		})}, flow)
		m.StartOn("t", "f", struct{}{})
		wake := sync.OnceFunc(func() { close(thaw) })
		t.Cleanup(wake)
		<-frozen
		time.Sleep(10 * time.Second)
		wake()
		synctest.Wait()
		if ran != 0 {
			t.Fatal("the function started outside the lease")
		}
		k := kit.New(t, inner, perdure.Options{}, flow)
		run := k.WaitFor("t", perdure.Suspended)
		k.AnswerAt(run, "/pay", perdure.Answer{Decision: perdure.DecisionNotDone})
		k.WaitFor("t", perdure.Succeeded)
		if ran != 1 {
			t.Errorf("it ran %d times", ran)
		}
	})
}

// The old worker is alive but was taken for dead, and is still inside the
// function. What it then has to say comes too late, and is not recorded.
func TestALateResultOfALostWorkerIsNotRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, entered, thaw := memstore.New(), make(chan bool, 1), make(chan bool)
		ran := 0
		flow := kit.FlowOf(func(ctx context.Context) error {
			v, err := perdure.Step(ctx, "x", func(ctx context.Context) (int, error) {
				if ran++; ran == 1 {
					entered <- true
					<-thaw // it does not heed its context
					return 1, nil
				}
				return 2, nil
			})
			if err == nil && v != 2 {
				t.Errorf("the flow sees %d", v)
			}
			return err
		})
		stuck := &stuckLeases{Store: inner, lease: make(chan struct{})}
		old := kit.Runtime(t, stuck, perdure.Options{Version: "test"}, flow)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- old.Work(ctx) }()
		wake := sync.OnceFunc(func() { close(thaw) })
		t.Cleanup(func() { wake(); cancel(); <-done })
		k := kit.New(t, inner, perdure.Options{}) // has no flow, and so only looks on
		kit.Start(t, old, perdure.StartRequest{Flow: "f", Thread: "t", Input: struct{}{}})
		<-entered
		close(stuck.lease) // from now on its renewals are lost
		k2 := kit.New(t, inner, perdure.Options{}, flow)
		k2.WaitFor("t", perdure.Succeeded)
		before := k.Trace("t")
		wake()
		time.Sleep(time.Minute)
		synctest.Wait()
		if after := k.Trace("t"); after != before {
			t.Errorf("the old worker wrote something:\n%s", after)
		}
		k.WantLines("step /x 2")
	})
}

// A worker that was taken for dead while it was in code between two steps does
// not start a step that another worker has finished in the meantime, and then
// works again.
func TestAPlainStepStartsOnlyInsideTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, entered, thaw := memstore.New(), make(chan bool, 1), make(chan bool)
		var passes, ran atomic.Int32
		flow := kit.FlowOf(func(ctx context.Context) error {
			if passes.Add(1) == 1 {
				entered <- true
				<-thaw
			}
			_, err := perdure.Step(ctx, "x", func(context.Context) (int32, error) { return ran.Add(1), nil })
			return err
		})
		stuck := &stuckLeases{Store: inner, lease: make(chan struct{})}
		old := kit.New(t, stuck, perdure.Options{}, flow)
		wake := sync.OnceFunc(func() { close(thaw) })
		t.Cleanup(wake)
		old.StartOn("t", "f", struct{}{})
		<-entered
		close(stuck.lease)
		k := kit.New(t, inner, perdure.Options{}, flow)
		k.WaitFor("t", perdure.Succeeded)
		k.Stop()
		stuck.mended.Store(true)
		wake()
		time.Sleep(time.Minute)
		synctest.Wait()
		if ran.Load() != 1 {
			t.Errorf("the step ran %d times", ran.Load())
		}
		old.StartOn("u", "f", struct{}{})
		old.WaitFor("u", perdure.Succeeded)
	})
}

// stuckLeases is a store that loses the renewals of leases once lease is closed,
// until it is mended.
type stuckLeases struct {
	store.Store
	lease  chan struct{}
	mended atomic.Bool
}

func (s *stuckLeases) Unwrap() store.Store { return s.Store }

func (s *stuckLeases) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	select {
	case <-s.lease:
		if strings.HasPrefix(key, "worker/") && !s.mended.Load() {
			return "", errors.New("lost")
		}
	default:
	}
	return s.Store.Put(ctx, key, value, prev)
}

func TestACancelledRunListsItsUnknownOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, run := kit.RunOnce(t, perdure.Suspended, func(ctx context.Context) error {
			g := perdure.NewGroup(ctx)
			for _, name := range []string{"b", "a"} {
				g.Go(name, func(ctx context.Context) error {
					return new(kit.Tally).Step(ctx, "pay", []error{errSpec}, kit.AtMostOnce()...)
				})
			}
			g.Go("c", func(ctx context.Context) error { return new(kit.Tally).OK(ctx, "pay", kit.AtMostOnce()...) })
			return g.Wait()
		})
		if len(run.Asks) != 2 {
			t.Fatalf("asks %+v", run.Asks)
		}
		kit.NoErr(t, k.Cancel(t.Context(), "t", "", perdure.Note{}))
		run = k.WaitFor("t", perdure.Cancelled)
		kit.NoDiff(t, cmp.Diff([]string{"/a/pay", "/b/pay"}, run.Unknown))
	})
}

// Letting a step fail does not make its outcome known: when the run is tried
// again it is asked about again, and a cancel then still lists it.
func TestAnOutcomeStaysUnknownThroughFailAndRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ran := 0
		k, run := kit.RunOnce(t, perdure.Suspended, func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "pay", func(ctx context.Context) (int, error) { ran++; return 0, errSpec }, kit.AtMostOnce()...)
			return err
		})
		k.AnswerAt(run, "/pay", perdure.Answer{Decision: perdure.DecisionFail})
		k.WaitFor("t", perdure.Failed)
		kit.NoErr(t, k.Retry(t.Context(), "t", "", perdure.Note{}))
		run = k.WaitFor("t", perdure.Suspended)
		if ran != 1 || len(run.Asks) != 1 || run.Asks[0].Kind != perdure.KindOutcome {
			t.Fatalf("it ran %d times, asks %+v", ran, run.Asks)
		}
		kit.NoErr(t, k.Cancel(t.Context(), "t", "", perdure.Note{}))
		run = k.WaitFor("t", perdure.Cancelled)
		kit.NoDiff(t, cmp.Diff([]string{"/pay"}, run.Unknown))
	})
}

// What a Reconcile function writes belongs to the outcome that it found: it
// commits with it, or it is refused; it is not lost.
func TestStateWrittenByReconcileIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		paid := perdure.NewState[bool]("paid")
		var refused error
		k, _ := kit.RunOnce(t, perdure.Succeeded, func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "pay", func(ctx context.Context) (int, error) {
				return 0, errors.Join(paid.Set(ctx, true), errSpec)
			}, kit.AtMostOnce(perdure.Reconcile(func(ctx context.Context) (int, perdure.Outcome, error) {
				refused = errors.Join(paid.Set(ctx, true), perdure.Spend(ctx, "cents", 5))
				return 1, perdure.OutcomeDone, nil
			}))...)
			return err
		})
		state, err := k.StateAt(t.Context(), "t", 0)
		if err != nil || refused == nil && (string(state.State["paid"]) != "true" || state.Thread.Spent["cents"] != 5) {
			t.Errorf("Set and Spend in Reconcile returned %v, the state is %s, spent %v (%v)", refused, state.State, state.Thread.Spent, err)
		}
	})
}
