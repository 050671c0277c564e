package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/natstest"
	"github.com/perdure/perdure/internal/s3test"
	"github.com/perdure/perdure/internal/sweeps"
	"github.com/perdure/perdure/perduretest"
	"github.com/perdure/perdure/store/memstore"
	_ "github.com/perdure/perdure/store/natsstore"
	_ "github.com/perdure/perdure/store/pgstore"
	_ "github.com/perdure/perdure/store/redisstore"
	_ "github.com/perdure/perdure/store/s3store"
)

var errDeclined = perdure.Coded("declined", errors.New("the card was declined"))

// decline is a branch that fails, for good unless mended, after a while.
func decline(after time.Duration, mended *atomic.Bool) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := kit.NamedStep(ctx, "prepare", 0); err != nil {
			return err
		}
		_, err := perdure.Step(ctx, "charge", func(context.Context) (string, error) {
			time.Sleep(after)
			if mended != nil && mended.Load() {
				return "", nil
			}
			return "", perdure.Permanent(fmt.Errorf("%w: no cover", errDeclined))
		})
		return err
	}
}

// waiting are branches that wait for something, each in another way.
var waiting = map[string]func(context.Context) error{
	"asks": func(ctx context.Context) error {
		if err := kit.NamedStep(ctx, "look", 0); err != nil {
			return err
		}
		_, err := perdure.Ask[bool](ctx, "ok", perdure.Question{Expires: 48 * time.Hour})
		return err
	},
	"sleeps": func(ctx context.Context) (err error) {
		defer func() {
			if err != nil {
				_ = perdure.Cleanup(ctx, "undo", func(ctx context.Context) error { return errors.Join(ctx.Err(), kit.NamedStep(ctx, "inside", 0)) })
			}
		}()
		return perdure.Sleep(ctx, "nap", time.Hour)
	},
	"receives": func(ctx context.Context) error {
		_, err := perdure.Receive[string](ctx, "go", "go", 24*time.Hour)
		return err
	},
	"joins": func(ctx context.Context) error {
		c, err := perdure.Spawn(ctx, "child", "asking", "well?")
		if err != nil {
			return err
		}
		_, err = perdure.Join[string](ctx, "join", c)
		return err
	},
	"tries again": func(ctx context.Context) error {
		_, err := perdure.Step(ctx, "flaky", func(context.Context) (bool, error) { return false, perdure.After(time.Hour, errors.New("not now")) },
			perdure.Retry(perdure.RetryPolicy{Attempts: 9}))
		return err
	},
	"nests": func(ctx context.Context) error {
		_, err := perdure.Step(ctx, "outer", func(ctx context.Context) (bool, error) {
			g := perdure.NewGroup(ctx, perdure.FailFast())
			for _, name := range []string{"a", "b"} {
				g.Go(name, func(ctx context.Context) (err error) {
					defer func() {
						if err != nil {
							_ = perdure.Cleanup(ctx, "undo", func(context.Context) error { return nil })
						}
					}()
					_, err = perdure.Ask[bool](ctx, "ok", perdure.Question{})
					return err
				})
			}
			return true, g.Wait()
		})
		return err
	},
}

// fast is a flow of a group that fails fast.
func fast(branches map[string]func(context.Context) error, then func(ctx context.Context, err error) error) perdure.Flow {
	return kit.NamedFlow("fast", func(ctx context.Context) error {
		g := perdure.NewGroup(ctx, perdure.FailFast())
		for _, name := range slices.Sorted(func(yield func(string) bool) {
			for name := range branches {
				if !yield(name) {
					return
				}
			}
		}) {
			g.Go(name, branches[name])
		}
		err := g.Wait()
		if then != nil {
			return then(ctx, err)
		}
		return err
	})
}

// with returns branches and more.
func with(all map[string]func(context.Context) error, name string, fn func(context.Context) error) map[string]func(context.Context) error {
	more := map[string]func(context.Context) error{name: fn}
	for name, fn := range all {
		more[name] = fn
	}
	return more
}

func countKind(k *kit.Kit, thread, kind string) (n int, path string) {
	for _, e := range k.EventsOf(thread) {
		if string(e.Kind) == kind {
			n, path = n+1, e.Path
		}
	}
	return n, path
}

