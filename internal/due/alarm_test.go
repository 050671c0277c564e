package due

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
)

const (
	noon = 1_700_000_000_000_000
	near = noon + 10_000_000
	far  = near + 1
)

// cells returns the keys of all hints and alarms.
func cells(t testing.TB, s store.Store) []string {
	t.Helper()
	var keys []string
	for cell, err := range s.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, cell.Key)
	}
	return keys
}

// alarms returns the keys of all alarms.
func alarms(t testing.TB, s store.Store) []string {
	t.Helper()
	return slices.DeleteFunc(cells(t, s), func(key string) bool { return !strings.HasPrefix(key, "alarm/") })
}

// sleep makes the thread due and settles it, at noon, until a time.
func sleep(t testing.TB, s store.Store, thread string, until int64) {
	t.Helper()
	if err := Announce(t.Context(), s, "flow", thread, 1, 1); err != nil {
		t.Fatal(err)
	}
	h, _, err := Get(t.Context(), s, "flow", thread)
	if err == nil {
		err = Settle(t.Context(), s, h, 1, until, noon)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func mustRing(t testing.TB, s store.Store, now int64, limit, rung int, next int64) {
	t.Helper()
	if n, at, err := Ring(t.Context(), s, "flow", now, limit); n != rung || at != next || err != nil {
		t.Errorf("Ring at %d rang %d, next at %d, %v; want %d, next at %d", now-noon, n, at-noon, err, rung, next-noon)
	}
}

func TestOnlyFarTimersBecomeAlarms(t *testing.T) {
	const hint, alarm = "due/flow/thread/thread", "alarm/flow/%016x/thread"
	for _, c := range []struct {
		name      string
		next, now int64
		far       bool
	}{
		{"past", noon - 1, noon, false},
		{"long past", 1, noon, false},
		{"before 1970", -1 << 63, noon, false},
		{"now", noon, noon, false},
		{"near", near, noon, false},
		{"far", far, noon, true},
		{"as far as can be", 1<<63 - 1, -1 << 63, true},
		{"near the end of time", 1<<63 - 1, 1<<63 - 2, false},
		{"far, as the hint has it", 100 + 10_000_001, 100, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := memstore.New()
			mustAnnounce(t, s, 5, 100+10_000_001)
			h := want(t, s, 5, 100+10_000_001)
			for _, head := range []uint64{4, 5} {
				if err := Settle(t.Context(), s, h, head, c.next, c.now); err != nil {
					t.Fatal(err)
				}
				keys := []string{hint}
				if c.far && head == 5 {
					keys = []string{fmt.Sprintf(alarm, c.next)}
				}
				if diff := cmp.Diff(keys, cells(t, s)); diff != "" {
					t.Errorf("with the journal at %d (-want +got):\n%s", head, diff)
				}
			}
			if !c.far {
				want(t, s, 5, c.next)
			}
		})
	}
}

func TestRingMakesHintsInOrderOfTime(t *testing.T) {
	s := memstore.New()
	mustRing(t, s, far, 9, 0, 0)
	sleep(t, s, "c", far)
	sleep(t, s, "a", far+20)
	sleep(t, s, "b", far+10)
	sleep(t, s, "d", far+10)
	sleep(t, s, "e", 1<<62)
	if err := Announce(t.Context(), s, "other", "x", 1, far); err != nil {
		t.Fatal(err)
	}
	hint, _, _ := Get(t.Context(), s, "other", "x")
	if err := Settle(t.Context(), s, hint, 1, far, noon); err != nil {
		t.Fatal(err)
	}

	mustRing(t, s, far-1, 9, 0, far)
	if got := pages(t, s, 9); len(got) != 0 {
		t.Errorf("before their time there are hints: %q", got)
	}
	mustRing(t, s, far, 9, 1, far+10)
	mustRing(t, s, far, 9, 0, far+10)
	mustRing(t, s, far+30, 1, 1, far+10) // it is due, but one is enough
	if diff := cmp.Diff([]string{"b b 1 1 false", "c c 1 1 false"}, pages(t, s, 9)); diff != "" {
		t.Errorf("the hints (-want +got):\n%s", diff)
	}
	mustRing(t, s, far+30, 2, 2, 1<<62)
	mustRing(t, s, far+30, 2, 0, 1<<62)
	mustRing(t, s, 1<<62, 2, 1, 0)
	if diff := cmp.Diff([]string{"a a 1 1 false", "b b 1 1 false", "c c 1 1 false", "d d 1 1 false", "e e 1 1 false"}, pages(t, s, 9)); diff != "" {
		t.Errorf("the hints (-want +got):\n%s", diff)
	}
	if got := alarms(t, s); len(got) != 1 || !strings.HasPrefix(got[0], "alarm/other/") {
		t.Errorf("alarms are left: %q", got)
	}
}

// What an alarm makes is a hint like any other, merged into one that is there.
func TestRingMergesIntoAHint(t *testing.T) {
	s := memstore.New()
	sleep(t, s, "thread", far)
	mustAnnounce(t, s, 7, near)
	mustRing(t, s, far, 9, 1, 0)
	h := want(t, s, 7, 1)
	mustSettle(t, s, h, 6, 0)
	want(t, s, 7, 1)
	mustSettle(t, s, h, 7, 0)
	if got := cells(t, s); len(got) != 0 {
		t.Errorf("cells are left: %q", got)
	}
}

// A reader that saw the hint before the alarm rang does not remove it, even if
// the hint was already due.
func TestRingOutdatesReaders(t *testing.T) {
	for _, next := range []int64{0, near, far, far + 1} {
		s := memstore.New()
		sleep(t, s, "thread", far)
		mustAnnounce(t, s, 5, 1)
		old := want(t, s, 5, 1)
		mustRing(t, s, far, 9, 1, 0)
		if err := Settle(t.Context(), s, old, 5, next, noon); err != nil {
			t.Fatal(err)
		}
		want(t, s, 5, 1)
	}
}

// An alarm that is set again while it rings stays.
func TestAlarmSetAgainOutlivesARing(t *testing.T) {
	inner := memstore.New()
	sleep(t, inner, "thread", far)
	s := faulty.New(inner, func(c faulty.Call) faulty.Fault {
		if c.Op == store.OpDelete {
			sleep(t, inner, "thread", far) // by a reader whose clock is slow
		}
		return faulty.None
	})
	mustRing(t, s, far, 9, 1, 0)
	if got := alarms(t, inner); len(got) != 1 {
		t.Errorf("the alarms are %q, want the one that was set again", got)
	}
	if h := get(t, inner); h != nil {
		t.Errorf("the reader left %+v", h)
	}
	mustRing(t, inner, far, 9, 1, 0)
	want(t, inner, 1, 1)
}

func TestUnreadableAlarmsStay(t *testing.T) {
	ctx, s := t.Context(), memstore.New()
	bad := []string{
		"alarm/flow/", "alarm/flow//thread", "alarm/flow/0000000000000000/thread", "alarm/flow/000000000000001/thread",
		"alarm/flow/00000000000000001/thread", "alarm/flow/0000000000000001", "alarm/flow/0000000000000001/",
		"alarm/flow/0000000000000001/a/b", "alarm/flow/000000000000000A/thread", "alarm/flow/+000000000000001/thread",
		"alarm/flow/8000000000000001/thread", "alarm/flow/soon/thread",
	}
	slices.Sort(bad)
	for _, key := range bad {
		if _, err := s.Put(ctx, key, []byte("{}"), ""); err != nil {
			t.Fatal(err)
		}
	}
	sleep(t, s, "thread", far)
	mustRing(t, s, near, 1, 0, far)
	mustRing(t, s, far, 1, 1, 0)
	want(t, s, 1, 1)
	if diff := cmp.Diff(bad, alarms(t, s)); diff != "" {
		t.Errorf("the alarms left (-want +got):\n%s", diff)
	}
}

// A hint that a newer version wrote cannot be written again, so the alarm is
// what makes sure of the look; others are not held up by it.
func TestAlarmOfAnUnreadableHintStays(t *testing.T) {
	ctx, s := t.Context(), memstore.New()
	sleep(t, s, "thread", far)
	sleep(t, s, "z", far)
	version, err := s.Put(ctx, "due/flow/thread/thread", []byte("newer"), "")
	if err != nil {
		t.Fatal(err)
	}
	mustRing(t, s, far, 1, 1, 0)
	if got := alarms(t, s); len(got) != 1 || !strings.HasSuffix(got[0], "/thread") {
		t.Errorf("the alarms left are %q", got)
	}
	if h := get(t, s); h == nil || !errors.Is(h.Err, ErrUnreadable) || h.Version != version {
		t.Errorf("the hint is %+v", h)
	}
	if err := Forget(ctx, s, "flow", "thread"); err != nil {
		t.Fatal(err)
	}
	mustRing(t, s, far, 1, 1, 0)
	want(t, s, 1, 1)
}

func TestForgetRemovesAnyHint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, held := range []string{"", `{"s":5,"d":100}`, "garbage"} {
			for cut, plan := range faulty.SweepCalls(faulty.FailBefore, faulty.FailAfter, faulty.Conflict) {
				inner := memstore.New()
				if held != "" {
					if _, err := inner.Put(t.Context(), "due/flow/thread/thread", []byte(held), ""); err != nil {
						t.Fatal(err)
					}
				}
				sleep(t, inner, "neighbour", near)
				if err := Forget(t.Context(), faulty.New(inner, plan), "flow", "thread"); err != nil {
					t.Errorf("%s: %v", cut, err)
				}
				if diff := cmp.Diff([]string{"due/flow/eighbour/neighbour"}, cells(t, inner)); diff != "" {
					t.Errorf("%s: what is left (-want +got):\n%s", cut, diff)
				}
			}
		}
	})
}

