package lease

import (
	"context"
	"errors"
	"iter"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
)

// holdAs holds a lease under an id until the function it returns is called,
// which leaves the cell as it is.
func holdAs(t testing.TB, ctx context.Context, s store.Store, id string) (l *Lease, abandon func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	l, err := Hold(ctx, s, id, ttl, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l, func() {
		cancel()
		<-l.done
	}
}

// wantRoster compares a roster with ids, written with spaces between them.
func wantRoster(t testing.TB, w *Watcher, alive, died string, self ...string) []Worker {
	t.Helper()
	workers, gone, err := w.Roster(t.Context(), self...)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, worker := range workers {
		ids = append(ids, worker.ID)
	}
	if diff := cmp.Diff(alive, strings.Join(ids, " ")); diff != "" {
		t.Fatalf("alive are (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(died, strings.Join(gone, " ")); diff != "" {
		t.Fatalf("dead are (-want +got):\n%s", diff)
	}
	return workers
}

func TestRosterNamesTheLiving(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := memstore.New()
		w := NewWatcher(s)
		wantRoster(t, w, "", "")
		holdAs(t, ctx, s, "b")
		holdAs(t, ctx, s, "a")
		host, _ := os.Hostname()
		want := []Worker{{ID: "a", Host: host, Left: ttl}, {ID: "b", Host: host, Left: ttl}}
		if diff := cmp.Diff(want, wantRoster(t, w, "a b", "")); diff != "" {
			t.Errorf("the workers (-want +got):\n%s", diff)
		}
		for range 100 {
			time.Sleep(ttl / 16)
			for _, worker := range wantRoster(t, w, "a b", "") {
				if worker.Left <= ttl/2 || worker.Left > ttl {
					t.Fatalf("worker %s can be dead in %v", worker.ID, worker.Left)
				}
			}
		}
	})
}

// Each death is told once, whoever buried the worker and however it went.
func TestRosterTellsEachDeathOnce(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := memstore.New()
		w, other := NewWatcher(s), NewWatcher(s)
		holdAs(t, ctx, s, "living")
		released, _ := holdAs(t, ctx, s, "released")
		frozen, freeze := holdAs(t, ctx, s, "frozen")
		_, freezeToo := holdAs(t, ctx, s, "taken-over")
		wantRoster(t, w, "frozen living released taken-over", "")

		if err := released.Release(ctx); err != nil {
			t.Fatal(err)
		}
		wantRoster(t, w, "frozen living taken-over", "released")
		wantRoster(t, w, "frozen living taken-over", "")

		freeze()
		freezeToo()
		wantRoster(t, w, "frozen living taken-over", "")
		if dead, _, err := other.Dead(ctx, "taken-over"); dead || err != nil {
			t.Fatal(dead, err)
		}
		time.Sleep(ttl - 1)
		wantRoster(t, w, "frozen living taken-over", "")
		time.Sleep(time.Nanosecond)
		if dead, _, err := other.Dead(ctx, "taken-over"); !dead || err != nil {
			t.Fatal(dead, err)
		}
		if err := other.Bury(ctx, "taken-over"); err != nil {
			t.Fatal(err)
		}
		wantRoster(t, w, "living", "frozen taken-over")
		wantRoster(t, w, "living", "")
		wantRoster(t, other, "living", "")
		if _, err := s.Get(ctx, Prefix+"frozen"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("the lease of a dead worker: %v", err)
		}
		if frozen.Valid() {
			t.Error("a buried worker believes in its lease")
		}
	})
}

// What Dead has seen counts for Roster and the other way round, and workers
// judged before the first roster are reported as well.
func TestRosterAndDeadJudgeAlike(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := memstore.New()
		abandon(t, ctx, s)
		w := NewWatcher(s)
		mustDead(t, w)
		time.Sleep(ttl / 2)
		if left := wantRoster(t, w, "w", "")[0].Left; left != ttl/2 {
			t.Errorf("it can be dead in %v, want %v", left, ttl/2)
		}
		time.Sleep(ttl / 2)
		if dead, _ := mustDead(t, w); !dead {
			t.Error("it is alive after its ttl")
		}
		wantRoster(t, w, "", "w")

		abandon(t, ctx, s)
		w = NewWatcher(s)
		mustDead(t, w)
		time.Sleep(ttl)
		wantRoster(t, w, "", "w")
		wantRoster(t, w, "", "")
	})
}

func TestRosterWaitsLongForWhatIsNoLease(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := memstore.New()
		for _, id := range []string{"", "a/b", "garbage"} {
			if _, err := s.Put(ctx, Prefix+id, []byte("garbage"), ""); err != nil {
				t.Fatal(err)
			}
		}
		w := NewWatcher(s)
		wantRoster(t, w, " a/b garbage", "")
		time.Sleep(MaxTTL - 1)
		wantRoster(t, w, " a/b garbage", "")
		time.Sleep(time.Nanosecond)
		wantRoster(t, w, "", " a/b garbage")
	})
}

// A worker that slept long gets to renew its lease before it is judged by
// itself.
func TestRosterSparesItself(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := memstore.New()
		abandon(t, ctx, s)
		w := NewWatcher(s)
		wantRoster(t, w, "w", "", "w")
		time.Sleep(2 * ttl)
		wantRoster(t, w, "w", "", "other", "w")
		wantRoster(t, w, "", "w", "other")
	})
}

