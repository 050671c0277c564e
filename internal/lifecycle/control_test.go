package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
)

// TestControlOnEveryStatus makes each call on a run of each status.
func TestControlOnEveryStatus(t *testing.T) {
	nothing := perdure.ErrNothingToDo
	type reach struct {
		status perdure.Status
		make   func(t *testing.T) (*kit.Kit, string) // with a run on thread "t"
	}
	gate := func(ctx context.Context) (string, error) {
		<-ctx.Done()
		return "", context.Cause(ctx)
	}
	flows := []perdure.Flow{
		kit.AskFlow("ask", perdure.Question{}), kit.EchoFlow("idle"),
		perdure.NewFlow("fail", func(ctx context.Context, _ string) (string, error) {
			return perdure.Step(ctx, "s", func(context.Context) (string, error) { return "", errors.New("no") })
		}),
		perdure.NewFlow("run", func(ctx context.Context, _ string) (string, error) { return perdure.Step(ctx, "s", gate) }),
	}
	at := func(flow string, want perdure.Status) func(t *testing.T) (*kit.Kit, string) {
		return func(t *testing.T) (*kit.Kit, string) {
			k := kit.New(t, nil, perdure.Options{Grace: time.Millisecond}, flows...)
			id := k.StartOn("t", flow, "").ID
			time.Sleep(time.Second)
			run, err := k.GetRun(t.Context(), "t", id)
			if err != nil || run.Status != want {
				t.Fatalf("it is %s, not %s: %v", run.Status, want, err)
			}
			return k, id
		}
	}
	queued := func(t *testing.T) (*kit.Kit, string) {
		k, _ := at("ask", perdure.Suspended)(t)
		return k, k.StartOn("t", "idle", "").ID
	}
	paused := func(t *testing.T) (*kit.Kit, string) {
		k, id := at("ask", perdure.Suspended)(t)
		kit.WantErr(t, "pause", k.Control("pause", "t", id), nil)
		return k, id
	}
	cancelled := func(t *testing.T) (*kit.Kit, string) {
		k, id := at("ask", perdure.Suspended)(t)
		kit.WantErr(t, "cancel", k.Control("cancel", "t", id), nil)
		k.WaitForRun("t", id, perdure.Cancelled)
		return k, id
	}
	blocked := func(t *testing.T) (*kit.Kit, string) {
		first := perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
			if _, err := perdure.Step(ctx, "old", func(context.Context) (int, error) { return 1, nil }); err != nil {
				return "", err
			}
			return perdure.Ask[string](ctx, "ask", perdure.Question{})
		})
		k := kit.New(t, nil, perdure.Options{}, first)
		id := k.StartOn("t", "f", "").ID
		run := k.WaitFor("t", perdure.Suspended)
		k.Stop()
		k.AnswerAt(run, "/ask", perdure.Answer{Value: "x"})
		k = kit.New(t, k.Store, perdure.Options{}, kit.AskFlow("f", perdure.Question{}))
		k.WaitForRun("t", id, perdure.Blocked)
		return k, id
	}
	for _, c := range []struct {
		reach
		want  map[string]error
		after map[string]perdure.Status
	}{
		{reach{perdure.Queued, queued}, map[string]error{"pause": nil, "resume": nothing, "retry": nothing, "cancel": nil},
			map[string]perdure.Status{"pause": perdure.Paused, "cancel": perdure.Cancelled}},
		{reach{perdure.Running, at("run", perdure.Running)}, map[string]error{"pause": nil, "resume": nothing, "retry": nothing, "cancel": nil},
			map[string]perdure.Status{"cancel": perdure.Cancelled}},
		{reach{perdure.Suspended, at("ask", perdure.Suspended)}, map[string]error{"pause": nil, "resume": nothing, "retry": nothing, "cancel": nil},
			map[string]perdure.Status{"pause": perdure.Paused, "cancel": perdure.Cancelled}},
		{reach{perdure.Paused, paused}, map[string]error{"pause": nil, "resume": nil, "retry": nothing, "cancel": nil},
			map[string]perdure.Status{"pause": perdure.Paused, "resume": perdure.Suspended, "cancel": perdure.Cancelled}},
		{reach{perdure.Blocked, blocked}, map[string]error{"resume": nothing, "retry": nil, "cancel": nil},
			map[string]perdure.Status{"retry": perdure.Blocked, "cancel": perdure.Cancelled}},
		{reach{perdure.Succeeded, at("idle", perdure.Succeeded)}, map[string]error{"pause": nothing, "resume": nothing, "retry": nothing, "cancel": nothing}, nil},
		{reach{perdure.Failed, at("fail", perdure.Failed)}, map[string]error{"pause": nothing, "resume": nothing, "retry": nil, "cancel": nothing},
			map[string]perdure.Status{"retry": perdure.Failed}},
		{reach{perdure.Cancelled, cancelled}, map[string]error{"pause": nothing, "resume": nothing, "retry": nothing, "cancel": nil},
			map[string]perdure.Status{"cancel": perdure.Cancelled}},
	} {
		for call, want := range c.want {
			kit.Bubble(t, fmt.Sprint(c.status, "/", call), func(t *testing.T) {
				k, id := c.make(t)
				before := k.Trace("t")
				kit.WantErr(t, call, k.Control(call, "t", id), want)
				if want != nil && k.Trace("t") != before {
					t.Errorf("a refused call left a trace:\n%s", k.Trace("t"))
				}
				time.Sleep(time.Second)
				run, err := k.GetRun(t.Context(), "t", id)
				if status, ok := c.after[call]; err != nil || ok && run.Status != status || want != nil && run.Status != c.status {
					t.Errorf("then it is %s, %v\n%s", run.Status, err, k.Trace("t"))
				}
			})
		}
	}
	kit.Bubble(t, "of something unknown", func(t *testing.T) {
		k, _ := at("idle", perdure.Succeeded)(t)
		for _, call := range []string{"pause", "resume", "retry", "cancel"} {
			kit.WantErr(t, call+" an unknown run", k.Control(call, "t", "nope"), perdure.ErrRunNotFound)
			kit.WantErr(t, call+" on an unknown thread", k.Control(call, "u", ""), perdure.ErrNoThread)
		}
	})
}

