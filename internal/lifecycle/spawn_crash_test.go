package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/natstest"
	"github.com/perdure/perdure/internal/s3test"
	"github.com/perdure/perdure/internal/sweeps"
	"github.com/perdure/perdure/perduretest"
	_ "github.com/perdure/perdure/store/natsstore"
	_ "github.com/perdure/perdure/store/pgstore"
	_ "github.com/perdure/perdure/store/redisstore"
	_ "github.com/perdure/perdure/store/s3store"
)

func init() {
	sweeps.Stores["postgres"] = kit.Postgres
	sweeps.Stores["redis"] = kit.Redis
	kit.Costly("nats", kit.At(natstest.Volatile))
	kit.Costly("s3", kit.At(s3test.Empty))
}

// TestCrashEverywhereInAFamily cuts a parent and its children at every write:
// one that succeeds, one that fails, and one that has children of its own.
func TestCrashEverywhereInAFamily(t *testing.T) {
	var fx perduretest.Effects
	perduretest.CrashEverywhere(t, perduretest.Crash{
		Flows: []perdure.Flow{
			perdure.NewFlow("parent", func(ctx context.Context, _ string) (string, error) {
				good, err := perdure.Spawn(ctx, "good", "leaf", 1)
				if err != nil {
					return "", err
				}
				bad, err := perdure.Spawn(ctx, "bad", "leaf", -1)
				if err != nil {
					return "", err
				}
				n, err := perdure.Join[int](ctx, "join-good", good)
				if err != nil {
					return "", err
				}
				_, err = perdure.Join[int](ctx, "join-bad", bad)
				if !errors.Is(err, errTorn) {
					return "", fmt.Errorf("want a torn child, got %w", err)
				}
				return fmt.Sprint(n), nil
			}),
			perdure.NewFlow("leaf", func(ctx context.Context, n int) (int, error) {
				return perdure.Step(ctx, "work", func(ctx context.Context) (int, error) {
					fx.Count(ctx, "work")
					if n < 0 {
						return 0, errTorn
					}
					return n + 1, perdure.Spend(ctx, "cents", 5)
				})
			}),
		},
		Start:   []perdure.StartRequest{{Flow: "parent", Input: "", Budget: map[string]int64{"cents": 20}}},
		Effects: &fx,
	})
}

// TestCrashEverywhereInAGroupOfChildren cuts branches that each have a child,
// with a child below and values that are large but in the short form.
func TestCrashEverywhereInAGroupOfChildren(t *testing.T) {
	large := strings.Repeat("x", kit.Sized(1, 70, 70)<<10)
	perduretest.CrashEverywhere(t, perduretest.Crash{
		Flows: []perdure.Flow{
			perdure.NewFlow("parent", func(ctx context.Context, _ string) (int, error) {
				g := perdure.NewGroup(ctx)
				var sizes [2]int
				for i, in := range []string{"x", large} {
					g.Go(fmt.Sprint("branch-", i), func(ctx context.Context) error {
						c, err := perdure.Spawn(ctx, "child", "middle", in)
						if err != nil {
							return err
						}
						out, err := perdure.Join[string](ctx, "join", c)
						sizes[i] = len(out)
						return err
					})
				}
				return sizes[0] + sizes[1], g.Wait()
			}),
			perdure.NewFlow("middle", func(ctx context.Context, in string) (string, error) {
				c, err := perdure.Spawn(ctx, "child", "leaf", in)
				if err != nil {
					return "", err
				}
				return perdure.Join[string](ctx, "join", c)
			}),
			perdure.NewFlow("leaf", func(ctx context.Context, in string) (string, error) { return in + "!", nil }),
		},
		Start: []perdure.StartRequest{{Flow: "parent", Input: ""}},
		Want:  perdure.Succeeded,
	})
}

