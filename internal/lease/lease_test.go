package lease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
)

const ttl = 4 * time.Second

// bubble runs a test in virtual time, with a context that ends with it.
func bubble(t *testing.T, test func(t *testing.T, ctx context.Context)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		test(t, ctx)
	})
}

func mustHold(t testing.TB, ctx context.Context, s store.Store) *Lease {
	t.Helper()
	l, err := Hold(ctx, s, "w", ttl, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func isLost(l *Lease) bool {
	select {
	case <-l.Lost():
		return true
	default:
		return false
	}
}

// awaitLost waits until the holder knows, which takes some renewals at most.
func awaitLost(t testing.TB, l *Lease) {
	t.Helper()
	select {
	case <-l.Lost():
	case <-time.After(2 * ttl):
		t.Fatal("the lease was taken away, and its holder does not notice")
	}
}

// cellOf returns the worker's cell, nil if there is none.
func cellOf(t testing.TB, s store.Store) *store.Cell {
	t.Helper()
	cell, err := s.Get(t.Context(), Prefix+"w")
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return &cell
}

func mustDead(t testing.TB, w *Watcher) (bool, time.Duration) {
	t.Helper()
	dead, retryIn, err := w.Dead(t.Context(), "w")
	if err != nil {
		t.Fatal(err)
	}
	return dead, retryIn
}

// switched is a plan that gives a fault to all calls while it is on.
func switched(on *atomic.Bool, f faulty.Fault) faulty.Plan {
	return func(faulty.Call) faulty.Fault {
		if on.Load() {
			return f
		}
		return faulty.None
	}
}

func TestHolderStaysAlive(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := faulty.New(memstore.New(), nil)
		l := mustHold(t, ctx, s)
		w := NewWatcher(s)
		for range 16 * 50 {
			synctest.Wait()
			if dead, retryIn := mustDead(t, w); dead || retryIn <= 0 || !l.Valid() || isLost(l) || l.Err() != nil {
				t.Fatalf("dead %v, ask again in %v, valid %v, lost %v, %v", dead, retryIn, l.Valid(), isLost(l), l.Err())
			}
			if left := l.Left(); left <= ttl/2-ttl/16 || left > ttl-ttl/4 {
				t.Fatalf("%v are left of %v", left, ttl)
			}
			time.Sleep(ttl / 16)
		}
		if n := s.Writes(); n < 4*49 || n > 4*51 {
			t.Errorf("%d writes in 50 ttls, want four in each", n)
		}
	})
}

func TestCellHoldsNoTime(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := memstore.New()
		mustHold(t, ctx, s)
		var fields map[string]any
		if err := json.Unmarshal(cellOf(t, s).Value, &fields); err != nil {
			t.Fatal(err)
		}
		if fields["n"] != 1.0 || fields["ttl"] != 4e6 || fields["host"] == nil || fields["key"] == "" || len(fields) != 4 {
			t.Errorf("the cell holds %v", fields)
		}
	})
}

// The longest that a holder can believe and the shortest after which a watcher
// can judge: the renewal and the watcher's look happen at the same moment, and
// then the holder hears nothing more of its store.
func TestFrozenHolderStopsBeforeItIsJudged(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		inner := memstore.New()
		var frozen atomic.Bool
		s := faulty.New(inner, switched(&frozen, faulty.Freeze))
		l := mustHold(t, ctx, s)
		time.Sleep(ttl / 4) // a renewal
		synctest.Wait()
		frozen.Store(true)
		w := NewWatcher(inner)
		if dead, retryIn := mustDead(t, w); dead || retryIn != ttl || parse(*cellOf(t, s.Unwrap())).N != 2 {
			t.Fatalf("dead %v, ask again in %v", dead, retryIn)
		}

		time.Sleep(ttl*3/4 - 1)
		if !l.Valid() || l.Left() != 1 {
			t.Fatalf("a moment before its end the lease is valid %v, %v left", l.Valid(), l.Left())
		}
		time.Sleep(time.Nanosecond)
		if l.Valid() || l.Left() != 0 {
			t.Fatalf("after three quarters of its ttl the lease is valid %v, %v left", l.Valid(), l.Left())
		}
		if dead, _ := mustDead(t, w); dead {
			t.Fatal("the worker is judged dead before its ttl is over")
		}
		time.Sleep(ttl/4 - 1)
		if dead, retryIn := mustDead(t, w); dead || retryIn != 1 {
			t.Fatalf("a moment before the ttl: dead %v, ask again in %v", dead, retryIn)
		}
		time.Sleep(time.Nanosecond)
		if dead, retryIn := mustDead(t, w); !dead || retryIn != 0 {
			t.Fatalf("after the ttl: dead %v, ask again in %v", dead, retryIn)
		}
		if err := w.Bury(ctx, "w"); err != nil {
			t.Fatal(err)
		}

		// It comes back, and its renewal reaches the store.
		frozen.Store(false)
		s.Thaw()
		awaitLost(t, l)
		if l.Valid() || cellOf(t, inner) != nil {
			t.Errorf("after the burial: valid %v, cell %v", l.Valid(), cellOf(t, inner))
		}
	})
}

