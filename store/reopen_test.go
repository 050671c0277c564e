package store_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
	"github.com/perdure/perdure/store/storetest"
)

func TestReopenIsAStore(t *testing.T) {
	storetest.Run(t, func(ctx context.Context, dir string) (store.Store, error) {
		return store.Reopen(ctx, func(context.Context) (store.Store, error) { return memstore.Open(dir), nil })
	})
}

func TestReopenOfAStoreWithoutUpgrades(t *testing.T) {
	storetest.Run(t, func(ctx context.Context, dir string) (store.Store, error) {
		return store.Reopen(ctx, func(context.Context) (store.Store, error) { return plain{memstore.Open(dir)}, nil })
	})
}

func TestReopenForwardsUpgrades(t *testing.T) {
	storetest.Wraps(t, func(s store.Store) store.Store {
		r, err := store.Reopen(t.Context(), func(context.Context) (store.Store, error) { return s, nil })
		if err != nil {
			t.Fatal(err)
		}
		return r
	})
}

func TestReopenTellsWhyItCannotOpenAtFirst(t *testing.T) {
	d := newDisk(t)
	d.set(false, store.ErrLocked)
	if s, err := store.Reopen(t.Context(), d.open); s != nil || !errors.Is(err, store.ErrLocked) || errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Reopen = %v, %v, want the error of open as it is", s, err)
	}
}

// reopenCalls are one call of each kind, on a store in which fill was called.
var reopenCalls = map[store.Op]func(ctx context.Context, s store.Store, v store.Version) error{
	store.OpAppend: func(ctx context.Context, s store.Store, _ store.Version) error {
		_, err := s.Append(ctx, "j", 1, []byte("new"))
		return err
	},
	store.OpRead: func(ctx context.Context, s store.Store, _ store.Version) error {
		_, err := store.ReadAll(ctx, s, "j", 0)
		return err
	},
	store.OpJournals: func(ctx context.Context, s store.Store, _ store.Version) error { return last(s.Journals(ctx, "")) },
	store.OpDrop:     func(ctx context.Context, s store.Store, _ store.Version) error { return s.Drop(ctx, "j") },
	store.OpGet: func(ctx context.Context, s store.Store, _ store.Version) error {
		_, err := s.Get(ctx, "c")
		return err
	},
	store.OpPut: func(ctx context.Context, s store.Store, v store.Version) error {
		_, err := s.Put(ctx, "c", []byte("new"), v)
		return err
	},
	store.OpDelete: func(ctx context.Context, s store.Store, v store.Version) error { return s.Delete(ctx, "c", v) },
	store.OpList:   func(ctx context.Context, s store.Store, _ store.Version) error { return last(s.List(ctx, "", "")) },
}

func last[T any](items iter.Seq2[T, error]) (err error) {
	for _, err = range items {
	}
	return err
}

func fill(t *testing.T, s store.Store) store.Version {
	t.Helper()
	_, err := s.Append(t.Context(), "j", 0, []byte("old"))
	v, putErr := s.Put(t.Context(), "c", []byte("old"), "")
	if err := errors.Join(err, putErr); err != nil {
		t.Fatal(err)
	}
	return v
}

// A handle dies at a call, with all its reads, before or after it was done.
func TestReopenAfterAnyCall(t *testing.T) {
	for _, op := range store.Ops() {
		for _, fault := range []faulty.Fault{faulty.CrashBefore, faulty.CrashAfter} {
			t.Run(fmt.Sprintf("%s %s", fault, op), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					d := newDisk(t)
					crash := fault
					d.opened = func(b *brittle) store.Store {
						defer func() { crash = faulty.None }() // the first handle only
						return faulty.New(b, faulty.At(1, crash))
					}
					v := fill(t, d.keeper)
					s := d.reopen()
					err := reopenCalls[op](t.Context(), s, v)
					unavailable(t, "the call", err)
					if !errors.Is(err, faulty.ErrInjected) || !strings.Contains(err.Error(), string(op)) {
						t.Errorf("the call = %v, want what happened to it", err)
					}
					err = reopenCalls[op](t.Context(), s, v)
					if done := fault == faulty.CrashAfter && (op == store.OpAppend || op == store.OpPut || op == store.OpDelete); done {
						if !errors.Is(err, store.ErrConflict) {
							t.Errorf("the call again, which had happened = %v, want ErrConflict", err)
						}
					} else if err != nil {
						t.Errorf("the call again = %v", err)
					}
					synctest.Wait()
					if d.tries() != 2 || d.live() != 1 {
						t.Errorf("the engine was opened %d times and has %d handles, want 2 and 1", d.tries(), d.live())
					}
				})
			})
		}
	}
}

