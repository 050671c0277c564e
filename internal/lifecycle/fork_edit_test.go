package lifecycle_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
)

// Edited state is seen by code after the newest outcome, and not by code before
// it: at every point of a run that reads it between all of its steps.
func TestForkEditsAreSeenBehindTheNewestOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		word := perdure.NewState[string]("word")
		const steps = 4
		k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
			var seen []string
			look := func() error {
				w, err := word.Get(ctx)
				seen = append(seen, w)
				return err
			}
			if err := look(); err != nil {
				return "", err
			}
			for i := range steps {
				if _, err := perdure.Step(ctx, fmt.Sprintf("s%d", i), func(ctx context.Context) (int, error) { return i, nil }); err != nil {
					return "", err
				}
				if err := look(); err != nil {
					return "", err
				}
			}
			return strings.Join(seen, " "), kit.AskYesNo(ctx, "ask")
		}), perdure.NewFlow("set", func(ctx context.Context, in string) (string, error) {
			return perdure.Step(ctx, "set", func(ctx context.Context) (string, error) { return in, word.Set(ctx, in) })
		}))
		k.StartOn("t", "set", "old")
		k.WaitFor("t", perdure.Succeeded)
		k.StartOn("t", "f", "")
		k.WaitFor("t", perdure.Suspended)
		passed, begun := 0, false
		for _, e := range k.EventsOf("t") {
			if e.Kind == "claimed" && e.Seq > 5 {
				begun = true
			}
			if !begun {
				continue
			}
			if e.Kind == "step" {
				passed++
			}
			as := fmt.Sprintf("a%d", e.Seq)
			k.MustFork(perdure.ForkRequest{Thread: "t", At: e.Seq, As: as, State: map[string]any{"word": "new"}})
			if got := string(k.MustStateAt(as, 0).State["word"]); got != `"new"` {
				t.Fatalf("the state is %s", got)
			}
			kit.WantErr(t, "resume", k.Resume(t.Context(), as, "", perdure.Note{}), nil)
			run := k.WaitFor(as, perdure.Suspended)
			k.AnswerYes(run, "/ask")
			want := strings.Repeat("old ", passed) + strings.Repeat("new ", steps+1-passed)
			kit.WantOutput(t, k.WaitFor(as, perdure.Succeeded), strings.TrimSpace(want))
		}
		if passed != steps {
			t.Fatalf("%d steps were passed", passed)
		}
	})
}

// What a fork edits does not hide what an earlier run of the fork writes from
// the runs that are queued after it.
func TestForkEditsDoNotOutliveLaterWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		word := perdure.NewState[string]("word")
		k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("write", func(ctx context.Context, in string) (string, error) {
			if err := kit.AskYesNo(ctx, "ask"); err != nil {
				return "", err
			}
			return perdure.Step(ctx, "w", func(ctx context.Context) (string, error) { return in, word.Set(ctx, in) })
		}), perdure.NewFlow("read", func(ctx context.Context, _ string) (string, error) { return word.Get(ctx) }))
		k.StartOn("t", "write", "later")
		k.WaitFor("t", perdure.Suspended)
		k.StartOn("t", "read", "")
		k.MustFork(perdure.ForkRequest{Thread: "t", As: "a", State: map[string]any{"word": "edited"}})
		runs := k.MustStateAt("a", 0).Thread.Runs
		for _, run := range runs {
			kit.WantErr(t, "resume", k.Resume(t.Context(), "a", run.ID, perdure.Note{}), nil)
		}
		k.AnswerYes(k.WaitForRun("a", runs[0].ID, perdure.Suspended), "/ask")
		kit.WantOutput(t, k.WaitForRun("a", runs[1].ID, perdure.Succeeded), "later")
	})
}

