package explore_test

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/explore"
	"github.com/perdure/perdure/store"
)

func TestCorrectCounter(t *testing.T) {
	explore.Run(t, explore.Config{}, two(correct, counts("2")))
	explore.Run(t, explore.Config{Conflicts: 2}, two(correct, counts("2")))
	explore.Run(t, explore.Config{Crashes: 1}, two(correct, counts("1", "2")))
}

func TestCrashesAreFound(t *testing.T) {
	mustFail(t, explore.Explore(t, explore.Config{Crashes: 1}, two(correct, counts("2"))), "[killed before]")
	mustFail(t, explore.Explore(t, explore.Config{Crashes: 1}, two(correct, counts("0", "1"))))
	mustFail(t, explore.Explore(t, explore.Config{Crashes: 2}, two(correct, counts("1", "2"))), "[killed before]")
}

// heir repeats the work of a worker that may have done it: only a crash
// behind the write shows that it counts twice.
func heir(spare bool) func(*explore.World) {
	return func(w *explore.World) {
		worker := w.Actor("worker", correct)
		if spare {
			worker.Reliable()
		}
		w.Actor("heir", func(ctx context.Context, s store.Store) error {
			if !worker.Killed() {
				return nil
			}
			return correct(ctx, s)
		}).After(worker).Reliable()
		w.Check(counts("1"))
	}
}

func TestLostAnswerIsFound(t *testing.T) {
	f := mustFail(t, explore.Explore(t, explore.Config{Crashes: 1}, heir(false)), "[killed after]")
	if !errors.Is(f, f.Err) || len(f.Steps) != 4 {
		t.Errorf("want the four steps of worker and heir: %v", f)
	}
	explore.Run(t, explore.Config{Crashes: 1}, heir(true))
}

func TestUnknownOutcomes(t *testing.T) {
	cfg := explore.Config{Unknowns: 1}
	again := func(ctx context.Context, s store.Store) error {
		err := correct(ctx, s)
		if errors.Is(err, explore.ErrUnknown) {
			return correct(ctx, s)
		}
		return err
	}
	mustFail(t, explore.Explore(t, cfg, two(again, counts("2"))), "[answer unknown, done]")
	// AppendOnce finds out.
	explore.Run(t, explore.Config{Unknowns: 2, Conflicts: 1}, func(w *explore.World) {
		a := w.Actor("a", func(ctx context.Context, s store.Store) error {
			_, err := store.AppendOnce(ctx, s, "j", 0, []byte("a"))
			return err
		})
		w.Check(func(ctx context.Context, s store.Store) error {
			entries, err := store.ReadAll(ctx, s, "j", 0)
			if err != nil || len(entries) != 1 || a.Err() != nil {
				return fmt.Errorf("%d entries, %w, %w", len(entries), err, a.Err())
			}
			return nil
		})
	})
}

// TestBatch explores a hint and what it announces in one write and in two. Only
// without a batch may the hint be there alone.
func TestBatch(t *testing.T) {
	alone := map[bool]int{}
	for _, noBatch := range []bool{false, true} {
		explore.Run(t, explore.Config{NoBatch: noBatch, Crashes: 1, Unknowns: 1, Conflicts: 1}, func(w *explore.World) {
			for _, name := range []string{"a", "b"} {
				w.Actor(name, func(ctx context.Context, s store.Store) error {
					_, err := store.AppendWith(ctx, s, store.Batch{
						Journal: "j", Entries: [][]byte{[]byte(name)},
						Cells: []store.Write{{Key: "hint", Value: []byte(name)}, {Key: "summary", Value: []byte(name), Optional: true}},
					})
					if errors.Is(err, store.ErrConflict) {
						return nil
					}
					return err
				})
			}
			w.Check(func(ctx context.Context, s store.Store) error {
				entries, err := store.ReadAll(ctx, s, "j", 0)
				hint, _ := s.Get(ctx, "hint")
				summary, _ := s.Get(ctx, "summary")
				switch {
				case err != nil || len(entries) > 1:
					return fmt.Errorf("%d entries, %w", len(entries), err)
				case len(entries) == 0 && hint.Version != "":
					alone[noBatch]++
				case len(entries) == 1 && string(hint.Value) != string(entries[0].Data):
					return fmt.Errorf("the entry is of %q, the hint of %q", entries[0].Data, hint.Value)
				case len(entries) == 1 && !noBatch && string(summary.Value) != string(entries[0].Data):
					return fmt.Errorf("the entry is of %q, the summary of %q", entries[0].Data, summary.Value)
				}
				return w.Settled()
			})
		})
	}
	if alone[false] > 0 || alone[true] == 0 {
		t.Errorf("a hint without its entry: %d times with batches, %d times without", alone[false], alone[true])
	}
}

// take waits until the cell is there.
func take(key string) func(context.Context, store.Store) error {
	return func(ctx context.Context, s store.Store) error {
		for range store.Watch(ctx, s, key) {
			if _, err := s.Get(ctx, key); !errors.Is(err, store.ErrNotFound) {
				return err
			}
		}
		return ctx.Err()
	}
}