func TestPauseHoldsBeforeTheNextStep(t *testing.T) {
	var done atomic.Int64
	flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (int, error) {
		for i := range 3 {
			if _, err := perdure.Step(ctx, fmt.Sprint("s", i), func(context.Context) (int, error) {
				time.Sleep(time.Second)
				done.Add(1)
				return i, nil
			}); err != nil {
				return 0, err
			}
		}
		return 3, nil
	})
	kit.Bubble(t, "and the step under way is recorded", func(t *testing.T) {
		done.Store(0)
		k := kit.New(t, nil, perdure.Options{}, flow)
		run := k.StartOn("t", "f", "")
		time.Sleep(1500 * time.Millisecond) // inside the second step
		kit.WantErr(t, "pause", k.Control("pause", "t", run.ID), nil)
		at := time.Now()
		run = k.WaitForRun("t", run.ID, perdure.Paused)
		if done.Load() != 2 || run.Steps != 2 || !run.Paused.Equal(at) {
			t.Errorf("paused after %d steps, %d recorded, since %v", done.Load(), run.Steps, run.Paused)
		}
		time.Sleep(10 * time.Minute)
		if done.Load() != 2 {
			t.Error("a paused run went on")
		}
		kit.WantErr(t, "resume", k.Control("resume", "t", run.ID), nil)
		run = k.WaitForRun("t", run.ID, perdure.Succeeded)
		if done.Load() != 3 || !run.Paused.IsZero() {
			t.Errorf("%d steps ran; paused since %v", done.Load(), run.Paused)
		}
	})
	kit.Bubble(t, "also before its first one", func(t *testing.T) {
		done.Store(0)
		k := kit.New(t, nil, perdure.Options{}, flow)
		k.Stop()
		first := k.StartOn("t", "f", "")
		next := k.StartOn("t", "f", "")
		kit.WantErr(t, "pause", k.Control("pause", "t", first.ID), nil)
		k = kit.New(t, k.Store, perdure.Options{}, flow)
		time.Sleep(10 * time.Minute)
		if done.Load() != 0 {
			t.Error("a run that was paused, or one behind it, ran")
		}
		kit.WantErr(t, "resume", k.Control("resume", "t", first.ID), nil)
		k.WaitForRun("t", first.ID, perdure.Succeeded)
		k.WaitForRun("t", next.ID, perdure.Succeeded)
	})
	kit.Bubble(t, "and resumed in time it is as if nothing was", func(t *testing.T) {
		done.Store(0)
		k := kit.New(t, nil, perdure.Options{}, flow)
		run := k.StartOn("t", "f", "")
		time.Sleep(500 * time.Millisecond)
		kit.WantErr(t, "pause", k.Control("pause", "t", run.ID), nil)
		time.Sleep(100 * time.Millisecond)
		kit.WantErr(t, "resume", k.Control("resume", "t", run.ID), nil)
		if run = k.WaitForRun("t", run.ID, perdure.Succeeded); run.Resumes != 0 {
			t.Errorf("it was taken up %d times", run.Resumes)
		}
	})
}

func TestPausedRunKeepsWhatComesMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
			a, err := perdure.Ask[string](ctx, "ask", perdure.Question{Expires: time.Minute, Default: &perdure.Answer{Value: "nobody"}})
			if err != nil {
				return "", err
			}
			b, err := perdure.Receive[string](ctx, "r", "go", 0)
			return a + b, err
		})
		k := kit.New(t, nil, perdure.Options{}, flow)
		k.StartOn("t", "f", "")
		run := k.WaitFor("t", perdure.Suspended)
		kit.WantErr(t, "pause", k.Control("pause", "t", run.ID), nil)
		k.MustSignal("t", "go", "!", "")
		k.AnswerAt(run, "/ask", perdure.Answer{Value: "ann"})
		time.Sleep(2 * time.Minute)
		if run, err := k.GetRun(t.Context(), "t", run.ID); err != nil || run.Status != perdure.Paused {
			t.Errorf("it is %s, %v", run.Status, err)
		}
		kit.WantErr(t, "resume", k.Control("resume", "t", run.ID), nil)
		kit.WantOutput(t, k.WaitForRun("t", run.ID, perdure.Succeeded), "ann!")
	})
}

func TestRetryGoesOnWhereItFailed(t *testing.T) {
	var fail atomic.Bool
	var first, second atomic.Int64
	var keys []string
	flow := func(cleanup bool) perdure.Flow {
		return perdure.NewFlow("f", func(ctx context.Context, _ string) (out string, err error) {
			defer func() {
				if err != nil && cleanup {
					_ = perdure.Cleanup(ctx, "undo", func(context.Context) error { return nil })
				}
			}()
			if _, err := perdure.Step(ctx, "first", func(context.Context) (int64, error) { return first.Add(1), nil }); err != nil {
				return "", err
			}
			return perdure.Step(ctx, "second", func(ctx context.Context) (string, error) {
				second.Add(1)
				keys = append(keys, perdure.Key(ctx))
				if fail.Load() {
					return "", errors.New("no")
				}
				return "yes", nil
			})
		})
	}
	reset := func() { fail.Store(true); first.Store(0); second.Store(0); keys = nil }
	kit.Bubble(t, "with the same keys", func(t *testing.T) {
		reset()
		k := kit.New(t, nil, perdure.Options{}, flow(false))
		id := k.StartOn("t", "f", "").ID
		k.WaitFor("t", perdure.Failed)
		kit.WantErr(t, "retry", k.Control("retry", "t", id), nil)
		k.WaitFor("t", perdure.Failed)
		fail.Store(false)
		kit.WantErr(t, "retry", k.Control("retry", "t", id), nil)
		run := k.WaitFor("t", perdure.Succeeded)
		kit.WantOutput(t, run, "yes")
		if first.Load() != 1 || second.Load() != 3 || keys[0] != keys[1] || keys[1] != keys[2] || run.Retries != 2 || run.Err != nil {
			t.Errorf("the steps ran %d and %d times with keys %v; %+v", first.Load(), second.Load(), keys, run)
		}
	})
	kit.Bubble(t, "not once a cleanup has run", func(t *testing.T) {
		reset()
		k := kit.New(t, nil, perdure.Options{}, flow(true))
		id := k.StartOn("t", "f", "").ID
		k.WaitFor("t", perdure.Failed)
		kit.WantErr(t, "retry", k.Control("retry", "t", id), perdure.ErrNothingToDo)
	})
	kit.Bubble(t, "not once a later run has begun", func(t *testing.T) {
		reset()
		k := kit.New(t, nil, perdure.Options{}, flow(false), kit.EchoFlow("idle"))
		id := k.StartOn("t", "f", "").ID
		k.WaitFor("t", perdure.Failed)
		k.StartOn("t", "idle", "")
		k.WaitFor("t", perdure.Succeeded)
		kit.WantErr(t, "retry", k.Control("retry", "t", id), perdure.ErrNothingToDo)
	})
}

