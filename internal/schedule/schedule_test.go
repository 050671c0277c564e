package schedule_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	_ "github.com/perdure/perdure/cron"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/schedule"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// TestPolicies lets ten minutes pass, of which nobody works for some.
func TestPolicies(t *testing.T) {
	for name, c := range map[string]struct {
		q     perdure.ScheduleRequest
		pause time.Duration // without workers, after three minutes
		want  string
	}{
		"on time": {want: "started 1, started 2, started 3, started 4, started 5, started 6, started 7, started 8, started 9, started 10"},
		"last":    {pause: 3*time.Minute + 10*time.Second, want: "started 1, started 2, started 3, missed 4-5, started 6, started 7, started 8, started 9, started 10"},
		"skip":    {q: perdure.ScheduleRequest{CatchUp: perdure.CatchUpSkip}, pause: 3*time.Minute + 10*time.Second, want: "started 1, started 2, started 3, missed 4-5, started 6, started 7, started 8, started 9, started 10"},
		"skip all": {q: perdure.ScheduleRequest{CatchUp: perdure.CatchUpSkip, Every: 4 * time.Minute}, pause: 3 * time.Minute,
			want: "missed 4, started 8"},
		"all":         {q: perdure.ScheduleRequest{CatchUp: perdure.CatchUpAll}, pause: 4 * time.Minute, want: "started 1, started 2, started 3, started 4, started 5, started 6, started 7, started 8, started 9, started 10"},
		"all up to 2": {q: perdure.ScheduleRequest{CatchUp: perdure.CatchUpAll, CatchUpMax: 2}, pause: 4*time.Minute - time.Second, want: "started 1, started 2, started 3, missed 4-5, started 6, started 7, started 8, started 9, started 10"},
		"three times": {q: perdure.ScheduleRequest{Max: 3}, want: "started 1, started 2, started 3"},
		"an end":      {q: perdure.ScheduleRequest{Until: time.Date(2000, 1, 1, 0, 4, 0, 0, time.UTC)}, want: "started 1, started 2, started 3, started 4"},
		"a start":     {q: perdure.ScheduleRequest{Start: time.Date(2000, 1, 1, 0, 8, 0, 0, time.UTC)}, want: "started 8, started 9, started 10"},
		"cron":        {q: perdure.ScheduleRequest{Cron: "*/4 * * * *"}, want: "started 4, started 8"},

		"overlap skip":   {q: perdure.ScheduleRequest{Flow: "nap", Input: "150s"}, want: "started 1, overlap 2, overlap 3, started 4, overlap 5, overlap 6, started 7, overlap 8, overlap 9, started 10"},
		"overlap allow":  {q: perdure.ScheduleRequest{Flow: "nap", Input: "150s", Overlap: perdure.OverlapAllow, Every: 2 * time.Minute}, want: "started 2, started 4, started 6, started 8, started 10"},
		"overlap queue":  {q: perdure.ScheduleRequest{Flow: "nap", Input: "150s", Overlap: perdure.OverlapQueue, Max: 3}, want: "started 1, started 2, started 3"},
		"overlap cancel": {q: perdure.ScheduleRequest{Flow: "ask", Overlap: perdure.OverlapCancel, Every: 5 * time.Minute}, want: "started 5, started 10"},
		"one thread":     {q: perdure.ScheduleRequest{Thread: "mine", Flow: "nap", Input: "150s", Overlap: perdure.OverlapQueue, Every: 2 * time.Minute}, want: "started 2, started 4, started 6, started 8"},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			s, begun := memstore.New(), time.Now()
			rt := kit.Runtime(t, s, perdure.Options{}, flows()...)
			q := c.q
			q.ID = "s"
			if q.Every == 0 && q.Cron == "" {
				q.Every = time.Minute
			}
			put(t, rt, q)
			crew := kit.New(t, s, perdure.Options{Lease: 3 * time.Second}, flows()...)
			time.Sleep(3*time.Minute + 10*time.Second)
			if c.pause > 0 {
				crew.Stop()
				time.Sleep(c.pause)
				crew = kit.New(t, s, perdure.Options{Lease: 3 * time.Second}, flows()...)
			}
			time.Sleep(time.Until(begun.Add(10*time.Minute + 10*time.Second)))
			got := get(t, rt, "s")
			if text := recent(got, begun); text != c.want {
				t.Errorf("%s\nwant %s", text, c.want)
			}
			if q.Overlap == perdure.OverlapCancel {
				run, err := rt.GetRun(t.Context(), got.Recent[1].Thread, "")
				kit.NoErr(t, err)
				if run.Status != perdure.Cancelled {
					t.Errorf("the earlier run is %s", run.Status)
				}
			}
			crew.Stop()
		})
	}
}

