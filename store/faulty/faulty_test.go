package faulty_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
)

// all makes every call once, on a store in which each of them succeeds
// without a fault, and returns their errors by name.
func all(ctx context.Context, s store.Store, cell store.Version) map[store.Op]error {
	errs := map[store.Op]error{}
	_, errs[store.OpAppend] = s.Append(ctx, "j", 2, []byte("three"))
	_, errs[store.OpRead] = store.ReadAll(ctx, s, "j", 0)
	for _, errs[store.OpJournals] = range s.Journals(ctx, "") {
	}
	_, errs[store.OpGet] = s.Get(ctx, "c")
	for _, errs[store.OpList] = range s.List(ctx, "c", "") {
	}
	_, errs[store.OpPut] = s.Put(ctx, "new", nil, "")
	errs[store.OpDelete] = s.Delete(ctx, "c", cell)
	errs[store.OpDrop] = s.Drop(ctx, "j")
	return errs
}

// filled returns a store for all, and the version of its cell.
func filled(t *testing.T) (store.Store, store.Version) {
	t.Helper()
	s := memstore.New()
	if _, err := s.Append(t.Context(), "j", 0, []byte("one"), []byte("two")); err != nil {
		t.Fatal(err)
	}
	v, err := s.Put(t.Context(), "c", []byte("x"), "")
	if err != nil {
		t.Fatal(err)
	}
	return s, v
}

// holds describes what is in a store, to see whether a write happened.
func holds(t *testing.T, s store.Store) string {
	t.Helper()
	entries, err := store.ReadAll(t.Context(), s, "j", 0)
	text := fmt.Sprintf("%d entries, dropped %t, cells", len(entries), errors.Is(err, store.ErrDropped))
	for c, err := range s.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		text += " " + c.Key
	}
	return text
}

func TestEveryCallFails(t *testing.T) {
	const before, after = "2 entries, dropped false, cells c", "0 entries, dropped true, cells new"
	for _, test := range []struct {
		fault faulty.Fault
		left  string
	}{
		{faulty.None, after},
		{faulty.FailBefore, before},
		{faulty.FailAfter, after},
		{faulty.FailAmid(0), before},
	} {
		t.Run(test.fault.String(), func(t *testing.T) {
			inner, v := filled(t)
			s := faulty.New(inner, func(faulty.Call) faulty.Fault { return test.fault })
			for op, err := range all(t.Context(), s, v) {
				if failed := errors.Is(err, faulty.ErrInjected); failed != (test.fault != faulty.None) {
					t.Errorf("%s = %v", op, err)
				}
			}
			if got := holds(t, inner); got != test.left {
				t.Errorf("the store inside has %s; want %s", got, test.left)
			}
			if s.Calls() != 8 || s.Writes() != 4 {
				t.Errorf("counted %d calls and %d writes, want 8 and 4", s.Calls(), s.Writes())
			}
		})
	}
}

// A batch fails as a whole, as an append.
func TestBatchFails(t *testing.T) {
	for _, test := range []struct {
		fault faulty.Fault
		left  string
		want  error
	}{
		{faulty.None, "3 entries, dropped false, cells c new", nil},
		{faulty.FailBefore, "2 entries, dropped false, cells c", faulty.ErrInjected},
		{faulty.FailAfter, "3 entries, dropped false, cells c new", faulty.ErrInjected},
		{faulty.FailAmid(1), "2 entries, dropped false, cells c", faulty.ErrInjected},
		{faulty.Conflict, "2 entries, dropped false, cells c", store.ErrConflict},
		{faulty.CrashAfter, "3 entries, dropped false, cells c new", store.ErrPoisoned},
	} {
		inner, _ := filled(t)
		s := faulty.New(inner, faulty.AtWrite(1, test.fault))
		_, err := s.AppendBatch(t.Context(), store.Batch{Journal: "j", After: 2, Entries: [][]byte{nil}, Cells: []store.Write{{Key: "new"}}})
		if got := holds(t, inner); got != test.left || !errors.Is(err, test.want) || s.Calls() != 1 || s.Writes() != 1 {
			t.Errorf("%s: AppendBatch = %v in %d calls; the store inside has %s, want %s", test.fault, err, s.Calls(), got, test.left)
		}
	}
	plain := faulty.New(struct{ store.Store }{memstore.New()}, nil)
	if _, err := faulty.New(plain, nil).AppendBatch(t.Context(), store.Batch{}); err != errors.ErrUnsupported || plain.Calls() != 0 {
		t.Errorf("AppendBatch around a store that cannot batch = %v in %d calls", err, plain.Calls())
	}
}

