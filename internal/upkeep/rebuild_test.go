package upkeep_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/upkeep"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
)

// townFlows are flows that rest in every way. Step is the name of a step, which
// differs between versions of the code.
func townFlows(step string) []perdure.Flow {
	return []perdure.Flow{
		kit.EchoFlow("echo"),
		kit.AskFlow("expires", perdure.Question{Expires: 2 * time.Hour, Default: &perdure.Answer{Value: "late"}}),
		perdure.NewFlow("fail", func(context.Context, string) (string, error) { return "", errors.New("no") }),
		perdure.NewFlow("sleep", func(ctx context.Context, d time.Duration) (string, error) {
			return "slept", perdure.Sleep(ctx, "nap", d)
		}),
		perdure.NewFlow("turn", func(ctx context.Context, _ string) (string, error) {
			if _, err := perdure.Step(ctx, step, func(context.Context) (int, error) { return 1, nil }); err != nil {
				return "", err
			}
			return perdure.Ask[string](ctx, "ask", perdure.Question{})
		}),
		perdure.NewFlow("parent", func(ctx context.Context, child string) (string, error) {
			in := any("")
			if child == "sleep" {
				in = time.Second
			}
			c, err := perdure.Spawn(ctx, "kid", child, in)
			if err != nil {
				return "", err
			}
			return perdure.Join[string](ctx, "join", c)
		}),
	}
}

const turn = 4 // among townFlows

// hintsOf returns the keys of hints, alarms and summaries.
func hintsOf(t *testing.T, s store.Store) []string {
	t.Helper()
	var keys []string
	for _, prefix := range []string{"alarm/", "due/", "thread/"} {
		for cell, err := range s.List(context.Background(), prefix, "") {
			kit.NoErr(t, err)
			keys = append(keys, cell.Key)
		}
	}
	return keys
}

// loseHints deletes all hints, alarms and summaries.
func loseHints(t *testing.T, s store.Store) {
	t.Helper()
	for _, prefix := range []string{"alarm/", "due/", "thread/"} {
		kit.NoErr(t, store.DeletePrefix(context.Background(), s, prefix))
	}
}

// town fills a store with threads of every status, and leaves it without a
// worker.
func town(t *testing.T, s store.Store) {
	t.Helper()
	k := kit.New(t, s, perdure.Options{Version: "v1"}, townFlows("a")...)
	for _, q := range []perdure.StartRequest{
		{Thread: "done", Flow: "echo", Input: "x"},
		{Thread: "failed", Flow: "fail", Input: ""},
		{Thread: "ask", Flow: "turn", Input: ""},
		{Thread: "queue", Flow: "turn", Input: ""},
		{Thread: "paused", Flow: "turn", Input: ""},
		{Thread: "blocked", Flow: "turn", Input: ""},
		{Thread: "cancelled", Flow: "turn", Input: ""},
		{Thread: "erased", Flow: "turn", Input: ""},
		{Thread: "expires", Flow: "expires", Input: ""},
		{Thread: "far", Flow: "sleep", Input: 3 * time.Hour},
		{Thread: "parent", Flow: "parent", Input: "turn"},
	} {
		k.MustStart(q)
	}
	time.Sleep(time.Second)
	k.MustStart(perdure.StartRequest{Thread: "queue", Flow: "echo", Input: "second"})
	acme := &kit.Kit{Runtime: k.Tenant("acme"), T: t, Store: s}
	acme.MustStart(perdure.StartRequest{Thread: "ask", Flow: "turn", Input: "", User: "ann"})
	acme.WaitForRun("ask", "", perdure.Suspended)
	for _, err := range []error{
		k.Pause(t.Context(), "paused", "", perdure.Note{}),
		k.Cancel(t.Context(), "cancelled", "", perdure.Note{}),
	} {
		kit.NoErr(t, err)
	}
	k.WaitForRun("cancelled", "", perdure.Cancelled)
	time.Sleep(time.Minute)
	k.Stop()

	k = kit.New(t, s, perdure.Options{Version: "v1"}, townFlows("a")...)
	k.StartOn("near", "sleep", 9*time.Second)
	suspends(k, "near")
	k.Stop()

	// A child whose worker dies between its end and telling it.
	var mortal *kit.Mortal
	mortal = kit.NewMortal(t, s, perdure.Options{Version: "v1", Observer: kit.Committed(func(e perdure.Event) {
		if e.Kind == "ended" {
			mortal.Die()
		}
	})}, townFlows("a")...)
	mortal.StartOn("untold", "parent", "sleep")
	mortal.Until("a child ends", mortal.Dead.Load)
	mortal.Stop()

	k = kit.New(t, s, perdure.Options{Version: "v2"}, townFlows("b")[turn])
	run, err := k.GetRun(t.Context(), "blocked", "")
	kit.NoErr(t, err)
	k.AnswerAt(run, "/ask", perdure.Answer{Value: "unblocked"})
	k.WaitForRun("blocked", "", perdure.Blocked)
	k.Stop()

	k = &kit.Kit{Runtime: kit.Runtime(t, s, perdure.Options{}, kit.EchoFlow("echo")), T: t, Store: s}
	k.StartOn("fresh", "echo", "y")
	cut, err := perdure.New(t.Context(), faulty.New(s, func(c faulty.Call) faulty.Fault {
		if c.Op == store.OpDrop {
			return faulty.CrashBefore
		}
		return faulty.None
	}), perdure.Options{})
	kit.NoErr(t, err)
	if err := cut.Erase(t.Context(), "erased", perdure.EraseOptions{}); err == nil {
		t.Fatal("the erase was not cut off")
	}
}