// TestQueueAfterADeath has a firing that waits for the end of a run when all workers are
// gone: others do not take it for one that somebody else sees to.
func TestQueueAfterADeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, begun := memstore.New(), time.Now()
		rt := kit.Runtime(t, s, perdure.Options{}, flows()...)
		put(t, rt, perdure.ScheduleRequest{ID: "s", Flow: "nap", Input: "90s", Every: time.Minute, Overlap: perdure.OverlapQueue, Max: 2})
		crew := kit.New(t, s, perdure.Options{Lease: 3 * time.Second}, flows()...)
		time.Sleep(130 * time.Second)
		crew.Stop()
		crew = kit.New(t, s, perdure.Options{Lease: 3 * time.Second}, flows()...)
		time.Sleep(time.Until(begun.Add(150*time.Second + 12*time.Second))) // the first run ends after 150 s
		if text := recent(get(t, rt, "s"), begun); text != "started 1, started 2" {
			t.Error(text)
		}
		crew.Stop()
	})
}

// TestQueueDrains: a queued firing starts when the run before it has ended, not some time
// later, so that a queue gets shorter than it became while no worker was there.
func TestQueueDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		rt := kit.Runtime(t, s, perdure.Options{}, flows()...)
		sch := put(t, rt, perdure.ScheduleRequest{ID: "s", Flow: "nap", Input: "100ms", Every: time.Second, Overlap: perdure.OverlapQueue, CatchUp: perdure.CatchUpAll, CatchUpMax: 100})
		begun := sch.Created
		time.Sleep(50 * time.Second)
		crew := kit.New(t, s, perdure.Options{Lease: 3 * time.Second}, flows()...)
		defer crew.Stop()
		time.Sleep(8*time.Second + 500*time.Millisecond)
		if sch = get(t, rt, "s"); sch.Fired != 58 {
			t.Errorf("%d firings in %v, want 58", sch.Fired, time.Since(begun))
		}
	})
}

// TestOneFailsAlone has schedules that cannot start anything beside one that can.
func TestOneFailsAlone(t *testing.T) {
	kit.Bubble(t, "", func(t *testing.T) {
		s := memstore.New()
		old := kit.Runtime(t, s, perdure.Options{}, append(flows(), kit.EchoFlow("gone"))...)
		for i := range 20 {
			put(t, old, perdure.ScheduleRequest{ID: fmt.Sprint("bad-", i), Flow: "gone", Every: time.Minute})
		}
		put(t, old.User("ada"), perdure.ScheduleRequest{ID: "theirs", Thread: "bobs", Every: time.Minute})
		kit.Start(t, old.User("bob"), perdure.StartRequest{Thread: "bobs", Flow: "echo", Input: "x"})
		put(t, old, perdure.ScheduleRequest{ID: "good", Every: time.Minute})
		k := kit.New(t, s, perdure.Options{Lease: 3 * time.Second}, flows()...)
		time.Sleep(10*time.Minute + 10*time.Second)
		if n := get(t, k.Runtime, "good").Fired; n != 10 {
			t.Errorf("the good one was started %d times", n)
		}
		for id, want := range map[string]string{"bad-7": `unknown flow: "gone"`, "theirs": "the id is taken"} {
			if bad := get(t, k.Runtime, id); !strings.Contains(bad.Error, want) || bad.Since.IsZero() || bad.Fired != 0 {
				t.Errorf("%s: %q since %v, %d", id, bad.Error, bad.Since, bad.Fired)
			}
		}
		kit.New(t, s, perdure.Options{Lease: 3 * time.Second}, append(flows(), kit.EchoFlow("gone"))...)
		time.Sleep(2 * time.Minute)
		if bad := get(t, k.Runtime, "bad-7"); bad.Error != "" || bad.Fired < 2 || !bad.Since.IsZero() {
			t.Errorf("with the flow: %q, %d", bad.Error, bad.Fired)
		}
	})
}