// TestFailFastClosesTheOthers has a branch that fails beside all that can wait.
func TestFailFastClosesTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mended atomic.Bool
		k := kit.New(t, nil, perdure.Options{}, kit.Asking, fast(with(waiting, "bad", decline(time.Minute, &mended)), nil))
		k.StartOn("t", "fast", "")
		time.Sleep(time.Second)
		synctest.Wait()
		run, err := k.GetRun(t.Context(), "t", "")
		if err != nil || len(run.Asks) != 3 || len(run.Children) != 1 {
			t.Fatalf("%v: before the failure: %+v", err, run)
		}
		old := run.Asks
		run = k.WaitFor("t", perdure.Failed)
		if !errors.Is(run.Err, errDeclined) || errors.Is(run.Err, perdure.ErrFailedFast) || len(run.Waits)+len(run.Asks)+len(run.Unknown) != 0 {
			t.Errorf("%v: %+v\n%s", run.Err, run, k.Trace("t"))
		}
		for _, a := range old {
			kit.WantErr(t, "answer of a closed ask", k.Answer(t.Context(), perdure.AskAnswer{Ask: a.ID, Answer: perdure.Answer{Value: true}}), perdure.ErrAskOver)
		}
		if child := k.WaitFor(run.Children[0].Thread, perdure.Cancelled); child.Status != perdure.Cancelled {
			t.Errorf("the child is %s", child.Status)
		}
		if n, path := countKind(k, "t", "closed"); n != 1 || path != "/bad" {
			t.Errorf("%d closings, by %s", n, path)
		}
		trace := k.Trace("t")
		if strings.Count(trace, "/undo\n") != 3 || !strings.Contains(trace, "step /sleeps/undo/inside") {
			t.Errorf("not all cleanups ran:\n%s", trace)
		}
		// Once a cleanup has run, it is over for good.
		if err := k.Retry(t.Context(), "t", "", perdure.Note{}); err == nil {
			t.Error("it is retried after its cleanups")
		}
	})
}

// TestFailFastIsRetried: a person's retry opens what was closed, and what had
// finished is not done again.
func TestFailFastIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mended atomic.Bool
		branches := map[string]func(context.Context) error{"bad": decline(time.Minute, &mended)}
		for _, name := range []string{"asks", "receives", "joins"} {
			branches[name] = waiting[name]
		}
		k := kit.New(t, nil, perdure.Options{}, kit.Asking, fast(branches, nil))
		k.StartOn("t", "fast", "")
		time.Sleep(time.Second)
		synctest.Wait()
		first, _ := k.GetRun(t.Context(), "t", "")
		k.WaitFor("t", perdure.Failed)
		mended.Store(true)
		kit.NoErr(t, k.Retry(t.Context(), "t", "", perdure.Note{}))
		run := k.WaitFor("t", perdure.Suspended)
		ask := k.AskAt(run, "/asks/ok")
		if ask.ID == first.Asks[0].ID || run.Children[len(run.Children)-1].Thread == first.Children[0].Thread {
			t.Errorf("what was closed is used again: %+v, was %+v", run, first)
		}
		k.AnswerAt(run, "/asks/ok", perdure.Answer{Value: true})
		kit.NoErr(t, k.Signal(t.Context(), "t", "go", "go", perdure.SignalOptions{}))
		child := k.WaitFor(run.Children[len(run.Children)-1].Thread, perdure.Suspended)
		k.AnswerAt(child, child.Asks[0].Path, perdure.Answer{Value: "fine"})
		k.WaitFor("t", perdure.Succeeded)
		if trace := k.Trace("t"); strings.Count(trace, "step /asks/look") != 1 || strings.Count(trace, "step /bad/prepare") != 1 {
			t.Errorf("finished steps ran again:\n%s", trace)
		}
	})
}

