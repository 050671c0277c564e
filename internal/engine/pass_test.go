package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// nilValue is an error whose nil pointer panics.
type nilValue struct{ text string }

func (e *nilValue) Error() string { return e.text }

// A waiter whose context does not end must still learn of the seal.
func TestADetachedWaiterHearsOfTheSeal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ int) (string, error) {
			g := perdure.NewGroup(ctx)
			g.Go("a", func(ctx context.Context) error {
				return perdure.Sleep(context.WithoutCancel(ctx), "nap", time.Hour)
			})
			g.Go("b", func(ctx context.Context) error {
				_, err := perdure.Step(ctx, "x", func(context.Context) (int, error) { time.Sleep(time.Second); return 1, nil })
				return err
			})
			return "over", g.Wait()
		}))
		k.StartOn("t", "f", 1)
		time.Sleep(3 * time.Hour)
		k.WaitFor("t", perdure.Succeeded)
	})
}

func TestReconcileThatSaysNotDoneHasAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ran := 0
		k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ int) (int, error) {
			return perdure.Step(ctx, "pay", func(context.Context) (int, error) {
				if ran++; ran > 1000 {
					return 1, nil
				}
				return 0, errors.New("refused")
			}, perdure.AtMostOnce(), perdure.Timeout(time.Second), perdure.Reconcile(func(context.Context) (int, perdure.Outcome, error) {
				return 0, perdure.OutcomeNotDone, nil
			}))
		}))
		began := time.Now()
		k.StartOn("t", "f", 1)
		run, err := k.Wait(t.Context(), "t", "")
		kit.NoErr(t, err)
		if ran > 1000 {
			t.Errorf("ran %d times in %v, run is %s", ran, time.Since(began), run.Status)
		}
	})
}

func TestAnErrorThatPanics(t *testing.T) {
	for what, fn := range map[string]func(context.Context) error{
		"step": func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "x", func(context.Context) (int, error) { return 0, (*nilValue)(nil) })
			return err
		},
		"branch": func(ctx context.Context) error {
			g := perdure.NewGroup(ctx)
			g.Go("b", func(context.Context) error { return (*nilValue)(nil) })
			return g.Wait()
		},
		"flow": func(ctx context.Context) error { return (*nilValue)(nil) },
	} {
		kit.Bubble(t, what, func(t *testing.T) {
			k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ int) (int, error) {
				return 0, fn(ctx)
			}))
			k.StartOn("t", "f", 1)
			k.WaitFor("t", perdure.Failed)
		})
	}
}

// What a change returned nil for is committed, also beside the step's return.
func TestLateChangesAreCommittedOrRefused(t *testing.T) {
	count := perdure.NewCounter("n")
	var mu sync.Mutex
	said := int64(0)
	k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ int) (int64, error) {
		var wg sync.WaitGroup
		for i := range 200 {
			_, err := perdure.Step(ctx, fmt.Sprint("x", i), func(ctx context.Context) (int, error) {
				for range 4 {
					wg.Go(func() {
						for range 500 { // what fits an entry, on a busy machine too
							if count.Add(ctx, 1) != nil {
								break
							}
							mu.Lock()
							said++
							mu.Unlock()
							runtime.Gosched()
						}
					})
				}
				for range 100 { // let the others be in the middle of a change
					runtime.Gosched()
				}
				return 0, nil
			})
			if err != nil {
				return 0, err
			}
			wg.Wait()
		}
		return count.Get(ctx)
	}))
	k.StartOn("t", "f", 1)
	run := k.WaitFor("t", perdure.Succeeded)
	if got := string(run.Output); got != fmt.Sprint(said) {
		t.Errorf("Add returned nil %d times, committed is %s", said, got)
	}
}

