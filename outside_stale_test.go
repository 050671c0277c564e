package perdure_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
)

// seqOf returns the last sequence of a thread.
func (k *kit) seqOf(thread string) uint64 {
	k.t.Helper()
	info, err := k.Get(k.t.Context(), thread)
	if err != nil {
		k.t.Fatal(err)
	}
	return info.Seq
}

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
	flows := []perdure.Flow{echoFlow("echo"), fail, askFlow("ask", perdure.Question{})}
	start := func(n perdure.Note, thread, flow string, policy perdure.Policy) func(k *kit) error {
		return func(k *kit) error {
			_, err := k.Start(ctx, perdure.StartRequest{Thread: thread, Flow: flow, Input: "", Policy: policy, IfSeq: n.IfSeq})
			return err
		}
	}
	for name, c := range map[string]struct {
		flow string // of the run that is there
		then func(k *kit)
		do   func(n perdure.Note) func(k *kit) error
		adds bool // something can be read afterwards
	}{
		"start":     {"echo", nil, func(n perdure.Note) func(*kit) error { return start(n, "t", "echo", perdure.Enqueue) }, true},
		"interrupt": {"ask", nil, func(n perdure.Note) func(*kit) error { return start(n, "t", "echo", perdure.Interrupt) }, true},
		"start again": {"echo", nil, func(n perdure.Note) func(*kit) error {
			return func(k *kit) error { _, err := k.StartAgain(ctx, "t", "", n); return err }
		}, true},
		"answer": {"ask", nil, func(n perdure.Note) func(*kit) error {
			return func(k *kit) error {
				run, err := k.GetRun(ctx, "t", "")
				if err != nil {
					return err
				}
				return k.Answer(ctx, perdure.AskAnswer{Ask: run.Asks[0].ID, Answer: perdure.Answer{Value: "x"}, IfSeq: n.IfSeq})
			}
		}, true},
		"cancel": {"ask", nil, func(n perdure.Note) func(*kit) error {
			return func(k *kit) error { return k.Cancel(ctx, "t", "", n) }
		}, true},
		"pause": {"ask", nil, func(n perdure.Note) func(*kit) error {
			return func(k *kit) error { return k.Pause(ctx, "t", "", n) }
		}, true},
		"resume": {"ask", func(k *kit) { wantErr(k.t, "pause", k.Pause(ctx, "t", "", perdure.Note{}), nil) }, func(n perdure.Note) func(*kit) error {
			return func(k *kit) error { return k.Resume(ctx, "t", "", n) }
		}, true},
		"retry": {"fail", nil, func(n perdure.Note) func(*kit) error {
			return func(k *kit) error { return k.Retry(ctx, "t", "", n) }
		}, true},
		"rewind": {"echo", nil, func(n perdure.Note) func(*kit) error {
			return func(k *kit) error { _, err := k.Rewind(ctx, "t", 1, n); return err }
		}, true},
		"rename": {"ask", nil, func(n perdure.Note) func(*kit) error {
			return func(k *kit) error { title := "x"; return k.SetMetadata(ctx, "t", &title, nil, n) }
		}, true},
		"signal": {"ask", nil, func(n perdure.Note) func(*kit) error {
			return func(k *kit) error { return k.Signal(ctx, "t", "s", 1, perdure.SignalOptions{IfSeq: n.IfSeq}) }
		}, true},
		"fork": {"ask", nil, func(n perdure.Note) func(*kit) error {
			return func(k *kit) error {
				_, err := k.Fork(ctx, perdure.ForkRequest{Thread: "t", As: "fork", IfSeq: n.IfSeq})
				if err == nil { // what is there is found again, and the thread itself is as it was
					_, err = k.Fork(ctx, perdure.ForkRequest{Thread: "t", As: "fork", IfSeq: 1})
					err = errors.Join(err, k.Signal(ctx, "t", "s", 1, perdure.SignalOptions{}))
				}
				return err
			}
		}, true},
		"erase": {"echo", nil, func(n perdure.Note) func(*kit) error {
			return func(k *kit) error { return k.Erase(ctx, "t", perdure.EraseOptions{Note: n}) }
		}, false},
	} {
		bubble(t, name, func(t *testing.T) {
			k := newKit(t, nil, perdure.Options{}, flows...)
			run := k.start("t", c.flow, "")
			if _, err := k.Wait(ctx, "t", run.ID); err != nil {
				t.Fatal(err)
			}
			if c.then != nil {
				c.then(k)
			}
			synctest.Wait()
			seq := k.seqOf("t")
			for _, other := range []uint64{1, seq - 1, seq + 1} {
				wantStale(t, "at another sequence", c.do(perdure.Note{IfSeq: other})(k), "t", seq)
			}
			synctest.Wait()
			if now := k.seqOf("t"); now != seq {
				t.Fatalf("what was refused moved the thread from %d to %d", seq, now)
			}
			wantErr(t, "at its sequence", c.do(perdure.Note{IfSeq: seq})(k), nil)
			if _, err := k.Get(ctx, "t"); c.adds && (err != nil || k.seqOf("t") == seq) {
				t.Errorf("nothing was written: %v", err)
			} else if !c.adds {
				wantErr(t, "the thread", err, perdure.ErrNoThread)
			}
		})
	}
}

func TestWhatWouldWriteNothingIsNeverStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t, nil, perdure.Options{}, askFlow("ask", perdure.Question{}))
		q := perdure.StartRequest{Thread: "t", Flow: "ask", Input: "", Key: "k"}
		first := k.begin(q)
		run := k.waitRun("t", first.ID, perdure.Suspended)
		q.IfSeq = 1
		if again := k.begin(q); again.ID != first.ID {
			t.Errorf("the key gave run %s, want %s", again.ID, first.ID)
		}
		wantErr(t, "pause", k.Pause(t.Context(), "t", "", perdure.Note{}), nil)
		wantErr(t, "pause again", k.Pause(t.Context(), "t", "", perdure.Note{IfSeq: 1}), nil)
		wantErr(t, "resume", k.Resume(t.Context(), "t", "", perdure.Note{}), nil)
		a := perdure.AskAnswer{Ask: k.at(run, "/ask").ID, Answer: perdure.Answer{Value: "x"}}
		wantErr(t, "answer", k.Answer(t.Context(), a), nil)
		a.IfSeq = 1
		wantErr(t, "the same answer", k.Answer(t.Context(), a), nil)
		a.Value = "y"
		wantErr(t, "another answer", k.Answer(t.Context(), a), perdure.ErrAnswered)
	})
}

func TestStartAtASequenceMakesNoThread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t, nil, perdure.Options{}, echoFlow("echo"))
		_, err := k.Start(t.Context(), perdure.StartRequest{Thread: "t", Flow: "echo", Input: "", IfSeq: 7})
		wantStale(t, "start", err, "t", 0)
		for cell, err := range k.store.List(t.Context(), "thread/", "") {
			t.Errorf("there is %s, %v", cell.Key, err)
		}
		_, err = k.Start(t.Context(), perdure.StartRequest{Flow: "echo", Input: "", IfSeq: 7})
		wantErr(t, "start on a new thread", err, perdure.ErrStale)
		wantErr(t, "cancel on no thread", k.Cancel(t.Context(), "t", "", perdure.Note{IfSeq: 7}), perdure.ErrNoThread)
	})
}

// The thread is erased when the start has found it.
func TestStartAtASequenceThatComesTooLateMakesNoThread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		k := newKit(t, s, perdure.Options{}, echoFlow("echo"))
		k.start("t", "echo", "")
		k.wait("t", perdure.Succeeded)
		synctest.Wait()
		seq, found := k.seqOf("t"), 0
		late, err := perdure.New(t.Context(), faulty.New(s, func(c faulty.Call) faulty.Fault {
			if strings.HasPrefix(c.Name, "id/") {
				if found++; found == 2 {
					wantErr(t, "the erase", k.Erase(t.Context(), "t", perdure.EraseOptions{}), nil)
				}
			}
			return faulty.None
		}), perdure.Options{Version: "test"}, echoFlow("echo"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = late.Start(t.Context(), perdure.StartRequest{Thread: "t", Flow: "echo", Input: strings.Repeat("x", 100_000), IfSeq: seq})
		wantStale(t, "start", err, "t", 0)
		wantNothing(t, s)
	})
}