// TestFailFastIsHonestAboutStepsUnderWay: they are told to stop, and what they
// say in the end is what counts.
func TestFailFastIsHonestAboutStepsUnderWay(t *testing.T) {
	until := func(ctx context.Context, err error) (string, error) {
		<-ctx.Done()
		if cause := context.Cause(ctx); !errors.Is(cause, perdure.ErrFailedFast) {
			return "", fmt.Errorf("the context ended with %w", cause)
		}
		return "finished", err
	}
	step := func(err error, opts ...perdure.StepOption) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "work", func(ctx context.Context) (string, error) { return until(ctx, err) }, opts...)
			if next := perdure.Emit(ctx, "next", 1); !errors.Is(next, perdure.ErrFailedFast) {
				return fmt.Errorf("something new begins: %w", next)
			}
			return err
		}
	}
	stop := errors.New("stopped")
	once := []perdure.StepOption{perdure.AtMostOnce(), perdure.Timeout(time.Hour)}
	flow := fast(map[string]func(context.Context) error{
		"bad":      decline(time.Minute, nil),
		"finishes": step(nil),
		"stops":    step(stop),
		"unknown":  step(stop, once...),
		"not done": step(perdure.NotDone(stop), once...),
		"done":     step(nil, once...),
		"composite": func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "outer", func(ctx context.Context) (int, error) { _ = step(stop)(ctx); return 1, nil })
			return err
		},
	}, func(ctx context.Context, err error) error { // it is handled
		if !errors.Is(err, errDeclined) {
			return fmt.Errorf("Wait returned %w", err)
		}
		return kit.NamedStep(ctx, "after", 0)
	})
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, flow)
		k.StartOn("t", "fast", "")
		run := k.WaitFor("t", perdure.Succeeded)
		if !slices.Equal(run.Unknown, []string{"/unknown/work"}) {
			t.Errorf("unknown are %q", run.Unknown)
		}
		trace := k.Trace("t")
		for _, path := range []string{"/finishes/work", "/done/work"} {
			if !strings.Contains(trace, "step "+path+` "finished"`) {
				t.Errorf("the result of %s is not on record", path)
			}
		}
		for _, path := range []string{"/stops/work", "/unknown/work", "/not done/work", "/composite/outer"} {
			if strings.Contains(trace, "step "+path+" ") {
				t.Errorf("%s has an outcome", path)
			}
		}
		if t.Failed() {
			t.Log(trace)
		}
	})
}

// TestFailFastFirstInTheJournalWins: of branches that fail at the same moment
// one closes the others, and every later pass says the same.
func TestFailFastFirstInTheJournalWins(t *testing.T) {
	branches := map[string]func(context.Context) error{}
	for i := range 8 {
		branches[fmt.Sprintf("b%d", i)] = func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "fail", func(context.Context) (int, error) {
				time.Sleep(time.Second)
				return 0, perdure.Permanent(fmt.Errorf("failure %d", i))
			})
			return err
		}
	}
	flow := fast(branches, func(ctx context.Context, err error) error {
		for i := range 3 {
			name := fmt.Sprintf("note-%d", i)
			if _, err := perdure.Step(ctx, name, func(context.Context) (string, error) { return err.Error(), nil }, perdure.Input(err.Error())); err != nil {
				return err
			}
			if err := perdure.Sleep(ctx, "nap-"+name, time.Hour); err != nil {
				return err
			}
		}
		return err
	})
	for range 5 {
		synctest.Test(t, func(t *testing.T) {
			k := kit.New(t, nil, perdure.Options{}, flow)
			k.StartOn("t", "fast", "")
			run := k.WaitFor("t", perdure.Failed)
			n, path := countKind(k, "t", "closed")
			if n != 1 || !strings.Contains(run.Error, "failure "+path[2:]) || strings.Count(run.Error, "failure") != 1 {
				t.Errorf("%d closings, by %s, and the run failed with %s", n, path, run.Error)
			}
		})
	}
}