func give(key string) func(context.Context, store.Store) error {
	return func(ctx context.Context, s store.Store) error {
		_, err := s.Put(ctx, key, nil, "")
		return err
	}
}

func TestWatchAndDeadlock(t *testing.T) {
	explore.Run(t, explore.Config{}, func(w *explore.World) {
		w.Actor("taker", take("x"))
		w.Actor("giver", give("x"))
	})
	mustFail(t, explore.Explore(t, explore.Config{}, func(w *explore.World) {
		w.Actor("taker", take("x"))
		w.Actor("giver", give("y"))
	}), "actor taker waits for ever")
	// A deadlock is an ending like others, and the check may accept it.
	waited, killed := 0, 0
	explore.Run(t, explore.Config{Crashes: 1}, func(w *explore.World) {
		taker, giver := w.Actor("taker", take("x")), w.Actor("giver", give("x"))
		w.Check(func(ctx context.Context, s store.Store) error {
			if giver.Killed() {
				killed++
			}
			_, err := s.Get(ctx, "x")
			if taker.Waiting() {
				waited++
			}
			if taker.Waiting() != (err != nil) {
				return fmt.Errorf("waiting %v, while the cell: %w", taker.Waiting(), err)
			}
			return nil
		})
	})
	if waited == 0 || killed <= waited {
		t.Errorf("the taker waited in %d of %d endings with a dead giver", waited, killed)
	}
}

// TestWakeUpsCoalesce has a consumer that takes one item for each wake-up. It
// is wrong, since two writes may be one wake-up.
func TestWakeUpsCoalesce(t *testing.T) {
	mustFail(t, explore.Explore(t, explore.Config{}, func(w *explore.World) {
		w.Actor("consumer", func(ctx context.Context, s store.Store) error {
			taken := ""
			for range store.Watch(ctx, s, "item/") {
				for c := range s.List(ctx, "item/", taken) {
					taken = c.Key
					break
				}
				if taken == "item/2" {
					return nil
				}
			}
			return ctx.Err()
		})
		w.Actor("producer", func(ctx context.Context, s store.Store) error {
			return errors.Join(give("item/1")(ctx, s), give("item/2")(ctx, s))
		})
	}), "consumer waits for ever")
}

func TestGoroutinesOfAnActor(t *testing.T) {
	many := func(fn func(context.Context, store.Store) error) func(*explore.World) {
		return func(w *explore.World) {
			w.Actor("a", func(ctx context.Context, s store.Store) error {
				var wg sync.WaitGroup
				errs := make([]error, 2)
				for i := range errs {
					wg.Go(func() { errs[i] = fn(ctx, s) })
				}
				wg.Wait()
				return errors.Join(errs...)
			})
			w.Check(counts("2"))
		}
	}
	explore.Run(t, explore.Config{}, many(correct))
	mustFail(t, explore.Explore(t, explore.Config{}, many(broken)), "store: conflict")
	mustFail(t, explore.Explore(t, explore.Config{Crashes: 1}, many(correct)), "[killed before]")
}

