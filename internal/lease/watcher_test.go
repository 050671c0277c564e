package lease

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
)

// abandon leaves a lease that nobody renews.
func abandon(t testing.TB, ctx context.Context, s store.Store) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	l := mustHold(t, ctx, s)
	cancel()
	<-l.done
}

func TestWorkerWithoutALeaseIsDead(t *testing.T) {
	s := memstore.New()
	w := NewWatcher(s)
	if dead, retryIn := mustDead(t, w); !dead || retryIn != 0 {
		t.Errorf("dead %v, ask again in %v", dead, retryIn)
	}
	if err := w.Bury(t.Context(), "w"); err != nil {
		t.Error(err)
	}
	if len(w.seen) != 0 {
		t.Errorf("%d workers are remembered that never were", len(w.seen))
	}
}

// However long a worker has been dead, each watcher has to see it for itself.
func TestWatchersJudgeFromTheirFirstLook(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := memstore.New()
		abandon(t, ctx, s)
		early, late := NewWatcher(s), NewWatcher(s)
		mustDead(t, early)
		time.Sleep(ttl / 2)
		if dead, retryIn := mustDead(t, late); dead || retryIn != ttl {
			t.Fatalf("the late watcher's first look: dead %v, ask again in %v", dead, retryIn)
		}
		dead, retryIn := mustDead(t, early)
		if dead || retryIn != ttl/2 {
			t.Fatalf("the early watcher: dead %v, ask again in %v", dead, retryIn)
		}
		time.Sleep(retryIn)
		if dead, _ := mustDead(t, early); !dead {
			t.Fatal("the early watcher sees it alive after its ttl")
		}
		if dead, retryIn := mustDead(t, late); dead || retryIn != ttl/2 {
			t.Fatalf("the late watcher: dead %v, ask again in %v", dead, retryIn)
		}
		if err := late.Bury(ctx, "w"); !errors.Is(err, ErrAlive) {
			t.Errorf("the late watcher buries what it did not judge: %v", err)
		}
		if err := early.Bury(ctx, "w"); err != nil {
			t.Fatal(err)
		}
		if dead, _ := mustDead(t, late); !dead {
			t.Error("for the late watcher a buried worker lives")
		}
		if err := late.Bury(ctx, "w"); err != nil {
			t.Errorf("burying what is buried: %v", err)
		}
	})
}

func TestMovementBeginsTheTimeAnew(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := memstore.New()
		abandon(t, ctx, s)
		w := NewWatcher(s)
		mustDead(t, w)
		time.Sleep(ttl)
		if dead, _ := mustDead(t, w); !dead {
			t.Fatal("it is alive after its ttl")
		}
		cell := cellOf(t, s)
		if _, err := s.Put(ctx, cell.Key, cell.Value, cell.Version); err != nil { // the same bytes
			t.Fatal(err)
		}
		if err := w.Bury(ctx, "w"); !errors.Is(err, ErrAlive) || cellOf(t, s) == nil {
			t.Fatalf("burying a worker that came back: %v, cell %v", err, cellOf(t, s))
		}
		if dead, retryIn := mustDead(t, w); dead || retryIn != ttl {
			t.Fatalf("it moved: dead %v, ask again in %v", dead, retryIn)
		}
		if err := w.Bury(ctx, "w"); !errors.Is(err, ErrAlive) {
			t.Errorf("burying a worker that is not judged: %v, want ErrAlive", err)
		}
	})
}

func TestAbsurdTTL(t *testing.T) {
	for text, patience := range map[string]time.Duration{
		`{"n":1,"ttl":0}`:                   MaxTTL,
		`{"n":1,"ttl":-5}`:                  MaxTTL,
		`{"n":1}`:                           MaxTTL,
		`{"n":1,"ttl":600000000}`:           MaxTTL,
		`{"n":1,"ttl":600000001}`:           MaxTTL,
		`{"n":1,"ttl":9223372036854775807}`: MaxTTL,
		`{"n":1,"ttl":"4s"}`:                MaxTTL,
		`garbage`:                           MaxTTL,
		``:                                  MaxTTL,
		`{"n":1,"ttl":1}`:                   time.Microsecond,
		`{"n":1,"ttl":2000000,"new":true}`:  2 * time.Second,
	} {
		t.Run(text, func(t *testing.T) {
			bubble(t, func(t *testing.T, ctx context.Context) {
				s := memstore.New()
				if _, err := s.Put(ctx, Prefix+"w", []byte(text), ""); err != nil {
					t.Fatal(err)
				}
				w := NewWatcher(s)
				if dead, retryIn := mustDead(t, w); dead || retryIn != patience {
					t.Fatalf("dead %v, ask again in %v, want %v", dead, retryIn, patience)
				}
				time.Sleep(patience - 1)
				if dead, _ := mustDead(t, w); dead {
					t.Fatal("it is dead before its time")
				}
				time.Sleep(time.Nanosecond)
				if dead, _ := mustDead(t, w); !dead {
					t.Fatal("it is alive after its time")
				}
				if err := w.Bury(ctx, "w"); err != nil || cellOf(t, s) != nil {
					t.Errorf("Bury: %v, cell %v", err, cellOf(t, s))
				}
			})
		})
	}
}