// A function that leaves by Goexit takes the branches of its frame along.
func TestGoexitAwaitsBranches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, over, early := false, false, false
		k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ int) (int, error) {
			outer := perdure.NewGroup(ctx)
			outer.Go("o", func(ctx context.Context) error {
				_, err := perdure.Step(ctx, "c", func(ctx context.Context) (int, error) {
					g := perdure.NewGroup(ctx)
					g.Go("b", func(ctx context.Context) error {
						_, _ = perdure.Step(ctx, "one", func(ctx context.Context) (int, error) {
							time.Sleep(time.Second) // heeds nothing
							over = true
							return 1, nil
						})
						_, _ = perdure.Step(ctx, "two", func(ctx context.Context) (int, error) {
							began = true
							return 1, nil
						})
						return nil
					})
					time.Sleep(time.Millisecond)
					runtime.Goexit()
					return 0, nil
				})
				return err
			})
			err := outer.Wait()
			early = !over
			_, _ = perdure.Step(ctx, "after", func(ctx context.Context) (int, error) {
				time.Sleep(time.Minute)
				return 1, nil
			})
			return 0, err
		}))
		k.StartOn("t", "f", 1)
		k.WaitFor("t", perdure.Failed)
		if began || early {
			t.Errorf("a step began, or still ran, in a frame that was gone\n%s", k.Trace("t"))
		}
	})
}

// A factory that leaves by Goexit fails the dep for everyone.
func TestGoexitInAFactory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dep := perdure.NewDep("d", func(context.Context) (int, error) {
			time.Sleep(time.Second)
			runtime.Goexit()
			return 1, nil
		}, perdure.Shared())
		k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ int) (int, error) {
			g := perdure.NewGroup(ctx)
			for _, name := range []string{"a", "b"} {
				g.Go(name, func(ctx context.Context) error {
					_, err := dep.Get(ctx)
					return err
				})
			}
			return 0, g.Wait()
		}))
		k.StartOn("t", "f", 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		run, err := k.Wait(ctx, "t", "")
		if err != nil || run.Status != perdure.Failed {
			t.Errorf("run %+v, %v", run, err)
		}
	})
}

func TestTheTimeoutOfTheOuterStepIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ int) (int, error) {
			return perdure.Step(ctx, "outer", func(ctx context.Context) (int, error) {
				return perdure.Step(ctx, "inner", func(ctx context.Context) (int, error) {
					<-ctx.Done()
					return 0, ctx.Err()
				})
			}, perdure.Timeout(3*time.Second))
		}))
		k.StartOn("t", "f", 1)
		run := k.WaitFor("t", perdure.Failed)
		if strings.Contains(run.Error, "after 0s") {
			t.Error(run.Error)
		}
	})
}

type observer struct{ on string }

func (o observer) StepStarted(ctx context.Context, s perdure.StepInfo) (context.Context, func(error)) {
	if o.on == "started" {
		panic("observer")
	}
	return ctx, func(error) {
		if o.on == "ended" {
			panic("observer")
		}
	}
}

func (o observer) Committed(e perdure.Event) {
	if o.on == e.Kind {
		panic("observer")
	}
}

// An observer that panics changes nothing.
func TestAnObserverThatPanics(t *testing.T) {
	for _, on := range []string{"started", "ended", "step", "claimed", "suspended"} {
		kit.Bubble(t, on, func(t *testing.T) {
			k := kit.New(t, nil, perdure.Options{Observer: observer{on}}, perdure.NewFlow("f", func(ctx context.Context, _ int) (int, error) {
				n, err := perdure.Step(ctx, "x", func(context.Context) (int, error) { return 1, nil })
				if err != nil {
					return 0, err
				}
				return n, perdure.Sleep(ctx, "nap", time.Second)
			}))
			k.StartOn("t", "f", 1)
			time.Sleep(time.Hour)
			k.WaitFor("t", perdure.Succeeded)
		})
	}
}

// slowStore calls before each append.
type slowStore struct {
	store.Store
	before func(data []byte)
}

