package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/perduretest"
)

// TestNothingTakenDoesNotCrowdOutAStep lets takes that found nothing wait for a
// step whose entry nearly fills an append.
func TestNothingTakenDoesNotCrowdOutAStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := strings.Repeat("n", 190)
		k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, in [2]int) (string, error) {
			takes, keys := in[0], in[1]
			return perdure.Step(ctx, long, func(ctx context.Context) (string, error) {
				for i := range takes {
					if _, ok, err := perdure.Take[string](ctx, fmt.Sprint(long, i)); ok || err != nil {
						return "", fmt.Errorf("%v %w", ok, err)
					}
				}
				return perdure.Step(ctx, "full", func(ctx context.Context) (string, error) {
					for i := range keys { // keys are not moved into blobs
						if err := perdure.NewState[string](fmt.Sprintf("%0500d", i)).Set(ctx, "0123456789012345678901234567890123456789"); err != nil {
							return "", err
						}
					}
					return "done", nil
				})
			})
		}))
		ends := func(takes, keys int) perdure.Status {
			thread := fmt.Sprint("t-", takes, "-", keys)
			k.StartOn(thread, "f", [2]int{takes, keys})
			run, err := k.WaitEnd(t.Context(), thread, "")
			kit.NoErr(t, err)
			return run.Status
		}
		keys := sort.Search(600, func(n int) bool { return ends(0, n) == perdure.Failed }) - 1
		if got := ends(16, keys); got != perdure.Succeeded {
			t.Errorf("a step that writes %d keys is %s behind takes that found nothing", keys, got)
		}
	})
}

// TestNothingTakenEverywhere takes nothing in branches, scopes, composites that
// fail and are tried again, before suspensions, timers and ends, and crashes at
// every write.
func TestNothingTakenEverywhere(t *testing.T) {
	flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
		take := func(ctx context.Context, name string) error {
			_, ok, err := perdure.Take[string](ctx, name)
			if ok {
				return errors.New("something was taken")
			}
			return err
		}
		if err := take(ctx, "first"); err != nil {
			return "", err
		}
		g := perdure.NewGroup(ctx)
		for b := range 2 {
			g.Go(fmt.Sprint("b", b), func(ctx context.Context) error {
				if err := take(ctx, "take"); err != nil {
					return err
				}
				if err := perdure.Sleep(ctx, "sleep", time.Duration(b+1)*time.Minute); err != nil {
					return err
				}
				return take(ctx, "last")
			})
		}
		if err := g.Wait(); err != nil {
			return "", err
		}
		_, err := perdure.Step(ctx, "composite", func(ctx context.Context) (string, error) {
			if err := take(ctx, "before"); err != nil {
				return "", err
			}
			_, err := perdure.Scope(ctx, "scope", func(ctx context.Context) (string, error) { return "", take(ctx, "in") })
			if err != nil {
				return "", err
			}
			_, err = perdure.Step(ctx, "ready", func(ctx context.Context) (bool, error) {
				n, err := perdure.NewCounter("n").Get(ctx)
				if err == nil && n == 0 {
					return false, perdure.After(time.Hour, errors.New("not yet"))
				}
				return true, err
			}, perdure.Retry(perdure.RetryPolicy{Attempts: 1}))
			if err == nil {
				return "ready", nil
			}
			if takeErr := take(ctx, "after"); takeErr != nil {
				return "", takeErr
			}
			_, err = perdure.Step(ctx, "count", func(ctx context.Context) (bool, error) { return true, perdure.NewCounter("n").Add(ctx, 1) })
			if err != nil {
				return "", err
			}
			return "", take(ctx, "end")
		}, perdure.Retry(perdure.RetryPolicy{Attempts: 3, Wait: time.Minute}))
		if err != nil {
			return "", err
		}
		for i := range 20 { // more than may wait
			if err := take(ctx, fmt.Sprint("many-", i)); err != nil {
				return "", err
			}
		}
		return "done", take(ctx, "very-last")
	})
	perduretest.CrashEverywhere(t, perduretest.Crash{Flows: []perdure.Flow{flow}, Start: []perdure.StartRequest{{Flow: "f", Input: ""}}})
}

// TestNothingTakenBeforeACancel cancels, pauses and stops while takes wait to be
// recorded.
func TestNothingTakenBeforeACancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
			for i := range 5 {
				if _, ok, err := perdure.Take[string](ctx, fmt.Sprint("take-", i)); err != nil || ok {
					return "", err
				}
			}
			_, err := perdure.Step(ctx, "long", func(ctx context.Context) (bool, error) {
				select {
				case <-ctx.Done():
					return false, ctx.Err()
				case <-time.After(time.Minute):
					return true, nil
				}
			})
			if err != nil {
				return "", err
			}
			return perdure.Step(ctx, "after", func(context.Context) (string, error) { return "done", nil })
		})
		for _, how := range []string{"cancel", "pause", "stop", "steer"} {
			k := kit.New(t, nil, perdure.Options{}, flow)
			run := k.StartOn("t", "f", "")
			time.Sleep(10 * time.Second)
			var err error
			want := perdure.Succeeded
			switch how {
			case "cancel":
				want, err = perdure.Cancelled, k.Cancel(t.Context(), "t", run.ID, perdure.Note{})
			case "pause":
				if err = k.Pause(t.Context(), "t", run.ID, perdure.Note{}); err == nil {
					time.Sleep(2 * time.Minute)
					err = k.Resume(t.Context(), "t", run.ID, perdure.Note{})
				}
			case "stop":
				k.Stop()
				k = kit.New(t, k.Store, perdure.Options{}, flow)
			case "steer":
				_, err = k.Start(t.Context(), perdure.StartRequest{Thread: "t", Flow: "f", Input: "late", Policy: perdure.Steer})
			}
			if err != nil {
				t.Fatal(how, err)
			}
			end, err := k.WaitEnd(t.Context(), "t", run.ID)
			if err != nil || end.Status != want {
				t.Errorf("after %s the run is %s, %v", how, end.Status, err)
			}
			if r, err := k.Verify(t.Context(), "t"); err != nil {
				t.Errorf("after %s: %v %v", how, r, err)
			}
			k.Stop()
		}
	})
}