func TestTime(t *testing.T) {
	late := func(w *explore.World) {
		w.Actor("a", func(ctx context.Context, s store.Store) error {
			select {
			case <-time.After(time.Minute):
				return give("x")(ctx, s)
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		w.Actor("b", take("x"))
	}
	mustFail(t, explore.Explore(t, explore.Config{}, late), "b waits for ever")
	mustFail(t, explore.Explore(t, explore.Config{MaxTime: -1}, late), "b waits for ever")
	explore.Run(t, explore.Config{MaxTime: 2 * time.Minute}, late)
}

// TestDelays has a lease that is trusted without looking: wrong only if its
// holder is frozen between its last look and its write.
func TestDelays(t *testing.T) {
	setup := func(w *explore.World) {
		w.Actor("old", once)
		w.Actor("new", func(ctx context.Context, s store.Store) error {
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				return ctx.Err()
			}
			return once(ctx, s)
		})
	}
	cfg := explore.Config{MaxTime: time.Minute}
	explore.Run(t, cfg, setup)
	cfg.Delays = 1
	mustFail(t, explore.Explore(t, cfg, setup), "time passes: 1s", "store: conflict")
}

func TestPointConcernsOthers(t *testing.T) {
	stopped := map[bool]bool{}
	explore.Run(t, explore.Config{}, func(w *explore.World) {
		stop, saw := false, false
		w.Actor("stopper", func(ctx context.Context, _ store.Store) error {
			err := explore.Point(ctx, "stop")
			stop = true
			return err
		})
		w.Actor("reader", func(ctx context.Context, s store.Store) error {
			_, _ = s.Get(ctx, "x")
			saw = stop
			return nil
		})
		w.Check(func(context.Context, store.Store) error {
			stopped[saw] = true
			return nil
		})
	})
	if len(stopped) != 2 {
		t.Errorf("the reader saw only %v", stopped)
	}
	if err := explore.Point(t.Context(), "x"); err == nil {
		t.Error("a point outside of an actor is accepted")
	}
}

func TestBoundsAreLoud(t *testing.T) {
	r := explore.Explore(t, explore.Config{Max: 5, Every: true}, two(once, counts("1", "2")))
	mustFail(t, r, "not explored to the end", "Config.Max = 5")
	if r.Executions != 5 {
		t.Errorf("ran %d executions", r.Executions)
	}
	explore.Run(t, explore.Config{Max: 6, Every: true}, two(once, counts("1", "2")))
	mustFail(t, explore.Explore(t, explore.Config{MaxSteps: 50}, func(w *explore.World) {
		w.Actor("a", func(ctx context.Context, s store.Store) error {
			for ctx.Err() == nil {
				_, _ = s.Get(ctx, "x")
			}
			return ctx.Err()
		})
	}), "Config.MaxSteps = 50")
}

func TestActorsThatMisbehave(t *testing.T) {
	for name, tc := range map[string]struct {
		fn   func(context.Context, store.Store) error
		want string
	}{
		"panics":             {func(context.Context, store.Store) error { panic("ouch") }, "actor a panicked: ouch"},
		"fails":              {func(context.Context, store.Store) error { return errors.New("ouch") }, "actor a: ouch"},
		"does not return":    {func(context.Context, store.Store) error { select {} }, "actor a waits for ever"},
		"leaves a goroutine": {func(context.Context, store.Store) error { go func() { select {} }(); return nil }, "goroutines stay behind"},
		"is random": {func(ctx context.Context, s store.Store) error {
			_, _ = s.Get(ctx, strconv.FormatUint(rand.Uint64(), 36))
			return once(ctx, s)
		}, "not deterministic"},
	} {
		t.Run(name, func(t *testing.T) {
			mustFail(t, explore.Explore(t, explore.Config{MaxSteps: 20}, func(w *explore.World) {
				w.Actor("a", tc.fn)
				w.Actor("b", once).Reliable()
			}), tc.want)
		})
	}
}

func TestActorsThatDoNotDie(t *testing.T) {
	for name, fn := range map[string]func(context.Context, store.Store) error{
		"spins": func(ctx context.Context, s store.Store) error {
			for {
				if _, err := s.Put(ctx, "x", nil, ""); err == nil {
					return nil
				}
			}
		},
		"blocks": func(ctx context.Context, s store.Store) error {
			if _, err := s.Put(ctx, "x", nil, ""); err != nil {
				select {}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			mustFail(t, explore.Explore(t, explore.Config{Crashes: 1}, func(w *explore.World) {
				w.Actor("a", fn)
			}), "do not return", "[killed before]")
		})
	}
}

func TestSlowDeathIsAwaited(t *testing.T) {
	returned := 0
	r := explore.Run(t, explore.Config{Crashes: 1}, func(w *explore.World) {
		w.Actor("a", func(ctx context.Context, s store.Store) error {
			_, err := s.Put(ctx, "x", nil, "")
			<-time.After(10 * time.Second)
			returned++
			if err != nil && !errors.Is(err, explore.ErrKilled) {
				return fmt.Errorf("a killed actor gets %w", err)
			}
			return err
		})
		w.Check(func(context.Context, store.Store) error { return nil })
	})
	if returned != r.Executions {
		t.Errorf("%d of %d actors returned", returned, r.Executions)
	}
}

// TestRandomNames has actors that write under random names, which are the
// same in every execution.
func TestRandomNames(t *testing.T) {
	random := func(ctx context.Context, s store.Store) error {
		_, err := s.Put(ctx, crand.Text(), nil, "")
		return errors.Join(err, correct(ctx, s))
	}
	explore.Run(t, explore.Config{}, two(random, counts("2")))
}

// TestGoroutinesMeetInMemory has reads whose order only their actor can see.
func TestGoroutinesMeetInMemory(t *testing.T) {
	orders := map[string]bool{}
	r := explore.Run(t, explore.Config{}, func(w *explore.World) {
		order := ""
		w.Actor("a", func(ctx context.Context, s store.Store) error {
			var wg sync.WaitGroup
			for _, key := range []string{"1", "2", "3", "4"} {
				wg.Go(func() {
					_, _ = s.Get(ctx, key)
					order += key
				})
			}
			wg.Wait()
			return nil
		})
		w.Check(func(context.Context, store.Store) error {
			orders[order] = true
			return nil
		})
	})
	if len(orders) != 24 || r.Executions != 24 {
		t.Errorf("%d orders of four reads in %v, want 24", len(orders), r)
	}
}

func TestWatchEndsWithItsContext(t *testing.T) {
	explore.Run(t, explore.Config{}, func(w *explore.World) {
		w.Actor("a", func(ctx context.Context, s store.Store) error {
			short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			if err := take("x")(short, s); !errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("the watch of what never comes ends with %w", err)
			}
			return give("y")(ctx, s)
		})
		w.Actor("b", take("y"))
	})
}
