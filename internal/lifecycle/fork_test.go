package lifecycle_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
)

// At every sequence of a thread whose runs use every verb a fork is what the
// thread was there, ends as it did, and leaves it alone.
func TestForkAtEverySequence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o odyssey
		k := kit.New(t, nil, perdure.Options{}, o.flows()...)
		o.live(k)
		parent := kit.Journals(t, k.Store)[0]
		bytes := journalBytes(t, k.Store, parent)
		events := k.EventsOf("t")
		end := k.MustStateAt("t", 0)
		_, used := o.reset()
		for at := uint64(1); at <= end.Seq; at++ {
			as := fmt.Sprintf("fork-%d", at)
			f := k.MustFork(perdure.ForkRequest{Thread: "t", At: at, As: as})
			if want := (perdure.Fork{Thread: as, From: "t", At: at}); f.Thread != want.Thread || f.From != want.From || f.At != want.At {
				t.Fatalf("fork at %d is %+v", at, f)
			}
			was := k.MustStateAt("t", at)
			alike(t, fmt.Sprintf("the fork at %d", at), was, k.MustStateAt(as, 0))
			alike(t, fmt.Sprintf("the shared past of the fork at %d", at), was, k.MustStateAt(as, at))
			for _, run := range k.MustStateAt(as, 0).Thread.Runs {
				if !run.Status.Final() && !run.Steering && run.Status != perdure.Paused {
					t.Errorf("at %d run %s is %s, not paused", at, run.ID, run.Status)
				}
			}
			o.drive(k, as)
			ran, keys := o.reset()
			done := map[string]bool{}
			for _, e := range events[:at] {
				done[e.Path] = done[e.Path] || e.Kind == "step" && e.Error == ""
			}
			for _, path := range ran {
				if done[path] {
					t.Errorf("the fork at %d ran %s again, which had finished", at, path)
				}
			}
			for key, path := range keys {
				if _, taken := used[key]; taken {
					t.Errorf("the fork at %d used a key of its parent for %s", at, path)
				}
			}
			maps.Copy(used, keys)
			th := k.MustStateAt(as, 0).Thread
			if len(was.Thread.Runs) > 0 && th.Runs[0].ID != was.Thread.Runs[0].ID {
				t.Fatalf("at %d the runs are others", at)
			}
			for i, run := range th.Runs {
				want := end.Thread.Runs[i]
				if run.Flow != "linger" && (run.Status != want.Status || string(run.Output) != string(want.Output)) {
					t.Errorf("at %d %s ended as %s %s, its parent's as %s %s\n%s", at, run.Flow, run.Status, run.Output, want.Status, want.Output, k.Trace(as))
				}
			}
			for i, e := range k.EventsOf(as) {
				if e.Seq != uint64(i+1) || e.Thread != as {
					t.Fatalf("event %d of the fork at %d is %d of %s", i+1, at, e.Seq, e.Thread)
				}
			}
		}
		if journalBytes(t, k.Store, parent) != bytes {
			t.Error("the parent's journal has changed")
		}
		if diff := cmp.Diff(end, k.MustStateAt("t", 0), cmp.Comparer(func(a, b error) bool { return fmt.Sprint(a) == fmt.Sprint(b) })); diff != "" {
			t.Errorf("the parent has changed:\n%s", diff)
		}
		var listed []string
		for s, err := range k.List(t.Context(), perdure.ListOptions{}) {
			kit.NoErr(t, err)
			listed = append(listed, s.ID)
		}
		if len(listed) != int(end.Seq)+1 || !slices.Contains(listed, "fork-7") {
			t.Errorf("%d threads are listed, there are %d", len(listed), end.Seq+1)
		}
	})
}
