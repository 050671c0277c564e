package vault_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/archive"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store/memstore"
)

// refused expects that a thread cannot be archived, and that nothing was written.
func refused(t *testing.T, k *kit.Kit, p *place, thread string, want error, says ...string) {
	t.Helper()
	_, err := k.Archive(t.Context(), thread, perdure.Note{})
	kit.WantErr(t, "Archive", err, want)
	for _, text := range says {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v does not say %q", err, text)
		}
	}
	if len(p.names()) > 0 {
		t.Errorf("a refused archive left %q", p.names())
	}
	if _, err := k.Get(t.Context(), thread); err != nil {
		t.Errorf("then Get: %v", err)
	}
}

// TestOnlyThreadsAtRest: a run in any state but an ended one keeps its thread here.
func TestOnlyThreadsAtRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace()
		k := kitOn(t, memstore.New(), p)
		run := k.StartOn("t", "asks", "?")
		k.WaitFor("t", perdure.Suspended)
		refused(t, k, p, "t", perdure.ErrBusy, run.ID, "suspended")
		kit.NoErr(t, k.Pause(t.Context(), "t", run.ID, perdure.Note{}))
		refused(t, k, p, "t", perdure.ErrBusy, run.ID, "paused")
		kit.NoErr(t, k.Resume(t.Context(), "t", run.ID, perdure.Note{}))
		kit.NoErr(t, k.Cancel(t.Context(), "t", run.ID, perdure.Note{}))
		k.WaitFor("t", perdure.Cancelled)
		k.Stop()
		queued := k.StartOn("t", "echo", "")
		refused(t, k, p, "t", perdure.ErrBusy, queued.ID, "queued")
		kit.NoErr(t, k.Cancel(t.Context(), "t", queued.ID, perdure.Note{}))
		_, err := k.Archive(t.Context(), "t", perdure.Note{IfSeq: 3})
		kit.WantErr(t, "Archive at another sequence", err, perdure.ErrStale)
		mustArchive(t, k.Runtime, "t")
		_, err = k.Archive(t.Context(), "none", perdure.Note{})
		kit.WantErr(t, "Archive of nothing", err, perdure.ErrNoThread)
	})
}

// TestForks: a thread with a fork stays, the fork can be archived with the past that
// both share, and comes back without it being shared. Keys of effects stay those of
// the thread in which they happened.
func TestForks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace()
		k := kitOn(t, memstore.New(), p)
		broken.Store("forks", true)
		k.WaitForRun("t", k.StartOn("t", "echo", kit.Large).ID, perdure.Succeeded)
		failed := k.WaitForRun("t", k.StartOn("t", "shaky", "forks").ID, perdure.Failed)
		k.MustFork(perdure.ForkRequest{Thread: "t", As: "f"})
		k.MustFork(perdure.ForkRequest{Thread: "f", As: "g"})
		refused(t, k, p, "t", perdure.ErrPinned, "f")
		refused(t, k, p, "f", perdure.ErrPinned, "g")

		files := map[string]string{}
		for _, id := range []string{"g", "f", "t"} {
			files[id] = export(t, k.Runtime, id)
			mustArchive(t, k.Runtime, id)
		}
		if got := cellsOf(t, k.Store); got != "map[cell archived:3 cell id:3 cell pin:2]" {
			t.Errorf("the store still holds %s", got)
		}
		for _, id := range []string{"g", "f"} {
			mustRestore(t, k.Runtime, id)
			if got := export(t, k.Runtime, id); got != files[id] {
				t.Errorf("%s has another export", id)
			}
		}
		// They do not need the thread they come from, and yet depend on it: they have
		// its past.
		var pinned *perdure.PinnedError
		if err := k.Erase(t.Context(), "t", perdure.EraseOptions{}); !errors.As(err, &pinned) || len(pinned.By) != 1 || pinned.By[0] != "f" {
			t.Errorf("Erase of what a fork comes from: %v", err)
		}
		broken.Delete("forks")
		kit.NoErr(t, k.Retry(t.Context(), "g", failed.ID, perdure.Note{}))
		done := k.WaitForRun("g", failed.ID, perdure.Succeeded)
		var out string
		kit.NoErr(t, json.Unmarshal(done.Output, &out))
		keys := strings.Fields(out)
		if effects.Of(keys[0]) != 1 || effects.Of(keys[1]) != 1 || keys[0] == keys[1] {
			t.Errorf("the effects happened %d and %d times", effects.Of(keys[0]), effects.Of(keys[1]))
		}
		// A fork of a restored fork, archived again.
		k.MustFork(perdure.ForkRequest{Thread: "g", As: "h"})
		file := export(t, k.Runtime, "h")
		mustArchive(t, k.Runtime, "h")
		mustArchive(t, k.Runtime, "g")
		mustRestore(t, k.Runtime, "h")
		if got := export(t, k.Runtime, "h"); got != file {
			t.Error("h has another export")
		}
		kit.NoErr(t, k.Erase(t.Context(), "t", perdure.EraseOptions{Dependents: true}))
		kit.WantNothing(t, k.Store)
		if len(p.names()) > 0 {
			t.Errorf("the erase left %q", p.names())
		}
	})
}