// One fault at any call changes nothing of what the alarm comes to, but that
// it may ring twice.
func TestOneFaultLosesNoAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for cut, plan := range faulty.SweepCalls(faulty.FailBefore, faulty.FailAfter, faulty.Conflict) {
			inner := memstore.New()
			mustAnnounce(t, inner, 5, 100)
			s := faulty.New(inner, plan)
			if err := Settle(t.Context(), s, want(t, inner, 5, 100), 5, far, noon); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{fmt.Sprintf("alarm/flow/%016x/thread", int64(far))}, cells(t, inner)); diff != "" {
				t.Errorf("%s: after Settle (-want +got):\n%s", cut, diff)
			}
			for range 3 { // a failed list, or a refused delete, and then once more
				_, _, err := Ring(t.Context(), s, "flow", far, 9)
				if err == nil && len(alarms(t, inner)) == 0 {
					break
				}
			}
			want(t, inner, 1, 1)
			if got := alarms(t, inner); len(got) != 0 {
				t.Errorf("%s: alarms are left: %q", cut, got)
			}
		}
	})
}

// A program that dies at any call of Settle or Ring leaves the hint or the
// alarm, so that after a restart somebody looks.
func TestCrashLosesNoAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, there := range []bool{false, true} {
			for cut, plan := range faulty.SweepCalls(faulty.CrashBefore, faulty.CrashAfter) {
				inner := memstore.New()
				if there {
					sleep(t, inner, "thread", far)
				}
				mustAnnounce(t, inner, 5, 100)
				s := faulty.New(inner, plan)
				_ = Settle(t.Context(), s, want(t, inner, 5, 100), 5, far, noon)
				_, _, _ = Ring(t.Context(), s, "flow", far, 9)

				if _, _, err := Ring(t.Context(), inner, "flow", far, 9); err != nil {
					t.Fatal(err)
				}
				h := get(t, inner)
				if h == nil || h.Err != nil || h.Due > far {
					t.Fatalf("%s: after a restart the hint is %+v", cut, h)
				}
				mustSettle(t, inner, *h, 5, 0)
				if got := cells(t, inner); len(got) != 0 {
					t.Errorf("%s: after a restart and a look there is still %q", cut, got)
				}
			}
		}
	})
}
