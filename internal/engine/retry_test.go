package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store/memstore"
)

var errSpec = errors.New("boom")

func retry(attempts int, wait time.Duration) perdure.StepOption {
	return perdure.Retry(perdure.RetryPolicy{Attempts: attempts, Wait: wait, MaxWait: 24 * time.Hour})
}

func TestAStepWithoutRetryFailsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c kit.Tally
		k, run := kit.RunOnce(t, perdure.Failed, func(ctx context.Context) error { return c.Step(ctx, "x", []error{errSpec}) })
		if c.Of("x") != 1 || run.Error != "/x: boom" {
			t.Errorf("it ran %d times: %q", c.Of("x"), run.Error)
		}
		k.WantLines("step /x boom")
	})
}

func TestEachFailedAttemptIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c kit.Tally
		var log bytes.Buffer
		k := kit.New(t, nil, perdure.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, perdure.NewFlow("flow", func(ctx context.Context, _ string) (string, error) {
			return "", c.Step(ctx, "x", []error{errSpec, errSpec, nil}, retry(5, time.Hour))
		}))
		run := k.MustStart(perdure.StartRequest{Flow: "flow", Input: "", Thread: "t"})
		if _, err := k.WaitEnd(t.Context(), "t", run.ID); err != nil {
			t.Fatal(err)
		}
		k.Stop()
		var told []string
		for e, err := range k.Events(t.Context(), "t", perdure.EventOptions{Replay: true}) {
			kit.NoErr(t, err)
			if e.Kind == "attempt" {
				told = append(told, fmt.Sprintf("%d of %d due %t: %s", e.Attempt, e.Attempts, e.Due.After(e.Time), e.Error))
			}
		}
		kit.NoDiff(t, cmp.Diff([]string{"1 of 5 due true: boom", "2 of 5 due true: boom"}, told))
		if n := strings.Count(log.String(), `msg="an attempt failed" thread=t run=`+run.ID+` path=/x attempt=`); n != 2 || !strings.Contains(log.String(), "attempt=2 of=5") || !strings.Contains(log.String(), "error=boom") {
			t.Errorf("the log is:\n%s", log.String())
		}
	})
}

func TestShortWaitsBetweenAttemptsStayInTheWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c kit.Tally
		k, run := kit.RunOnce(t, perdure.Succeeded, func(ctx context.Context) error {
			return c.Step(ctx, "x", []error{errSpec, errSpec, nil}, retry(3, time.Second))
		})
		kinds := k.KindsOf("t")
		if c.Of("x") != 3 || kinds["suspended"] != 0 || kinds["claimed"] != 1 || kinds["attempt"] != 2 {
			t.Errorf("%d attempts:\n%s", c.Of("x"), k.Trace("t"))
		}
		last := time.Time{}
		for _, e := range k.EventsOf("t") {
			if e.Kind == "step" && e.Time.Before(last) {
				t.Errorf("the last attempt ended at %v, it was due at %v", e.Time, last)
			}
			if e.Kind != "attempt" {
				continue
			}
			if wait := e.Due.Sub(e.Time); e.Attempt == 0 || wait < 800*time.Millisecond || wait > 2*time.Second {
				t.Errorf("attempt %d is followed after %v", e.Attempt, wait)
			}
			if e.Time.Before(last) {
				t.Errorf("an attempt ended at %v, it was due at %v", e.Time, last)
			}
			last = e.Due
		}
		if len(run.Errors) != 2 || run.Errors[0].Error != "boom" || run.Errors[0].Path != "/x" {
			t.Errorf("the error log is %+v", run.Errors)
		}
	})
}

func TestLongWaitsBetweenAttemptsAreDurableTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c kit.Tally
		inner := memstore.New()
		flow := kit.FlowOf(func(ctx context.Context) error {
			return c.Step(ctx, "x", []error{errSpec, errSpec, nil}, retry(3, 10*time.Minute))
		})
		k := kit.New(t, inner, perdure.Options{}, flow)
		k.StartOn("t", "f", struct{}{})
		k.Until("it is suspended", func() bool {
			run, err := k.GetRun(t.Context(), "t", "")
			return err == nil && run.Status == perdure.Suspended && len(run.Waits) == 1 && run.Waits[0].Kind == "retry"
		})
		k.Stop()
		time.Sleep(5 * time.Minute)
		k = kit.New(t, inner, perdure.Options{}, flow) // another process continues
		k.WaitFor("t", perdure.Succeeded)
		kinds := k.KindsOf("t")
		if c.Of("x") != 3 || kinds["suspended"] != 2 || kinds["claimed"] != 3 {
			t.Errorf("%d attempts:\n%s", c.Of("x"), k.Trace("t"))
		}
		due := time.Time{}
		for _, e := range k.EventsOf("t") {
			if e.Kind == "claimed" && e.Time.Before(due) {
				t.Errorf("the run went on at %v, it was due at %v", e.Time, due)
			}
			if e.Kind == "attempt" {
				due = e.Due
			}
		}
	})
}

