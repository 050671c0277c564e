package lifecycle_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
)

// asBefore expects a thread to be what it was at a sequence, but for what was
// spent, and for its name.
func asBefore(k *kit.Kit, thread string, to uint64) {
	k.T.Helper()
	diff := cmp.Diff(k.MustStateAt(thread, to), k.MustStateAt(thread, 0), cmpopts.EquateEmpty(),
		cmpopts.IgnoreFields(perdure.Checkpoint{}, "Seq", "Time"),
		cmpopts.IgnoreFields(perdure.Thread{}, "Seq", "Updated", "Created", "Spent", "Title", "Metadata", "Fork"),
		cmpopts.IgnoreFields(perdure.Run{}, "Err"))
	if diff != "" {
		k.T.Errorf("thread %s is not what it was at %d:\n%s", thread, to, diff)
	}
}

func TestRewind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.Ledger, kit.Hear)
		_, one := k.NoteInLedger("t", "one")
		kit.WantErr(t, "signal", k.Signal(t.Context(), "t", "go", "early", perdure.SignalOptions{Key: "s"}), nil)
		kept := k.MustStateAt("t", 0).Seq
		gone := map[string]bool{}
		key, _ := k.NoteInLedger("t", "two")
		gone[key] = true
		k.WaitForRun("t", k.StartOn("t", "hear", "").ID, perdure.Succeeded)
		key, _ = k.NoteInLedger("t", "three")
		gone[key] = true
		title := "mine"
		kit.WantErr(t, "metadata", k.SetMetadata(t.Context(), "t", &title, map[string]string{"a": "b"}, perdure.Note{}), nil)
		before := k.MustStateAt("t", 0)

		w := k.MustRewind("t", kept)
		if w.To != kept || w.Seq != before.Seq+1 || len(w.Outside) != 2 || w.Outside[0].Path != "/note" {
			t.Errorf("the rewind says %+v", w)
		}
		asBefore(k, "t", kept)
		now := k.MustStateAt("t", 0)
		if now.Thread.Spent["cents"] != 3 || now.Thread.Title != "mine" || now.Thread.Metadata["a"] != "b" {
			t.Errorf("spent %v, called %q", now.Thread.Spent, now.Thread.Title)
		}
		if n := len(k.EventsOf("t")); n != int(before.Seq)+1 {
			t.Errorf("%d events are left of %d", n, before.Seq)
		}
		// The signal is there again, and its key is known.
		kit.WantErr(t, "signal", k.Signal(t.Context(), "t", "go", "early", perdure.SignalOptions{Key: "s"}), nil)
		kit.WantErr(t, "another signal", k.Signal(t.Context(), "t", "go", "again", perdure.SignalOptions{Key: "s"}), perdure.ErrKeyReused)
		kit.WantOutput(t, k.WaitForRun("t", k.StartOn("t", "hear", "").ID, perdure.Succeeded), "early")
		key, _ = k.NoteInLedger("t", "four")
		if gone[key] {
			t.Error("a run after the rewind has a key of one that was taken back")
		}
		now = k.MustStateAt("t", 0)
		if got := string(now.State["list"]) + string(now.Deps["bag"]); got != `["one","four"]["one","four"]` {
			t.Errorf("state and dep are %s", got)
		}
		k.MustRewind("t", one)
		asBefore(k, "t", one)
		d, err := k.Diff(t.Context(), perdure.Point{Thread: "t", Seq: before.Seq}, perdure.Point{Thread: "t"})
		if err != nil || len(d.Runs) != 3 || d.Runs[0].After != "" {
			t.Errorf("the difference is %+v, %v", d, err)
		}
	})
}

// A key whose run was taken back starts another one, and one whose run is still
// there does not.
func TestRewindKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.Ledger)
		start := func(key string) *perdure.Run {
			run := k.MustStart(perdure.StartRequest{Thread: "t", Flow: "ledger", Input: key, Key: key})
			return k.WaitForRun("t", run.ID, perdure.Succeeded)
		}
		kept := start("kept")
		to := k.MustStateAt("t", 0).Seq
		ids := map[string]bool{}
		for range 4 {
			run := start("gone")
			if ids[run.ID] {
				t.Error("a run that was taken back has come back")
			}
			ids[run.ID] = true
			if start("gone").ID != run.ID || start("kept").ID != kept.ID {
				t.Error("a repeated start is another run")
			}
			_, err := k.Start(t.Context(), perdure.StartRequest{Thread: "t", Flow: "ledger", Input: "other", Key: "gone"})
			kit.WantErr(t, "another input", err, perdure.ErrKeyReused)
			k.MustRewind("t", to)
		}
	})
}

// Rewinds to points after rewinds are folded in a time that does not double
// with each.
func TestRewindOfRewinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.Ledger)
		_, first := k.NoteInLedger("t", "first")
		marks := []uint64{first}
		for i := range 24 {
			k.NoteInLedger("t", fmt.Sprint("lost ", i))
			to := marks[len(marks)-1]
			if i%3 == 2 { // one that goes back further
				to = marks[len(marks)-2]
			}
			w := k.MustRewind("t", to)
			asBefore(k, "t", to)
			marks = append(marks, w.Seq)
		}
		now := k.MustStateAt("t", 0)
		if string(now.State["list"]) != `["first"]` || now.Thread.Spent["cents"] != 25 || len(now.Thread.Runs) != 1 {
			t.Errorf("the list is %s, %v spent, %d runs", now.State["list"], now.Thread.Spent, len(now.Thread.Runs))
		}
		for _, at := range marks {
			if got := string(k.MustStateAt("t", at).State["list"]); got != `["first"]` {
				t.Errorf("at %d the list is %s", at, got)
			}
		}
		k.MustFork(perdure.ForkRequest{Thread: "t", As: "a"})
		k.NoteInLedger("a", "mine")
		k.MustRewind("a", marks[5])
		asBefore(k, "a", marks[5])
	})
}