// TestFamilies archives a parent and its child in either order. A retry of the parent
// after both are back retries that child, and spawns no other.
func TestFamilies(t *testing.T) {
	for _, order := range []string{"p c", "c p", "p", "c"} {
		kit.Bubble(t, order, func(t *testing.T) {
			p := newPlace()
			k := kitOn(t, memstore.New(), p)
			k.WaitForRun("q", k.StartOn("q", "parent", "x").ID, perdure.Succeeded) // a family of its own
			in := "families " + order
			broken.Store(in, true)
			run := k.WaitForRun("p", k.StartOn("p", "parent", in).ID, perdure.Failed)
			child := childOf(t, k, "p")
			ids := map[string]string{"p": "p", "c": child}
			for _, which := range strings.Fields(order) {
				mustArchive(t, k.Runtime, ids[which])
			}
			if order == "c" { // the parent's retry finds it away, and keeps the failure
				kit.NoErr(t, k.Retry(t.Context(), "p", run.ID, perdure.Note{}))
				k.WaitForRun("p", run.ID, perdure.Failed)
			}
			if order == "p" { // its erase names the child
				var pinned *perdure.PinnedError
				if err := k.Erase(t.Context(), "p", perdure.EraseOptions{}); !errors.As(err, &pinned) || pinned.By[0] != child {
					t.Errorf("Erase of an archived parent: %v", err)
				}
			}
			for _, which := range strings.Fields(order) {
				mustRestore(t, k.Runtime, ids[which])
			}
			broken.Delete(in)
			kit.NoErr(t, k.Retry(t.Context(), "p", run.ID, perdure.Note{}))
			done := k.WaitForRun("p", run.ID, perdure.Succeeded)
			if again := childOf(t, k, "p"); again != child {
				t.Errorf("the retry has spawned %s besides %s", again, child)
			}
			var out string
			kit.NoErr(t, json.Unmarshal(done.Output, &out))
			for _, key := range strings.Fields(out) {
				if effects.Of(key) != 1 {
					t.Errorf("the effect with key %s happened %d times", key, effects.Of(key))
				}
			}
			kit.NoErr(t, k.Erase(t.Context(), "p", perdure.EraseOptions{Dependents: true}))
			kit.NoErr(t, k.Erase(t.Context(), "q", perdure.EraseOptions{Dependents: true}))
			kit.WantNothing(t, k.Store)
			if len(p.names()) > 0 {
				t.Errorf("the erase left %q", p.names())
			}
		})
	}
}

// childOf returns the id of the newest child of a thread.
func childOf(t *testing.T, k *kit.Kit, thread string) (id string) {
	t.Helper()
	for _, e := range k.EventsOf(thread) {
		if e.Kind == "spawned" {
			id = e.Child
		}
	}
	return id
}

// TestRunningFamilies: neither a parent with a child that runs nor a child whose
// parent's run has not ended is archived.
func TestRunningFamilies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace()
		k := kit.New(t, memstore.New(), perdure.Options{Archive: p}, append(flows(), waits)...)
		run := k.WaitForRun("p", k.StartOn("p", "waits", "").ID, perdure.Suspended)
		child := childOf(t, k, "p")
		k.WaitFor(child, perdure.Succeeded)
		refused(t, k, p, child, perdure.ErrBusy, run.ID, "spawned")
		k.StartOn(child, "hear", "") // the child goes on with something else
		kit.NoErr(t, k.Signal(t.Context(), "p", "go", "x", perdure.SignalOptions{}))
		k.WaitForRun("p", run.ID, perdure.Succeeded)
		refused(t, k, p, "p", perdure.ErrPinned, child)
		kit.NoErr(t, k.Signal(t.Context(), child, "go", "x", perdure.SignalOptions{}))
		k.WaitFor(child, perdure.Succeeded)
		mustArchive(t, k.Runtime, "p")
		mustArchive(t, k.Runtime, child)
	})
}