// The due time is recorded, so a crash neither shortens the wait nor counts as
// an attempt.
func TestABackoffSurvivesACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c kit.Tally
		inner := memstore.New()
		flow := kit.FlowOf(func(ctx context.Context) error {
			g := perdure.NewGroup(ctx)
			g.Go("retries", func(ctx context.Context) error {
				return c.Step(ctx, "x", []error{errSpec, nil}, retry(2, time.Minute))
			})
			g.Go("works", func(ctx context.Context) error {
				_, err := perdure.Step(ctx, "y", func(context.Context) (int, error) { time.Sleep(40 * time.Second); return 1, nil })
				return err
			})
			return g.Wait()
		})
		m := kit.NewMortal(t, inner, perdure.Options{}, flow)
		m.StartOn("t", "f", struct{}{})
		m.Until("an attempt failed", func() bool { return m.KindsOf("t")["attempt"] == 1 })
		time.Sleep(10 * time.Second)
		m.Die()
		k := kit.New(t, inner, perdure.Options{}, flow)
		k.WaitFor("t", perdure.Succeeded)
		if c.Of("x") != 2 {
			t.Errorf("%d attempts:\n%s", c.Of("x"), k.Trace("t"))
		}
		var due time.Time
		for _, e := range k.EventsOf("t") {
			if e.Kind == "attempt" {
				due = e.Due
			}
			if e.Kind == "step" && e.Path == "/retries/x" && e.Time.Before(due) {
				t.Errorf("the second attempt was at %v, it was due at %v", e.Time, due)
			}
		}
	})
}

func TestRetryHasThreeAttemptsByDefaultAndEndsWithTheLastError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c kit.Tally
		_, run := kit.RunOnce(t, perdure.Failed, func(ctx context.Context) error {
			err := c.Step(ctx, "x", []error{errors.New("one"), errors.New("two"), errors.New("three")}, perdure.Retry(perdure.RetryPolicy{}))
			var failed *perdure.StepError
			if !errors.As(err, &failed) || failed.Path != "/x" || failed.Attempt != 3 || failed.Err.Error() != "three" {
				t.Errorf("error %#v", err)
			}
			return err
		})
		if c.Of("x") != 3 || !strings.Contains(run.Error, "three") {
			t.Errorf("%d attempts: %s", c.Of("x"), run.Error)
		}
	})
}

func TestAPermanentErrorIsNotTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c kit.Tally
		code := perdure.Coded("gone", errors.New("gone"))
		kit.RunOnce(t, perdure.Succeeded, func(ctx context.Context) error {
			for name, err := range map[string]error{
				"plain":   perdure.Permanent(code),
				"wrapped": fmt.Errorf("asking: %w", perdure.Permanent(code)),
				"joined":  errors.Join(errSpec, perdure.Permanent(code)),
				"marked":  perdure.NotDone(perdure.Permanent(code)),
			} {
				if err := c.Step(ctx, name, []error{err}, retry(5, 0)); !errors.Is(err, code) {
					t.Errorf("%s: %v", name, err)
				}
				if c.Of(name) != 1 {
					t.Errorf("%s ran %d times", name, c.Of(name))
				}
			}
			return nil
		})
	})
}

func TestANewAttemptOfACompositeVoidsOnlyItsFailedTail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c kit.Tally
		k, _ := kit.RunOnce(t, perdure.Succeeded, func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "outer", func(ctx context.Context) (int, error) {
				c.Hit("outer")
				if err := c.OK(ctx, "good"); err != nil {
					return 0, err
				}
				// A failure that is followed by another child was handled.
				if err := c.Step(ctx, "handled", []error{errSpec, nil}); err == nil {
					t.Error("a handled failure was forgotten")
				}
				if err := c.OK(ctx, "after"); err != nil {
					return 0, err
				}
				return perdure.Scope(ctx, "scope", func(ctx context.Context) (int, error) {
					if err := c.OK(ctx, "in scope"); err != nil {
						return 0, err
					}
					return perdure.Step(ctx, "middle", func(ctx context.Context) (int, error) {
						c.Hit("middle")
						if err := c.OK(ctx, "deep"); err != nil {
							return 0, err
						}
						return 1, c.Step(ctx, "tail", []error{errSpec, errSpec, nil})
					})
				})
			}, retry(3, 0))
			return err
		})
		want := map[string]int{"outer": 3, "good": 1, "handled": 1, "after": 1, "in scope": 1, "middle": 3, "deep": 1, "tail": 3}
		if d := cmp.Diff(want, c.All()); d != "" {
			t.Errorf("%s\n%s", d, k.Trace("t"))
		}
	})
}