// TestControl pauses, resumes, triggers, changes and removes a schedule.
func TestControl(t *testing.T) {
	kit.Bubble(t, "", func(t *testing.T) {
		ctx, begun := t.Context(), time.Now()
		k := kit.New(t, nil, perdure.Options{Lease: 3 * time.Second}, flows()...)
		ada := k.User("ada")
		put(t, ada, perdure.ScheduleRequest{ID: "s", Every: time.Minute})
		time.Sleep(90 * time.Second)
		paused, err := ada.PauseSchedule(ctx, "s")
		kit.NoErr(t, err)
		if !paused.Paused {
			t.Error("it is not paused")
		}
		run, err := ada.TriggerSchedule(ctx, "s", "key")
		kit.NoErr(t, err)
		again, err := ada.TriggerSchedule(ctx, "s", "key")
		kit.NoErr(t, err)
		if run.ID != again.ID || run.Thread != again.Thread {
			t.Error("the same key gave two runs")
		}
		// Metadata may be sent back as it was read, and only so.
		th, err := ada.Get(ctx, run.Thread)
		kit.NoErr(t, err)
		th.Metadata["mine"] = "1"
		kit.NoErr(t, ada.SetMetadata(ctx, run.Thread, nil, th.Metadata, perdure.Note{}))
		kit.WantErr(t, "the runtime's own", ada.SetMetadata(ctx, run.Thread, nil, map[string]string{"perdure.schedule": "z"}, perdure.Note{}), perdure.ErrInvalid)
		kit.WantErr(t, "the runtime's own, removed", ada.SetMetadata(ctx, run.Thread, nil, map[string]string{"perdure.schedule": ""}, perdure.Note{}), perdure.ErrInvalid)
		// No firing made a fork, or an import.
		_, err = ada.Fork(ctx, perdure.ForkRequest{Thread: run.Thread, As: "fork"})
		kit.NoErr(t, err)
		var export bytes.Buffer
		kit.NoErr(t, ada.Export(ctx, run.Thread, &export, perdure.ExportOptions{}))
		_, err = ada.Import(ctx, &export, perdure.ImportOptions{As: "import"})
		kit.NoErr(t, err)
		for _, id := range []string{"fork", "import"} {
			if th, err := ada.Get(ctx, id); err != nil || th.Metadata["perdure.schedule"] != "" || th.Metadata["mine"] != "1" {
				t.Errorf("the %s has %v: %v", id, th.Metadata, err)
			}
		}
		for th, err := range ada.List(ctx, perdure.ListOptions{Metadata: map[string]string{"perdure.schedule": "s"}}) {
			if err != nil || th.ID == "fork" || th.ID == "import" {
				t.Errorf("%s is listed as a firing's: %v", th.ID, err)
			}
		}
		time.Sleep(3 * time.Minute)
		_, err = ada.ResumeSchedule(ctx, "s")
		kit.NoErr(t, err)
		time.Sleep(time.Minute)
		if got, want := recent(get(t, ada, "s"), begun), "started 1, started 1.5, started 5"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		next := get(t, ada, "s").Next
		if changed := put(t, ada, perdure.ScheduleRequest{ID: "s", Every: time.Minute, Input: "y"}); !changed.Next[0].Equal(next[0]) || len(next) != 5 {
			t.Errorf("the next firing is %v, and was %v", changed.Next, next)
		}
		if changed := put(t, ada, perdure.ScheduleRequest{ID: "s", Every: time.Hour, Input: "y"}); !changed.Next[0].After(next[4]) || changed.Fired != 2 {
			t.Errorf("the next firing is %v after %d", changed.Next[0], changed.Fired)
		}
		_, err = k.User("bob").Schedule(ctx, "s")
		kit.WantErr(t, "another user's", err, perdure.ErrNoSchedule)
		kit.WantErr(t, "another user's", k.User("bob").DeleteSchedule(ctx, "s"), perdure.ErrNoSchedule)
		_, err = k.User("bob").PutSchedule(ctx, perdure.ScheduleRequest{ID: "s", Flow: "echo", Input: "x", Every: time.Minute})
		kit.WantErr(t, "another user's id", err, perdure.ErrExists)
		_, err = k.Tenant("acme").Schedule(ctx, "s")
		kit.WantErr(t, "another tenant's", err, perdure.ErrNoSchedule)
		put(t, k.Tenant("acme"), perdure.ScheduleRequest{ID: "s", Every: time.Minute})
		if all, err := k.Schedules(ctx); err != nil || len(all) != 1 || all[0].User != "ada" {
			t.Errorf("%v %v", all, err)
		}
		data, err := k.UserData(ctx, "ada")
		kit.NoErr(t, err)
		receipt, err := k.EraseUser(ctx, "ada", perdure.EraseUserOptions{})
		kit.NoErr(t, err)
		if data.Schedules != 1 || receipt.Erased.Schedules != 1 {
			t.Errorf("%+v, %+v", data, receipt.Erased)
		}
		kit.WantErr(t, "an erased one", ada.DeleteSchedule(ctx, "s"), perdure.ErrNoSchedule)
		kit.NoErr(t, k.Tenant("acme").DeleteSchedule(ctx, "s"))
		time.Sleep(2 * time.Hour)
		if all, err := k.Tenant("acme").Schedules(ctx); err != nil || len(all) > 0 {
			t.Errorf("%v %v", all, err)
		}
	})
}