// TestFailFastLetsCleanupsFinish: a branch that is already in a cleanup, which
// waits, continues to its end.
func TestFailFastLetsCleanupsFinish(t *testing.T) {
	flow := fast(map[string]func(context.Context) error{
		"bad": decline(time.Minute, nil),
		"leaving": func(ctx context.Context) error {
			return perdure.Cleanup(ctx, "undo", func(ctx context.Context) error {
				if err := perdure.Sleep(ctx, "nap", 24*time.Hour); err != nil {
					return err
				}
				_, err := perdure.Ask[bool](ctx, "undone", perdure.Question{})
				return err
			})
		},
	}, nil)
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, flow)
		k.StartOn("t", "fast", "")
		run := k.WaitFor("t", perdure.Suspended)
		k.AnswerAt(run, "/leaving/undo/undone", perdure.Answer{Value: true})
		if run = k.WaitFor("t", perdure.Failed); !errors.Is(run.Err, errDeclined) || !strings.Contains(k.Trace("t"), "step /leaving/undo") {
			t.Errorf("%v\n%s", run.Err, k.Trace("t"))
		}
	})
}

// TestFailFastKeepsToItsGroup: nothing outside the failing group is touched,
// and an error that is passed on closes the group around it.
func TestFailFastKeepsToItsGroup(t *testing.T) {
	for _, outer := range []bool{false, true} {
		flow := kit.NamedFlow("fast", func(ctx context.Context) error {
			var opts []perdure.GroupOption
			if outer {
				opts = append(opts, perdure.FailFast())
			}
			g := perdure.NewGroup(ctx, opts...)
			g.Go("beside", waiting["asks"])
			g.Go("inner", func(ctx context.Context) error {
				g := perdure.NewGroup(ctx, perdure.FailFast())
				g.Go("bad", decline(time.Second, nil))
				g.Go("asks", waiting["asks"])
				return g.Wait()
			})
			return g.Wait()
		})
		synctest.Test(t, func(t *testing.T) {
			k := kit.New(t, nil, perdure.Options{}, flow)
			k.StartOn("t", "fast", "")
			closings := 2
			if !outer {
				closings = 1
				run := k.WaitFor("t", perdure.Suspended)
				if len(run.Asks) != 1 {
					t.Errorf("open are %+v", run.Asks)
				}
				k.AnswerAt(run, "/beside/ok", perdure.Answer{Value: true})
			}
			k.WaitFor("t", perdure.Failed)
			if n, _ := countKind(k, "t", "closed"); n != closings {
				t.Errorf("%d closings, want %d\n%s", n, closings, k.Trace("t"))
			}
		})
	}
}

// TestFailFastIsOffByDefault: without it a failed branch leaves the others
// alone, and with it one that succeeds does.
func TestFailFastIsOffByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		off := kit.NamedFlow("off", func(ctx context.Context) error {
			g := perdure.NewGroup(ctx)
			g.Go("bad", decline(0, nil))
			g.Go("asks", waiting["asks"])
			return g.Wait()
		})
		k := kit.New(t, nil, perdure.Options{}, off, fast(map[string]func(context.Context) error{"good": waiting["sleeps"], "asks": waiting["asks"]}, nil))
		for flow, want := range map[string]perdure.Status{"off": perdure.Failed, "fast": perdure.Succeeded} {
			k.StartOn(flow, flow, "")
			k.AnswerAt(k.WaitFor(flow, perdure.Suspended), "/asks/ok", perdure.Answer{Value: true})
			k.WaitFor(flow, want)
			if n, _ := countKind(k, flow, "closed"); n != 0 {
				t.Errorf("%s: %d closings", flow, n)
			}
		}
	})
}

// TestFailFastBlocksCodeThatNoLongerFails: the recorded failure counts even if
// the code has changed.
func TestFailFastBlocksCodeThatNoLongerFails(t *testing.T) {
	for name, bad := range map[string]func(context.Context) error{
		"succeeds": func(ctx context.Context) error { _ = decline(0, nil)(ctx); return nil },
		"goes on":  func(ctx context.Context) error { _ = decline(0, nil)(ctx); return kit.NamedStep(ctx, "fallback", 0) },
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			then := func(ctx context.Context, err error) error {
				return errors.Join(err, perdure.Sleep(ctx, "nap", time.Hour))
			}
			s := memstore.New()
			k := kit.New(t, s, perdure.Options{Version: "1"}, fast(map[string]func(context.Context) error{"asks": waiting["asks"], "bad": decline(0, nil)}, then))
			k.StartOn("t", "fast", "")
			time.Sleep(time.Minute)
			synctest.Wait()
			k.Stop()
			k = kit.New(t, s, perdure.Options{Version: "2"}, fast(map[string]func(context.Context) error{"asks": waiting["asks"], "bad": bad}, then))
			run := k.WaitFor("t", perdure.Blocked)
			if !strings.Contains(run.Diff, "failed and closed those beside it") {
				t.Errorf("the diff is %s", run.Diff)
			}
		})
	}
}