func TestBranchesOfAFailedTailAreJudgedEachOnTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c kit.Tally
		k, _ := kit.RunOnce(t, perdure.Succeeded, func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "outer", func(ctx context.Context) (int, error) {
				g := perdure.NewGroup(ctx)
				g.Go("earlier", func(ctx context.Context) error { return c.Step(ctx, "handled", []error{errSpec, nil}) })
				_ = g.Wait()
				g = perdure.NewGroup(ctx)
				g.Go("fine", func(ctx context.Context) error { return c.OK(ctx, "fine") })
				g.Go("fails", func(ctx context.Context) error {
					if err := c.OK(ctx, "before"); err != nil {
						return err
					}
					return c.Step(ctx, "fails", []error{errSpec, nil})
				})
				g.Go("fails too", func(ctx context.Context) error { return c.Step(ctx, "fails too", []error{errSpec, nil}) })
				g.Go("handles", func(ctx context.Context) error {
					_ = c.Step(ctx, "wrong", []error{errSpec, nil})
					return c.OK(ctx, "right")
				})
				return 1, g.Wait()
			}, retry(2, 0))
			return err
		})
		want := map[string]int{"handled": 1, "fine": 1, "before": 1, "fails": 2, "fails too": 2, "wrong": 1, "right": 1}
		if d := cmp.Diff(want, c.All()); d != "" {
			t.Errorf("%s\n%s", d, k.Trace("t"))
		}
	})
}

func TestAnExpiredAskAndALateSignalAreFailedTailsToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.FlowOf(func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "outer", func(ctx context.Context) (int, error) {
				_, err := perdure.Ask[bool](ctx, "ask", perdure.Question{Expires: time.Minute})
				return 1, err
			}, retry(2, 0))
			if errors.Is(err, perdure.ErrSuspended) {
				return err
			}
			kit.WantErr(t, "the ask", err, perdure.ErrExpired)
			_, err = perdure.Step(ctx, "again", func(ctx context.Context) (int, error) {
				return perdure.Receive[int](ctx, "signal", "s", time.Minute)
			}, retry(2, 0))
			if !errors.Is(err, perdure.ErrTimeout) && !errors.Is(err, perdure.ErrSuspended) {
				t.Errorf("the signal: %v", err)
			}
			return err
		}))
		k.StartOn("t", "f", struct{}{})
		k.EndsAs("t", perdure.Failed)
		if kinds := k.KindsOf("t"); kinds["asked"] != 2 || kinds["expired"] != 2 || kinds["waiting"] != 2 || kinds["fired"] != 2 {
			t.Errorf("the journal is\n%s", k.Trace("t"))
		}
	})
}

func TestRetryByAPersonVoidsTheFailedTailAndKeepsKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c kit.Tally
		keys := map[string]bool{}
		k, run := kit.RunOnce(t, perdure.Failed, func(ctx context.Context) error {
			if err := c.OK(ctx, "good"); err != nil {
				return err
			}
			_, err := perdure.Step(ctx, "bad", func(ctx context.Context) (int, error) {
				keys[perdure.Key(ctx)] = true
				if c.Hit("bad") < 3 {
					return 0, errSpec
				}
				return 1, nil
			}, retry(2, 0))
			return err
		})
		if c.Of("bad") != 2 {
			t.Fatalf("%d attempts", c.Of("bad"))
		}
		kit.NoErr(t, k.Retry(t.Context(), "t", run.ID, perdure.Note{By: "ann", Reason: "the service is back"}))
		run = k.WaitFor("t", perdure.Succeeded)
		if run.Retries != 1 || c.Of("good") != 1 || c.Of("bad") != 3 || len(keys) != 1 {
			t.Errorf("%d retries, ran %v, keys %v", run.Retries, c.All(), keys)
		}
		kit.WantErr(t, "retry of a run that succeeded", k.Retry(t.Context(), "t", "", perdure.Note{}), perdure.ErrNothingToDo)
	})
}