// A renewal that comes after the judgement saves the worker.
func TestRosterDoesNotBuryWhatMoves(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		inner := memstore.New()
		abandon(t, ctx, inner)
		renewals := 0
		w := NewWatcher(faulty.New(inner, func(c faulty.Call) faulty.Fault {
			if c.Op == store.OpDelete && renewals == 0 {
				renewals++
				cell := cellOf(t, inner)
				if _, err := inner.Put(ctx, cell.Key, cell.Value, cell.Version); err != nil {
					t.Error(err)
				}
			}
			return faulty.None
		}))
		wantRoster(t, w, "w", "")
		time.Sleep(ttl)
		wantRoster(t, w, "w", "")
		if left := wantRoster(t, w, "w", "")[0].Left; left != ttl || renewals != 1 {
			t.Errorf("after %d renewals it can be dead in %v, want %v", renewals, left, ttl)
		}
		time.Sleep(ttl)
		wantRoster(t, w, "", "w")
	})
}

// forgetful leaves cells out of its lists, as a store may while they are
// written, and takes its time to get them.
type forgetful struct {
	store.Store
	omit map[string]bool
}

func (s forgetful) List(ctx context.Context, prefix, after string) iter.Seq2[store.Cell, error] {
	return func(yield func(store.Cell, error) bool) {
		for cell, err := range s.Store.List(ctx, prefix, after) {
			if !s.omit[cell.Key] && !yield(cell, err) {
				return
			}
		}
	}
}

func (s forgetful) Get(ctx context.Context, key string) (store.Cell, error) {
	time.Sleep(ttl / 4)
	return s.Store.Get(ctx, key)
}

func TestRosterFindsWhatTheListLeavesOut(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		inner := memstore.New()
		s := forgetful{inner, map[string]bool{}}
		w := NewWatcher(s)
		holdAs(t, ctx, inner, "a")
		holdAs(t, ctx, inner, "c")
		_, freeze := holdAs(t, ctx, inner, "b")
		wantRoster(t, w, "a b c", "")
		s.omit[Prefix+"b"], s.omit[Prefix+"c"] = true, true
		time.Sleep(ttl / 8) // the leases move while they are got
		wantRoster(t, w, "a b c", "")
		freeze()
		// It is seen as it stays at the end of this call, and of the next no
		// earlier than at its begin.
		wantRoster(t, w, "a b c", "")
		time.Sleep(ttl - 1)
		wantRoster(t, w, "a b c", "")
		wantRoster(t, w, "a c", "b")
	})
}

// Wherever the store fails, a death is told by the next roster that succeeds.
func TestRosterLosesNoDeath(t *testing.T) {
	for _, f := range []faulty.Fault{faulty.FailBefore, faulty.FailAfter, faulty.Conflict, faulty.FailAmid(1)} {
		t.Run(f.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, ctx context.Context) {
				failed := 0
				for cut, plan := range faulty.SweepCalls(f) {
					inner := memstore.New()
					for _, id := range []string{"a", "b"} {
						_, freeze := holdAs(t, ctx, inner, id)
						freeze()
					}
					gone, _ := holdAs(t, ctx, inner, "c")
					living, _ := holdAs(t, ctx, inner, "d")
					w := NewWatcher(faulty.New(inner, plan))
					var died []string
					alive, want := 0, "a b c"
					for round := range 4 {
						workers, dead, err := w.Roster(ctx)
						if err != nil {
							failed++
						} else {
							died, alive = append(died, dead...), len(workers)
						}
						if round == 0 {
							if err != nil {
								want = "a b" // c came and went unseen
							}
							if err := gone.Release(ctx); err != nil {
								t.Fatal(err)
							}
						}
						time.Sleep(ttl)
					}
					slices.Sort(died)
					if got := strings.Join(died, " "); got != want || alive != 1 {
						t.Errorf("%s: %d are alive, dead are %q, want %q", cut, alive, got, want)
					}
					if err := living.Release(ctx); err != nil {
						t.Fatal(err)
					}
				}
				if f == faulty.FailBefore && failed == 0 {
					t.Error("no call failed")
				}
			})
		})
	}
}

// Rosters of one watcher at the same time share the deaths among them.
func TestRostersAtOnceTellEachDeathOnce(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		inner := memstore.New()
		w := NewWatcher(forgetful{inner, nil})
		for _, id := range []string{"a", "b", "c"} {
			_, freeze := holdAs(t, ctx, inner, id)
			freeze()
		}
		wantRoster(t, w, "a b c", "")
		time.Sleep(ttl)
		var mu sync.Mutex
		var died []string
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				_, dead, err := w.Roster(ctx)
				mu.Lock()
				defer mu.Unlock()
				if died = append(died, dead...); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		slices.Sort(died)
		if diff := cmp.Diff([]string{"a", "b", "c"}, died); diff != "" {
			t.Errorf("dead are (-want +got):\n%s", diff)
		}
	})
}

func TestRosterEndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		inner := memstore.New()
		abandon(t, ctx, inner)
		s := faulty.New(inner, faulty.At(1, faulty.Freeze))
		w := NewWatcher(s)
		short, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		for range 2 { // one in the store, one that waits for its turn
			wg.Go(func() {
				if _, _, err := w.Roster(short); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Roster: %v, want the end of its context", err)
				}
			})
		}
		synctest.Wait()
		wg.Wait()
		wantRoster(t, w, "w", "")
		inner.Close()
		if _, _, err := w.Roster(ctx); !errors.Is(err, store.ErrClosed) {
			t.Errorf("Roster on a closed store: %v", err)
		}
	})
}