func TestForkEdits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		big := strings.Repeat("big ", 40<<10)
		list := perdure.NewList[string]("list")
		k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, in string) (string, error) {
			if _, err := perdure.Step(ctx, "s", func(ctx context.Context) (string, error) { return in, list.Append(ctx, in) }); err != nil {
				return "", err
			}
			if err := kit.AskYesNo(ctx, "ask"); err != nil {
				return "", err
			}
			all, err := list.Get(ctx)
			return fmt.Sprint(len(in), " ", len(all), " ", len(all[len(all)-1])), err
		}))
		k.StartOn("t", "f", big)
		k.WaitFor("t", perdure.Suspended)
		at := k.MustStateAt("t", 0)
		long := make([]string, 20_000)
		for i := range long {
			long[i] = fmt.Sprint("item ", i)
		}
		k.MustFork(perdure.ForkRequest{Thread: "t", As: "same"})
		if got := k.MustStateAt("same", 0).State["list"]; string(got) != string(at.State["list"]) {
			t.Errorf("the parent's blobs read as %d bytes", len(got))
		}
		k.MustFork(perdure.ForkRequest{Thread: "t", As: "empty", State: map[string]any{"list": []string{}}})
		k.MustFork(perdure.ForkRequest{Thread: "t", As: "gone", State: map[string]any{"list": nil}})
		k.MustFork(perdure.ForkRequest{Thread: "t", As: "long", State: map[string]any{"list": long, "other": big}})
		k.MustFork(perdure.ForkRequest{Thread: "t", As: "input", At: 2, Input: "tiny"})
		k.MustFork(perdure.ForkRequest{Thread: "t", As: "large", At: 2, Input: big + "more"})
		_, err := k.Fork(t.Context(), perdure.ForkRequest{Thread: "t", State: map[string]any{"list": "text"}})
		kit.WantErr(t, "a list that is text", err, perdure.ErrInvalid)
		if got := string(k.MustStateAt("empty", 0).State["list"]); got != "[]" {
			t.Errorf("the empty list is %.20s", got)
		}
		if _, there := k.MustStateAt("gone", 0).State["list"]; there {
			t.Error("the list is there")
		}
		for as, want := range map[string]string{
			"same": fmt.Sprint(len(big), " 1 ", len(big)), "long": fmt.Sprint(len(big), " 20000 10"),
			"input": "4 1 4", "large": fmt.Sprint(len(big)+4, " 1 ", len(big)+4)} {
			kit.WantErr(t, "resume", k.Resume(t.Context(), as, "", perdure.Note{}), nil)
			k.AnswerYes(k.WaitFor(as, perdure.Suspended), "/ask")
			kit.WantOutput(t, k.WaitFor(as, perdure.Succeeded), want)
		}
		k.StartOn("long", "f", "x") // a list stays one
		k.AnswerYes(k.WaitFor("long", perdure.Suspended), "/ask")
		kit.WantOutput(t, k.WaitFor("long", perdure.Succeeded), "1 20001 1")
		if got := k.MustStateAt("t", 0); got.Seq != at.Seq || string(got.State["list"]) != string(at.State["list"]) {
			t.Error("the parent has changed")
		}
	})
}

