package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
)

// dieErasing erases with a store that dies at a call, and reports whether that
// failed.
func dieErasing(t *testing.T, s store.Store, plan faulty.Plan, thread string, o perdure.EraseOptions) bool {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	dying := faulty.New(s, plan)
	dying.OnCrash(cancel)
	rt, err := perdure.New(ctx, dying, perdure.Options{Version: "test"}, eraseFlows()...)
	if err == nil {
		err = rt.Erase(ctx, thread, o)
	}
	return err != nil
}

// cuts are what a sweep does at each call. What a crash after one leaves is what
// one before the next leaves, so the short form makes only those.
func cuts() []faulty.Fault {
	return []faulty.Fault{faulty.CrashAfter, faulty.CrashBefore}[:kit.Sized(1, 2, 2)]
}

// An erase that dies anywhere is finished by another one.
func TestAnEraseThatWasCutOffIsFinishedByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := 0
		for at, plan := range faulty.SweepCalls(cuts()...) {
			s := memstore.New()
			rt, _ := family(t, s)
			if dieErasing(t, s, plan, "p", perdure.EraseOptions{Dependents: true}) {
				made++
			}
			if err := rt.Erase(t.Context(), "p", perdure.EraseOptions{Dependents: true}); err != nil && !errors.Is(err, perdure.ErrNoThread) {
				t.Errorf("%s: %v", at, err)
			}
			if left := kit.Leftovers(t, s); len(left) > 0 {
				t.Errorf("%s: left behind:\n%s", at, strings.Join(left, "\n"))
			}
			if t.Failed() {
				return
			}
		}
		if made < 50*len(cuts()) {
			t.Errorf("the sweep made only %d cuts", made)
		}
	})
}

// A store may have dropped a journal but still hold bytes of it, and says so. As
// long as it does, no erase and no start of the same id claims more.
func TestAnEraseSucceedsOnlyOnceTheStoreHasDroppedItAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		holds := true
		s := faulty.New(memstore.New(), func(c faulty.Call) faulty.Fault {
			if holds && c.Op == store.OpDrop {
				return faulty.FailAfter
			}
			return faulty.None
		})
		k := kit.New(t, s, perdure.Options{}, eraseFlows()...)
		k.StartOn("t", "echo", "in")
		k.WaitFor("t", perdure.Succeeded)
		for range 3 {
			kit.WantErr(t, "Erase", k.Erase(t.Context(), "t", perdure.EraseOptions{}), faulty.ErrInjected)
		}
		_, err := k.Start(t.Context(), perdure.StartRequest{Thread: "t", Flow: "echo", Input: "new"})
		kit.WantErr(t, "Start", err, faulty.ErrInjected)
		holds = false
		kit.WantErr(t, "Erase", k.Erase(t.Context(), "t", perdure.EraseOptions{}), nil)
		kit.WantErr(t, "Erase", k.Erase(t.Context(), "t", perdure.EraseOptions{}), perdure.ErrNoThread)
	})
}