// lossy is a store that a power failure takes back to its last synced write.
type lossy struct {
	store.Store
	mu       sync.Mutex
	kept     map[string]store.Cell
	unsynced atomic.Int64
}

func (s *lossy) keep(ctx context.Context, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept[key], _ = s.Get(ctx, key)
}

func (s *lossy) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	version, err := s.Store.Put(ctx, key, value, prev)
	s.keep(ctx, key)
	return version, err
}

func (s *lossy) Delete(ctx context.Context, key string, prev store.Version) error {
	err := s.Store.Delete(ctx, key, prev)
	s.keep(ctx, key)
	return err
}

func (s *lossy) PutUnsynced(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	s.unsynced.Add(1)
	return s.Store.Put(ctx, key, value, prev)
}

// fail is a power failure: a new store with what the old one keeps.
func (s *lossy) fail(t *testing.T) store.Store {
	t.Helper()
	after := memstore.New()
	for key, cell := range s.kept {
		if cell.Version != "" {
			if _, err := after.Put(t.Context(), key, cell.Value, ""); err != nil {
				t.Fatal(err)
			}
		}
	}
	return after
}

// TestPowerFailure: only renewals are lost with the power. A worker that had a
// lease has one afterwards, which nobody trusts for longer than a ttl, and a
// buried one stays buried.
func TestPowerFailure(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := &lossy{Store: memstore.New(), kept: map[string]store.Cell{}}
		life, die := context.WithCancel(ctx)
		l := mustHold(t, life, s)
		time.Sleep(3 * ttl)
		synctest.Wait()
		if !l.Valid() || s.unsynced.Load() < 10 || parse(s.kept[Prefix+"w"]).N != 1 {
			t.Fatalf("after three ttls: valid %v, %d unsynced renewals, the last synced write is %s", l.Valid(), s.unsynced.Load(), s.kept[Prefix+"w"].Value)
		}
		after := s.fail(t)
		w := NewWatcher(after)
		if dead, _, err := w.Dead(ctx, "w"); dead || err != nil {
			t.Errorf("after the power failure: dead %v, %v; want a lease that lapses", dead, err)
		}
		time.Sleep(ttl)
		if dead, _, err := w.Dead(ctx, "w"); !dead || err != nil {
			t.Errorf("a ttl after the power failure: dead %v, %v", dead, err)
		}

		die()
		w = NewWatcher(s)
		for range 2 {
			if _, _, err := w.Dead(ctx, "w"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(ttl)
		}
		if err := w.Bury(ctx, "w"); err != nil {
			t.Fatal(err)
		}
		if dead, _, err := NewWatcher(s.fail(t)).Dead(ctx, "w"); !dead || err != nil {
			t.Errorf("a power failure after the burial: dead %v, %v", dead, err)
		}
	})
}

// crashing is a store whose cells a crash takes back to what they were.
type crashing struct {
	store.Store
	mu    sync.Mutex
	n     int
	cells map[string]store.Cell
}