// TestFailFastInForks forks a run that failed fast at each of its entries. A
// fork comes to the same end, whether it closes the branches itself or not.
func TestFailFastInForks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.Asking, fast(with(waiting, "bad", decline(time.Minute, nil)), nil))
		k.StartOn("t", "fast", "")
		k.WaitFor("t", perdure.Failed)
		forks := 0
		for _, e := range k.EventsOf("t") {
			if e.Seq < 3 || e.Kind == "ended" {
				continue
			}
			id := fmt.Sprintf("f%d", e.Seq)
			if _, err := k.Fork(t.Context(), perdure.ForkRequest{Thread: "t", At: e.Seq, As: id}); err != nil {
				t.Fatal(err)
			}
			kit.NoErr(t, k.Resume(t.Context(), id, "", perdure.Note{}))
			run := k.WaitFor(id, perdure.Failed)
			if !errors.Is(run.Err, errDeclined) || strings.Count(k.Trace(id), "closed /bad") != 1 {
				t.Errorf("forked at %d: %v\n%s", e.Seq, run.Err, k.Trace(id))
			}
			forks++
		}
		if forks < 15 {
			t.Errorf("only %d forks", forks)
		}
	})
}

// TestFailFastByADecisionIsDecidedAnewInAFork: the answer that made a branch fail
// is void in a fork, and with it that the others are closed.
func TestFailFastByADecisionIsDecidedAnewInAFork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, fast(map[string]func(context.Context) error{
			"asks": waiting["asks"],
			"decides": func(ctx context.Context) error {
				ok, err := perdure.Ask[bool](ctx, "ok", perdure.Question{})
				if err == nil && !ok {
					err = errors.New("no")
				}
				return err
			},
		}, func(ctx context.Context, err error) error {
			return errors.Join(err, perdure.Sleep(ctx, "nap", time.Hour))
		}))
		k.StartOn("t", "fast", "")
		k.AnswerAt(k.WaitFor("t", perdure.Suspended), "/decides/ok", perdure.Answer{Value: false})
		time.Sleep(time.Minute)
		synctest.Wait()
		if _, err := k.Fork(t.Context(), perdure.ForkRequest{Thread: "t", As: "f"}); err != nil {
			t.Fatal(err)
		}
		kit.NoErr(t, k.Resume(t.Context(), "f", "", perdure.Note{}))
		run := k.WaitFor("f", perdure.Suspended)
		k.AnswerAt(run, "/decides/ok", perdure.Answer{Value: true})
		k.AnswerAt(run, "/asks/ok", perdure.Answer{Value: true})
		k.WaitFor("f", perdure.Succeeded)
		k.WaitFor("t", perdure.Failed)
	})
}

func init() {
	sweeps.Stores["postgres"] = kit.Postgres
	sweeps.Stores["redis"] = kit.Redis
	sweeps.Stores["nats"] = kit.At(natstest.Volatile)
	kit.Costly("s3", kit.At(s3test.Empty))
}

// TestCrashEverywhereInAGroupThatFailsFast cuts it at every write: between the
// failure and the entry that closes the others, before and after the cancels of
// children, in the cleanups.
func TestCrashEverywhereInAGroupThatFailsFast(t *testing.T) {
	all := with(waiting, "bad", decline(time.Minute, nil))
	all["once"] = func(ctx context.Context) error {
		_, err := perdure.Step(ctx, "pay", func(ctx context.Context) (bool, error) {
			<-ctx.Done()
			return false, ctx.Err()
		}, perdure.AtMostOnce(), perdure.Timeout(2*time.Hour))
		return err
	}
	perduretest.CrashEverywhere(t, perduretest.Crash{
		Flows: []perdure.Flow{kit.Asking, fast(all, nil)},
		Start: []perdure.StartRequest{{Flow: "fast", Input: ""}},
	})
}

