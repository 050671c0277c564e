package schedule_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
)

// mortal is a worker that makes firings, and whose process can die.
type mortal struct {
	dead atomic.Bool
	stop func()
}

// newMortal starts a worker. After so many calls of its store, if that is not 0, it dies,
// before or after the last one has happened.
func newMortal(t *testing.T, s store.Store, calls int, late bool) *mortal {
	t.Helper()
	m := &mortal{}
	n := -1_000_000_000 // until the worker begins
	rt := kit.Runtime(t, faulty.New(s, func(c faulty.Call) faulty.Fault {
		switch n++; {
		case m.dead.Load():
			return faulty.CrashBefore
		case n == calls && late:
			m.dead.Store(true)
			return faulty.CrashAfter
		case n == calls:
			m.dead.Store(true)
			return faulty.CrashBefore
		}
		return faulty.None
	}), perdure.Options{}, flows()...)
	n = 0
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		rt.WorkSchedules(ctx)
	}()
	m.stop = func() { cancel(); <-done }
	t.Cleanup(m.stop)
	return m
}

// yearly are the schedules of the year.
var yearly = []perdure.ScheduleRequest{
	{ID: "hourly", Cron: "0 * * * *", Overlap: perdure.OverlapAllow},
	{ID: "berlin", Cron: "30 2 * * *", Zone: "Europe/Berlin", Overlap: perdure.OverlapAllow, CatchUp: perdure.CatchUpSkip},
	{ID: "howe", Cron: "*/30 1-2 * * *", Zone: "Australia/Lord_Howe", Overlap: perdure.OverlapAllow, CatchUp: perdure.CatchUpAll},
	{ID: "york", Cron: "15 1 * * SUN", Zone: "America/New_York", Thread: "one", Overlap: perdure.OverlapAllow},
	{ID: "interval", Every: 5*time.Hour + 7*time.Second, Overlap: perdure.OverlapAllow, CatchUp: perdure.CatchUpSkip},
}

// TestYear lets a year pass, or two weeks of spring in its short form, with three workers
// that are killed: at any time, and at any call of their stores. Each firing is one run.
func TestYear(t *testing.T) {
	days := kit.Sized(14, 366, 366)
	kit.Bubble(t, fmt.Sprint(days), func(t *testing.T) {
		s, rnd := memstore.New(), rand.New(rand.NewPCG(3, 4))
		rt := kit.Runtime(t, s, perdure.Options{}, flows()...)
		time.Sleep(75 * 24 * time.Hour) // to the middle of March
		begun := time.Now()
		end := begun.Add(time.Duration(days) * 24 * time.Hour)
		planned := map[string][]time.Time{}
		for _, q := range yearly {
			put(t, rt, q)
		}
		for _, q := range yearly {
			all, err := rt.NextFirings(t.Context(), q.ID, 1000)
			kit.NoErr(t, err)
			for len(all) > 0 && !all[len(all)-1].After(end) { // the rest of the year, by the next firings of a later life
				q.Start = all[len(all)-1].Add(time.Second)
				probe := q
				probe.ID, probe.Paused, probe.Every = "probe-"+q.ID, true, q.Every
				if q.Every > 0 {
					probe.Start = all[len(all)-1].Add(q.Every)
				}
				more := put(t, rt, probe)
				next, err := rt.NextFirings(t.Context(), more.ID, 1000)
				kit.NoErr(t, err)
				kit.NoErr(t, rt.DeleteSchedule(t.Context(), more.ID))
				all = append(all, next...)
			}
			for _, at := range all {
				if !at.After(end) {
					planned[q.ID] = append(planned[q.ID], at)
				}
			}
		}
		fresh := func() *mortal { return newMortal(t, s, 20+rnd.IntN(400), rnd.IntN(2) == 0) }
		crew, kills := []*mortal{fresh(), fresh(), newMortal(t, s, 0, false)}, 0
		for i := 0; time.Now().Before(end); i = (i + 1) % 3 {
			time.Sleep(min(time.Until(end), time.Duration(1+rnd.IntN(20))*time.Hour/4+time.Duration(rnd.IntN(3600))*time.Second))
			if old := crew[i]; i < 2 || old.dead.Load() { // one of the first two dies; there is always one that does not
				crew[i] = newMortal(t, s, 0, false)
				time.Sleep(time.Duration(rnd.IntN(2)) * time.Second)
				old.dead.Store(true)
				old.stop()
				kills++
				if rnd.IntN(2) == 0 {
					last := crew[i]
					crew[i] = fresh()
					last.dead.Store(true)
					last.stop()
				}
			}
		}
		time.Sleep(time.Until(end.Add(50 * time.Second)))
		total := 0
		for _, q := range yearly {
			wantFirings(t, rt, q.ID, planned[q.ID])
			total += len(planned[q.ID])
		}
		if kills < days/2 {
			t.Errorf("only %d kills", kills)
		}
		t.Logf("%d firings, %d kills", total, kills)
	})
}

// TestCrashes kills the only worker at each call of its store, before and after it has
// happened. The next one completes what it has begun.
func TestCrashes(t *testing.T) {
	for _, late := range []bool{false, true} {
		for at := 1; ; at++ {
			reached := false
			kit.Bubble(t, fmt.Sprint(at, late), func(t *testing.T) {
				s := memstore.New()
				rt := kit.Runtime(t, s, perdure.Options{}, flows()...)
				for _, q := range []perdure.ScheduleRequest{{ID: "own"}, {ID: "one", Thread: "one"}, {ID: "skips", Overlap: perdure.OverlapSkip, Flow: "echo"}} {
					q.Every = 20 * time.Second
					if q.Overlap == "" {
						q.Overlap = perdure.OverlapAllow
					}
					put(t, rt, q)
				}
				first := newMortal(t, s, at, late)
				time.Sleep(50 * time.Second)
				reached = first.dead.Load()
				first.stop()
				newMortal(t, s, 0, false)
				time.Sleep(15 * time.Second)
				own := get(t, rt, "own")
				planned := []time.Time{own.Created.Truncate(time.Second).Add(20 * time.Second), own.Created.Truncate(time.Second).Add(40 * time.Second), own.Created.Truncate(time.Second).Add(60 * time.Second)}
				wantFirings(t, rt, "own", planned)
				wantFirings(t, rt, "one", planned)
				wantFirings(t, rt, "skips", planned[:1]) // nobody executes runs, so it never ends
			})
			if t.Failed() || !reached {
				if at < 20 {
					t.Errorf("only %d calls", at)
				}
				break
			}
		}
	}
}