func (s *crashing) Get(_ context.Context, key string) (store.Cell, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cell, ok := s.cells[key]
	if !ok {
		return cell, store.ErrNotFound
	}
	return cell, nil
}

func (s *crashing) Put(_ context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cells[key].Version != prev {
		return "", store.ErrConflict
	}
	s.n++
	s.cells[key] = store.Cell{Key: key, Value: value, Version: store.Version(strconv.Itoa(s.n))}
	return s.cells[key].Version, nil
}

func (s *crashing) Delete(_ context.Context, key string, prev store.Version) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cells[key].Version != prev {
		return store.ErrConflict
	}
	delete(s.cells, key)
	return nil
}

// A crash of the store takes renewals back, since they are not synced. The lease
// goes on, and can be released.
func TestRenewalsTakenBack(t *testing.T) {
	for _, renewals := range []int{0, 3} {
		for _, released := range []bool{false, true} {
			t.Run(fmt.Sprint(renewals, " left, released ", released), func(t *testing.T) {
				bubble(t, func(t *testing.T, ctx context.Context) {
					s := &crashing{Store: memstore.New(), cells: map[string]store.Cell{}}
					l := mustHold(t, ctx, s)
					time.Sleep(time.Duration(renewals)*ttl/4 + 1)
					synctest.Wait()
					kept := *cellOf(t, s)
					time.Sleep(2 * ttl)
					synctest.Wait()
					s.mu.Lock()
					s.cells[kept.Key] = kept
					s.mu.Unlock()
					if got := parse(kept).N; got != uint64(renewals+1) {
						t.Fatalf("the store is back at write %d, want %d", got, renewals+1)
					}
					if !released {
						time.Sleep(ttl)
						synctest.Wait()
						if isLost(l) || !l.Valid() || l.Err() != nil {
							t.Errorf("the store is back: lost %v, valid %v, %v", isLost(l), l.Valid(), l.Err())
						}
					}
					if err := l.Release(ctx); err != nil || cellOf(t, s) != nil {
						t.Errorf("released: %v, cell %v", err, cellOf(t, s))
					}
				})
			})
		}
	}
}

func TestFailingStoreIsNotLoss(t *testing.T) {
	for name, fault := range map[string]faulty.Fault{
		"fails": faulty.FailBefore, "hangs": faulty.Freeze, "is slow": faulty.Delay(ttl), "refuses": faulty.Conflict,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, ctx context.Context) {
				var on atomic.Bool
				s := faulty.New(memstore.New(), switched(&on, fault))
				l := mustHold(t, ctx, s)
				on.Store(true)
				time.Sleep(10 * ttl)
				synctest.Wait()
				if l.Valid() || isLost(l) || l.Err() == nil {
					t.Fatalf("the store is away: valid %v, lost %v, %v", l.Valid(), isLost(l), l.Err())
				}
				on.Store(false)
				time.Sleep(ttl)
				synctest.Wait()
				if !l.Valid() || isLost(l) || l.Err() != nil {
					t.Fatalf("the store is back: valid %v, lost %v, %v", l.Valid(), isLost(l), l.Err())
				}
			})
		})
	}
}

// An outage that is shorter than two renewals is not even felt.
func TestShortOutage(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		var on atomic.Bool
		s := faulty.New(memstore.New(), switched(&on, faulty.FailBefore))
		l := mustHold(t, ctx, s)
		for range 10 {
			time.Sleep(ttl/4 - 1) // right before the renewal
			on.Store(true)
			for range 6 {
				time.Sleep(ttl / 16)
				if !l.Valid() {
					t.Fatal("the lease has lapsed")
				}
			}
			on.Store(false)
			time.Sleep(ttl / 16)
			synctest.Wait()
			if l.Err() != nil || l.Left() < ttl/2 {
				t.Fatalf("the store is back, but %v are left, %v", l.Left(), l.Err())
			}
		}
	})
}

