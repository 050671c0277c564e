package proof_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/explore"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
)

// appended is the store of an actor that notes where its last entries went.
type appended struct {
	store.Store
	journal *string
}

func (s appended) Unwrap() store.Store { return s.Store }

func (s appended) Append(ctx context.Context, journal string, after uint64, entries ...[]byte) (uint64, error) {
	last, err := s.Store.Append(ctx, journal, after, entries...)
	if err == nil {
		*s.journal = journal
	}
	return last, err
}

// journals returns the names of the threads' journals.
func (sc *scene) journals() []string { return kit.Journals(sc.t, sc.w.Store()) }

// old makes thread "t" with a run in its queue, and returns its journal.
func (sc *scene) old(input string) string { return sc.oldOf(exploredEcho, input) }

func (sc *scene) oldOf(flow perdure.Flow, input string) string {
	sc.open(flow)
	_, err := sc.rt.Start(context.Background(), perdure.StartRequest{Thread: "t", Flow: flow.Name(), Input: input, Title: "old"})
	sc.must(err)
	return sc.journals()[0]
}

// without returns an error unless the store holds nothing of a thread.
func (sc *scene) without(journal string) error {
	name := strings.TrimPrefix(journal, "thread/")
	// A start that came too late and died leaves its summary to the next list.
	for s, err := range sc.rt.List(context.Background(), perdure.ListOptions{}) {
		if err != nil || strings.HasPrefix(s.Title, "old") {
			return fmt.Errorf("listed: %+v, %w", s, err)
		}
	}
	for _, left := range kit.Leftovers(sc.t, sc.w.Store()) {
		if strings.Contains(left, name) {
			return fmt.Errorf("left behind: %s", left)
		}
	}
	for cell, err := range sc.w.Store().List(context.Background(), "id/", "") {
		if err != nil || string(cell.Value) == name {
			return fmt.Errorf("an id leads to what was erased, %v", err)
		}
	}
	return nil
}

// eraseOrStart is an erase that meets a start. Each may die; then it is made
// again, by a reliable actor.
func (sc *scene) eraseOrStart() func() (string, error) {
	old := sc.old("old")
	eraser := sc.outside("eraser", func(ctx context.Context, rt *perdure.Runtime) error {
		return rt.Erase(ctx, "t", perdure.EraseOptions{})
	})
	var went string
	starter := sc.w.Actor("starter", func(ctx context.Context, s store.Store) error {
		rt, err := sc.runtime(ctx, appended{flawed(sc.flaw.outside, sc.lean(ctx, s)), &went})
		if err == nil {
			_, err = rt.Start(ctx, perdure.StartRequest{Thread: "t", Flow: "echo", Input: "new", Title: "new", Key: "k"})
		}
		return err
	})
	return sc.restarted(old, eraser, starter, &went)
}