// While it cannot be opened, writes fail at once and reads are answered by the
// old handle; it is tried rarely; and when it can be opened all goes on.
func TestReopenFailsForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		v := fill(t, d.keeper)
		s := d.reopen()
		d.set(true, fmt.Errorf("%w: %w: cannot make a file", store.ErrFull, store.ErrCorrupt))
		start := time.Now()
		var writes int
		for n := range 1000 { // ten seconds
			_, err := s.Append(t.Context(), "j", 1, []byte("x"))
			unavailable(t, "Append", err)
			if !errors.Is(err, store.ErrFull) {
				t.Fatalf("Append = %v, want its cause too", err)
			}
			if n > 0 && !strings.Contains(err.Error(), "cannot make a file") {
				t.Fatalf("Append = %v, want the error of opening", err)
			}
			cell, err := s.Get(t.Context(), "c")
			if err != nil || string(cell.Value) != "old" {
				t.Fatalf("Get = %q, %v, want what the old handle holds", cell.Value, err)
			}
			entries, err := store.ReadAll(t.Context(), s, "j", 0)
			if err != nil || len(entries) != 1 {
				t.Fatalf("Read = %d entries, %v, want 1", len(entries), err)
			}
			writes++
			time.Sleep(10 * time.Millisecond)
		}
		if took := time.Since(start); took != time.Duration(writes)*10*time.Millisecond {
			t.Errorf("%d writes took %v, want none of them to wait", writes, took)
		}
		var pauses []time.Duration
		for i := 2; i < len(d.opens); i++ {
			pauses = append(pauses, d.opens[i].Sub(d.opens[i-1]))
		}
		want := []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond}
		for range 8 {
			want = append(want, time.Second)
		}
		if diff := cmp.Diff(want, pauses); diff != "" {
			t.Errorf("between the tries to open (-want +got):\n%s", diff)
		}

		// It can be opened, but not written to: it is not opened for each write.
		d.set(true, nil)
		tries := d.tries()
		for range 1000 {
			_, err := s.Put(t.Context(), "c", []byte("new"), v)
			unavailable(t, "Put", err)
			time.Sleep(10 * time.Millisecond)
		}
		if n := d.tries() - tries; n < 9 || n > 11 {
			t.Errorf("opened %d times in ten seconds in which writes failed, want about one a second", n)
		}
		d.set(false, nil)
		time.Sleep(time.Second)
		if _, err := s.Put(t.Context(), "c", []byte("new"), v); err != nil {
			t.Errorf("Put when there is space = %v", err)
		}
		// A write that succeeded ends the long pauses.
		d.set(true, nil)
		_, err := s.Append(t.Context(), "j", 1, []byte("x"))
		unavailable(t, "Append", err)
		d.set(false, nil)
		time.Sleep(time.Second)
		if _, err := s.Append(t.Context(), "j", 1, []byte("x")); err != nil {
			t.Errorf("Append when there is space = %v", err)
		}
		synctest.Wait()
		if d.live() != 1 {
			t.Errorf("%d handles are open, want 1", d.live())
		}
	})
}

