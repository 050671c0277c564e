package vault_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/archive"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
)

// cuts are the crashes of a sweep. What is left differs only by writes, so the short
// form crashes after every third of these, and the long one before and after each call.
func cuts() iter.Seq2[string, faulty.Plan] {
	if testing.Short() {
		return kit.SweepWrites(3, faulty.CrashAfter)
	}
	return faulty.SweepCalls(faulty.CrashBefore, faulty.CrashAfter)
}

// bases are the stores of the sweeps: with batches and without.
func bases() map[string]func() store.Store {
	return map[string]func() store.Store{
		"batches": func() store.Store { return memstore.New() },
		"plain":   func() store.Store { return kit.Plain(memstore.New()) },
	}
}

// made returns a store with the thread t, which has a value in a blob, a fork f, which
// is also at rest, and the exports of both.
func made(t *testing.T, s store.Store, p *place) (*perdure.Runtime, map[string]string) {
	t.Helper()
	k := kitOn(t, s, p)
	k.WaitForRun("t", k.MustStart(perdure.StartRequest{Thread: "t", Flow: "echo", Input: kit.Large, User: "ada"}).ID, perdure.Succeeded)
	k.MustFork(perdure.ForkRequest{Thread: "t", As: "f"})
	k.WaitForRun("f", k.StartOn("f", "ledger", "x").ID, perdure.Succeeded)
	k.WaitForRun("f", k.StartOn("f", "echo", kit.Large).ID, perdure.Succeeded)
	synctest.Wait() // until the worker has removed the hint of the run
	k.Stop()
	return k.Runtime, map[string]string{"t": export(t, k.Runtime, "t"), "f": export(t, k.Runtime, "f")}
}

// whole expects that a thread is here whole or archived whole, and reports which.
func whole(t *testing.T, rt *perdure.Runtime, thread, file string) (here bool) {
	t.Helper()
	_, err := rt.Get(t.Context(), thread)
	if errors.Is(err, perdure.ErrArchived) {
		return false
	}
	if err != nil {
		t.Errorf("Get: %v", err)
		return false
	}
	if export(t, rt, thread) != file {
		t.Error("it has another export")
	}
	return true
}

// gone erases both threads, and expects that nothing is left.
func gone(t *testing.T, rt *perdure.Runtime, s store.Store, p *place) {
	t.Helper()
	if err := rt.Erase(t.Context(), "t", perdure.EraseOptions{Dependents: true}); err != nil && !errors.Is(err, perdure.ErrNoThread) {
		t.Errorf("Erase: %v", err)
	}
	kit.WantNothing(t, s)
	if left := p.names(); len(left) > 0 {
		t.Errorf("left in the archive: %q", left)
	}
}

// sweep cuts do at every call, on a store that prepare has filled, and then has check
// look at what is left with a runtime that works. It ends at the first failure.
func sweep(t *testing.T, least int, prepare func(*perdure.Runtime), do func(context.Context, *perdure.Runtime) error, check func(t *testing.T, rt *perdure.Runtime, s store.Store, p *place, files map[string]string)) {
	for base, create := range bases() {
		kit.Bubble(t, base, func(t *testing.T) {
			cut := 0
			for at, plan := range cuts() {
				s, p := create(), newPlace()
				rt, files := made(t, s, p)
				prepare(rt)
				if dying(t, s, p, plan, do) {
					cut++
				}
				check(t, rt, s, p, files)
				if t.Failed() {
					t.Fatalf("%s: see above", at)
				}
			}
			if cut < least/kit.Sized(3, 1, 1) {
				t.Errorf("the sweep made only %d cuts", cut)
			}
		})
	}
}

func archiveF(ctx context.Context, rt *perdure.Runtime) error {
	_, err := rt.Archive(ctx, "f", perdure.Note{})
	return err
}

func restoreF(ctx context.Context, rt *perdure.Runtime) error {
	return rt.Restore(ctx, "f", perdure.RestoreOptions{})
}

// complete expects that nothing is left of f in the store, which is in the archive, and
// that it comes back.
func complete(t *testing.T, rt *perdure.Runtime, s store.Store, files map[string]string) {
	t.Helper()
	if got := cellsOf(t, s); got != "map[cell archived:1 cell blob:2 cell gate:1 cell id:2 cell index:4 cell pin:1 cell thread:1 journal thread:1]" {
		t.Errorf("the store holds %s", got)
	}
	mustRestore(t, rt, "f")
	if !whole(t, rt, "f", files["f"]) {
		t.Error("it is not back")
	}
}

// listed counts how often a thread is in the list of threads and in that of the archive.
func listed(t *testing.T, rt *perdure.Runtime, thread string) (here, away int) {
	t.Helper()
	for s, err := range rt.List(t.Context(), perdure.ListOptions{}) { // first: the other settles it
		kit.NoErr(t, err)
		if s.ID == thread {
			here++
		}
	}
	for a, err := range rt.Archived(t.Context(), perdure.ArchivedOptions{}) {
		kit.NoErr(t, err)
		if a.ID == thread {
			away++
		}
	}
	return here, away
}