// An erase that dies anywhere, while a worker is at the thread, is finished by a
// start: the thread is then the old one with a run more, or a new one.
func TestAnEraseThatWasCutOffIsFinishedByAStart(t *testing.T) {
	for _, flow := range []string{"work", "ask", "nobody has"} {
		kit.Bubble(t, flow, func(t *testing.T) {
			seen := map[bool]int{}
			for at, plan := range faulty.SweepCalls(cuts()...) {
				s := memstore.New()
				k := kit.New(t, s, perdure.Options{}, eraseFlows()...)
				other := k.Runtime
				if flow == "nobody has" {
					var err error
					if other, err = perdure.New(t.Context(), s, perdure.Options{Version: "test"}, kit.EchoFlow(flow)); err != nil {
						t.Fatal(err)
					}
				}
				kit.Start(t, other, perdure.StartRequest{Thread: "t", Flow: flow, Input: kit.Large, Title: "old"})
				time.Sleep(time.Second)
				old := kit.Journals(t, s)[0]
				dieErasing(t, s, plan, "t", perdure.EraseOptions{})
				fenced := false
				if _, err := k.Get(t.Context(), "t"); errors.Is(err, perdure.ErrNoThread) {
					fenced = true
				} else if err != nil {
					t.Fatalf("%s: %v", at, err)
				}
				seen[fenced]++
				k.MustStart(perdure.StartRequest{Thread: "t", Flow: "echo", Input: "new", Title: "new", Policy: perdure.Interrupt})
				thread, err := k.Get(t.Context(), "t")
				if err != nil {
					t.Fatalf("%s: %v", at, err)
				}
				if isNew := len(thread.Runs) == 1 && thread.Title == "new"; isNew != fenced || !isNew && len(thread.Runs) != 2 {
					t.Errorf("%s: fenced %v, and then the thread has %d runs and title %q", at, fenced, len(thread.Runs), thread.Title)
				}
				time.Sleep(5 * time.Minute)
				for _, left := range kit.Leftovers(t, s) {
					if fenced && strings.Contains(left, strings.TrimPrefix(old, "thread/")) {
						t.Errorf("%s: left behind: %s", at, left)
					}
				}
				kit.WantErr(t, "Erase", k.Erase(t.Context(), "t", perdure.EraseOptions{}), nil)
				time.Sleep(5 * time.Minute)
				k.Stop()
				if left := kit.Leftovers(t, s); len(left) > 0 {
					t.Errorf("%s: left behind in the end:\n%s", at, strings.Join(left, "\n"))
				}
				if t.Failed() {
					return
				}
			}
			if seen[true] == 0 || seen[false] == 0 {
				t.Errorf("how often the cut came before and behind the fence: %v", seen)
			}
		})
	}
}

// What a start that died anywhere has left is erased too, and what it left of a
// thread that was erased in the meantime goes with the next list and the next
// look.
func TestEraseRemovesWhatADeadStartLeft(t *testing.T) {
	for _, erasedFirst := range []bool{false, true} {
		kit.Bubble(t, map[bool]string{false: "of a new thread", true: "of an erased one"}[erasedFirst], func(t *testing.T) {
			for at, plan := range faulty.Sweep(faulty.CrashBefore, faulty.CrashAfter) {
				s := memstore.New()
				k := kit.New(t, s, perdure.Options{}, eraseFlows()...)
				if erasedFirst {
					k.StartOn("t", "ask", kit.Large)
					k.WaitFor("t", perdure.Suspended)
					erasing(t, s)
				}
				ctx, cancel := context.WithCancel(t.Context())
				dying := faulty.New(s, plan)
				dying.OnCrash(cancel)
				rt, err := perdure.New(ctx, dying, perdure.Options{Version: "test"}, eraseFlows()...)
				if err == nil {
					_, _ = rt.Start(ctx, perdure.StartRequest{Thread: "t", Flow: "echo", Input: kit.Large, User: "ann", Title: "new"})
				}
				cancel()
				if err := k.Erase(t.Context(), "t", perdure.EraseOptions{}); err != nil && !errors.Is(err, perdure.ErrNoThread) {
					t.Errorf("%s: %v", at, err)
				}
				time.Sleep(5 * time.Minute)
				k.Stop()
				if left := kit.Leftovers(t, s); len(left) > 0 {
					t.Errorf("%s: left behind:\n%s", at, strings.Join(left, "\n"))
				}
			}
		})
	}
}