func TestRewindInAFork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.Ledger)
		_, one := k.NoteInLedger("t", "one")
		_, two := k.NoteInLedger("t", "two")
		k.MustFork(perdure.ForkRequest{Thread: "t", As: "a", Title: "fork", State: map[string]any{"list": []string{"edited"}}})
		base := k.MustStateAt("a", 0).Seq
		used, _ := k.NoteInLedger("a", "three")
		k.MustRewind("a", base)
		if got := string(k.MustStateAt("a", 0).State["list"]); got != `["edited"]` {
			t.Errorf("the list is %s", got)
		}
		k.MustRewind("a", one) // before it was forked
		asBefore(k, "a", one)
		now := k.MustStateAt("a", 0)
		if now.Thread.ID != "a" || now.Thread.Title != "fork" || string(now.State["list"]) != `["one"]` {
			t.Errorf("thread %s %q has the list %s", now.Thread.ID, now.Thread.Title, now.State["list"])
		}
		if key, _ := k.NoteInLedger("a", "four"); key == used {
			t.Error("a key is used twice")
		}
		k.MustFork(perdure.ForkRequest{Thread: "a", As: "b"})
		k.MustRewind("b", two)
		asBefore(k, "b", two)
		if got := string(k.MustStateAt("t", 0).State["list"]); got != `["one","two"]` {
			t.Errorf("the parent's list is %s", got)
		}
	})
}

// A failed run that a rewind keeps can be retried again; what its first retry
// spent stays spent.
func TestRewindBeforeARetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fail := true
		k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
			return perdure.Step(ctx, "s", func(ctx context.Context) (string, error) {
				if err := perdure.Spend(ctx, "cents", 2); err != nil || fail {
					return "", perdure.Permanent(fmt.Errorf("no: %w", err))
				}
				return "yes", nil
			})
		}))
		k.MustStart(perdure.StartRequest{Thread: "t", Flow: "f", Input: "", Budget: map[string]int64{"cents": 5}})
		k.WaitFor("t", perdure.Failed)
		failed := k.MustStateAt("t", 0).Seq
		kit.WantErr(t, "retry", k.Retry(t.Context(), "t", "", perdure.Note{}), nil)
		k.WaitFor("t", perdure.Failed)
		k.MustRewind("t", failed)
		if got := k.MustStateAt("t", 0).Thread; got.Spent["cents"] != 4 || got.Runs[0].Spent["cents"] != 4 {
			t.Errorf("%v and %v are spent", got.Spent, got.Runs[0].Spent)
		}
		fail = false
		kit.WantErr(t, "retry", k.Retry(t.Context(), "t", "", perdure.Note{}), nil)
		if run := k.WaitFor("t", perdure.Failed); !strings.Contains(run.Error, "6 of 5") {
			t.Errorf("the budget was refunded: %s", run.Error)
		}
	})
}

func TestRewindRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.Ledger, kit.AskFlow("f", perdure.Question{}))
		_, one := k.NoteInLedger("t", "one")
		k.NoteInLedger("t", "two")
		last := k.MustStateAt("t", 0).Seq
		ctx := t.Context()
		for what, c := range map[string]struct {
			thread string
			to     uint64
			want   error
			say    string
		}{
			"no thread":       {"none", 1, perdure.ErrNoThread, ""},
			"to nothing":      {"t", 0, perdure.ErrInvalid, ""},
			"beyond the end":  {"t", last + 1, perdure.ErrInvalid, fmt.Sprintf("ends at %d", last)},
			"to where it is":  {"t", last, perdure.ErrNothingToDo, "already"},
			"into a run":      {"t", one + 2, perdure.ErrInvalid, fmt.Sprintf("last one before that is %d", one)},
			"before any runs": {"t", 2, perdure.ErrInvalid, "last one before that is 1"},
		} {
			_, err := k.Rewind(ctx, c.thread, c.to, perdure.Note{})
			if kit.WantErr(t, what, err, c.want); err != nil && !strings.Contains(err.Error(), c.say) {
				t.Errorf("%s: %v does not say %q", what, err, c.say)
			}
		}
		run := k.StartOn("t", "f", "")
		k.WaitFor("t", perdure.Suspended)
		_, err := k.Rewind(ctx, "t", one, perdure.Note{})
		kit.WantErr(t, "under an active run", err, perdure.ErrBusy)
		if err == nil || !strings.Contains(err.Error(), run.ID) {
			t.Errorf("%v does not name run %s", err, run.ID)
		}
		kit.WantErr(t, "cancel", k.Cancel(ctx, "t", "", perdure.Note{}), nil)
		k.WaitFor("t", perdure.Cancelled)
		k.MustRewind("t", one)
		asBefore(k, "t", one)
	})
}