// The helpers find out what became of their call, at whichever call the handle
// dies, and make the change once.
func TestReopenUnderTheHelpers(t *testing.T) {
	for n := 1; n <= 14; n++ {
		for _, fault := range []faulty.Fault{faulty.CrashBefore, faulty.CrashAfter} {
			synctest.Test(t, func(t *testing.T) {
				d := newDisk(t)
				calls := 0
				d.opened = func(b *brittle) store.Store {
					return faulty.New(b, func(faulty.Call) faulty.Fault { // called one at a time
						if calls++; calls == n {
							return fault
						}
						return faulty.None
					})
				}
				s := d.reopen()
				for i := range uint64(3) {
					if last, err := store.AppendOnce(t.Context(), s, "j", i, fmt.Append(nil, i)); err != nil || last != i+1 {
						t.Fatalf("%s call %d: AppendOnce behind %d = %d, %v", fault, n, i, last, err)
					}
				}
				if entries, err := store.ReadAll(t.Context(), d.keeper, "j", 0); err != nil || len(entries) != 3 {
					t.Errorf("%s call %d: the journal has %d entries, %v, want 3", fault, n, len(entries), err)
				}
				for i := range 3 {
					_, err := store.Update(t.Context(), s, "c", func(old store.Cell) ([]byte, error) {
						return append(old.Value, byte('0'+i)), nil
					})
					if err != nil && (fault != faulty.CrashAfter || !errors.Is(err, store.ErrUnavailable)) {
						t.Fatalf("%s call %d: Update = %v", fault, n, err)
					}
				}
				if cell, err := d.keeper.Get(t.Context(), "c"); err != nil || string(cell.Value) != "012" {
					t.Errorf("%s call %d: the cell holds %q, %v, want each change once", fault, n, cell.Value, err)
				}
			})
		}
	}
}

// TestCallersAreToldSoon has no deadline: only work that nobody waits for waits
// until the disk has space again, and then goes on.
func TestCallersAreToldSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		s := d.reopen()
		var told []error
		s.(store.Notifier).Notify(func(err error) { told = append(told, err) })
		d.set(true, nil)
		once := func(ctx context.Context) error {
			_, err := store.AppendOnce(ctx, s, "j", 0, []byte("x"))
			return err
		}
		update := func(ctx context.Context) error {
			_, err := store.Update(ctx, s, "c", func(store.Cell) ([]byte, error) { return []byte("x"), nil })
			return err
		}
		if err := once(t.Context()); !errors.Is(err, store.ErrUnknown) || !errors.Is(err, store.ErrFull) {
			t.Errorf("AppendOnce on a full disk = %v, want ErrUnknown and ErrFull", err)
		}
		if err := update(t.Context()); !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, store.ErrFull) {
			t.Errorf("Update on a full disk = %v, want ErrUnavailable and ErrFull", err)
		}
		done := make(chan error)
		go func() { done <- errors.Join(once(store.Patient(t.Context())), update(store.Patient(t.Context()))) }()
		time.Sleep(time.Hour)
		if len(told) != 1 || !errors.Is(told[0], store.ErrFull) {
			t.Errorf("while the disk is full, %v was told, want that once", told)
		}
		if found, err := store.Warnings(t.Context(), s); err != nil || len(found) != 1 || found[0].Kind != store.WarnSpace {
			t.Errorf("while the disk is full, the store warns of %v, %v", found, err)
		}
		d.set(false, nil)
		if err := <-done; err != nil {
			t.Errorf("who is patient gets %v", err)
		}
		time.Sleep(2 * time.Second)
		if err := update(t.Context()); err != nil {
			t.Error(err)
		}
		if len(told) != 2 || told[1] != nil {
			t.Errorf("%v was told, want the end too", told)
		}
		if found, err := store.Warnings(t.Context(), s); err != nil || len(found) != 0 {
			t.Errorf("when all is over, the store warns of %v, %v", found, err)
		}
	})
}

func TestUpdateEndsWithItsContextWhileTheStoreIsUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		s := d.reopen()
		d.set(true, nil)
		ctx, cancel := context.WithTimeout(store.Patient(t.Context()), time.Minute)
		defer cancel()
		_, err := store.Update(ctx, s, "c", func(store.Cell) ([]byte, error) { return []byte("x"), nil })
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, store.ErrFull) {
			t.Errorf("Update = %v, want the end of its context and why it waited", err)
		}
		_, err = store.AppendOnce(ctx, s, "j", 0, []byte("x"))
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("AppendOnce = %v, want the end of its context", err)
		}
	})
}