// suspends waits until the newest run of a thread is suspended.
func suspends(k *kit.Kit, thread string) {
	k.T.Helper()
	k.Until(thread+" is suspended", func() bool {
		run, err := k.GetRun(k.T.Context(), thread, "")
		return err == nil && run.Status == perdure.Suspended
	})
}

// TestRebuildRestoresWhatWasThere loses all hints, alarms and summaries of
// threads of every status, and gets exactly those back.
// holdings is kit.Holdings without the numbers of keys in the index, which a summary
// that is written anew may change.
func holdings(t *testing.T, s store.Store) map[string]string {
	all := map[string]string{}
	for key, value := range kit.Holdings(t, s) {
		if parts := strings.Split(key, "."); strings.HasPrefix(key, "index/") && len(parts) > 1 {
			key = strings.Join(parts[:len(parts)-1], ".")
		}
		var summary map[string]any
		if strings.HasPrefix(key, "thread/") {
			kit.NoErr(t, json.Unmarshal([]byte(value), &summary))
			for _, field := range []string{"ss", "ms", "go", "la", "rm"} {
				delete(summary, field)
			}
			value = fmt.Sprint(summary)
		}
		all[key] = value
	}
	return all
}

func TestRebuildRestoresWhatWasThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		town(t, s)
		before, held := hintsOf(t, s), holdings(t, s)
		idle := &kit.Kit{Runtime: kit.Runtime(t, s, perdure.Options{}), T: t, Store: s}
		loseHints(t, s)
		got := idle.MustRebuild()
		if diff := cmp.Diff(before, hintsOf(t, s)); diff != "" {
			t.Errorf("the cells (-before +after):\n%s", diff)
		}
		want := perdure.Rebuilt{Threads: 16, Orphans: 1}
		for _, key := range before {
			if strings.HasPrefix(key, "thread/") {
				want.Summaries++
			} else {
				want.Hints++
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if want.Summaries != want.Threads || want.Hints < 6 {
			t.Errorf("the town is too small: %+v", want)
		}
		after := holdings(t, s)
		for key := range after {
			if after[key] != held[key] && !strings.Contains(held[key], `status:running`) { // of the child whose worker died
				t.Errorf("%s was %s and is %s", key, held[key], after[key])
			}
			delete(held, key)
		}
		for key := range held {
			if !strings.HasPrefix(key, "gate/") && !strings.HasPrefix(key, "leaving/") && !strings.HasPrefix(key, "id/") && !strings.HasPrefix(key, "journal thread/") {
				t.Errorf("%s is gone", key)
			}
		}
		if len(held) != 4 {
			t.Errorf("of the erased thread its gate, the mark that it is leaving, the way to it and its journal should be gone: %q", held)
		}

		if got := idle.MustRebuild(); got != (perdure.Rebuilt{Threads: want.Threads}) {
			t.Errorf("a second time it did %+v", got)
		}
		if diff := cmp.Diff(before, hintsOf(t, s)); diff != "" {
			t.Errorf("the cells after the second time (-before +after):\n%s", diff)
		}
	})
}