// A start that found a thread, was held up until the thread was erased, and
// died then, leaves a summary which no list shows and the next one removes.
func TestTheSummaryOfALateDeadStartGoesByTheNextList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, eraseFlows()...)
		k.StartOn("t", "echo", "in")
		k.WaitFor("t", perdure.Succeeded)
		name := strings.TrimPrefix(kit.Journals(t, k.Store)[0], threads.JournalKey(""))
		kit.WantErr(t, "Erase", k.Erase(t.Context(), "t", perdure.EraseOptions{}), nil)
		kit.NoErr(t, threads.Behind(k.Runtime).All.EnsureSummary(t.Context(), name, threads.Summary{ID: "t", Flow: "echo", Created: 1}))
		for s, err := range k.List(t.Context(), perdure.ListOptions{}) {
			t.Errorf("listed: %+v, %v", s, err)
		}
		kit.WantNothing(t, k.Store)
	})
}

// A parent whose child is erased does not wait for it forever, and does not
// start it again, even if the erase dies anywhere and is repeated.
func TestJoinOfAnErasedChildFails(t *testing.T) {
	kid := kit.AskFlow("kid", perdure.Question{Prompt: "?"})
	parent := perdure.NewFlow("parent", func(ctx context.Context, _ string) (string, error) {
		child, err := perdure.Spawn(ctx, "spawn", "kid", "in")
		if err != nil {
			return "", err
		}
		_, err = perdure.Join[string](ctx, "join", child)
		if !errors.Is(err, perdure.ErrErased) || !errors.Is(err, perdure.ErrChild) {
			return "", fmt.Errorf("Join: %w", err)
		}
		return "gone", nil
	})
	synctest.Test(t, func(t *testing.T) {
		for at, plan := range faulty.SweepCalls(faulty.CrashBefore, faulty.CrashAfter) {
			s := memstore.New()
			k := kit.New(t, s, perdure.Options{}, parent, kid)
			run := k.StartOn("p", "parent", "in")
			time.Sleep(time.Second) // until both wait
			thread, err := k.Get(t.Context(), "p")
			if err != nil || len(thread.Runs) != 1 || len(thread.Runs[0].Children) != 1 {
				t.Fatalf("the parent is %+v, %v", thread, err)
			}
			child := thread.Runs[0].Children[0].Thread
			k.WaitForRun(child, "", perdure.Suspended)
			dieErasing(t, s, plan, child, perdure.EraseOptions{})
			if err := k.Erase(t.Context(), child, perdure.EraseOptions{}); err != nil && !errors.Is(err, perdure.ErrNoThread) {
				t.Fatalf("%s: %v", at, err)
			}
			kit.WantOutput(t, k.WaitForRun("p", run.ID, perdure.Succeeded), "gone")
			_, err = k.Get(t.Context(), child)
			kit.WantErr(t, at, err, perdure.ErrNoThread)
			kit.WantErr(t, at, k.Erase(t.Context(), "p", perdure.EraseOptions{}), nil)
			time.Sleep(5 * time.Minute)
			k.Stop()
			if left := kit.Leftovers(t, s); len(left) > 0 {
				t.Errorf("%s: left behind:\n%s", at, strings.Join(left, "\n"))
			}
			if t.Failed() {
				return
			}
		}
	})
}

func TestAChildOfADamagedParentCanBeErased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		rt, child := family(t, s)
		names := kit.Journals(t, s)
		parent := slices.IndexFunc(names, func(name string) bool {
			entries, err := store.ReadAll(t.Context(), s, name, 0)
			return err == nil && strings.Contains(string(entries[0].Data), `"thread":"p"`) && !strings.Contains(string(entries[0].Data), `"from":`)
		})
		name := names[parent]
		seq, _ := kit.JournalEnd(t, s, name)
		if _, err := s.Append(t.Context(), name, seq, []byte("damage")); err != nil {
			t.Fatal(err)
		}
		_, err := rt.Get(t.Context(), "p")
		kit.WantErr(t, "Get", err, perdure.ErrCorrupt)
		kit.WantErr(t, "Erase", rt.Erase(t.Context(), child, perdure.EraseOptions{Dependents: true}), nil)
		kit.WantErr(t, "Erase", rt.Erase(t.Context(), "p", perdure.EraseOptions{Dependents: true}), nil)
		kit.WantNothing(t, s)
	})
}