func TestBadRequests(t *testing.T) {
	rt := kit.Runtime(t, memstore.New(), perdure.Options{}, flows()...)
	for want, change := range map[string]func(q *perdure.ScheduleRequest){
		"needs a cron expression": func(q *perdure.ScheduleRequest) { q.Every = 0 },
		"not both":                func(q *perdure.ScheduleRequest) { q.Cron = "@daily" },
		"use 1s to ten years":     func(q *perdure.ScheduleRequest) { q.Every = time.Millisecond },
		"has no time zone":        func(q *perdure.ScheduleRequest) { q.Zone = "Europe/Berlin" },
		"unknown time zone Mars":  func(q *perdure.ScheduleRequest) { q.Every, q.Cron, q.Zone = 0, "@daily", "Mars" },
		"names no time zone":      func(q *perdure.ScheduleRequest) { q.Every, q.Cron, q.Zone = 0, "@daily", "Local" },
		"4 fields instead of 5":   func(q *perdure.ScheduleRequest) { q.Every, q.Cron = 0, "* * * *" },
		"ends before it starts": func(q *perdure.ScheduleRequest) {
			q.Start, q.Until = time.Now().Add(2*time.Hour), time.Now().Add(time.Hour)
		},
		"which is over":                         func(q *perdure.ScheduleRequest) { q.Until = time.Unix(8, 0) },
		"no overlap policy":                     func(q *perdure.ScheduleRequest) { q.Overlap = "maybe" },
		"no catch-up policy":                    func(q *perdure.ScheduleRequest) { q.CatchUp = "maybe" },
		"needs the catch-up policy all":         func(q *perdure.ScheduleRequest) { q.CatchUpMax = 5 },
		"with 1 to 1000 firings":                func(q *perdure.ScheduleRequest) { q.CatchUp, q.CatchUpMax = "all", 1001 },
		"a maximum of -1":                       func(q *perdure.ScheduleRequest) { q.Max = -1 },
		"the limit is 65536":                    func(q *perdure.ScheduleRequest) { q.Input = strings.Repeat("x", 70_000) },
		"letters, digits":                       func(q *perdure.ScheduleRequest) { q.ID = "a/b" },
		"\"..\" cannot be the id of a schedule": func(q *perdure.ScheduleRequest) { q.ID = ".." },
		"\"right/Europe/Berlin\" names no":      func(q *perdure.ScheduleRequest) { q.Every, q.Cron, q.Zone = 0, "@daily", "right/Europe/Berlin" },
		"\"perdure.schedule\" is the runtime's": func(q *perdure.ScheduleRequest) { q.Metadata = map[string]string{"perdure.schedule": "x"} },
		"before its first firing":               func(q *perdure.ScheduleRequest) { q.Until = time.Now().Add(30 * time.Second) },
		"never fire: it ends before its": func(q *perdure.ScheduleRequest) {
			q.Every, q.Cron, q.Start, q.Until = 0, "0 0 1 1 *", time.Date(2999, 2, 1, 0, 0, 0, 0, time.UTC), time.Date(2999, 3, 1, 0, 0, 0, 0, time.UTC)
		},
		"flow echo takes a string, not a number": func(q *perdure.ScheduleRequest) { q.Input = 5 },
		"control or invisible characters":        func(q *perdure.ScheduleRequest) { q.User = "bo\x00b" },
		"the limit is 16384":                     func(q *perdure.ScheduleRequest) { q.Metadata = map[string]string{"k": strings.Repeat("x", 16380)} },
		"before the year 10000, not at 10000": func(q *perdure.ScheduleRequest) {
			q.Until = time.Date(9999, 12, 31, 23, 59, 59, 0, time.FixedZone("", -12*3600))
		},
		"before the year 10000, not at 400000": func(q *perdure.ScheduleRequest) { q.Start = time.Date(400000, 1, 1, 0, 0, 0, 0, time.UTC) },
		"after 1970-01-01":                     func(q *perdure.ScheduleRequest) { q.Start = time.Unix(0, 0) },
	} {
		q := perdure.ScheduleRequest{ID: "s", Flow: "echo", Input: "x", Every: time.Minute}
		change(&q)
		_, err := rt.PutSchedule(t.Context(), q)
		kit.WantErr(t, want, err, perdure.ErrInvalid)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	_, err := rt.Start(t.Context(), perdure.StartRequest{Flow: "echo", Input: "x", Metadata: map[string]string{"perdure.schedule": "1"}})
	kit.WantErr(t, "a start that poses as a firing", err, perdure.ErrInvalid)
	_, err = rt.Create(t.Context(), perdure.CreateRequest{Metadata: map[string]string{"perdure.other": "1"}})
	kit.WantErr(t, "a thread that poses as one of a firing", err, perdure.ErrInvalid)
	_, err = rt.Start(t.Context(), perdure.StartRequest{Flow: "echo", Input: "x", Thread: "bobs", User: "bob"})
	kit.NoErr(t, err)
	put(t, rt, perdure.ScheduleRequest{Thread: "bobs", User: "bob", Every: time.Minute})
	_, err = rt.PutSchedule(t.Context(), perdure.ScheduleRequest{Flow: "echo", Input: "x", Thread: "bobs", User: "ada", Every: time.Minute})
	kit.WantErr(t, "another user's thread", err, perdure.ErrExists)
	_, err = rt.PutSchedule(t.Context(), perdure.ScheduleRequest{Flow: "none", Every: time.Minute})
	kit.WantErr(t, "an unknown flow", err, perdure.ErrNoFlow)
	for i := range 101 {
		_, err = rt.PutSchedule(t.Context(), perdure.ScheduleRequest{ID: fmt.Sprint(i), User: "ada", Flow: "echo", Input: "x", Every: time.Hour})
	}
	kit.WantErr(t, "too many", err, perdure.ErrQuota)
	_, err = rt.NextFirings(context.Background(), "1", 2000)
	kit.WantErr(t, "too many firings", err, perdure.ErrInvalid)
}

// TestOver puts schedules again that have ended: as they were, and with other times.
func TestOver(t *testing.T) {
	kit.Bubble(t, "", func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, flows()...)
		until := time.Now().Add(150 * time.Second)
		once := perdure.ScheduleRequest{ID: "once", Flow: "echo", Input: "x", Every: time.Minute, Start: until, Until: until}
		two := perdure.ScheduleRequest{ID: "two", Flow: "echo", Input: "x", Every: time.Minute, Until: until}
		for i, q := range []perdure.ScheduleRequest{once, two} {
			if s := put(t, k.Runtime, q); len(s.Next) != i+1 {
				t.Errorf("%s fires at %v", q.ID, s.Next)
			}
		}
		time.Sleep(5 * time.Minute)
		for i, q := range []perdure.ScheduleRequest{once, two} {
			if s := put(t, k.Runtime, q); len(s.Next) != 0 || s.Fired != i+1 {
				t.Errorf("%s has fired %d times, and fires at %v", q.ID, s.Fired, s.Next)
			}
			q.Every *= 2
			_, err := k.Runtime.PutSchedule(t.Context(), q)
			kit.WantErr(t, "other times", err, perdure.ErrInvalid)
		}
	})
	rt := kit.Runtime(t, memstore.New(), perdure.Options{}, flows()...)
	if at := put(t, rt, perdure.ScheduleRequest{ID: "zone", Cron: "@daily", Zone: "Europe/Berlin"}).Next[0]; at.Hour() != 0 || at.Location().String() != "Europe/Berlin" {
		t.Errorf("it fires at %v", at)
	}
}