// endsWell lets a worker with the right code finish the town, answers what is
// asked, and expects everything to end.
func endsWell(t *testing.T, k *kit.Kit) {
	t.Helper()
	want := map[string]string{
		"done": "x", "ask": "yes", "queue": "second", "paused": "yes", "blocked": "unblocked", "expires": "late", "far": "slept",
		"parent": "yes", "untold": "slept", "near": "slept", "fresh": "y",
	}
	kit.NoErr(t, k.Resume(t.Context(), "paused", "", perdure.Note{}))
	time.Sleep(time.Minute)
	for sum, err := range k.List(t.Context(), perdure.ListOptions{}) {
		kit.NoErr(t, err)
		if sum.Asks == 0 || sum.ID == "expires" {
			continue
		}
		info, err := k.Get(t.Context(), sum.ID)
		kit.NoErr(t, err)
		k.AnswerAt(info.Runs[0], "/ask", perdure.Answer{Value: "yes"})
	}
	time.Sleep(4 * time.Hour)
	for id, out := range want {
		run := k.WaitForRun(id, "", perdure.Succeeded)
		kit.WantOutput(t, run, out)
	}
	k.WaitForRun("failed", "", perdure.Failed)
	k.WaitForRun("cancelled", "", perdure.Cancelled)
	_, err := k.Get(t.Context(), "erased")
	kit.WantErr(t, "the erased thread", err, perdure.ErrNoThread)
	acme := &kit.Kit{Runtime: k.Tenant("acme"), T: t, Store: k.Store}
	acme.AnswerAt(acme.WaitForRun("ask", "", perdure.Suspended), "/ask", perdure.Answer{Value: "acme"})
	kit.WantOutput(t, acme.WaitForRun("ask", "", perdure.Succeeded), "acme")
	time.Sleep(time.Minute)
	for _, key := range hintsOf(t, k.Store) {
		if !strings.HasPrefix(key, "thread/") {
			t.Errorf("everything has ended, and there is %s", key)
		}
	}
}

// TestEverythingEndsAfterRebuild: what was lost makes no difference.
func TestEverythingEndsAfterRebuild(t *testing.T) {
	kit.Bubble(t, "by Rebuild", func(t *testing.T) {
		s := memstore.New()
		town(t, s)
		loseHints(t, s)
		(&kit.Kit{Runtime: kit.Runtime(t, s, perdure.Options{}), T: t, Store: s}).MustRebuild()
		endsWell(t, kit.New(t, s, perdure.Options{Version: "v3"}, townFlows("a")...))
	})
	kit.Bubble(t, "by a sweep of two workers", func(t *testing.T) {
		t.Cleanup(upkeep.SetSweepInterval(upkeep.SweepInterval)) // when the workers have stopped
		s := memstore.New()
		town(t, s)
		loseHints(t, s)
		kit.New(t, s, perdure.Options{Version: "v3"}, townFlows("a")...)
		k := kit.New(t, s, perdure.Options{Version: "v3"}, townFlows("a")...)
		time.Sleep(5 * time.Minute)
		if got := hintsOf(t, s); len(got) != 0 {
			t.Errorf("a sweep came too early: %q", got)
		}
		time.Sleep(10 * time.Minute)
		endsWell(t, k)
	})
}

// TestRebuildThatDiesIsDoneByTheNext crashes it at every call, again and again
// in one town.
func TestRebuildThatDiesIsDoneByTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		town(t, s)
		before := hintsOf(t, s)
		cuts := 0
		step := kit.Sized(5, 1, 1)
		for cut, plan := range kit.SweepWrites(step, faulty.CrashBefore, faulty.CrashAfter, faulty.FailBefore, faulty.FailAfter, faulty.Conflict) {
			cuts++
			loseHints(t, s)
			cutOff, err := perdure.New(t.Context(), faulty.New(s, plan), perdure.Options{})
			if err == nil {
				_, _ = cutOff.Rebuild(t.Context())
			}
			k := &kit.Kit{Runtime: kit.Runtime(t, s, perdure.Options{}), T: t, Store: s}
			k.MustRebuild()
			if diff := cmp.Diff(before, hintsOf(t, s)); diff != "" {
				t.Fatalf("%s: the cells (-before +after):\n%s", cut, diff)
			}
			if got := k.MustRebuild(); got != (perdure.Rebuilt{Threads: 16}) {
				t.Fatalf("%s: a third time it did %+v", cut, got)
			}
		}
		if cuts < 100/step {
			t.Errorf("only %d cuts", cuts)
		}
	})
}