// TestUnknownOutcomesStayUnknown restores a thread, and a fork of it, with a run that
// failed because nobody knew whether a step had happened. A retry does not run that
// step: it asks again, under the key of the thread in which the step was started.
func TestUnknownOutcomesStayUnknown(t *testing.T) {
	for _, away := range []bool{false, true} { // it makes no difference
		kit.Bubble(t, fmt.Sprint("archived ", away), func(t *testing.T) {
			var started, reconciled kit.Tally
			once := kit.NamedFlow("once", func(ctx context.Context) error {
				_, err := perdure.Step(ctx, "pay", func(ctx context.Context) (bool, error) {
					started.Hit(perdure.Key(ctx))
					return false, errors.New("no answer")
				}, kit.AtMostOnce(perdure.Reconcile(func(ctx context.Context) (bool, perdure.Outcome, error) {
					reconciled.Hit(perdure.Key(ctx))
					return false, perdure.OutcomeUnknown, nil
				}))...)
				return err
			})
			k := kit.New(t, memstore.New(), perdure.Options{Archive: newPlace()}, once)
			run := k.WaitForRun("t", k.StartOn("t", "once", "").ID, perdure.Suspended)
			k.AnswerAt(run, "/pay", perdure.Answer{Decision: perdure.DecisionFail})
			k.WaitForRun("t", run.ID, perdure.Failed)
			k.MustFork(perdure.ForkRequest{Thread: "t", As: "f"})
			before := reconciled.All()
			if away {
				for _, id := range []string{"f", "t"} {
					mustArchive(t, k.Runtime, id)
					mustRestore(t, k.Runtime, id)
				}
			}
			for _, id := range []string{"t", "f"} {
				kit.NoErr(t, k.Retry(t.Context(), id, run.ID, perdure.Note{}))
				time.Sleep(2 * time.Minute) // longer than the step's timeout
				again := k.WaitForRun(id, run.ID, perdure.Suspended)
				if len(again.Asks) != 1 || again.Asks[0].Kind != perdure.KindOutcome {
					t.Errorf("%s waits for %+v", id, again.Asks)
				}
			}
			if len(started.All()) != 1 || len(reconciled.All()) != 1 || fmt.Sprint(slices.Collect(maps.Keys(started.All()))) != fmt.Sprint(slices.Collect(maps.Keys(before))) {
				t.Errorf("started under %v, reconciled under %v, before under %v", started.All(), reconciled.All(), before)
			}
			for key, n := range started.All() {
				if n != 1 || reconciled.Of(key) <= before[key] {
					t.Errorf("the step was started %d times, and reconciled %d times, before %d", n, reconciled.Of(key), before[key])
				}
			}
		})
	}
}

// TestEraseWithoutTheArchive says that the object is still there, and goes with the
// next erase.
func TestEraseWithoutTheArchive(t *testing.T) {
	for _, restored := range []bool{false, true} {
		p := newPlace()
		k := kitOn(t, memstore.New(), p)
		k.WaitForRun("t", k.StartOn("t", "echo", "x").ID, perdure.Succeeded)
		mustArchive(t, k.Runtime, "t")
		if restored {
			mustRestore(t, k.Runtime, "t")
		}
		k.Stop()
		p.fail = func(op string) error {
			if op == "delete" {
				return archive.ErrUnavailable
			}
			return nil
		}
		err := k.Erase(t.Context(), "t", perdure.EraseOptions{})
		kit.WantErr(t, "Erase", err, archive.ErrUnavailable)
		if !strings.Contains(err.Error(), "its object, which is still in the archive: repeat the erase") {
			t.Errorf("restored %v: the error does not say what is left: %v", restored, err)
		}
		_, err = k.Get(t.Context(), "t")
		kit.WantErr(t, "Get", err, perdure.ErrErased)
		if len(p.objects) != 1 {
			t.Errorf("restored %v: there are %d objects", restored, len(p.objects))
		}
		p.fail = nil
		kit.NoErr(t, k.Erase(t.Context(), "t", perdure.EraseOptions{}))
		if len(p.objects) != 0 {
			t.Errorf("restored %v: %d objects are left", restored, len(p.objects))
		}
	}
}