// Many calls meet the failure at once: the engine is opened once, the others
// wait for that, each as long as its context allows.
func TestReopenOnceForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		s := d.reopen()
		d.set(true, nil)
		var calls, meet sync.WaitGroup
		meet.Add(20)
		d.gate = func() { meet.Done(); meet.Wait() }
		for i := range 20 {
			calls.Go(func() {
				_, err := s.Append(t.Context(), fmt.Sprint("j", i), 0, []byte("x"))
				unavailable(t, "Append", err)
			})
		}
		calls.Wait()
		d.set(false, nil)
		d.gate = nil
		d.hold = make(chan struct{})
		for i := range 20 {
			calls.Go(func() {
				if _, err := s.Append(t.Context(), fmt.Sprint("j", i), 0, []byte("x")); err != nil {
					t.Errorf("Append after the failure = %v", err)
				}
			})
		}
		short, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		calls.Go(func() {
			if _, err := s.Get(short, "c"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Get during a long opening = %v, want the end of its context", err)
			}
		})
		<-short.Done()
		synctest.Wait()
		close(d.hold)
		calls.Wait()
		synctest.Wait()
		if d.tries() != 2 || d.live() != 1 {
			t.Errorf("opened %d times, %d handles are open, want 2 and 1", d.tries(), d.live())
		}
	})
}

// A loop that is under way goes on on the old handle, which is closed behind
// it, and its body may call the store.
func TestReopenClosesTheOldHandleBehindItsLastUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		s := d.reopen()
		for i := range uint64(3) {
			if _, err := s.Append(t.Context(), "j", i, []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		for e, err := range s.Read(t.Context(), "j", 0) {
			if err != nil {
				t.Fatalf("Read on the old handle = %v", err)
			}
			if e.Seq == 1 {
				d.set(true, nil)
				_, err := s.Append(t.Context(), "j", 3, []byte("x"))
				unavailable(t, "Append in the loop", err)
				d.set(false, nil)
			}
			if _, err := s.Append(t.Context(), "k", e.Seq-1, []byte("x")); err != nil {
				t.Fatalf("Append in the loop, on the new handle = %v", err)
			}
			synctest.Wait()
			if d.live() != 2 {
				t.Fatalf("%d handles are open in a loop on the old one, want 2", d.live())
			}
		}
		if d.live() != 1 {
			t.Errorf("%d handles are open after the loop, want 1", d.live())
		}
	})
}

func TestReopenKeepsWatchersAndListeners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		s := d.reopen()
		woken, heard := 0, []string(nil)
		var loops sync.WaitGroup
		loops.Go(func() {
			for range store.Watch(t.Context(), s, "j") {
				woken++
			}
		})
		loops.Go(func() {
			for m := range store.Listen(t.Context(), s, "topic") {
				heard = append(heard, string(m))
			}
		})
		expect := func(what string, yields int, messages ...string) {
			t.Helper()
			synctest.Wait()
			if woken != yields || !cmp.Equal(heard, messages) {
				t.Fatalf("%s: Watch has yielded %d times and Listen %q, want %d and %q", what, woken, heard, yields, messages)
			}
		}
		expect("at first", 1)
		for round := range 3 {
			n := uint64(round)
			d.set(true, nil)
			_, err := s.Append(t.Context(), "j", n, []byte("x"))
			unavailable(t, "Append", err)
			d.set(false, nil)
			time.Sleep(time.Second)
			if _, err := s.Get(t.Context(), "c"); !errors.Is(err, store.ErrNotFound) {
				t.Fatal(err)
			}
			expect("opened again", 2+2*round, heard...)
			if _, err := s.Append(t.Context(), "j", n, []byte("x")); err != nil {
				t.Fatal(err)
			}
			if err := store.Cast(t.Context(), s, "topic", []byte("m")); err != nil {
				t.Fatal(err)
			}
			expect("after news", 3+2*round, []string{"m", "m", "m"}[:round+1]...)
		}
		if d.live() != 1 {
			t.Errorf("%d handles are open, want 1: loops must leave an old one", d.live())
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		loops.Wait() // hangs, which synctest tells, if they do not end
	})
}