func TestRetryIsRefusedOnceACleanupHasStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c kit.Tally
		k, _ := kit.RunOnce(t, perdure.Failed, func(ctx context.Context) (err error) {
			defer func() {
				if err != nil {
					_ = perdure.Cleanup(ctx, "undo", func(context.Context) error { c.Hit("undo"); return nil })
				}
			}()
			return c.Step(ctx, "bad", []error{errSpec})
		})
		if err := k.Retry(t.Context(), "t", "", perdure.Note{}); !errors.Is(err, perdure.ErrNothingToDo) || !strings.Contains(err.Error(), "start a new run") {
			t.Errorf("retry: %v", err)
		}
		if c.Of("undo") != 1 || c.Of("bad") != 1 {
			t.Errorf("ran %v", c.All())
		}
	})
}

// The same holds for the attempts of a step: what was undone is not redone.
func TestACompositeThatCleanedUpIsNotTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c kit.Tally
		kit.RunOnce(t, perdure.Failed, func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "outer", func(ctx context.Context) (n int, err error) {
				defer func() {
					if err != nil {
						_ = perdure.Cleanup(ctx, "undo", func(context.Context) error { c.Hit("undo"); return errSpec })
					}
				}()
				return 1, c.Step(ctx, "bad", []error{errSpec})
			}, retry(5, 0))
			return err
		})
		kit.NoDiff(t, cmp.Diff(map[string]int{"bad": 1, "undo": 1}, c.All()))
	})
}

func TestRetryIsRefusedOnceALaterRunHasBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c kit.Tally
		k, first := kit.RunOnce(t, perdure.Failed, func(ctx context.Context) error {
			if err := c.Step(ctx, "x", []error{errSpec, errSpec, nil}); err != nil {
				return err
			}
			return kit.AskYesNo(ctx, "ok")
		})
		k.StartOn("t", "f", struct{}{})
		k.WaitFor("t", perdure.Failed)
		if err := k.Retry(t.Context(), "t", first.ID, perdure.Note{}); !errors.Is(err, perdure.ErrNothingToDo) || !strings.Contains(err.Error(), "start a new run") {
			t.Errorf("retry of the first run: %v", err)
		}
		kit.WantErr(t, "retry of the newest run", k.Retry(t.Context(), "t", "", perdure.Note{}), nil)
		run := k.WaitFor("t", perdure.Suspended)
		kit.WantErr(t, "retry of a suspended run", k.Retry(t.Context(), "t", "", perdure.Note{}), perdure.ErrNothingToDo)
		k.AnswerYes(run, "/ok")
		k.WaitFor("t", perdure.Succeeded)
	})
}

func TestAPanicIsAFailedAttemptWithItsStack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c kit.Tally
		k, run := kit.RunOnce(t, perdure.Failed, func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "heals", func(context.Context) (int, error) {
				if c.Hit("heals") == 1 {
					panic("first")
				}
				return 1, nil
			}, retry(2, 0))
			if err != nil {
				t.Errorf("a panic that was tried again: %v", err)
			}
			_, err = perdure.Step(ctx, "dies", func(context.Context) (int, error) { return panicking(), nil })
			if !errors.Is(err, perdure.ErrPanic) || !strings.Contains(err.Error(), "nil pointer") || !strings.Contains(perdure.Stack(err), "panicking") {
				t.Errorf("a panic: %v\n%s", err, perdure.Stack(err))
			}
			_, err = perdure.Scope(ctx, "scope", func(context.Context) (int, error) { return panicking(), nil })
			return err
		})
		if !errors.Is(run.Err, perdure.ErrPanic) || !strings.Contains(perdure.Stack(run.Err), "panicking") {
			t.Errorf("a flow that panics: %v\n%s", run.Err, perdure.Stack(run.Err))
		}
		if len(run.Errors) != 2 || !strings.Contains(run.Errors[0].Stack, "retry_test.go") || run.Errors[0].Error != "panic: first" {
			t.Errorf("the error log is %+v", run.Errors)
		}
		k.WantLines("attempt /heals panic: first", "step /heals 1")
	})
}

func panicking() int {
	var p *loopOf
	return len(fmt.Sprint(*p.Next))
}

func TestAPanicWithAnErrorMatchesItsCode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		code := perdure.Coded("own", errors.New("own"))
		kit.RunOnce(t, perdure.Succeeded, func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "x", func(context.Context) (int, error) { panic(fmt.Errorf("deep: %w", code)) })
			if !errors.Is(err, code) || !errors.Is(err, perdure.ErrPanic) {
				t.Errorf("error %v", err)
			}
			return nil
		})
	})
}