// A Fork that dies before or after any call is completed by the next one, or
// abandoned by a Start of the same id; either way it leaves one thread.
func TestForkDiesAtEveryCall(t *testing.T) {
	for _, then := range []string{"fork", "start"} {
		kit.Bubble(t, then, func(t *testing.T) {
			for _, fault := range []faulty.Fault{faulty.CrashBefore, faulty.CrashAfter} {
				calls := 0
				for n := 1; n <= 200 && calls == 0; n++ {
					s := memstore.New()
					k := kit.New(t, s, perdure.Options{}, kit.Game)
					k.StartOn("t", "game", "ann")
					k.WaitFor("t", perdure.Succeeded)
					synctest.Wait()
					parent := kit.Journals(t, s)[0]
					bytes := journalBytes(t, s, parent)
					var armed bool
					var count int
					bad := faulty.New(s, func(faulty.Call) faulty.Fault {
						if !armed {
							return faulty.None
						}
						if count++; count == n {
							return fault
						}
						return faulty.None
					})
					dying, err := perdure.New(t.Context(), bad, perdure.Options{Version: "test"}, kit.Game)
					kit.WantErr(t, "a runtime", err, nil)
					armed = true
					q := perdure.ForkRequest{Thread: "t", At: 4, As: "a", State: map[string]any{"last": strings.Repeat("eve", 30<<10)}}
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					_, dead := dying.Fork(ctx, q)
					cancel()
					if count < n {
						kit.WantErr(t, "a fork without a fault", dead, nil)
						calls = count
					}
					made := forkedAlready(t, k)
					if then == "fork" {
						if k.MustFork(q); !forkedAlready(t, k) {
							t.Fatalf("after call %d there is no fork", n)
						}
						kit.WantErr(t, "resume", k.Resume(t.Context(), "a", "", perdure.Note{}), nil)
					} else {
						k.StartOn("a", "game", "bob")
						if made {
							kit.WantErr(t, "resume", k.Resume(t.Context(), "a", k.MustStateAt("a", 0).Thread.Runs[0].ID, perdure.Note{}), nil)
						}
					}
					k.WaitFor("a", perdure.Succeeded)
					pins := 0
					for _, err := range s.List(t.Context(), "pin/", "") {
						kit.WantErr(t, "list", err, nil)
						pins++
					}
					want := 1
					if then == "start" && !made {
						want = 0
					}
					if pins != want {
						t.Errorf("after call %d there are %d pins, want %d", n, pins, want)
					}
					listed := 0
					for _, err := range k.List(t.Context(), perdure.ListOptions{}) {
						kit.WantErr(t, "list", err, nil)
						listed++
					}
					if now := journalBytes(t, s, parent); listed != 2 || now != bytes {
						t.Errorf("after call %d there are %d threads, and the parent is\n%s\nwhich was\n%s", n, listed, now, bytes)
					}
					k.Stop()
				}
				if calls < 10 {
					t.Errorf("a fork is %d calls", calls)
				}
			}
		})
	}
}

func forkedAlready(t *testing.T, k *kit.Kit) bool {
	t.Helper()
	_, err := k.Get(t.Context(), "a")
	return err == nil
}

// A Start and a Fork of the same new id leave one of both, and the other is
// told.
func TestForkAgainstStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for n := range 40 {
			s := memstore.New()
			k := kit.New(t, s, perdure.Options{}, kit.Game)
			k.StartOn("t", "game", "ann")
			k.WaitFor("t", perdure.Succeeded)
			seed := uint64(n)
			slow := faulty.New(s, func(c faulty.Call) faulty.Fault {
				seed = seed*6364136223846793005 + 1442695040888963407
				return faulty.Delay(time.Duration(seed>>60) * time.Millisecond)
			})
			rt, err := perdure.New(t.Context(), slow, perdure.Options{Version: "test"}, kit.Game)
			kit.WantErr(t, "a runtime", err, nil)
			errs := make(chan error, 2)
			go func() { _, err := rt.Fork(t.Context(), perdure.ForkRequest{Thread: "t", As: "a"}); errs <- err }()
			_, startErr := k.Start(t.Context(), perdure.StartRequest{Thread: "a", Flow: "game", Input: "bob"})
			forkErr := <-errs
			kit.WantErr(t, "start", startErr, nil)
			runs := len(k.MustStateAt("a", 0).Thread.Runs)
			if forkErr == nil && runs != 2 || forkErr != nil && runs != 1 {
				t.Errorf("round %d: the fork got %v, and there are %d runs", n, forkErr, runs)
			}
			if forkErr != nil {
				kit.WantErr(t, "fork", forkErr, perdure.ErrExists)
			}
			k.Stop()
		}
	})
}