// A bubble's clock begins in another year than the clock outside: neither a
// watcher far ahead of the holder nor one far behind judges by that.
func TestClocksNeedNotAgree(t *testing.T) {
	s := memstore.New()
	bubble(t, func(t *testing.T, ctx context.Context) { abandon(t, ctx, s) })
	if dead, _ := mustDead(t, NewWatcher(s)); dead {
		t.Error("a watcher whose clock is years ahead judges at its first look")
	}
	bubble(t, func(t *testing.T, ctx context.Context) {
		time.Sleep(100 * 24 * time.Hour)
		w := NewWatcher(s)
		mustDead(t, w)
		time.Sleep(ttl)
		if dead, _ := mustDead(t, w); !dead {
			t.Error("a watcher on a clock of its own does not judge after the ttl")
		}
	})
}

// A look that takes long proves less: the cell may have moved right before the
// first one ended, or right after the last one began.
func TestSlowLooksProveLess(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		inner := memstore.New()
		abandon(t, ctx, inner)
		w := NewWatcher(faulty.New(inner, func(faulty.Call) faulty.Fault { return faulty.Delay(ttl / 2) }))
		for i, want := range []struct {
			dead    bool
			retryIn time.Duration
		}{{false, ttl}, {false, ttl / 2}, {false, 0}, {true, 0}} {
			if dead, retryIn := mustDead(t, w); dead != want.dead || retryIn != want.retryIn {
				t.Errorf("look %d: dead %v, ask again in %v; want %v, %v", i, dead, retryIn, want.dead, want.retryIn)
			}
		}
	})
}

func TestStoreErrorsAreNoVerdict(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		inner := memstore.New()
		abandon(t, ctx, inner)
		w := NewWatcher(faulty.New(inner, faulty.At(2, faulty.FailBefore)))
		mustDead(t, w)
		time.Sleep(ttl)
		if dead, _, err := w.Dead(ctx, "w"); dead || !errors.Is(err, faulty.ErrInjected) {
			t.Errorf("the store fails: dead %v, %v", dead, err)
		}
		if dead, _ := mustDead(t, w); !dead {
			t.Error("a look that failed made the watcher forget")
		}
	})
}

func TestBuryUnderFaults(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		for cut, plan := range faulty.SweepCalls(faulty.FailBefore, faulty.FailAfter, faulty.Conflict) {
			inner := memstore.New()
			abandon(t, ctx, inner)
			w := NewWatcher(inner)
			mustDead(t, w)
			time.Sleep(ttl)
			mustDead(t, w)
			w.s = faulty.New(inner, plan)
			if err := w.Bury(ctx, "w"); err != nil || cellOf(t, inner) != nil {
				t.Errorf("%s: Bury: %v, cell %v", cut, err, cellOf(t, inner))
			}
		}
	})
}

func TestWatcherForgets(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := memstore.New()
		w := NewWatcher(s)
		for i := range 100 {
			id := strconv.Itoa(i)
			if _, err := s.Put(ctx, Prefix+id, nil, ""); err != nil {
				t.Fatal(err)
			}
			if _, _, err := w.Dead(ctx, id); err != nil {
				t.Fatal(err)
			}
		}
		abandon(t, ctx, s)
		for range 10 {
			mustDead(t, w)
			time.Sleep(MaxTTL / 2)
		}
		if len(w.seen) != 1 {
			t.Errorf("%d workers are remembered, want the one that is asked for", len(w.seen))
		}
		if dead, _ := mustDead(t, w); !dead {
			t.Error("the one that is asked for was forgotten")
		}
	})
}

func TestManyAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := memstore.New()
		w := NewWatcher(s)
		var wg sync.WaitGroup
		for i := range 16 {
			id := fmt.Sprint("w", i/2)
			wg.Go(func() {
				l, err := Hold(ctx, s, id, ttl, nil)
				if errors.Is(err, ErrTaken) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(3 * ttl)
				if !l.Valid() || isLost(l) {
					t.Errorf("%s: valid %v, lost %v", id, l.Valid(), isLost(l))
				}
				if err := l.Release(ctx); err != nil {
					t.Error(err)
				}
			})
			wg.Go(func() {
				time.Sleep(ttl / 8)
				for range 20 {
					if dead, _, err := w.Dead(ctx, id); dead || err != nil {
						t.Errorf("%s: dead %v, %v", id, dead, err)
					}
					if err := w.Bury(ctx, id); !errors.Is(err, ErrAlive) {
						t.Errorf("%s: Bury: %v, want ErrAlive", id, err)
					}
					time.Sleep(ttl / 8)
				}
			})
		}
		wg.Wait()
	})
}

// network is a store at the end of a line that is slow and brings writes after
// their caller has given up on them.
type network struct {
	store.Store
	mu  sync.Mutex
	rnd *rand.Rand
}

func (n *network) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	return send(ctx, n, func(ctx context.Context) (store.Version, error) { return n.Store.Put(ctx, key, value, prev) })
}

