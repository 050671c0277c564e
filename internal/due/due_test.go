package due

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
)

func mustAnnounce(t testing.TB, s store.Store, seq uint64, due int64) {
	t.Helper()
	if err := Announce(t.Context(), s, "flow", "thread", seq, due); err != nil {
		t.Fatal(err)
	}
}

func mustSettle(t testing.TB, s store.Store, h Hint, head uint64, next int64) {
	t.Helper()
	if err := Settle(t.Context(), s, h, head, next, 0); err != nil {
		t.Fatal(err)
	}
}

// get returns the hint of the thread, nil if there is none.
func get(t testing.TB, s store.Store) *Hint {
	t.Helper()
	h, ok, err := Get(t.Context(), s, "flow", "thread")
	if err != nil {
		t.Fatal(err)
	}
	if !ok {
		return nil
	}
	return &h
}

// want compares the hint of the thread with a sequence and a time.
func want(t testing.TB, s store.Store, seq uint64, due int64) Hint {
	t.Helper()
	h := get(t, s)
	if h == nil || h.Err != nil || h.Seq != seq || h.Due != due || h.Flow != "flow" || h.Thread != "thread" || h.Version == "" {
		t.Fatalf("the hint is %+v, want sequence %d, due at %d", h, seq, due)
	}
	return *h
}

func TestAnnounceMerges(t *testing.T) {
	type hint struct {
		seq uint64
		due int64
	}
	for _, c := range []struct {
		name             string
		old, given, want hint
		writes           int
	}{
		{"the same", hint{5, 100}, hint{5, 100}, hint{5, 100}, 0},
		{"higher and earlier", hint{5, 100}, hint{6, 90}, hint{6, 90}, 1},
		{"higher and later", hint{5, 100}, hint{6, 200}, hint{6, 100}, 1},
		{"lower and earlier", hint{5, 100}, hint{4, 90}, hint{5, 90}, 1},
		{"lower and later", hint{5, 100}, hint{4, 200}, hint{5, 100}, 0},
		{"only higher", hint{5, 100}, hint{6, 100}, hint{6, 100}, 1},
		{"only earlier", hint{5, 100}, hint{5, 0}, hint{5, 0}, 1},
		{"large numbers", hint{1<<64 - 2, 1<<63 - 1}, hint{1<<64 - 1, -1 << 63}, hint{1<<64 - 1, -1 << 63}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := faulty.New(memstore.New(), nil)
			mustAnnounce(t, s, c.old.seq, c.old.due)
			want(t, s, c.old.seq, c.old.due)
			before := s.Writes()
			mustAnnounce(t, s, c.given.seq, c.given.due)
			want(t, s, c.want.seq, c.want.due)
			if n := s.Writes() - before; n != c.writes {
				t.Errorf("it took %d writes, want %d", n, c.writes)
			}
		})
	}
}

func TestSettle(t *testing.T) {
	for _, c := range []struct {
		name string
		head uint64
		next int64
		gone bool
		due  int64
	}{
		{"the fact is not there, nothing due", 4, 0, false, 100},
		{"the fact is not there, a timer", 4, 300, false, 100},
		{"the fact is not there, an earlier timer", 4, 50, false, 100},
		{"the fact is there, nothing due", 5, 0, true, 0},
		{"the fact is there, a timer", 5, 300, false, 300},
		{"the fact is there, an earlier timer", 5, 50, false, 50},
		{"the journal is ahead, nothing due", 9, 0, true, 0},
		{"the journal is ahead, a timer", 9, 300, false, 300},
		{"the journal is ahead, the same time", 9, 100, false, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := memstore.New()
			mustAnnounce(t, s, 5, 100)
			mustSettle(t, s, want(t, s, 5, 100), c.head, c.next)
			if c.gone {
				if h := get(t, s); h != nil {
					t.Fatalf("the hint is still there: %+v", h)
				}
				return
			}
			want(t, s, 5, c.due)
		})
	}
}

// A reader settles what it saw, not what another announced since.
func TestSettleLeavesWhatWasWrittenSince(t *testing.T) {
	for _, next := range []int64{0, 300} {
		s := memstore.New()
		mustAnnounce(t, s, 5, 100)
		old := want(t, s, 5, 100)
		mustAnnounce(t, s, 6, 100)
		mustSettle(t, s, old, 9, next)
		now := want(t, s, 6, 100)

		// The same bytes again are another write.
		mustSettle(t, s, now, 6, 0)
		mustAnnounce(t, s, 6, 100)
		mustSettle(t, s, now, 9, next)
		want(t, s, 6, 100)

		// What is gone stays gone.
		now = want(t, s, 6, 100)
		mustSettle(t, s, now, 6, 0)
		mustSettle(t, s, now, 6, next)
		if h := get(t, s); h != nil {
			t.Errorf("settling a hint that was removed made %+v", h)
		}
	}
}