// TestRebuildLeavesDamageAndOrphans: a damaged thread is listed, and one to
// which no id leads is not.
func TestRebuildLeavesDamageAndOrphans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		k := kit.New(t, s, perdure.Options{}, kit.EchoFlow("echo"))
		for i := range 3 {
			k.StartOn(fmt.Sprint("t", i), "echo", "")
			k.WaitForRun(fmt.Sprint("t", i), "", perdure.Succeeded)
		}
		k.Stop()
		names := kit.Journals(t, s)
		if last, _ := kit.JournalEnd(t, s, names[1]); last > 0 {
			if _, err := s.Append(t.Context(), names[1], last, []byte("garbage")); err != nil {
				t.Fatal(err)
			}
		}
		loseHints(t, s)
		for cell, err := range s.List(t.Context(), "id/", "") {
			kit.NoErr(t, err)
			if "thread/"+string(cell.Value) == names[2] {
				kit.NoErr(t, s.Delete(t.Context(), cell.Key, cell.Version))
			}
		}
		for range 2 {
			got := k.MustRebuild()
			if got.Threads != 2 || got.Damaged != 1 || got.Orphans != 1 || got.Hints != 0 {
				t.Errorf("%+v", got)
			}
			if diff := cmp.Diff(slices.Sorted(slices.Values(names[:2])), hintsOf(t, s)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		}
	})
}

// TestRebuildRemovesCellsOfDeadStarts: a start with more values than a batch has room for
// writes some cells of the index first. If it dies, Rebuild removes these, and whoever
// starts the thread again can do so.
func TestRebuildRemovesCellsOfDeadStarts(t *testing.T) {
	meta := map[string]string{}
	for i := range 30 {
		meta[fmt.Sprint("key", i)] = "value"
	}
	start := perdure.StartRequest{Thread: "t", Flow: "echo", Input: "x", User: "ann", Metadata: meta}
	var died atomic.Bool
	died.Store(true)
	for n := 1; died.Load() && !t.Failed(); n++ {
		died.Store(false)
		synctest.Test(t, func(t *testing.T) {
			s := memstore.New()
			k := kit.New(t, s, perdure.Options{}, kit.EchoFlow("echo"))
			k.Stop()
			dying := faulty.New(s, func(c faulty.Call) faulty.Fault {
				if c.W != n {
					return faulty.None
				}
				died.Store(true)
				return faulty.CrashAfter
			})
			rt := kit.Runtime(t, dying, perdure.Options{}, kit.EchoFlow("echo"))
			_, _ = rt.Start(t.Context(), start)
			k.MustRebuild() // too early to tell that it is dead
			time.Sleep(2 * time.Hour)
			k.MustRebuild()
			if begun := len(kit.Journals(t, s)) > 0; !begun {
				kit.WantNothing(t, s)
			}
			k.MustStart(start)
			found := 0
			for _, err := range k.List(t.Context(), perdure.ListOptions{Metadata: map[string]string{"key17": "value"}}) {
				kit.NoErr(t, err)
				found++
			}
			if found != 1 {
				t.Errorf("crash after write %d: %d threads are found", n, found)
			}
		})
	}
}

// TestOneWorkerSweeps: two workers do not sweep more often than one does, and
// when it is gone the other does.
func TestOneWorkerSweeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(upkeep.SetSweepInterval(upkeep.SweepInterval)) // when the workers have stopped
		s := memstore.New()
		var sweeps [2]atomic.Int32
		var kits []*kit.Kit
		for i := range sweeps {
			kits = append(kits, kit.New(t, faulty.New(s, func(c faulty.Call) faulty.Fault {
				if c.Op == store.OpJournals {
					sweeps[i].Add(1)
				}
				return faulty.None
			}), perdure.Options{}, kit.EchoFlow("echo")))
		}
		time.Sleep(3 * time.Hour)
		// One every 10 to 12 minutes; where one leaves it to the other, which
		// comes later, the pause is longer.
		if n := sweeps[0].Load() + sweeps[1].Load(); n < 8 || n > 18 {
			t.Errorf("%d sweeps in 3 hours", n)
		}
		busy := 0
		if sweeps[1].Load() > sweeps[0].Load() {
			busy = 1
		}
		kits[busy].Stop()
		sweeps[1-busy].Store(0)
		time.Sleep(time.Hour)
		if n := sweeps[1-busy].Load(); n < 4 || n > 6 {
			t.Errorf("%d sweeps in an hour by the one that is left", n)
		}
	})
}