// TestEndOfTime: times are those that JSON can hold, also in schedules that were stored
// with others, which would keep a list from being sent.
func TestEndOfTime(t *testing.T) {
	m := memstore.New()
	rt := kit.Runtime(t, m, perdure.Options{}, flows()...)
	last := time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)
	for id, q := range map[string]perdure.ScheduleRequest{
		"seconds": {Every: 12 * time.Hour, Start: last}, "days": {Cron: "0 0,12 * * *", Start: last}, "years": {Cron: "0 0,12 31 12 *", Start: last.AddDate(0, -1, 0), Zone: "Europe/Berlin"},
	} {
		q.ID = id
		if s := put(t, rt, q); len(s.Next) != 2 || s.Next[1].Year() != 9999 {
			t.Errorf("%s: %v", id, s.Next)
		}
	}
	tenant := threads.Behind(rt)
	_, err := store.Update(t.Context(), m, schedule.Key(tenant, "seconds"), func(old store.Cell) ([]byte, error) {
		var s map[string]any
		kit.NoErr(t, json.Unmarshal(old.Value, &s))
		s["start"], s["next"], s["until"] = int64(253402300800_000000), int64(253402300800_000000), int64(9e18)
		return json.Marshal(s)
	})
	kit.NoErr(t, err)
	all, err := rt.Schedules(t.Context())
	kit.NoErr(t, err)
	if _, err := json.Marshal(all); err != nil || len(all) != 3 {
		t.Errorf("%d schedules: %v", len(all), err)
	}
}