// restarted starts thread "t" when all others are done or dead, and judges what
// it is then. A starter before that put its entries into the journal that went
// tells.
func (sc *scene) restarted(old string, eraser, starter *explore.Actor, went *string) func() (string, error) {
	again := sc.outside("starts again", func(ctx context.Context, rt *perdure.Runtime) error {
		_, err := rt.Start(ctx, perdure.StartRequest{Thread: "t", Flow: "echo", Input: "new", Title: "new", Key: "k"})
		return err
	}).Reliable().After(eraser)
	if starter != nil {
		again.After(starter)
	}
	cutOff := func(a *explore.Actor) bool { return a.Killed() || errors.Is(a.Err(), explore.ErrUnknown) }
	return func() (string, error) {
		if again.Err() != nil {
			return "", again.Err()
		}
		if starter != nil && !cutOff(starter) && starter.Err() != nil {
			return "", fmt.Errorf("the start: %w", starter.Err())
		}
		if !cutOff(eraser) && eraser.Err() != nil {
			return "", fmt.Errorf("the erase: %w", eraser.Err())
		}
		thread, err := sc.rt.Get(context.Background(), "t")
		if err != nil {
			return "", fmt.Errorf("the start that came last is lost: %w", err)
		}
		if cutOff(eraser) && slices.Contains(sc.journals(), old) {
			// It died before its entry: the thread is the old one.
			if thread.Title != "old" || len(thread.Runs) != 2 || len(sc.journals()) != 1 {
				return "", fmt.Errorf("an erase that did not happen left %q with %d runs", thread.Title, len(thread.Runs))
			}
			if _, err := sc.workOn("t"); err != nil {
				return "", err
			}
			if thread, err = sc.rt.Get(context.Background(), "t"); err != nil || thread.Runs[0].Status != perdure.Succeeded {
				return "", fmt.Errorf("an erase that did not happen left a run %s, %w", thread.Runs[0].Status, err)
			}
			return "not erased", nil
		}
		if n := len(sc.journals()); n != 1 {
			return "", fmt.Errorf("%d threads are there, of which nobody finds but one", n)
		}
		if thread.Title != "new" || len(thread.Runs) != 1 || thread.Seq != 2 {
			return "", fmt.Errorf("old and new meet: %q with %d runs", thread.Title, len(thread.Runs))
		}
		// The worker also sees to hints of who came too late and died.
		if run, err := sc.workOn("t"); err != nil || run.Status != perdure.Succeeded || string(run.Output) != `"new"` {
			return "", fmt.Errorf("the new run: %+v, %w", run, err)
		}
		if err := sc.without(old); err != nil {
			return "", err
		}
		if went != nil && *went == old {
			return "started, then erased", nil
		}
		return "erased, then started", nil
	}
}

func TestExploredEraseAndStartDoNotMix(t *testing.T) {
	exploreAll(t, explore.Config{}, (*scene).eraseOrStart, "started, then erased", "erased, then started")
	if exploreTorture {
		exploreAll(t, explore.Config{Crashes: 1, Max: 1_000_000}, (*scene).eraseOrStart, "started, then erased", "erased, then started", "not erased")
	}
}

// eraseCutOff is an erase that may die anywhere, and then a start. The thread
// has a blob, without which it is not whole.
func (sc *scene) eraseCutOff() func() (string, error) {
	old := sc.old(kit.Large)
	eraser := sc.outside("eraser", func(ctx context.Context, rt *perdure.Runtime) error {
		return rt.Erase(ctx, "t", perdure.EraseOptions{})
	})
	return sc.restarted(old, eraser, nil, nil)
}

func TestExploredEraseThatDiesIsFinishedByAStart(t *testing.T) {
	exploreAll(t, explore.Config{Crashes: 1}, (*scene).eraseCutOff, "erased, then started", "not erased")
	exploreAll(t, explore.Config{Unknowns: 1, Conflicts: 1}, (*scene).eraseCutOff, "erased, then started", "not erased")
}

// handover is the store of a worker that is an actor only while it starts a
// child: it records the child undisturbed, and goes on so when Spawn returns.
type handover struct {
	store.Store // the world's, the actor's, the world's
	world       store.Store
	taken       chan store.Store
}

func (h *handover) Unwrap() store.Store { return h.Store }

func (h *handover) Append(ctx context.Context, name string, after uint64, entries ...[]byte) (uint64, error) {
	last, err := h.Store.Append(ctx, name, after, entries...)
	if e, peekErr := journal.Peek(after+1, entries[0]); err == nil && peekErr == nil && e.Kind == journal.Spawned {
		h.Store = <-h.taken
	}
	return last, err
}