// TestCancelAgainstCompletion races the two; which one stands first in the
// journal has won.
func TestCancelAgainstCompletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
			return perdure.Step(ctx, "s", func(context.Context) (string, error) {
				time.Sleep(time.Second)
				return "done", nil
			})
		})
		k := kit.New(t, nil, perdure.Options{}, flow)
		const runs = 40
		var all sync.WaitGroup
		errs := make([]error, runs)
		for i := range runs {
			thread := fmt.Sprint("t", i)
			id := k.StartOn(thread, "f", "").ID
			all.Go(func() {
				time.Sleep(time.Second)
				errs[i] = k.Control("cancel", thread, id)
			})
		}
		all.Wait()
		for i, err := range errs {
			thread := fmt.Sprint("t", i)
			run, waitErr := k.Wait(t.Context(), thread, "")
			if waitErr != nil {
				t.Fatal(waitErr)
			}
			var cancel, ended uint64
			for _, e := range k.EventsOf(thread) {
				switch e.Kind {
				case "cancel":
					cancel = e.Seq
				case "ended":
					ended = e.Seq
				}
			}
			switch {
			case ended == 0:
				t.Errorf("%s: it has no end:\n%s", thread, k.Trace(thread))
			case cancel == 0:
				kit.WantErr(t, thread, err, perdure.ErrNothingToDo)
				kit.WantOutput(t, run, "done")
			case cancel > ended || run.Status != perdure.Cancelled || err != nil:
				t.Errorf("%s: cancel at %d, end at %d, then %s; the call got %v", thread, cancel, ended, run.Status, err)
			}
		}
	})
}

// TestEndOfABlockedRunLetsOthersGoOn ends a blocked run without running code;
// what waited behind it, of whatever flow, has to go on.
func TestEndOfABlockedRunLetsOthersGoOn(t *testing.T) {
	first := perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
		_, err := perdure.Step(ctx, "old", func(context.Context) (int, error) { return 1, nil })
		if err != nil {
			return "", err
		}
		return perdure.Ask[string](ctx, "ask", perdure.Question{})
	})
	blocked := func(t *testing.T) (*kit.Kit, *perdure.Run) {
		k := kit.New(t, nil, perdure.Options{}, first)
		k.StartOn("t", "f", "")
		run := k.WaitFor("t", perdure.Suspended)
		k.Stop()
		k.AnswerAt(run, "/ask", perdure.Answer{Value: "x"})
		k = kit.New(t, k.Store, perdure.Options{}, kit.AskFlow("f", perdure.Question{}), kit.EchoFlow("other"), kit.EchoFlow("third"))
		return k, k.WaitForRun("t", run.ID, perdure.Blocked)
	}
	kit.Bubble(t, "cancel with a queued run", func(t *testing.T) {
		k, run := blocked(t)
		next := k.StartOn("t", "other", "x")
		time.Sleep(time.Minute)
		kit.WantErr(t, "cancel", k.Control("cancel", "t", run.ID), nil)
		kit.WantOutput(t, k.WaitForRun("t", next.ID, perdure.Succeeded), "x")
	})
	kit.Bubble(t, "cancel with steering of another flow", func(t *testing.T) {
		k, run := blocked(t)
		next := k.MustStart(perdure.StartRequest{Thread: "t", Flow: "other", Input: "x", Policy: perdure.Steer})
		time.Sleep(time.Minute)
		kit.WantErr(t, "cancel", k.Control("cancel", "t", run.ID), nil)
		kit.WantOutput(t, k.WaitForRun("t", next.ID, perdure.Succeeded), "x")
	})
	kit.Bubble(t, "interrupt with a queued run", func(t *testing.T) {
		k, _ := blocked(t)
		next := k.StartOn("t", "other", "x")
		time.Sleep(time.Minute)
		last := k.MustStart(perdure.StartRequest{Thread: "t", Flow: "third", Input: "y", Policy: perdure.Interrupt})
		kit.WantOutput(t, k.WaitForRun("t", next.ID, perdure.Succeeded), "x")
		kit.WantOutput(t, k.WaitForRun("t", last.ID, perdure.Succeeded), "y")
	})
	kit.Bubble(t, "cancel of a queued run with steering behind it", func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, first, kit.EchoFlow("other"))
		k.Stop()
		run := k.StartOn("t", "f", "")
		next := k.MustStart(perdure.StartRequest{Thread: "t", Flow: "other", Input: "x", Policy: perdure.Steer})
		kit.WantErr(t, "cancel", k.Control("cancel", "t", run.ID), nil)
		k = kit.New(t, k.Store, perdure.Options{}, first, kit.EchoFlow("other"))
		k.WaitForRun("t", run.ID, perdure.Cancelled)
		kit.WantOutput(t, k.WaitForRun("t", next.ID, perdure.Succeeded), "x")
	})
}