// A store whose answers are all lost still carries the lease.
func TestLostAnswersStillRenew(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := faulty.New(memstore.New(), func(c faulty.Call) faulty.Fault {
			if c.Op.Writes() {
				return faulty.FailAfter
			}
			return faulty.None
		})
		l := mustHold(t, ctx, s)
		for range 16 * 10 {
			synctest.Wait()
			if !l.Valid() || isLost(l) {
				t.Fatalf("valid %v, lost %v", l.Valid(), isLost(l))
			}
			time.Sleep(ttl / 16)
		}
		if err := l.Release(ctx); err != nil || cellOf(t, s) != nil {
			t.Errorf("Release: %v, cell %v", err, cellOf(t, s))
		}
	})
}

// One fault at any call of a worker's life is seen by nobody.
func TestOneFaultIsInvisible(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		for cut, plan := range faulty.SweepCalls(faulty.FailBefore, faulty.FailAfter, faulty.Conflict, faulty.Delay(ttl/3)) {
			inner := memstore.New()
			s, w := faulty.New(inner, plan), NewWatcher(inner)
			l := mustHold(t, ctx, s)
			for range 16 * 2 {
				synctest.Wait()
				if dead, _ := mustDead(t, w); dead || !l.Valid() || isLost(l) {
					t.Fatalf("%s: dead %v, valid %v, lost %v", cut, dead, l.Valid(), isLost(l))
				}
				time.Sleep(ttl / 16)
			}
			if err := l.Release(ctx); err != nil || l.Valid() || isLost(l) {
				t.Errorf("%s: Release: %v, valid %v, lost %v", cut, err, l.Valid(), isLost(l))
			}
			if dead, _ := mustDead(t, w); !dead || cellOf(t, inner) != nil {
				t.Errorf("%s: released, dead %v, cell %v", cut, dead, cellOf(t, inner))
			}
		}
	})
}

func TestLost(t *testing.T) {
	for name, take := range map[string]func(s store.Store, c store.Cell) error{
		"deleted": func(s store.Store, c store.Cell) error { return s.Delete(context.Background(), c.Key, c.Version) },
		"overwritten": func(s store.Store, c store.Cell) error {
			_, err := s.Put(context.Background(), c.Key, []byte("another's"), c.Version)
			return err
		},
		"held by another": func(s store.Store, c store.Cell) error {
			data, _ := value{N: 1000, TTL: 1, Holder: "another"}.encode()
			_, err := s.Put(context.Background(), c.Key, data, c.Version)
			return err
		},
		// A first write that came late, after the cell was removed.
		"written again": func(s store.Store, c store.Cell) error {
			if err := s.Delete(context.Background(), c.Key, c.Version); err != nil {
				return err
			}
			_, err := s.Put(context.Background(), c.Key, c.Value, "")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, ctx context.Context) {
				s := faulty.New(memstore.New(), nil)
				l := mustHold(t, ctx, s)
				if err := take(s, *cellOf(t, s)); err != nil {
					t.Fatal(err)
				}
				left := cellOf(t, s)
				awaitLost(t, l)
				if l.Valid() || l.Left() != 0 {
					t.Errorf("the lease is lost: valid %v, %v left", l.Valid(), l.Left())
				}
				time.Sleep(10 * ttl)
				synctest.Wait()
				if err := l.Release(ctx); err != nil {
					t.Error(err)
				}
				switch now := cellOf(t, s); {
				case now == nil && left == nil:
				case now == nil, left == nil, now.Version != left.Version:
					t.Errorf("the cell was %v and is %v", left, now)
				}
			})
		})
	}
}

func TestIdIsTaken(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := memstore.New()
		l := mustHold(t, ctx, s)
		if _, err := Hold(ctx, s, "w", ttl, nil); !errors.Is(err, ErrTaken) {
			t.Errorf("Hold of a taken id: %v, want ErrTaken", err)
		}
		if err := l.Release(ctx); err != nil {
			t.Fatal(err)
		}
		if l := mustHold(t, ctx, s); !l.Valid() {
			t.Error("the new lease is not valid")
		}
	})
}