func TestUnreadableHintsStay(t *testing.T) {
	const key = "due/flow/thread/thread"
	for _, bytes := range []string{
		"", "null", "{}", "[5,100]", "garbage", "\x00\xff", `{"s":5}`, `{"d":100}`, `{"s":5,"d":100,"x":1}`, `{"s":5,"d":100}{}`,
		`{"s":-5,"d":100}`, `{"s":5,"d":1e99}`, `{"s":"5","d":100}`, `{"S":5,"D":100}`, `{"s":4,"s":5,"d":100}`,
	} {
		t.Run(bytes, func(t *testing.T) {
			s := memstore.New()
			version, err := s.Put(t.Context(), key, []byte(bytes), "")
			if err != nil {
				t.Fatal(err)
			}
			h := get(t, s)
			if h == nil || !errors.Is(h.Err, ErrUnreadable) || h.Due != 0 || h.Thread != "thread" {
				t.Fatalf("Get = %+v, want one that is due now and says why", h)
			}
			mustAnnounce(t, s, 5, 100)
			mustSettle(t, s, *h, 1<<64-1, 0)
			mustSettle(t, s, *h, 1<<64-1, 300)
			if cell, err := s.Get(t.Context(), key); err != nil || string(cell.Value) != bytes || cell.Version != version {
				t.Errorf("the cell is now %q, %v", cell.Value, err)
			}
		})
	}
}

func TestFlowsDoNotMix(t *testing.T) {
	ctx, s := t.Context(), memstore.New()
	flows := []string{"", "a", "A", "a/b", "a/", "/a", "a%2Fb", "a%252Fb", "a b", "a+b", "..", "a/..", "é", "\xff", "a\x00"}
	for i, flow := range flows {
		if err := Announce(ctx, s, flow, "thread", uint64(i+1), 100); err != nil {
			t.Fatal(err)
		}
	}
	for i, flow := range flows {
		got, _, _, err := Page(ctx, s, flow, "", 9)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != 1 || got[0].Seq != uint64(i+1) || got[0].Flow != flow || got[0].Thread != "thread" || got[0].Err != nil {
			t.Errorf("flow %q has the hints %+v, want its own only", flow, got)
		}
		if h, ok, err := Get(ctx, s, flow, "thread"); err != nil || !ok || h != got[0] {
			t.Errorf("flow %q: Get = %+v, %v, %v", flow, h, ok, err)
		}
		for j, other := range flows {
			if i != j && (strings.HasPrefix(Prefix(other), Prefix(flow)) || strings.HasPrefix(alarmPrefix(other), alarmPrefix(flow))) {
				t.Errorf("the hints or alarms of %q are below those of %q", other, flow)
			}
		}
	}
}

func TestRefused(t *testing.T) {
	ctx, s := t.Context(), faulty.New(memstore.New(), nil)
	_, _, _, pageErr := Page(ctx, s, "flow", "", 0)
	_, _, ringErr := Ring(ctx, s, "flow", 1, 0)
	for name, err := range map[string]error{
		"no thread":      Announce(ctx, s, "flow", "", 1, 1),
		"a nested one":   Announce(ctx, s, "flow", "a/b", 1, 1),
		"too long":       Announce(ctx, s, "flow", strings.Repeat("x", store.MaxName), 1, 1),
		"no sequence":    Announce(ctx, s, "flow", "thread", 0, 1),
		"too long later": Announce(ctx, s, "flow", strings.Repeat("x", store.MaxName-len("alarm/flow/0123456789abcdef/")+1), 1, 1),
		"no version":     Settle(ctx, s, Hint{Flow: "flow", Thread: "thread"}, 1, 1, 0),
		"settle nothing": Settle(ctx, s, Hint{Version: "1"}, 1, 0, 0),
		"forget nothing": Forget(ctx, s, "flow", ""),
		"an empty page":  pageErr,
		"ring nothing":   ringErr,
	} {
		if !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	if _, _, err := Get(ctx, s, "flow", "a/b"); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("Get of a nested thread: %v, want ErrInvalid", err)
	}
	if s.Calls() != 0 {
		t.Errorf("what was refused made %d calls", s.Calls())
	}
}