func (n *network) Delete(ctx context.Context, key string, prev store.Version) error {
	_, err := send(ctx, n, func(ctx context.Context) (any, error) { return nil, n.Store.Delete(ctx, key, prev) })
	return err
}

func (n *network) Get(ctx context.Context, key string) (store.Cell, error) {
	return send(ctx, n, func(ctx context.Context) (store.Cell, error) { return n.Store.Get(ctx, key) })
}

func send[T any](ctx context.Context, n *network, call func(context.Context) (T, error)) (T, error) {
	n.mu.Lock()
	there, back := n.delay(), n.delay()
	n.mu.Unlock()
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		time.Sleep(there)
		value, err := call(context.WithoutCancel(ctx))
		time.Sleep(back)
		answers <- answer{value, err}
	}()
	select {
	case a := <-answers:
		return a.value, a.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// delay is mostly short, and sometimes as long as makes a difference.
func (n *network) delay() time.Duration {
	if n.rnd.IntN(4) > 0 {
		return time.Duration(n.rnd.Int64N(int64(ttl / 16)))
	}
	return time.Duration(n.rnd.Int64N(int64(ttl)))
}

// Over any line: once a worker is buried it does not believe in its lease, and
// never does again.
func TestBuriedWorkersAreNeverValid(t *testing.T) {
	buried := 0
	for seed := range uint64(300) {
		bubble(t, func(t *testing.T, ctx context.Context) {
			inner := memstore.New()
			l := mustHold(t, ctx, &network{Store: inner, rnd: rand.New(rand.NewPCG(seed, 1))})
			w := NewWatcher(&network{Store: inner, rnd: rand.New(rand.NewPCG(seed, 2))})
			rnd := rand.New(rand.NewPCG(seed, 3))
			for range 300 {
				dead, retryIn := mustDead(t, w)
				if !dead {
					time.Sleep(min(retryIn, time.Duration(rnd.Int64N(int64(ttl)))))
					continue
				}
				err := w.Bury(ctx, "w")
				if errors.Is(err, ErrAlive) {
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				buried++
				for range 100 {
					if l.Valid() {
						t.Fatalf("seed %d: a buried worker believes in its lease, %v left", seed, l.Left())
					}
					time.Sleep(ttl / 10)
				}
				if !isLost(l) || cellOf(t, inner) != nil {
					t.Errorf("seed %d: lost %v, cell %v", seed, isLost(l), cellOf(t, inner))
				}
				return
			}
		})
	}
	if buried < 20 {
		t.Errorf("only %d workers were buried; the line is too good", buried)
	}
}

// outage is a store that cannot be reached while it is down.
type outage struct {
	store.Store
	down atomic.Bool
}

func (o *outage) Unwrap() store.Store { return nil } // with its upgrades it would be reached

func (o *outage) err() error {
	if o.down.Load() {
		return store.ErrUnavailable
	}
	return nil
}

func (o *outage) Get(ctx context.Context, key string) (store.Cell, error) {
	if err := o.err(); err != nil {
		return store.Cell{}, err
	}
	return o.Store.Get(ctx, key)
}

func (o *outage) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	if err := o.err(); err != nil {
		return "", err
	}
	return o.Store.Put(ctx, key, value, prev)
}

func (o *outage) List(ctx context.Context, prefix, after string) iter.Seq2[store.Cell, error] {
	return func(yield func(store.Cell, error) bool) {
		if err := o.err(); err != nil {
			yield(store.Cell{}, err)
			return
		}
		o.Store.List(ctx, prefix, after)(yield)
	}
}

// While the store is away nobody can renew a lease: a watcher that sees it again
// first does not take the others for dead. Those who are, are found a ttl later. A
// moment's failure changes nothing.
func TestOutageKillsNobody(t *testing.T) {
	for name, look := range map[string]func(t *testing.T, w *Watcher) (dead bool, err error){
		"dead": func(t *testing.T, w *Watcher) (bool, error) {
			dead, _, err := w.Dead(t.Context(), "w")
			return dead, err
		},
		"roster": func(t *testing.T, w *Watcher) (bool, error) {
			alive, _, err := w.Roster(t.Context())
			return len(alive) == 0, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, ctx context.Context) {
				s := &outage{Store: memstore.New()}
				abandon(t, ctx, s)
				w := NewWatcher(s)
				want := func(what string, want bool) {
					t.Helper()
					if dead, err := look(t, w); err != nil || dead != want {
						t.Fatalf("%s: dead %v, %v", what, dead, err)
					}
				}
				want("the first look", false)
				s.down.Store(true)
				for range 40 {
					time.Sleep(ttl / 4)
					if _, err := look(t, w); !errors.Is(err, store.ErrUnavailable) {
						t.Fatal(err)
					}
				}
				s.down.Store(false)
				want("after the outage", false)
				for range 3 {
					time.Sleep(ttl / 4)
					want("before its ttl has passed again", false)
					s.down.Store(true)
					look(t, w)
					s.down.Store(false)
				}
				time.Sleep(ttl / 4)
				want("when it has", true)
			})
		})
	}
}
