package lifecycle_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
)

// wantStale expects that a thread is at another sequence than was named.
func wantStale(t *testing.T, what string, err error, thread string, seq uint64) {
	t.Helper()
	var stale *perdure.StaleError
	if !errors.Is(err, perdure.ErrStale) || !errors.As(err, &stale) || stale.Thread != thread || stale.Seq != seq {
		t.Errorf("%s: got error %v (%+v), want that thread %s is at %d", what, err, stale, thread, seq)
	}
}

func TestChangesHappenOnlyAtTheirSequence(t *testing.T) {
	ctx := context.Background()
	fail := perdure.NewFlow("fail", func(context.Context, string) (string, error) { return "", errors.New("no") })
	flows := []perdure.Flow{kit.EchoFlow("echo"), fail, kit.AskFlow("ask", perdure.Question{})}
	start := func(n perdure.Note, thread, flow string, policy perdure.Policy) func(k *kit.Kit) error {
		return func(k *kit.Kit) error {
			_, err := k.Start(ctx, perdure.StartRequest{Thread: thread, Flow: flow, Input: "", Policy: policy, IfSeq: n.IfSeq})
			return err
		}
	}
	for name, c := range map[string]struct {
		flow string // of the run that is there
		then func(k *kit.Kit)
		do   func(n perdure.Note) func(k *kit.Kit) error
		adds bool // something can be read afterwards
	}{
		"start":     {"echo", nil, func(n perdure.Note) func(*kit.Kit) error { return start(n, "t", "echo", perdure.Enqueue) }, true},
		"interrupt": {"ask", nil, func(n perdure.Note) func(*kit.Kit) error { return start(n, "t", "echo", perdure.Interrupt) }, true},
		"start again": {"echo", nil, func(n perdure.Note) func(*kit.Kit) error {
			return func(k *kit.Kit) error { _, err := k.StartAgain(ctx, "t", "", n); return err }
		}, true},
		"answer": {"ask", nil, func(n perdure.Note) func(*kit.Kit) error {
			return func(k *kit.Kit) error {
				run, err := k.GetRun(ctx, "t", "")
				if err != nil {
					return err
				}
				return k.Answer(ctx, perdure.AskAnswer{Ask: run.Asks[0].ID, Answer: perdure.Answer{Value: "x"}, IfSeq: n.IfSeq})
			}
		}, true},
		"cancel": {"ask", nil, func(n perdure.Note) func(*kit.Kit) error {
			return func(k *kit.Kit) error { return k.Cancel(ctx, "t", "", n) }
		}, true},
		"pause": {"ask", nil, func(n perdure.Note) func(*kit.Kit) error {
			return func(k *kit.Kit) error { return k.Pause(ctx, "t", "", n) }
		}, true},
		"resume": {"ask", func(k *kit.Kit) { kit.WantErr(k.T, "pause", k.Pause(ctx, "t", "", perdure.Note{}), nil) }, func(n perdure.Note) func(*kit.Kit) error {
			return func(k *kit.Kit) error { return k.Resume(ctx, "t", "", n) }
		}, true},
		"retry": {"fail", nil, func(n perdure.Note) func(*kit.Kit) error {
			return func(k *kit.Kit) error { return k.Retry(ctx, "t", "", n) }
		}, true},
		"rewind": {"echo", nil, func(n perdure.Note) func(*kit.Kit) error {
			return func(k *kit.Kit) error { _, err := k.Rewind(ctx, "t", 1, n); return err }
		}, true},
		"rename": {"ask", nil, func(n perdure.Note) func(*kit.Kit) error {
			return func(k *kit.Kit) error { title := "x"; return k.SetMetadata(ctx, "t", &title, nil, n) }
		}, true},
		"signal": {"ask", nil, func(n perdure.Note) func(*kit.Kit) error {
			return func(k *kit.Kit) error { return k.Signal(ctx, "t", "s", 1, perdure.SignalOptions{IfSeq: n.IfSeq}) }
		}, true},
		"fork": {"ask", nil, func(n perdure.Note) func(*kit.Kit) error {
			return func(k *kit.Kit) error {
				_, err := k.Fork(ctx, perdure.ForkRequest{Thread: "t", As: "fork", IfSeq: n.IfSeq})
				if err == nil { // what is there is found again, and the thread itself is as it was
					_, err = k.Fork(ctx, perdure.ForkRequest{Thread: "t", As: "fork", IfSeq: 1})
					err = errors.Join(err, k.Signal(ctx, "t", "s", 1, perdure.SignalOptions{}))
				}
				return err
			}
		}, true},
		"erase": {"echo", nil, func(n perdure.Note) func(*kit.Kit) error {
			return func(k *kit.Kit) error { return k.Erase(ctx, "t", perdure.EraseOptions{Note: n}) }
		}, false},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			k := kit.New(t, nil, perdure.Options{}, flows...)
			run := k.StartOn("t", c.flow, "")
			if _, err := k.Wait(ctx, "t", run.ID); err != nil {
				t.Fatal(err)
			}
			if c.then != nil {
				c.then(k)
			}
			synctest.Wait()
			seq := k.SeqOf("t")
			for _, other := range []uint64{1, seq - 1, seq + 1} {
				wantStale(t, "at another sequence", c.do(perdure.Note{IfSeq: other})(k), "t", seq)
			}
			synctest.Wait()
			if now := k.SeqOf("t"); now != seq {
				t.Fatalf("what was refused moved the thread from %d to %d", seq, now)
			}
			kit.WantErr(t, "at its sequence", c.do(perdure.Note{IfSeq: seq})(k), nil)
			if _, err := k.Get(ctx, "t"); c.adds && (err != nil || k.SeqOf("t") == seq) {
				t.Errorf("nothing was written: %v", err)
			} else if !c.adds {
				kit.WantErr(t, "the thread", err, perdure.ErrNoThread)
			}
		})
	}
}

func TestWhatWouldWriteNothingIsNeverStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.AskFlow("ask", perdure.Question{}))
		q := perdure.StartRequest{Thread: "t", Flow: "ask", Input: "", Key: "k"}
		first := k.MustStart(q)
		run := k.WaitForRun("t", first.ID, perdure.Suspended)
		q.IfSeq = 1
		if again := k.MustStart(q); again.ID != first.ID {
			t.Errorf("the key gave run %s, want %s", again.ID, first.ID)
		}
		kit.WantErr(t, "pause", k.Pause(t.Context(), "t", "", perdure.Note{}), nil)
		kit.WantErr(t, "pause again", k.Pause(t.Context(), "t", "", perdure.Note{IfSeq: 1}), nil)
		kit.WantErr(t, "resume", k.Resume(t.Context(), "t", "", perdure.Note{}), nil)
		a := perdure.AskAnswer{Ask: k.AskAt(run, "/ask").ID, Answer: perdure.Answer{Value: "x"}}
		kit.WantErr(t, "answer", k.Answer(t.Context(), a), nil)
		a.IfSeq = 1
		kit.WantErr(t, "the same answer", k.Answer(t.Context(), a), nil)
		a.Value = "y"
		kit.WantErr(t, "another answer", k.Answer(t.Context(), a), perdure.ErrAnswered)
	})
}

func TestStartAtASequenceMakesNoThread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.EchoFlow("echo"))
		_, err := k.Start(t.Context(), perdure.StartRequest{Thread: "t", Flow: "echo", Input: "", IfSeq: 7})
		wantStale(t, "start", err, "t", 0)
		for cell, err := range k.Store.List(t.Context(), "thread/", "") {
			t.Errorf("there is %s, %v", cell.Key, err)
		}
		_, err = k.Start(t.Context(), perdure.StartRequest{Flow: "echo", Input: "", IfSeq: 7})
		kit.WantErr(t, "start on a new thread", err, perdure.ErrStale)
		kit.WantErr(t, "cancel on no thread", k.Cancel(t.Context(), "t", "", perdure.Note{IfSeq: 7}), perdure.ErrNoThread)
	})
}

// The thread is erased when the start has found it.
func TestStartAtASequenceThatComesTooLateMakesNoThread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		k := kit.New(t, s, perdure.Options{}, kit.EchoFlow("echo"))
		k.StartOn("t", "echo", "")
		k.WaitFor("t", perdure.Succeeded)
		synctest.Wait()
		seq, found := k.SeqOf("t"), 0
		late, err := perdure.New(t.Context(), faulty.New(s, func(c faulty.Call) faulty.Fault {
			if strings.HasPrefix(c.Name, "id/") {
				if found++; found == 2 {
					kit.WantErr(t, "the erase", k.Erase(t.Context(), "t", perdure.EraseOptions{}), nil)
				}
			}
			return faulty.None
		}), perdure.Options{}, kit.EchoFlow("echo"))
		kit.NoErr(t, err)
		_, err = late.Start(t.Context(), perdure.StartRequest{Thread: "t", Flow: "echo", Input: strings.Repeat("x", 100_000), IfSeq: seq})
		wantStale(t, "start", err, "t", 0)
		kit.WantNothing(t, s)
	})
}