// aboutToSpawn brings thread "t" to where its run has recorded a child that is
// not started yet. It returns the thread's journal, and what goes on from there.
func (sc *scene) aboutToSpawn() (old string, goOn func(context.Context, store.Store) error) {
	h := &handover{Store: sc.w.Store(), world: sc.w.Store(), taken: make(chan store.Store)}
	old = sc.oldOf(perdure.NewFlow("parent", func(ctx context.Context, _ string) (string, error) {
		_, err := perdure.Spawn(ctx, "child", "nobody's", "in")
		h.Store = h.world
		if err != nil {
			return "", err
		}
		return perdure.Ask[string](ctx, "ready", perdure.Question{Prompt: "?"})
	}), "old")
	ctx, cancel := context.WithCancel(context.Background())
	rt, err := sc.runtime(ctx, sc.lean(ctx, h))
	sc.must(err)
	done := make(chan error, 1)
	go func() { done <- rt.Work(ctx) }()
	synctest.Wait()
	if sc.count("spawned") != 1 {
		sc.t.Fatalf("no child is recorded: %s", sc.trace())
	}
	return old, func(ctx context.Context, s store.Store) error {
		defer context.AfterFunc(ctx, cancel)()
		h.taken <- flawed(sc.flaw.outside, s)
		return <-done
	}
}

// born reports whether a child of thread "t" has begun.
func (sc *scene) born(old string) bool {
	return slices.ContainsFunc(sc.journals(), func(name string) bool { return name != old })
}

// eraseOrSpawn is an erase that meets the birth of a child.
func (sc *scene) eraseOrSpawn() func() (string, error) {
	old, goOn := sc.aboutToSpawn()
	sc.outside("eraser", func(ctx context.Context, rt *perdure.Runtime) error {
		return rt.Erase(ctx, "t", perdure.EraseOptions{})
	})
	sc.w.Actor("spawner", goOn)
	return sc.dependent(old)
}

// dependent erases thread "t" again when a child of it was made, or not, and
// judges which of the two came first.
func (sc *scene) dependent(old string) func() (string, error) {
	return func() (string, error) {
		again := sc.rt.Erase(context.Background(), "t", perdure.EraseOptions{})
		_, parentErr := sc.rt.Get(context.Background(), "t")
		switch born := sc.born(old); {
		case born && parentErr == nil && errors.Is(again, perdure.ErrPinned):
			return "pinned", nil
		case born:
			return "", fmt.Errorf("a child lives without its parent: %w, %w", parentErr, again)
		case !errors.Is(parentErr, perdure.ErrNoThread):
			return "", parentErr
		}
		if left := kit.Leftovers(sc.t, sc.w.Store()); len(left) > 0 {
			return "", fmt.Errorf("left behind: %q", left)
		}
		return "erased", sc.without(old)
	}
}

func TestExploredEraseOrChildWins(t *testing.T) {
	exploreAll(t, explore.Config{}, (*scene).eraseOrSpawn, "erased", "pinned")
}

// logbook is the store of an actor that notes what it appends, where others do.
type logbook struct {
	store.Store
	kinds *[]string
}

func (s logbook) Unwrap() store.Store { return s.Store }

func (s logbook) Append(ctx context.Context, name string, after uint64, entries ...[]byte) (uint64, error) {
	last, err := s.Store.Append(ctx, name, after, entries...)
	for i, data := range entries {
		if e, peekErr := journal.Peek(after+uint64(i)+1, data); err == nil && peekErr == nil {
			*s.kinds = append(*s.kinds, string(e.Kind))
		}
	}
	return last, err
}

// eraseOrWork is an erase that meets a worker in the middle of a run.
func (sc *scene) eraseOrWork() func() (string, error) {
	old := sc.old("old")
	sc.flow = perdure.NewFlow("echo", func(ctx context.Context, in string) (string, error) { return in, explore.Point(ctx, "work") })
	var kinds []string
	write := func(s store.Store) store.Store { return logbook{s, &kinds} }
	sc.flaw.outside, sc.flaw.worker = write, write
	eraser := sc.outside("eraser", func(ctx context.Context, rt *perdure.Runtime) error {
		return rt.Erase(ctx, "t", perdure.EraseOptions{})
	})
	sc.worker("worker")
	return func() (string, error) {
		if eraser.Err() != nil {
			return "", eraser.Err()
		}
		end := strings.Join(kinds, " ")
		if !strings.HasSuffix(end, "erased") {
			return "", fmt.Errorf("what was written behind the erase: %s", end)
		}
		return end, sc.without(old)
	}
}