// TestCrashEverywhereWithChildrenCancelled cuts a parent that ends, once by
// itself and once because it is cancelled, while its children wait. The short
// form does only the latter.
func TestCrashEverywhereWithChildrenCancelled(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a minute; TestCrashEverywhereInAGroupOfChildren is shorter")
	}
	for _, cancel := range []bool{true, false} {
		perduretest.CrashEverywhere(t, perduretest.Crash{
			Flows: []perdure.Flow{
				kit.Asking,
				perdure.NewFlow("parent", func(ctx context.Context, _ string) (string, error) {
					c, err := perdure.Spawn(ctx, "child", "asking", "well?")
					if err != nil {
						return "", err
					}
					if _, err := perdure.Spawn(ctx, "unjoined", "asking", "well?"); err != nil {
						return "", err
					}
					if err := perdure.Sleep(ctx, "nap", time.Hour); err != nil || !cancel {
						return "done", err
					}
					if _, err := perdure.Ask[string](ctx, "ready", perdure.Question{}); err != nil {
						return "", err
					}
					return perdure.Join[string](ctx, "join", c)
				}),
			},
			Start: []perdure.StartRequest{{Flow: "parent", Input: ""}},
			Outside: func(ctx context.Context, rt *perdure.Runtime, run *perdure.Run) error {
				return rt.Cancel(ctx, run.Thread, run.ID, perdure.Note{})
			},
		})
	}
}

// TestCrashEverywhereInARetry cuts a person's retry of a parent, which retries
// the child that failed.
func TestCrashEverywhereInARetry(t *testing.T) {
	var mended atomic.Bool // by the person, before the retry
	perduretest.CrashEverywhere(t, perduretest.Crash{
		Flows: []perdure.Flow{
			kit.Asking,
			perdure.NewFlow("parent", func(ctx context.Context, _ string) (string, error) {
				in, err := perdure.Ask[string](ctx, "ask", perdure.Question{})
				if err != nil {
					return "", err
				}
				c, err := perdure.Spawn(ctx, "child", "leaf", in)
				if err != nil {
					return "", err
				}
				return perdure.Join[string](ctx, "join", c)
			}),
			perdure.NewFlow("leaf", func(ctx context.Context, in string) (string, error) {
				return perdure.Step(ctx, "work", func(ctx context.Context) (string, error) {
					if !mended.Load() {
						return "", errTorn
					}
					return in + "!", perdure.Spend(ctx, "cents", 1)
				})
			}),
		},
		Start: []perdure.StartRequest{{Flow: "parent", Input: "", Thread: "p"}, {Flow: "asking", Input: "retry?", Thread: "q"}},
		Outside: func(ctx context.Context, rt *perdure.Runtime, run *perdure.Run) error {
			if mended.Store(run.Thread == "q"); run.Thread == "q" {
				switch parent, err := rt.GetRun(ctx, "p", ""); {
				case err != nil:
					return err
				case parent.Status == perdure.Failed && parent.Retries == 0:
					if err := rt.Retry(ctx, "p", "", perdure.Note{}); err != nil {
						return err
					}
				}
				if _, err := rt.WaitEnd(ctx, "p", ""); err != nil {
					return err
				}
			}
			for _, ask := range run.Asks {
				if err := rt.Answer(ctx, perdure.AskAnswer{Ask: ask.ID, Answer: perdure.Answer{Value: "x"}}); err != nil {
					return err
				}
			}
			return nil
		},
		Want: perdure.Succeeded,
	})
}

// TestCrashEverywhereWhileAChildAsks cuts a parent that waits for a child that
// waits for a person.
func TestCrashEverywhereWhileAChildAsks(t *testing.T) {
	perduretest.CrashEverywhere(t, perduretest.Crash{
		Flows: []perdure.Flow{kit.Asking, spawnJoin[string]("asking", "well?")},
		Start: []perdure.StartRequest{{Flow: "parent", Input: ""}},
		Outside: func(ctx context.Context, rt *perdure.Runtime, run *perdure.Run) error {
			for _, w := range run.Waits {
				child, err := rt.GetRun(ctx, w.Child, "")
				if err != nil {
					return err
				}
				for _, ask := range child.Asks {
					if err := rt.Answer(ctx, perdure.AskAnswer{Ask: ask.ID, Answer: perdure.Answer{Value: "yes"}}); err != nil {
						return err
					}
				}
			}
			return nil
		},
		Want: perdure.Succeeded,
	})
}