func TestOfManyAtOneSequenceOneHappens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.AskFlow("ask", perdure.Question{}))
		k.StartOn("t", "ask", "")
		k.WaitFor("t", perdure.Suspended)
		synctest.Wait()
		seq := k.SeqOf("t")
		var wg sync.WaitGroup
		var mu sync.Mutex
		done := 0
		for range 16 {
			wg.Go(func() {
				_, err := k.Start(t.Context(), perdure.StartRequest{Thread: "t", Flow: "ask", Input: "", IfSeq: seq})
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					done++
				} else if !errors.Is(err, perdure.ErrStale) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if done != 1 {
			t.Errorf("%d starts happened, want 1", done)
		}
	})
}

// A change comes between the moment at which an erase has seen that nothing
// depends on the thread, and its entry.
func TestEraseThatComesTooLateLeavesTheThreadWhole(t *testing.T) {
	for _, other := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := memstore.New()
			k := kit.New(t, s, perdure.Options{}, kit.EchoFlow("echo"))
			k.StartOn("t", "echo", "")
			k.WaitFor("t", perdure.Succeeded)
			synctest.Wait()
			seq := k.SeqOf("t")
			moved := false
			slow, err := perdure.New(t.Context(), faulty.New(s, func(c faulty.Call) faulty.Fault {
				if strings.HasPrefix(c.Name, "thread/") && c.Op == store.OpAppend && !moved {
					moved = true
					title := "new"
					kit.WantErr(t, "the change", k.SetMetadata(t.Context(), "t", &title, nil, perdure.Note{}), nil)
					if other { // and another erase relies on the closed gate
						kit.WantErr(t, "the other erase", k.Erase(t.Context(), "t", perdure.EraseOptions{}), nil)
					}
				}
				return faulty.None
			}), perdure.Options{}, kit.EchoFlow("echo"))
			kit.NoErr(t, err)
			err = slow.Erase(t.Context(), "t", perdure.EraseOptions{Note: perdure.Note{IfSeq: seq}})
			if !moved {
				t.Fatal("nothing came between")
			}
			if other {
				_, err := k.Get(t.Context(), "t")
				kit.WantErr(t, "the erased thread", err, perdure.ErrNoThread)
				return
			}
			wantStale(t, "erase", err, "t", seq+1)
			if _, err := k.Fork(t.Context(), perdure.ForkRequest{Thread: "t", As: "f"}); err != nil {
				t.Errorf("a fork of the thread that was left: %v", err)
			}
			kit.WantErr(t, "erase of what is pinned", k.Erase(t.Context(), "t", perdure.EraseOptions{}), perdure.ErrPinned)
			kit.WantErr(t, "erase with its fork", k.Erase(t.Context(), "t", perdure.EraseOptions{Dependents: true, Note: perdure.Note{IfSeq: seq + 1}}), nil)
		})
	}
}

// The end of a blocked run comes after the cancel of its children.
func TestCancelThatIsStaleLeavesTheChildren(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		child := kit.AskFlow("child", perdure.Question{})
		parent := func(name string) perdure.Flow {
			return perdure.NewFlow("parent", func(ctx context.Context, _ string) (string, error) {
				c, err := perdure.Spawn(ctx, name, "child", "")
				if err != nil {
					return "", err
				}
				return perdure.Join[string](ctx, "join", c)
			})
		}
		k := kit.New(t, s, perdure.Options{}, child, parent("old"))
		run := k.StartOn("t", "parent", "")
		k.WaitFor("t", perdure.Suspended)
		synctest.Wait()
		k.Stop()
		k = kit.New(t, s, perdure.Options{Version: "other"}, child, parent("new"))
		kit.WantErr(t, "pause", k.Pause(t.Context(), "t", "", perdure.Note{}), nil)
		kit.WantErr(t, "resume", k.Resume(t.Context(), "t", "", perdure.Note{}), nil)
		k.WaitForRun("t", run.ID, perdure.Blocked)
		synctest.Wait()
		seq := k.SeqOf("t")
		wantStale(t, "cancel", k.Cancel(t.Context(), "t", "", perdure.Note{IfSeq: seq - 1}), "t", seq)
		_, err := k.Start(t.Context(), perdure.StartRequest{Thread: "t", Flow: "child", Input: "", Policy: perdure.Interrupt, IfSeq: seq - 1})
		wantStale(t, "interrupt", err, "t", seq)
		synctest.Wait()
		k.WaitFor(childOf(k, "t", 0), perdure.Suspended)
		kit.WantErr(t, "cancel", k.Cancel(t.Context(), "t", "", perdure.Note{IfSeq: seq}), nil)
		k.WaitFor(childOf(k, "t", 0), perdure.Cancelled)
	})
}