func TestHoldRefuses(t *testing.T) {
	ctx, s := t.Context(), memstore.New()
	for _, c := range []struct {
		id  string
		ttl time.Duration
	}{{"", ttl}, {"w", 0}, {"w", -1}, {"w", MinTTL - 1}, {"w", MaxTTL + 1}, {string(make([]byte, store.MaxName)), ttl}} {
		if _, err := Hold(ctx, s, c.id, c.ttl, nil); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("Hold(%.9q, %v): %v, want ErrInvalid", c.id, c.ttl, err)
		}
	}
	s.Close()
	if _, err := Hold(ctx, s, "w", ttl, nil); !errors.Is(err, store.ErrClosed) {
		t.Errorf("Hold on a closed store: %v, want ErrClosed", err)
	}
}

func TestHoldEndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := faulty.New(memstore.New(), func(faulty.Call) faulty.Fault { return faulty.FailBefore })
		short, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if _, err := Hold(short, s, "w", ttl, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Hold: %v, want the end of its context", err)
		}
		if n := s.Calls(); n < 100 || n > 10_000 {
			t.Errorf("it made %d calls in a minute", n)
		}
	})
}

// stopped is a store whose user is stopped while it writes.
type stopped struct {
	store.Store
	stop func()
}

func (s stopped) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	_, err := s.Store.Put(ctx, key, value, prev)
	s.stop()
	return "", errors.Join(err, ctx.Err())
}

// A holder that is stopped while it writes its lease leaves none.
func TestHoldThatIsStoppedLeavesNothing(t *testing.T) {
	s := memstore.New()
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := Hold(ctx, stopped{s, cancel}, "w", ttl, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Hold: %v, want the end of its context", err)
	}
	if cell, err := s.Get(t.Context(), Prefix+"w"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the cell is %s, %v", cell.Value, err)
	}
}

// A cancelled holder does not renew, lapses, and can still be released.
func TestContextEndsTheLease(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := faulty.New(memstore.New(), nil)
		holdCtx, cancel := context.WithCancel(ctx)
		l := mustHold(t, holdCtx, s)
		cancel()
		time.Sleep(ttl)
		synctest.Wait()
		if l.Valid() || isLost(l) || s.Writes() != 1 || cellOf(t, s) == nil {
			t.Errorf("valid %v, lost %v, %d writes", l.Valid(), isLost(l), s.Writes())
		}
		if err := l.Release(ctx); err != nil || cellOf(t, s) != nil {
			t.Errorf("Release: %v, cell %v", err, cellOf(t, s))
		}
	})
}

func TestRelease(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		inner := memstore.New()
		var frozen atomic.Bool
		s := faulty.New(inner, switched(&frozen, faulty.Freeze))
		l := mustHold(t, ctx, s)

		// A renewal is on its way, and the store does not answer.
		frozen.Store(true)
		time.Sleep(ttl / 4)
		synctest.Wait()
		short, cancel := context.WithTimeout(ctx, ttl)
		defer cancel()
		if err := l.Release(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Release: %v, want the end of its context", err)
		}
		if l.Valid() || cellOf(t, inner) == nil {
			t.Errorf("valid %v, cell %v", l.Valid(), cellOf(t, inner))
		}

		frozen.Store(false)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if err := l.Release(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if cellOf(t, inner) != nil || isLost(l) {
			t.Errorf("released: cell %v, lost %v", cellOf(t, inner), isLost(l))
		}

		// Released again, it does not touch the next holder's lease.
		next := mustHold(t, ctx, s)
		if err := l.Release(ctx); err != nil || cellOf(t, inner) == nil || !next.Valid() {
			t.Errorf("the second Release: %v, cell %v", err, cellOf(t, inner))
		}
		time.Sleep(2 * ttl)
		synctest.Wait()
		if isLost(l) || !next.Valid() {
			t.Errorf("after a while: lost %v, the next holder's valid %v", isLost(l), next.Valid())
		}
		inner.Close()
		if err := l.Release(ctx); err != nil {
			t.Errorf("Release of what is released needs the store: %v", err)
		}
		if err := next.Release(ctx); !errors.Is(err, store.ErrClosed) {
			t.Errorf("Release on a closed store: %v, want ErrClosed", err)
		}
	})
}