func TestOfManyAtOneSequenceOneHappens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t, nil, perdure.Options{}, askFlow("ask", perdure.Question{}))
		k.start("t", "ask", "")
		k.wait("t", perdure.Suspended)
		synctest.Wait()
		seq := k.seqOf("t")
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
			k := newKit(t, s, perdure.Options{}, echoFlow("echo"))
			k.start("t", "echo", "")
			k.wait("t", perdure.Succeeded)
			synctest.Wait()
			seq := k.seqOf("t")
			moved := false
			slow, err := perdure.New(t.Context(), faulty.New(s, func(c faulty.Call) faulty.Fault {
				if strings.HasPrefix(c.Name, "thread/") && c.Op == store.OpAppend && !moved {
					moved = true
					title := "new"
					wantErr(t, "the change", k.SetMetadata(t.Context(), "t", &title, nil, perdure.Note{}), nil)
					if other { // and another erase relies on the closed gate
						wantErr(t, "the other erase", k.Erase(t.Context(), "t", perdure.EraseOptions{}), nil)
					}
				}
				return faulty.None
			}), perdure.Options{Version: "test"}, echoFlow("echo"))
			if err != nil {
				t.Fatal(err)
			}
			err = slow.Erase(t.Context(), "t", perdure.EraseOptions{Note: perdure.Note{IfSeq: seq}})
			if !moved {
				t.Fatal("nothing came between")
			}
			if other {
				_, err := k.Get(t.Context(), "t")
				wantErr(t, "the erased thread", err, perdure.ErrNoThread)
				return
			}
			wantStale(t, "erase", err, "t", seq+1)
			if _, err := k.Fork(t.Context(), perdure.ForkRequest{Thread: "t", As: "f"}); err != nil {
				t.Errorf("a fork of the thread that was left: %v", err)
			}
			wantErr(t, "erase of what is pinned", k.Erase(t.Context(), "t", perdure.EraseOptions{}), perdure.ErrPinned)
			wantErr(t, "erase with its fork", k.Erase(t.Context(), "t", perdure.EraseOptions{Dependents: true, Note: perdure.Note{IfSeq: seq + 1}}), nil)
		})
	}
}

// The end of a blocked run comes behind the cancel of its children.
func TestCancelThatIsStaleLeavesTheChildren(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		child := askFlow("child", perdure.Question{})
		parent := func(name string) perdure.Flow {
			return perdure.NewFlow("parent", func(ctx context.Context, _ string) (string, error) {
				c, err := perdure.Spawn(ctx, name, "child", "")
				if err != nil {
					return "", err
				}
				return perdure.Join[string](ctx, "join", c)
			})
		}
		k := newKit(t, s, perdure.Options{}, child, parent("old"))
		run := k.start("t", "parent", "")
		k.wait("t", perdure.Suspended)
		synctest.Wait()
		k.stop()
		k = newKit(t, s, perdure.Options{Version: "other"}, child, parent("new"))
		wantErr(t, "pause", k.Pause(t.Context(), "t", "", perdure.Note{}), nil)
		wantErr(t, "resume", k.Resume(t.Context(), "t", "", perdure.Note{}), nil)
		k.waitRun("t", run.ID, perdure.Blocked)
		synctest.Wait()
		seq := k.seqOf("t")
		wantStale(t, "cancel", k.Cancel(t.Context(), "t", "", perdure.Note{IfSeq: seq - 1}), "t", seq)
		_, err := k.Start(t.Context(), perdure.StartRequest{Thread: "t", Flow: "child", Input: "", Policy: perdure.Interrupt, IfSeq: seq - 1})
		wantStale(t, "interrupt", err, "t", seq)
		synctest.Wait()
		k.wait(k.child("t", 0), perdure.Suspended)
		wantErr(t, "cancel", k.Cancel(t.Context(), "t", "", perdure.Note{IfSeq: seq}), nil)
		k.wait(k.child("t", 0), perdure.Cancelled)
	})
}