// TestArchiveCutOff cuts an archive at every call. The thread is here whole or in the
// archive whole, whatever comes next finds it there, and nothing of an archived one is
// left here then: another archive, a look at it, a start, a rebuild, an erase.
func TestArchiveCutOff(t *testing.T) {
	then := map[string]func(*testing.T, *perdure.Runtime, store.Store, *place, map[string]string){
		"Archive": func(t *testing.T, rt *perdure.Runtime, s store.Store, p *place, files map[string]string) {
			mustArchive(t, rt, "f")
			mustArchive(t, rt, "t") // what is left of the fork does not need it any more
			if got := cellsOf(t, s); got != "map[cell archived:2 cell id:2 cell pin:1]" {
				t.Errorf("the store holds %s", got)
			}
			mustRestore(t, rt, "f")
			if !whole(t, rt, "f", files["f"]) {
				t.Error("it is not back")
			}
		},
		"Restore": func(t *testing.T, rt *perdure.Runtime, s store.Store, p *place, files map[string]string) {
			err := rt.Restore(t.Context(), "f", perdure.RestoreOptions{})
			if err != nil && !errors.Is(err, perdure.ErrNothingToDo) {
				t.Errorf("Restore: %v", err)
			}
			if !whole(t, rt, "f", files["f"]) {
				t.Error("it is not back")
			}
		},
		"Get": func(t *testing.T, rt *perdure.Runtime, s store.Store, p *place, files map[string]string) {
			if !whole(t, rt, "f", files["f"]) {
				complete(t, rt, s, files)
			}
		},
		"Get by its user": func(t *testing.T, rt *perdure.Runtime, s store.Store, p *place, files map[string]string) {
			if !whole(t, rt.User("ada"), "f", files["f"]) {
				complete(t, rt, s, files)
			}
		},
		"List": func(t *testing.T, rt *perdure.Runtime, s store.Store, p *place, files map[string]string) {
			here, away := listed(t, rt, "f")
			if here+away != 1 {
				t.Errorf("it is listed %d times here and %d times in the archive", here, away)
			}
			if whole(t, rt, "f", files["f"]) != (here == 1) {
				t.Errorf("listed %d times here", here)
			}
		},
		"Archive of the other": func(t *testing.T, rt *perdure.Runtime, s store.Store, p *place, files map[string]string) {
			_, err := rt.Archive(t.Context(), "t", perdure.Note{})
			if err != nil && !errors.Is(err, perdure.ErrPinned) {
				t.Errorf("Archive: %v", err)
			}
			if whole(t, rt, "f", files["f"]) && err == nil {
				t.Error("a fork is here without the thread that it comes from")
			}
		},
		"Start": func(t *testing.T, rt *perdure.Runtime, s store.Store, p *place, files map[string]string) {
			_, err := rt.Start(t.Context(), perdure.StartRequest{Thread: "f", Flow: "echo", Input: "more"})
			switch {
			case err == nil:
				if n := kinds(t, rt, "f")["queued"]; n != 4 {
					t.Errorf("the thread has %d runs", n)
				}
			case !errors.Is(err, perdure.ErrArchived):
				t.Errorf("Start: %v", err)
			default:
				complete(t, rt, s, files)
			}
		},
		"Rebuild": func(t *testing.T, rt *perdure.Runtime, s store.Store, p *place, files map[string]string) {
			b, err := rt.Rebuild(t.Context())
			kit.NoErr(t, err)
			if b.Damaged > 0 {
				t.Errorf("%+v", b)
			}
			if !whole(t, rt, "f", files["f"]) {
				complete(t, rt, s, files)
			}
		},
		"Rebuild without the other": func(t *testing.T, rt *perdure.Runtime, s store.Store, p *place, files map[string]string) {
			if _, err := rt.Archive(t.Context(), "t", perdure.Note{}); err != nil {
				return // it is here
			}
			b, err := rt.Rebuild(t.Context())
			if kit.NoErr(t, err); b.Damaged > 0 {
				t.Errorf("%+v", b)
			}
			if got := cellsOf(t, s); got != "map[cell archived:2 cell id:2 cell pin:1]" {
				t.Errorf("the store holds %s", got)
			}
		},
		"Erase": func(*testing.T, *perdure.Runtime, store.Store, *place, map[string]string) {},
	}
	for name, then := range then {
		t.Run(name, func(t *testing.T) {
			sweep(t, 10, func(*perdure.Runtime) {}, archiveF, func(t *testing.T, rt *perdure.Runtime, s store.Store, p *place, files map[string]string) {
				then(t, rt, s, p, files)
				gone(t, rt, s, p)
			})
		})
	}
}