func TestAFlowThatExitsItsGoroutineFails(t *testing.T) {
	for name, fn := range map[string]func(context.Context) error{
		"flow": func(context.Context) error { runtime.Goexit(); return nil },
		"step": func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "x", func(context.Context) (int, error) { runtime.Goexit(); return 1, nil })
			return err
		},
		"branch": func(ctx context.Context) error {
			g := perdure.NewGroup(ctx)
			g.Go("x", func(context.Context) error { runtime.Goexit(); return nil })
			return g.Wait()
		},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			if _, run := kit.RunOnce(t, perdure.Failed, fn); !strings.Contains(run.Error, "Goexit") {
				t.Errorf("error %q", run.Error)
			}
		})
	}
}

// What a step returns is what was recorded, now and after a resume alike.
func TestErrorsMatchByCodeNowAndWhenReadBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sold := perdure.Coded("sold-out", errors.New("sold out"))
		twin := perdure.Coded("sold-out", errors.New("another text"))
		other := perdure.Coded("other", errors.New("other"))
		var texts []string
		k, run := kit.RunOnce(t, perdure.Suspended, func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "x", func(context.Context) (int, error) {
				return 0, fmt.Errorf("seat 7: %w", errors.Join(sold, io.EOF, context.DeadlineExceeded))
			})
			texts = append(texts, err.Error())
			var failed *perdure.StepError
			switch {
			case !errors.As(err, &failed) || failed.Path != "/x" || failed.Attempt != 1:
				t.Errorf("the error is %#v", err)
			case !errors.Is(err, sold) || !errors.Is(err, twin) || !errors.Is(err, perdure.ErrTimeout):
				t.Errorf("%v does not match its codes", err)
			case errors.Is(err, other) || errors.Is(err, io.EOF):
				t.Errorf("%v matches what has no code", err)
			}
			// A code passes through an outer step too.
			_, err = perdure.Step(ctx, "outer", func(ctx context.Context) (int, error) {
				_, err := perdure.Step(ctx, "inner", func(context.Context) (int, error) { return 0, sold })
				return 0, fmt.Errorf("outer: %w", err)
			})
			kit.WantErr(t, "through a composite", err, sold)
			texts = append(texts, err.Error())
			return kit.AskYesNo(ctx, "ok")
		})
		k.AnswerYes(run, "/ok")
		k.WaitFor("t", perdure.Succeeded)
		if len(texts) != 4 || texts[0] != texts[2] || texts[1] != texts[3] {
			t.Errorf("the texts are %q", texts)
		}
	})
}

func TestAResultIsTheSameNowAndWhenReadBack(t *testing.T) {
	type result struct {
		When time.Time
		F    float64
		B    []byte
		M    map[int]string
		Any  any
		S    string
	}
	synctest.Test(t, func(t *testing.T) {
		var seen []result
		k, run := kit.RunOnce(t, perdure.Suspended, func(ctx context.Context) error {
			v, err := perdure.Step(ctx, "x", func(context.Context) (result, error) {
				return result{When: time.Now(), F: 0.1, B: []byte{0, 255}, M: map[int]string{2: "<&>"}, Any: []any{1.5, nil, "\uFFFD"}, S: "\u2028"}, nil
			})
			seen = append(seen, v)
			return errors.Join(err, kit.AskYesNo(ctx, "ok"))
		})
		k.AnswerYes(run, "/ok")
		k.WaitFor("t", perdure.Succeeded)
		if len(seen) != 2 {
			t.Fatalf("%d passes", len(seen))
		}
		if d := cmp.Diff(seen[0], seen[1]); d != "" || seen[0].F != 0.1 {
			t.Error(d)
		}
		if s := fmt.Sprint(seen[0].When); strings.Contains(s, "m=") {
			t.Errorf("the first pass sees what the journal does not keep: %s", s)
		}
	})
}

func TestLargeResultsAndLongErrorsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		large := strings.Repeat("0123456789", 100_000)
		var c kit.Tally
		k, run := kit.RunOnce(t, perdure.Suspended, func(ctx context.Context) error {
			v, err := perdure.Step(ctx, "large", func(context.Context) (string, error) { c.Hit("large"); return large, nil })
			if v != large {
				t.Errorf("%d bytes came back", len(v))
			}
			_, failed := perdure.Step(ctx, "long", func(context.Context) (int, error) { return 0, errors.New("why: " + large) })
			if failed == nil || !strings.Contains(failed.Error(), "why: 0123456789") {
				t.Errorf("a long error: %.100v", failed)
			}
			return errors.Join(err, kit.AskYesNo(ctx, "ok"))
		})
		k.AnswerYes(run, "/ok")
		k.WaitFor("t", perdure.Succeeded)
		if c.Of("large") != 1 {
			t.Errorf("it ran %d times", c.Of("large"))
		}
	})
}