func TestErrorIsNotDefinite(t *testing.T) {
	inner, _ := filled(t)
	s := faulty.New(inner, faulty.AtWrite(1, faulty.FailAfter))
	_, err := s.Append(t.Context(), "j", 2, []byte("x"))
	for _, definite := range []error{
		store.ErrConflict, store.ErrDropped, store.ErrTooLarge, store.ErrInvalid, store.ErrClosed,
		store.ErrCorrupt, store.ErrNotFound, store.ErrKey, store.ErrPoisoned,
	} {
		if errors.Is(err, definite) {
			t.Errorf("%v matches %v", err, definite)
		}
	}
	var failure *faulty.Error
	if !errors.As(err, &failure) || failure.Call != (faulty.Call{Op: store.OpAppend, Name: "j", N: 1, W: 1}) {
		t.Errorf("%v does not tell its call", err)
	}
	const want = `faulty: injected failure: fail after append "j" (call 1, write 1)`
	if err.Error() != want {
		t.Errorf("got message\n%s, want\n%s", err, want)
	}
}

func TestReadFailsAmid(t *testing.T) {
	inner, _ := filled(t)
	for k, want := range []int{0, 1, 2, 2} {
		s := faulty.New(inner, faulty.At(1, faulty.FailAmid(k)))
		got, err := store.ReadAll(t.Context(), s, "j", 0)
		if len(got) != want || !errors.Is(err, faulty.ErrInjected) {
			t.Errorf("FailAmid(%d) yielded %d entries and %v; want %d and a failure", k, len(got), err, want)
		}
	}
}

func TestConflict(t *testing.T) {
	inner, v := filled(t)
	s := faulty.New(inner, func(faulty.Call) faulty.Fault { return faulty.Conflict })
	for op, err := range all(t.Context(), s, v) {
		conditional := op == store.OpAppend || op == store.OpPut || op == store.OpDelete
		if conditional != errors.Is(err, store.ErrConflict) || !conditional && err != nil {
			t.Errorf("%s = %v", op, err)
		}
	}
}

func TestCrash(t *testing.T) {
	for _, fault := range []faulty.Fault{faulty.CrashBefore, faulty.CrashAfter} {
		inner, v := filled(t)
		s := faulty.New(inner, faulty.At(1, fault))
		told := 0
		s.OnCrash(func() { told++ })
		for op, err := range all(t.Context(), s, v) {
			if !errors.Is(err, faulty.ErrInjected) || !errors.Is(err, store.ErrPoisoned) {
				t.Errorf("%s: %s = %v", fault, op, err)
			}
		}
		s.OnCrash(func() { told++ })
		if told != 2 || !s.Crashed() || s.Calls() != 1 {
			t.Errorf("%s: told %d times, crashed %t, %d calls; want 2, true, 1", fault, told, s.Crashed(), s.Calls())
		}
		entries := 2
		if fault == faulty.CrashAfter {
			entries = 3
		}
		if got, want := holds(t, inner), fmt.Sprintf("%d entries, dropped false, cells c", entries); got != want {
			t.Errorf("%s: the store inside has %s; want %s", fault, got, want)
		}
	}
}

// A read crashes the store however it ends: at its end, with an error, or by
// its loop being left.
func TestCrashAfterRead(t *testing.T) {
	for name, read := range map[string]func(store.Store) error{
		"to the end": func(s store.Store) error { _, err := store.ReadAll(t.Context(), s, "j", 0); return err },
		"dropped":    func(s store.Store) error { _, err := store.ReadAll(t.Context(), s, "dropped", 0); return err },
		"left": func(s store.Store) error {
			for range s.Read(t.Context(), "j", 0) {
				break
			}
			return faulty.ErrInjected // which it does not hear of
		},
	} {
		inner, _ := filled(t)
		if err := inner.Drop(t.Context(), "dropped"); err != nil {
			t.Fatal(err)
		}
		s := faulty.New(inner, faulty.At(1, faulty.CrashAfter))
		if err := read(s); !errors.Is(err, faulty.ErrInjected) || !s.Crashed() {
			t.Errorf("%s: the read ends with %v, crashed %t", name, err, s.Crashed())
		}
	}
}

// A crash ends a loop under way, and whoever repeats until it succeeds.
func TestCrashEndsWhatIsUnderWay(t *testing.T) {
	inner, _ := filled(t)
	s := faulty.New(inner, faulty.AtWrite(1, faulty.CrashBefore))
	n := 0
	for _, err := range s.Read(t.Context(), "j", 0) {
		if n++; n == 1 {
			if _, err := store.AppendOnce(t.Context(), s, "j", 2, []byte("x")); !errors.Is(err, store.ErrUnknown) {
				t.Errorf("AppendOnce = %v, want ErrUnknown", err)
			}
		} else if !errors.Is(err, faulty.ErrInjected) {
			t.Errorf("the loop goes on after the crash with %v", err)
		}
	}
	if n != 2 {
		t.Errorf("the loop yielded %d times, want an entry and the failure", n)
	}
}

func TestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, _ := filled(t)
		s := faulty.New(inner, func(faulty.Call) faulty.Fault { return faulty.Delay(time.Hour) })
		start := time.Now()
		if _, err := s.Get(t.Context(), "c"); err != nil || time.Since(start) != time.Hour {
			t.Errorf("Get = %v after %v", err, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := s.Append(ctx, "j", 2, []byte("x")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Append with a context shorter than the delay = %v", err)
		}
		if got, _ := store.ReadAll(t.Context(), inner, "j", 2); len(got) != 0 {
			t.Error("a call whose context ended in the delay was made")
		}
	})
}