// TestCrashEverywhereInARetryOfAGroupThatFailsFast also has a person who retries
// it, and then answers.
func TestCrashEverywhereInARetryOfAGroupThatFailsFast(t *testing.T) {
	perduretest.CrashEverywhere(t, perduretest.Crash{
		Flows: []perdure.Flow{kit.NamedFlow("fast", func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "outer", func(ctx context.Context) (int, error) {
				g := perdure.NewGroup(ctx, perdure.FailFast())
				g.Go("asks", waiting["asks"])
				g.Go("bad", func(ctx context.Context) error {
					_, err := perdure.Step(ctx, "charge", func(ctx context.Context) (int, error) {
						time.Sleep(time.Minute)
						if perdure.Now(ctx).Before(kit.VirtualStart(ctx).Add(time.Hour)) {
							return 0, perdure.Permanent(errDeclined)
						}
						return 1, nil
					})
					return err
				})
				return 0, g.Wait()
			}, perdure.Retry(perdure.RetryPolicy{Wait: 2 * time.Hour, Attempts: 3}))
			return err
		})},
		Start: []perdure.StartRequest{{Flow: "fast", Input: ""}},
		Outside: func(ctx context.Context, rt *perdure.Runtime, run *perdure.Run) error {
			for _, a := range run.Asks {
				if err := rt.Answer(ctx, perdure.AskAnswer{Ask: a.ID, Answer: perdure.Answer{Value: true}}); err != nil {
					return err
				}
			}
			return nil
		},
	})
}

// TestAFailedBranchIsToldAtOnce: while others wait, the run says which branches
// have failed, and no more once the failure was handled or the run has ended.
func TestAFailedBranchIsToldAtOnce(t *testing.T) {
	flow := kit.NamedFlow("f", func(ctx context.Context) error {
		g := perdure.NewGroup(ctx)
		g.Go("bad", decline(0, nil))
		g.Go("outer", func(ctx context.Context) error {
			g := perdure.NewGroup(ctx)
			g.Go("worse", func(ctx context.Context) (err error) {
				defer func() { _ = perdure.Cleanup(ctx, "undo", func(context.Context) error { return nil }) }()
				return decline(0, nil)(ctx)
			})
			g.Go("asks", waiting["asks"])
			_ = g.Wait()
			_, err := perdure.Ask[bool](ctx, "anyway", perdure.Question{})
			return err
		})
		g.Go("handles", func(ctx context.Context) error {
			_ = decline(0, nil)(ctx)
			_, err := perdure.Ask[bool](ctx, "anyway", perdure.Question{})
			return err
		})
		return g.Wait()
	})
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, flow)
		k.StartOn("t", "f", "")
		check := func(run *perdure.Run, want ...string) {
			t.Helper()
			var got []string
			for _, f := range run.Failed {
				got = append(got, f.Branch+" "+f.Path)
				if f.Seq == 0 || f.Time.IsZero() || !strings.Contains(f.Error, "declined") {
					t.Errorf("%+v", f)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("failed are %q, want %q\n%s", got, want, k.Trace("t"))
			}
			told := ""
			for _, e := range k.EventsOf("t") {
				if e.Kind == "suspended" {
					told = e.Error
				}
			}
			if run.Status == perdure.Suspended && strings.Count(told, "failed: the card was declined") != len(want) {
				t.Errorf("the event of the suspension says %q", told)
			}
		}
		run := k.WaitFor("t", perdure.Suspended)
		check(run, "/bad /bad/charge", "/outer/worse /outer/worse/charge")
		k.AnswerAt(run, "/handles/anyway", perdure.Answer{Value: true})
		run = k.WaitFor("t", perdure.Suspended)
		check(run, "/bad /bad/charge", "/outer/worse /outer/worse/charge")
		k.AnswerAt(run, "/outer/asks/ok", perdure.Answer{Value: true})
		run = k.WaitFor("t", perdure.Suspended)
		check(run, "/bad /bad/charge")
		k.AnswerAt(run, "/outer/anyway", perdure.Answer{Value: true})
		check(k.WaitFor("t", perdure.Failed))
	})
}