func TestExploredEraseFencesAWorker(t *testing.T) {
	exploreAll(t, explore.Config{}, (*scene).eraseOrWork, "erased", "claimed erased", "claimed ended erased")
}

// eraseOrTitle is an erase that meets somebody who changes the thread and then
// its summary.
func (sc *scene) eraseOrTitle() func() (string, error) {
	old := sc.old("old")
	eraser := sc.outside("eraser", func(ctx context.Context, rt *perdure.Runtime) error {
		return rt.Erase(ctx, "t", perdure.EraseOptions{})
	})
	editor := sc.w.Actor("editor", func(ctx context.Context, s store.Store) error {
		rt, err := sc.runtime(ctx, s) // on which summaries are steps
		if err != nil {
			return err
		}
		title := "older" // which lists show
		return rt.SetMetadata(ctx, "t", &title, nil, perdure.Note{})
	})
	return func() (string, error) {
		switch err := errors.Join(sc.without(old), eraser.Err()); {
		case err != nil:
			return "", err
		case editor.Err() == nil:
			return "changed, then erased", nil
		case errors.Is(editor.Err(), perdure.ErrNoThread):
			return "erased", nil
		}
		return "", editor.Err()
	}
}

func TestExploredEraseLeavesNoSummary(t *testing.T) {
	exploreAll(t, explore.Config{}, (*scene).eraseOrTitle, "erased", "changed, then erased")
}

// openGate does not close gates.
type openGate struct{ store.Store }

func (s openGate) Unwrap() store.Store { return s.Store }

func (s openGate) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	if strings.HasPrefix(key, "gate/") && strings.HasPrefix(string(value), "erased") {
		return "closed", nil
	}
	return s.Store.Put(ctx, key, value, prev)
}

// idFirst removes the way from the id before all else.
type idFirst struct{ store.Store }

func (s idFirst) Unwrap() store.Store { return s.Store }

func (s idFirst) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	if mark, id, ok := strings.Cut(string(value), " "); ok && strings.HasPrefix(key, "gate/") && strings.HasPrefix(mark, "erased") {
		cell, err := s.Get(ctx, id)
		if err == nil {
			err = s.Delete(ctx, id, cell.Version)
		}
		if err != nil {
			return "", err
		}
	}
	return s.Store.Put(ctx, key, value, prev)
}

// noTombstone lets a dropped journal look like one that never was.
type noTombstone struct{ store.Store }

func (s noTombstone) Unwrap() store.Store { return s.Store }

func (s noTombstone) Read(ctx context.Context, journal string, after uint64) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		for e, err := range s.Store.Read(ctx, journal, after) {
			if errors.Is(err, store.ErrDropped) || !yield(e, err) {
				return
			}
		}
	}
}

func TestExploredFlawsOfEraseAreFound(t *testing.T) {
	outside := func(f func(store.Store) store.Store) flaw { return flaw{outside: f} }
	for _, tc := range []struct {
		name  string
		plot  plot
		cfg   explore.Config
		flaw  flaw
		words string
	}{
		{"the gate stays open", (*scene).eraseOrSpawn, explore.Config{}, outside(func(s store.Store) store.Store { return openGate{s} }), "lives without its parent"},
		{"a pin does not look for the tombstone", (*scene).eraseOrSpawn, explore.Config{}, outside(func(s store.Store) store.Store { return noTombstone{s} }), "lives without its parent"},
		{"the id goes first", (*scene).eraseCutOff, explore.Config{Crashes: 1}, outside(func(s store.Store) store.Store { return idFirst{s} }), "left behind"},
	} {
		t.Run(tc.name, func(t *testing.T) { exploreFlawed(t, tc.cfg, tc.plot, tc.flaw, tc.words) })
	}
}