func TestFreeze(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, _ := filled(t)
		s := faulty.New(inner, func(faulty.Call) faulty.Fault { return faulty.Freeze })
		var appended, got error
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _, appended = s.Append(t.Context(), "j", 2, []byte("x")) }()
		go func() { _, got = s.Get(ctx, "c") }()
		synctest.Wait()
		if n := s.Frozen(); n != 2 {
			t.Fatalf("%d calls are frozen, want 2", n)
		}
		cancel()
		synctest.Wait()
		if !errors.Is(got, context.Canceled) || s.Frozen() != 1 {
			t.Errorf("Get = %v with %d calls still frozen", got, s.Frozen())
		}
		if entries, _ := store.ReadAll(t.Context(), inner, "j", 2); len(entries) != 0 {
			t.Error("a frozen append was made")
		}
		s.Thaw()
		synctest.Wait()
		if entries, _ := store.ReadAll(t.Context(), inner, "j", 2); appended != nil || len(entries) != 1 || s.Frozen() != 0 {
			t.Errorf("after Thaw: Append = %v, %d entries, %d frozen", appended, len(entries), s.Frozen())
		}
	})
}

// A call that is frozen when the store crashes is not made after it.
func TestCrashWhileFrozen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, _ := filled(t)
		s := faulty.New(inner, func(c faulty.Call) faulty.Fault {
			if c.Op == store.OpAppend {
				return faulty.Freeze
			}
			return faulty.CrashBefore
		})
		var appended error
		go func() { _, appended = s.Append(t.Context(), "j", 2, []byte("x")) }()
		synctest.Wait()
		_, _ = s.Get(t.Context(), "c")
		s.Thaw()
		synctest.Wait()
		if entries, _ := store.ReadAll(t.Context(), inner, "j", 2); !errors.Is(appended, faulty.ErrInjected) || len(entries) != 0 {
			t.Errorf("Append = %v with %d entries; want it to fail and not be made", appended, len(entries))
		}
	})
}

// A call that is under way when the store crashes is made, but its answer is
// lost.
func TestCrashWhileUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, _ := filled(t)
		slow := faulty.New(inner, faulty.AtWrite(1, faulty.Freeze))
		s := faulty.New(slow, faulty.At(2, faulty.CrashBefore))
		var appended error
		go func() { _, appended = s.Append(t.Context(), "j", 2, []byte("x")) }()
		synctest.Wait()
		_, _ = s.Get(t.Context(), "c")
		slow.Thaw()
		synctest.Wait()
		if entries, _ := store.ReadAll(t.Context(), inner, "j", 2); !errors.Is(appended, faulty.ErrInjected) || len(entries) != 1 {
			t.Errorf("Append = %v with %d entries; want it to be made and to fail", appended, len(entries))
		}
	})
}

func TestRandom(t *testing.T) {
	draw := func(seed uint64) []faulty.Fault {
		plan := faulty.Random(seed, faulty.Rate{Fault: faulty.FailBefore, P: 0.2}, faulty.Rate{Fault: faulty.FailAfter, P: 0.3})
		faults := make([]faulty.Fault, 1000)
		for i := range faults {
			faults[i] = plan(faulty.Call{N: i + 1})
		}
		return faults
	}
	count := map[faulty.Fault]int{}
	for _, f := range draw(1) {
		count[f]++
	}
	for f, want := range map[faulty.Fault]int{faulty.None: 500, faulty.FailBefore: 200, faulty.FailAfter: 300} {
		if got := count[f]; got < want-60 || got > want+60 {
			t.Errorf("%d of 1000 calls: %s; want about %d", got, f, want)
		}
	}
	if !slices.Equal(draw(1), draw(1)) || slices.Equal(draw(1), draw(2)) {
		t.Error("faults do not follow from the seed")
	}
}

func TestSweep(t *testing.T) {
	program := func(s store.Store) {
		_, _ = s.Append(t.Context(), "j", 0, []byte("x"))
		_, _ = s.Get(t.Context(), "c")
		_, _ = s.Put(t.Context(), "c", nil, "")
	}
	var cuts []string
	for cut, plan := range faulty.Sweep(faulty.CrashBefore, faulty.CrashAfter) {
		cuts = append(cuts, cut)
		program(faulty.New(memstore.New(), plan))
	}
	want := []string{
		"crash before at write 1", "crash after at write 1",
		"crash before at write 2", "crash after at write 2",
		"crash before at write 3", "crash after at write 3", // not reached: the end
	}
	if !slices.Equal(cuts, want) {
		t.Errorf("the sweep made the cuts %q; want %q", cuts, want)
	}
	calls := 0
	for _, plan := range faulty.SweepCalls(faulty.FailBefore) {
		calls++
		program(faulty.New(memstore.New(), plan))
	}
	if calls != 4 {
		t.Errorf("the sweep over calls ran %d times; want 3 and the one that is not reached", calls)
	}
}