// Close ends an opening that is under way, and closes a handle that it brings.
func TestReopenCloseDuringOpening(t *testing.T) {
	for _, late := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			d := newDisk(t)
			s, err := store.Reopen(t.Context(), func(ctx context.Context) (store.Store, error) {
				if late { // it does not heed its context
					ctx = context.WithoutCancel(ctx)
				}
				return d.open(ctx)
			})
			if err != nil {
				t.Fatal(err)
			}
			d.set(true, nil)
			unavailable(t, "Drop", s.Drop(t.Context(), "j"))
			d.hold = make(chan struct{})
			var calls sync.WaitGroup
			for _, call := range reopenCalls {
				calls.Go(func() {
					if err := call(t.Context(), s, "v"); !errors.Is(err, store.ErrClosed) {
						t.Errorf("a call that waited when the store was closed = %v, want ErrClosed", err)
					}
				})
			}
			synctest.Wait()
			if late {
				time.AfterFunc(time.Second, func() { close(d.hold) })
			}
			for range 2 {
				if err := s.Close(); err != nil {
					t.Errorf("Close = %v", err)
				}
			}
			calls.Wait()
			if d.live() != 0 {
				t.Errorf("%d handles are open after Close", d.live())
			}
			for op, call := range reopenCalls {
				if err := call(t.Context(), s, "v"); !errors.Is(err, store.ErrClosed) {
					t.Errorf("%s on a closed store = %v", op, err)
				}
			}
		})
	}
}

// The disk fills up and empties under many writers, readers and watchers.
func TestReopenUnderTraffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		s := d.reopen()
		const writers, each = 8, 200
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var writing, beside sync.WaitGroup
		for w := range writers {
			name := fmt.Sprint("j", w)
			writing.Go(func() {
				for i := range uint64(each) {
					if _, err := store.AppendOnce(t.Context(), s, name, i, fmt.Append(nil, i)); err != nil {
						t.Errorf("AppendOnce = %v", err)
						return
					}
					time.Sleep(time.Millisecond)
				}
			})
			beside.Go(func() {
				seen := uint64(0)
				for range store.Watch(ctx, s, name) {
					for e, err := range s.Read(ctx, name, seen) {
						if err != nil || e.Seq != seen+1 || string(e.Data) != fmt.Sprint(seen) {
							t.Errorf("Read behind %d = %d %q, %v", seen, e.Seq, e.Data, err)
							return
						}
						seen = e.Seq
					}
					if seen == each {
						return
					}
				}
			})
		}
		beside.Go(func() {
			for round := 0; ctx.Err() == nil && round < 100; round++ {
				time.Sleep(37 * time.Millisecond)
				d.set(true, nil)
				time.Sleep(11 * time.Millisecond)
				if round%3 == 0 {
					d.set(true, store.ErrFull)
					time.Sleep(300 * time.Millisecond)
				}
				d.set(false, nil)
			}
		})
		writing.Wait()
		if t.Failed() {
			return
		}
		time.Sleep(time.Second)
		stop()
		beside.Wait()
		for w := range writers {
			entries, err := store.ReadAll(t.Context(), s, fmt.Sprint("j", w), 0)
			if err != nil || len(entries) != each {
				t.Errorf("journal %d has %d entries, %v, want %d", w, len(entries), err, each)
			}
		}
		if d.tries() < 5 {
			t.Errorf("opened %d times only: the test shows little", d.tries())
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if d.live() != 0 {
			t.Errorf("%d handles are open after Close", d.live())
		}
	})
}

// away is an engine on another machine that cannot be reached for a while.
type away struct {
	store.Store
	down bool
}

func (a *away) Get(ctx context.Context, key string) (store.Cell, error) {
	if a.down {
		return store.Cell{}, store.ErrUnavailable
	}
	return a.Store.Get(ctx, key)
}

// TestReopenTellsOfAnEngineThatIsAway: its handle stays, and it is told once that it
// cannot be reached and once that it can, even if it is only read meanwhile.
func TestReopenTellsOfAnEngineThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine, opened := &away{Store: memstore.New()}, 0
		s, err := store.Reopen(t.Context(), func(context.Context) (store.Store, error) {
			opened++
			return engine, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		var told []error
		s.(store.Notifier).Notify(func(err error) { told = append(told, err) })
		v := fill(t, s)
		for _, engine.down = range []bool{true, true, false} {
			if _, err := s.Get(t.Context(), "c"); errors.Is(err, store.ErrUnavailable) != engine.down {
				t.Errorf("down %v: %v", engine.down, err)
			}
		}
		time.Sleep(2 * time.Second)
		if _, err := s.Put(t.Context(), "c", []byte("new"), v); err != nil {
			t.Fatal(err)
		}
		if len(told) != 2 || !errors.Is(told[0], store.ErrUnavailable) || told[1] != nil || opened != 1 {
			t.Errorf("%v was told, want the beginning and the end; it was opened %d times", told, opened)
		}
	})
}