// One fault at any call, whatever it is, changes nothing of the outcome.
func TestOneFaultIsInvisible(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for cut, plan := range faulty.SweepCalls(faulty.FailBefore, faulty.FailAfter, faulty.Conflict) {
			inner := memstore.New()
			s := faulty.New(inner, plan)
			mustAnnounce(t, s, 5, 100)
			mustAnnounce(t, s, 7, 50)
			want(t, inner, 7, 50)
			mustSettle(t, s, want(t, inner, 7, 50), 7, 300)
			want(t, inner, 7, 300)
			mustAnnounce(t, s, 8, 200)
			mustSettle(t, s, want(t, inner, 8, 200), 8, 0)
			if h := get(t, inner); h != nil {
				t.Errorf("%s: the hint is still there: %+v", cut, h)
			}
		}
	})
}

// A handle that has become useless is not tried forever, and a program that
// dies at any call leaves a hint that it might also have left without dying.
func TestCrashLeavesAHint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for cut, plan := range faulty.SweepCalls(faulty.CrashBefore, faulty.CrashAfter) {
			inner := memstore.New()
			mustAnnounce(t, inner, 5, 100)
			s := faulty.New(inner, plan)
			if err := Announce(t.Context(), s, "flow", "thread", 6, 50); err == nil {
				h := want(t, inner, 6, 50)
				_ = Settle(t.Context(), s, h, 5, 0, 0)
				want(t, inner, 6, 50)
				_ = Settle(t.Context(), s, h, 6, 300, 0)
			}
			h := get(t, inner)
			if h == nil || h.Err != nil || !slices.Contains([]Hint{{Seq: 5, Due: 100}, {Seq: 6, Due: 50}, {Seq: 6, Due: 300}}, Hint{Seq: h.Seq, Due: h.Due}) {
				t.Errorf("%s: it left %+v", cut, h)
			}
		}
	})
}

func TestEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, fault := range map[string]faulty.Fault{"open": faulty.FailBefore, "conflict": faulty.Conflict} {
			inner := memstore.New()
			mustAnnounce(t, inner, 5, 100)
			h := want(t, inner, 5, 100)
			s := faulty.New(inner, func(c faulty.Call) faulty.Fault { return fault })
			ctx, cancel := context.WithTimeout(store.Patient(t.Context()), time.Minute)
			if err := Announce(ctx, s, "flow", "thread", 6, 100); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: Announce: %v, want the end of its context", name, err)
			}
			if n := s.Calls(); n < 100 || n > 10_000 {
				t.Errorf("%s: Announce made %d calls in a minute", name, n)
			}
			cancel()
			ctx, cancel = context.WithTimeout(store.Patient(t.Context()), time.Minute)
			if err := Settle(ctx, s, h, 6, 0, 0); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: Settle: %v, want the end of its context", name, err)
			}
			cancel()
			want(t, inner, 5, 100)
		}
	})
}

func TestHopelessErrorsAreReturned(t *testing.T) {
	ctx, s := t.Context(), memstore.New()
	mustAnnounce(t, s, 5, 100)
	h := want(t, s, 5, 100)
	s.Close()
	_, _, getErr := Get(ctx, s, "flow", "thread")
	_, _, _, pageErr := Page(ctx, s, "flow", "", 1)
	_, _, ringErr := Ring(ctx, s, "flow", 1, 1)
	for name, err := range map[string]error{
		"Announce": Announce(ctx, s, "flow", "thread", 6, 1),
		"Settle":   Settle(ctx, s, h, 6, 0, 0),
		"an alarm": Settle(ctx, s, h, 6, 1<<62, 0),
		"Forget":   Forget(ctx, s, "flow", "thread"),
		"Get":      getErr,
		"Page":     pageErr,
		"Ring":     ringErr,
	} {
		if !errors.Is(err, store.ErrClosed) {
			t.Errorf("%s: %v, want ErrClosed", name, err)
		}
	}
}

// Whoever announces, and in whichever order, the highest sequence and the
// earliest time stay.
func TestAnnouncersDoNotLoseEachOther(t *testing.T) {
	s := memstore.New()
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			for j := range 8 {
				n := (i*8+j)*37%256 + 1
				if err := Announce(t.Context(), s, "flow", "thread", uint64(n), int64(1000-n*3%256)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	want(t, s, 256, 1000-255)
}