// kinds counts the entries of a thread by kind.
func kinds(t *testing.T, rt *perdure.Runtime, thread string) map[string]int {
	t.Helper()
	return (&kit.Kit{Runtime: rt, T: t}).KindsOf(thread)
}

// TestRestoreCutOff cuts a restore at every call.
func TestRestoreCutOff(t *testing.T) {
	prepare := func(rt *perdure.Runtime) {
		mustArchive(t, rt, "f")
		mustArchive(t, rt, "t")
	}
	then := map[string]func(*testing.T, *perdure.Runtime){
		"Restore": func(t *testing.T, rt *perdure.Runtime) { mustRestore(t, rt, "f") },
		"Archive": func(t *testing.T, rt *perdure.Runtime) { mustArchive(t, rt, "f") },
		"Rebuild": func(t *testing.T, rt *perdure.Runtime) {
			_, err := rt.Rebuild(t.Context())
			kit.NoErr(t, err)
		},
		"Erase": func(*testing.T, *perdure.Runtime) {},
	}
	for name, then := range then {
		t.Run(name, func(t *testing.T) {
			sweep(t, 8, prepare, restoreF, func(t *testing.T, rt *perdure.Runtime, s store.Store, p *place, files map[string]string) {
				there := whole(t, rt, "f", files["f"])
				if here, away := listed(t, rt, "f"); here+away != 1 || there != (here == 1) {
					t.Errorf("it is in %d lists of threads and %d of the archive, and Get finds it: %v", here, away, there)
				}
				then(t, rt)
				if name != "Erase" {
					mustRestore(t, rt, "f")
					if !whole(t, rt, "f", files["f"]) {
						t.Error("it is not back")
					}
					listed := 0
					for _, err := range rt.List(t.Context(), perdure.ListOptions{}) {
						kit.NoErr(t, err)
						listed++
					}
					if listed != 1 {
						t.Errorf("%d threads are listed", listed)
					}
				}
				gone(t, rt, s, p)
			})
		})
	}
}

// TestEraseFromTheArchiveCutOff cuts the erase of two archived threads, and of one
// that was restored, at every call. Another erase, or a rebuild, leaves nothing.
func TestEraseFromTheArchiveCutOff(t *testing.T) {
	erase := func(ctx context.Context, rt *perdure.Runtime) error {
		return rt.Erase(ctx, "t", perdure.EraseOptions{Dependents: true})
	}
	for name, back := range map[string]bool{"archived": false, "restored": true} {
		t.Run(name, func(t *testing.T) {
			prepare := func(rt *perdure.Runtime) {
				mustArchive(t, rt, "f")
				mustArchive(t, rt, "t")
				if back {
					mustRestore(t, rt, "f")
				}
			}
			sweep(t, 11, prepare, erase, func(t *testing.T, rt *perdure.Runtime, s store.Store, p *place, files map[string]string) {
				gone(t, rt, s, p)
				_, err := rt.Start(t.Context(), perdure.StartRequest{Thread: "f", Flow: "echo", Input: "new"})
				kit.NoErr(t, err)
			})
		})
	}
}

// TestErasedWithoutItsArchive: a process without the archive, or with another, neither erases a thread
// that has an object there, nor loses sight of it when it completes another's erase.
func TestErasedWithoutItsArchive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := memstore.New(), newPlace()
		rt, _ := made(t, s, p)
		mustArchive(t, rt, "f")
		other := kit.Runtime(t, s, perdure.Options{}, flows()...)
		wrong, err := archive.Dir(t.TempDir())
		kit.NoErr(t, err)
		refused := func() {
			t.Helper()
			for _, o := range []perdure.Options{{}, {Archive: wrong}} {
				err := kit.Runtime(t, s, o, flows()...).Erase(t.Context(), "f", perdure.EraseOptions{})
				kit.WantErr(t, "Erase", err, perdure.ErrInvalid)
				if err != nil && !strings.Contains(err.Error(), "in the archive "+p.URL()) {
					t.Errorf("it does not name the archive: %v", err)
				}
			}
		}
		refused()
		mustRestore(t, rt, "f")
		refused()
		// The other process completes the erase that this one began.
		for at, plan := range faulty.SweepCalls(faulty.CrashAfter) {
			if !dying(t, s, p, plan, func(ctx context.Context, rt *perdure.Runtime) error {
				return rt.Erase(ctx, "f", perdure.EraseOptions{})
			}) {
				break
			}
			if _, err := other.Get(t.Context(), "f"); errors.Is(err, perdure.ErrNoThread) {
				_, err := other.Start(t.Context(), perdure.StartRequest{Thread: "f", Flow: "echo", Input: "new"})
				if err != nil {
					t.Fatalf("%s: %v", at, err)
				}
				break
			}
		}
		_, err = rt.Rebuild(t.Context())
		kit.NoErr(t, err)
		kit.NoErr(t, rt.Erase(t.Context(), "f", perdure.EraseOptions{}))
		gone(t, rt, s, p)
	})
}