func (s *slowStore) Append(ctx context.Context, journal string, after uint64, entries ...[]byte) (uint64, error) {
	for _, e := range entries {
		s.before(e)
	}
	return s.Store.Append(ctx, journal, after, entries...)
}

// A cancel that is in the journal before the intent lets nothing start.
func TestACancelBeforeTheIntent(t *testing.T) {
	for _, what := range []string{"cancel", "pause"} {
		kit.Bubble(t, what, func(t *testing.T) {
			ran := 0
			once := false
			var k *kit.Kit
			s := &slowStore{Store: memstore.New()}
			s.before = func(data []byte) {
				if strings.Contains(string(data), `"intent"`) && !once {
					once = true
					var err error
					if what == "cancel" {
						err = k.Cancel(context.Background(), "t", "", perdure.Note{})
					} else {
						err = k.Pause(context.Background(), "t", "", perdure.Note{})
					}
					if err != nil {
						t.Error(err)
					}
				}
			}
			k = kit.New(t, s, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ int) (int, error) {
				_, _ = perdure.Step(ctx, "x", func(context.Context) (int, error) { return 1, nil })
				return perdure.Step(ctx, "pay", func(context.Context) (int, error) {
					ran++
					return 0, nil
				}, perdure.AtMostOnce(), perdure.Timeout(time.Second))
			}))
			k.StartOn("t", "f", 1)
			time.Sleep(time.Minute)
			synctest.Wait()
			if !once || ran != 0 {
				t.Errorf("hook %v, ran %d\n%s", once, ran, k.Trace("t"))
			}
		})
	}
}

// stuckWaiter cannot be dumped while its lock is held.
type stuckWaiter struct{ lock, freed chan struct{} }

func (d *stuckWaiter) Dump(context.Context) (json.RawMessage, error) {
	select {
	case d.lock <- struct{}{}:
		<-d.lock
	case <-d.freed: // the test has failed
	}
	return json.RawMessage(`{}`), nil
}

func (d *stuckWaiter) Load(context.Context, json.RawMessage) error { return nil }

// In development too a dump that blocks does not stop the run.
func TestABlockedDumpInDevelopment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		freed := make(chan struct{})
		dep := perdure.NewDep("d", func(context.Context) (*stuckWaiter, error) {
			return &stuckWaiter{make(chan struct{}, 1), freed}, nil
		})
		k := kit.New(t, nil, perdure.Options{Development: true}, perdure.NewFlow("f", func(ctx context.Context, _ int) (int, error) {
			d, err := dep.Get(ctx)
			if err != nil {
				return 0, err
			}
			d.lock <- struct{}{}
			defer func() { <-d.lock }()
			return perdure.Step(ctx, "x", func(context.Context) (int, error) { return 1, nil })
		}))
		k.StartOn("t", "f", 1)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		run, err := k.Wait(ctx, "t", "")
		close(freed)
		if err != nil || run.Status != perdure.Succeeded {
			t.Errorf("run %+v, %v", run, err)
		}
	})
}

// A cleanup after a timeout continues in the next pass.
func TestACleanupAfterATimeoutIsResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ int) (int, error) {
			return perdure.Step(ctx, "c", func(ctx context.Context) (n int, err error) {
				defer func() {
					if err != nil {
						_ = perdure.Cleanup(ctx, "undo", func(ctx context.Context) error {
							return perdure.Sleep(ctx, "calm", time.Hour)
						})
					}
				}()
				if _, err := perdure.Step(ctx, "slow", func(context.Context) (int, error) {
					time.Sleep(2 * time.Second)
					return 1, nil
				}); err != nil {
					return 0, err
				}
				return perdure.Step(ctx, "next", func(context.Context) (int, error) { return 2, nil })
			}, perdure.Timeout(time.Second))
		}))
		k.StartOn("t", "f", 1)
		time.Sleep(3 * time.Hour)
		k.WaitFor("t", perdure.Failed)
	})
}
