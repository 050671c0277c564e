package lifecycle_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store/memstore"
)

func TestForkAsksAreApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.AskFlow("f", perdure.Question{Prompt: "?"}))
		k.StartOn("t", "f", "")
		old := k.AskAt(k.WaitFor("t", perdure.Suspended), "/ask")
		k.MustFork(perdure.ForkRequest{Thread: "t", As: "a"})
		k.MustFork(perdure.ForkRequest{Thread: "t", As: "b"})
		a, b := k.AskAt(k.WaitFor("a", perdure.Paused), "/ask"), k.AskAt(k.WaitFor("b", perdure.Paused), "/ask")
		if a.ID == old.ID || b.ID == old.ID || a.ID == b.ID || a.Thread != "a" {
			t.Fatalf("the asks are %s, %s and %s of %s", old.ID, a.ID, b.ID, a.Thread)
		}
		kit.WantErr(t, "answering in the fork", k.AnswerAsk(a.ID, perdure.Answer{Value: "in a"}), nil)
		k.WaitFor("t", perdure.Suspended)
		k.WaitFor("a", perdure.Paused) // the answer waits for Resume
		kit.WantErr(t, "answering in the parent", k.AnswerAsk(old.ID, perdure.Answer{Value: "in t"}), nil)
		kit.WantOutput(t, k.WaitFor("t", perdure.Succeeded), "in t")
		if len(k.WaitFor("b", perdure.Paused).Asks) != 1 {
			t.Error("an answer in the parent closed the ask of a fork")
		}
		kit.WantErr(t, "resuming", k.Resume(t.Context(), "a", "", perdure.Note{}), nil)
		kit.WantOutput(t, k.WaitFor("a", perdure.Succeeded), "in a")
		kit.WantErr(t, "another answer", k.AnswerAsk(a.ID, perdure.Answer{Value: "x"}), perdure.ErrAnswered)
	})
}

// A fork of a fork of a fork shares what it should, also at points before its
// parent's own beginning.
func TestForkOfForks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.EchoFlow("f"))
		k.StartOn("0", "f", "0")
		k.WaitFor("0", perdure.Succeeded)
		for depth := 1; depth <= 5; depth++ {
			from, as := fmt.Sprint(depth-1), fmt.Sprint(depth)
			k.MustFork(perdure.ForkRequest{Thread: from, As: as})
			k.StartOn(as, "f", as)
			kit.WantOutput(t, k.WaitFor(as, perdure.Succeeded), as)
		}
		last := k.MustStateAt("5", 0)
		if len(last.Thread.Runs) != 6 {
			t.Fatalf("%d runs after five forks", len(last.Thread.Runs))
		}
		for at := uint64(1); at <= last.Seq; at++ {
			as := fmt.Sprintf("early-%d", at)
			k.MustFork(perdure.ForkRequest{Thread: "5", At: at, As: as})
			alike(t, as, k.MustStateAt("5", at), k.MustStateAt(as, 0))
			d, err := k.Diff(t.Context(), perdure.Point{Thread: as}, perdure.Point{Thread: "5"})
			if err != nil || d.Common != at || len(d.Events) != int(last.Seq-at) || len(d.Left) != 1 {
				t.Errorf("%s and 5 have %d in common, %d and %d events behind it, %v", as, d.Common, len(d.Left), len(d.Events), err)
			}
		}
		for i, e := range k.EventsOf("5") {
			if e.Seq != uint64(i+1) {
				t.Fatalf("event %d follows %d", e.Seq, i)
			}
		}
	})
}

// Whatever a run was doing, in a fork nothing of it continues before a person
// says so.
func TestForkOfEveryStatus(t *testing.T) {
	kit.Bubble(t, "running", func(t *testing.T) {
		gate := make(chan struct{})
		var n kit.Tally
		k := kit.New(t, nil, perdure.Options{}, kit.FlowOf(func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "s", func(context.Context) (int, error) {
				n.Hit("s")
				<-gate
				return 1, nil
			})
			return err
		}))
		k.StartOn("t", "f", struct{}{})
		time.Sleep(time.Second)
		k.MustFork(perdure.ForkRequest{Thread: "t", As: "a"})
		k.WaitFor("a", perdure.Paused)
		time.Sleep(time.Hour)
		if n.Of("s") != 1 {
			t.Fatal("the fork ran by itself")
		}
		close(gate)
		k.WaitFor("t", perdure.Succeeded)
		kit.WantErr(t, "resume", k.Resume(t.Context(), "a", "", perdure.Note{}), nil)
		k.WaitFor("a", perdure.Succeeded)
		if n.Of("s") != 2 {
			t.Errorf("the step ran %d times in both", n.Of("s"))
		}
	})
	kit.Bubble(t, "queued", func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.AskFlow("f", perdure.Question{}), kit.EchoFlow("e"))
		k.StartOn("t", "f", "")
		k.WaitFor("t", perdure.Suspended)
		k.StartOn("t", "e", "later")
		k.MustFork(perdure.ForkRequest{Thread: "t", As: "a"})
		th := k.MustStateAt("a", 0).Thread
		for _, run := range th.Runs {
			if run.Status != perdure.Paused {
				t.Errorf("run of %s is %s", run.Flow, run.Status)
			}
			kit.WantErr(t, "resume", k.Resume(t.Context(), "a", run.ID, perdure.Note{}), nil)
		}
		k.AnswerAt(k.WaitForRun("a", th.Runs[0].ID, perdure.Suspended), "/ask", perdure.Answer{Value: "x"})
		kit.WantOutput(t, k.WaitForRun("a", th.Runs[1].ID, perdure.Succeeded), "later")
	})
	kit.Bubble(t, "blocked", func(t *testing.T) {
		s := memstore.New()
		old := kit.New(t, s, perdure.Options{Version: "1"}, kit.FlowOf(func(ctx context.Context) error { return kit.AskYesNo(ctx, "old") }))
		old.StartOn("t", "f", struct{}{})
		run := old.WaitFor("t", perdure.Suspended)
		old.Stop()
		bad := kit.New(t, s, perdure.Options{Version: "2"}, kit.FlowOf(func(ctx context.Context) error { return kit.AskYesNo(ctx, "new") }))
		bad.AnswerYes(run, "/old")
		bad.WaitFor("t", perdure.Blocked)
		bad.Stop()
		good := kit.New(t, s, perdure.Options{Version: "3"}, kit.FlowOf(func(ctx context.Context) error { return kit.AskYesNo(ctx, "old") }))
		blocked := uint64(0)
		for _, e := range good.EventsOf("t") {
			if e.Kind == "blocked" {
				blocked = e.Seq
			}
		}
		good.MustFork(perdure.ForkRequest{Thread: "t", At: blocked, As: "a"})
		good.MustFork(perdure.ForkRequest{Thread: "t", At: blocked, As: "b"})
		good.MustFork(perdure.ForkRequest{Thread: "t", At: blocked, As: "c"})
		time.Sleep(time.Hour)
		good.WaitFor("a", perdure.Blocked)
		kit.WantErr(t, "resume", good.Resume(t.Context(), "a", "", perdure.Note{}), nil)
		kit.WantErr(t, "retry", good.Retry(t.Context(), "b", "", perdure.Note{}), nil)
		for _, as := range []string{"a", "b"} { // nothing has come of the answer: it is the other thread's
			good.AnswerYes(good.WaitFor(as, perdure.Suspended), "/old")
			good.WaitFor(as, perdure.Succeeded)
		}
		kit.WantErr(t, "cancel", good.Cancel(t.Context(), "c", "", perdure.Note{}), nil)
		good.WaitFor("c", perdure.Cancelled)
	})
	kit.Bubble(t, "cancelled while it waits", func(t *testing.T) {
		var o odyssey
		k := kit.New(t, nil, perdure.Options{}, o.flows()...)
		k.StartOn("t", "linger", "")
		k.WaitFor("t", perdure.Suspended)
		kit.WantErr(t, "cancel", k.Cancel(t.Context(), "t", "", perdure.Note{}), nil)
		k.WaitFor("t", perdure.Cancelled)
		at := uint64(0)
		for _, e := range k.EventsOf("t") {
			if e.Kind == "cancel" {
				at = e.Seq
			}
		}
		for _, end := range []func(context.Context, string, string, perdure.Note) error{k.Cancel, k.Resume} {
			o.reset()
			f := k.MustFork(perdure.ForkRequest{Thread: "t", At: at})
			held := k.WaitFor(f.Thread, perdure.Paused).ID
			next := k.StartOn(f.Thread, "echo", "next") // a worker looks at the thread
			time.Sleep(time.Hour)
			if k.WaitForRun(f.Thread, held, perdure.Paused); len(o.ran) != 0 {
				t.Fatalf("the fork did %v by itself", o.ran)
			}
			kit.WantErr(t, "ending it", end(t.Context(), f.Thread, held, perdure.Note{}), nil)
			k.WaitForRun(f.Thread, held, perdure.Cancelled)
			kit.WantOutput(t, k.WaitForRun(f.Thread, next.ID, perdure.Succeeded), "next")
			if ran, _ := o.reset(); !cmp.Equal(ran, []string{"/tidy"}) {
				t.Errorf("the fork did %v", ran)
			}
		}
	})
	kit.Bubble(t, "failed, with the state mended", func(t *testing.T) {
		var o odyssey
		k := kit.New(t, nil, perdure.Options{}, o.flows()...)
		k.StartOn("t", "wreck", "")
		k.WaitFor("t", perdure.Failed)
		o.reset()
		k.MustFork(perdure.ForkRequest{Thread: "t", As: "same"})
		k.MustFork(perdure.ForkRequest{Thread: "t", As: "calm", State: map[string]any{"tone": "calm"}})
		for as, want := range map[string]perdure.Status{"same": perdure.Failed, "calm": perdure.Succeeded} {
			kit.WantErr(t, "retry", k.Retry(t.Context(), as, "", perdure.Note{}), nil)
			k.WaitFor(as, want)
			if ran, _ := o.reset(); !cmp.Equal(ran, []string{"/sink"}) {
				t.Errorf("%s ran %v", as, ran)
			}
		}
		k.WaitFor("t", perdure.Failed)
	})
}

func TestForkStartsItsOwnRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.Game)
		for range 3 {
			k.StartOn("t", "game", "ann")
			k.WaitFor("t", perdure.Succeeded)
		}
		k.MustFork(perdure.ForkRequest{Thread: "t", As: "a", Title: "what if"})
		first := k.MustStart(perdure.StartRequest{Thread: "a", Flow: "game", Input: "bob", Key: "k"})
		k.WaitFor("a", perdure.Succeeded)
		again := k.MustStart(perdure.StartRequest{Thread: "a", Flow: "game", Input: "bob", Key: "k"})
		if first.ID != again.ID {
			t.Error("the key started two runs")
		}
		mine, theirs := k.MustStateAt("a", 0), k.MustStateAt("t", 0)
		if string(mine.State["points"]) != "4" || string(theirs.State["points"]) != "3" || mine.Thread.Title != "what if" {
			t.Errorf("points %s and %s, title %q", mine.State["points"], theirs.State["points"], mine.Thread.Title)
		}
		d, err := k.Diff(t.Context(), perdure.Point{Thread: "t"}, perdure.Point{Thread: "a"})
		if err != nil || len(d.Runs) != 1 || d.Runs[0].After != perdure.Succeeded || d.Common != theirs.Seq || len(d.Left) != 0 {
			t.Errorf("the difference is %+v, %v", d, err)
		}
		back, err := k.Diff(t.Context(), perdure.Point{Thread: "a"}, perdure.Point{Thread: "t"})
		if err != nil || len(back.Runs) != 1 || back.Runs[0].Before != perdure.Succeeded || back.Runs[0].After != "" || len(back.Events) != 0 {
			t.Errorf("the way back is %+v, %v", back, err)
		}
	})
}

// An unknown outcome stays unknown in a fork, and is looked for under the key
// that it was started with.
func TestForkInheritsUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked, started []string
		k := kit.New(t, nil, perdure.Options{}, kit.FlowOf(func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "pay", func(ctx context.Context) (string, error) {
				started = append(started, perdure.Key(ctx))
				return "paid", nil
			}, perdure.AtMostOnce(), perdure.Timeout(time.Second), perdure.Reconcile(func(ctx context.Context) (string, perdure.Outcome, error) {
				asked = append(asked, perdure.Key(ctx))
				if len(asked) == 1 {
					return "", perdure.OutcomeUnknown, nil
				}
				return "", perdure.OutcomeNotDone, nil
			}))
			return err
		}))
		k.StartOn("t", "f", struct{}{})
		k.WaitFor("t", perdure.Succeeded)
		intent := uint64(0)
		for _, e := range k.EventsOf("t") {
			if e.Kind == "intent" {
				intent = e.Seq
			}
		}
		k.MustFork(perdure.ForkRequest{Thread: "t", At: intent, As: "mid"})
		k.MustFork(perdure.ForkRequest{Thread: "mid", At: intent, As: "a"})
		kit.WantErr(t, "resume", k.Resume(t.Context(), "a", "", perdure.Note{}), nil)
		ask := k.AskAt(k.WaitFor("a", perdure.Suspended), "/pay")
		if ask.Kind != perdure.KindOutcome || ask.Guards != started[0] {
			t.Errorf("the ask is %q about %s, the start was made under %s", ask.Kind, ask.Guards, started[0])
		}
		k.MustFork(perdure.ForkRequest{Thread: "mid", As: "b"})
		kit.WantErr(t, "resume", k.Resume(t.Context(), "b", "", perdure.Note{}), nil)
		k.WaitFor("b", perdure.Succeeded)
		if asked[0] != started[0] || asked[1] != started[0] || len(started) != 2 || started[1] == started[0] {
			t.Errorf("started under %q, looked for under %q", started, asked)
		}
	})
}

func TestForkRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.Game)
		k.StartOn("t", "game", "ann")
		k.WaitFor("t", perdure.Succeeded)
		k.StartOn("u", "game", "ann")
		k.WaitFor("u", perdure.Succeeded)
		k.MustFork(perdure.ForkRequest{Thread: "u", As: "of-u"})
		pins := func() (n int) {
			for _, err := range k.Store.List(t.Context(), "pin/", "") {
				kit.WantErr(t, "list", err, nil)
				n++
			}
			return n
		}
		before := pins()
		for what, c := range map[string]struct {
			q    perdure.ForkRequest
			want error
		}{
			"of nothing":            {perdure.ForkRequest{Thread: "none"}, perdure.ErrNoThread},
			"beyond the end":        {perdure.ForkRequest{Thread: "t", At: 6}, perdure.ErrInvalid},
			"far beyond the end":    {perdure.ForkRequest{Thread: "t", At: 1 << 40}, perdure.ErrInvalid},
			"as itself":             {perdure.ForkRequest{Thread: "t", As: "t"}, perdure.ErrExists},
			"of a fork as itself":   {perdure.ForkRequest{Thread: "of-u", As: "of-u"}, perdure.ErrExists},
			"as another thread":     {perdure.ForkRequest{Thread: "t", As: "u"}, perdure.ErrExists},
			"as another's fork":     {perdure.ForkRequest{Thread: "t", As: "of-u"}, perdure.ErrExists},
			"as a bad id":           {perdure.ForkRequest{Thread: "t", As: "a\nb"}, perdure.ErrInvalid},
			"no run to edit":        {perdure.ForkRequest{Thread: "t", Input: "x"}, perdure.ErrInvalid},
			"wrong input":           {perdure.ForkRequest{Thread: "t", At: 2, Input: 7}, perdure.ErrInvalid},
			"bad state":             {perdure.ForkRequest{Thread: "t", State: map[string]any{"": 1}}, perdure.ErrName},
			"state that is no JSON": {perdure.ForkRequest{Thread: "t", State: map[string]any{"f": func() {}}}, perdure.ErrNotJSON},
			"a huge title":          {perdure.ForkRequest{Thread: "t", Title: strings.Repeat("x", 2000)}, perdure.ErrInvalid},
		} {
			_, err := k.Fork(t.Context(), c.q)
			kit.WantErr(t, what, err, c.want)
		}
		_, err := k.Tenant("other").Fork(t.Context(), perdure.ForkRequest{Thread: "t"})
		kit.WantErr(t, "of another tenant's", err, perdure.ErrNoThread)
		if pins() != before {
			t.Errorf("refused forks left %d pins", pins()-before)
		}
	})
}

func TestForkIsRepeatable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.Game)
		k.StartOn("t", "game", "ann")
		k.WaitFor("t", perdure.Succeeded)
		q := perdure.ForkRequest{Thread: "t", As: "a", State: map[string]any{"last": "eve", "big": strings.Repeat("x", 100<<10)}, By: "ann"}
		first := k.MustFork(q)
		k.StartOn("a", "game", "bob")
		k.WaitFor("a", perdure.Succeeded)
		k.StartOn("t", "game", "cat") // the end has moved, the fork has not
		k.WaitFor("t", perdure.Succeeded)
		now := k.MustStateAt("a", 0)
		again := k.MustFork(q)
		if again.At != first.At || !cmp.Equal(now.State, k.MustStateAt("a", 0).State) {
			t.Errorf("the fork was at %d and is at %d", first.At, again.At)
		}
		for s, err := range k.List(t.Context(), perdure.ListOptions{}) {
			if err != nil || s.ID == "a" && s.Status != perdure.Succeeded {
				t.Errorf("%s is listed as %s, %v", s.ID, s.Status, err)
			}
		}
		for what, change := range map[string]func(*perdure.ForkRequest){
			"another point":  func(q *perdure.ForkRequest) { q.At = 2 },
			"other state":    func(q *perdure.ForkRequest) { q.State = map[string]any{"last": "x"} },
			"another reason": func(q *perdure.ForkRequest) { q.Reason = "why" },
		} {
			other := q
			change(&other)
			_, err := k.Fork(t.Context(), other)
			kit.WantErr(t, what, err, perdure.ErrExists)
		}
	})
}

// A list says what a fork is, not what its parent is now.
func TestForkIsListedAsItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.AskFlow("f", perdure.Question{}))
		k.MustStart(perdure.StartRequest{Thread: "t", Flow: "f", Input: "", User: "ann"})
		run := k.WaitFor("t", perdure.Suspended)
		at := k.MustStateAt("t", 0).Seq
		k.AnswerAt(run, "/ask", perdure.Answer{Value: "x"})
		k.WaitFor("t", perdure.Succeeded)
		synctest.Wait()
		k.MustFork(perdure.ForkRequest{Thread: "t", At: at, As: "a"})
		for range 2 {
			var got []string
			for s, err := range k.List(t.Context(), perdure.ListOptions{User: "ann", Status: perdure.Paused}) {
				kit.WantErr(t, "list", err, nil)
				got = append(got, fmt.Sprint(s.ID, s.Asks, s.Flow))
			}
			if !cmp.Equal(got, []string{"a1f"}) {
				t.Errorf("listed are %v", got)
			}
		}
	})
}

// A damaged thread is forked at its last good entry, which the error names.
func TestForkOfDamage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		k := kit.New(t, s, perdure.Options{}, kit.Game)
		for range 3 {
			k.StartOn("t", "game", "ann")
			k.WaitFor("t", perdure.Succeeded)
		}
		k.Stop()
		last, name := k.MustStateAt("t", 0).Seq, kit.Journals(t, s)[0]
		for bad := uint64(2); bad <= last; bad++ {
			damaged := &kit.Rewritten{Store: s, Journal: name}
			lines := damaged.Lines(t)
			lines[bad-1] = bytes.Replace(lines[bad-1], []byte(`"t":`), []byte(`"t":1`), 1)
			damaged.Show(lines)
			d := kit.New(t, damaged, perdure.Options{}, kit.Game)
			_, err := d.Fork(t.Context(), perdure.ForkRequest{Thread: "t", At: bad})
			kit.WantErr(t, "at the damage", err, perdure.ErrCorrupt)
			if want := fmt.Sprintf("intact up to entry %d, where it can be forked", bad-1); err == nil || !strings.Contains(err.Error(), want) {
				t.Fatalf("%v does not say %q", err, want)
			}
			f := d.MustFork(perdure.ForkRequest{Thread: "t", At: bad - 1})
			alike(t, "the good part", k.MustStateAt("t", bad-1), d.MustStateAt(f.Thread, 0))
			if bad == last {
				d.StartOn(f.Thread, "game", "bob")
				for _, run := range d.MustStateAt(f.Thread, 0).Thread.Runs {
					if run.Status == perdure.Paused {
						kit.WantErr(t, "resume", d.Resume(t.Context(), f.Thread, run.ID, perdure.Note{}), nil)
					}
				}
				d.WaitFor(f.Thread, perdure.Succeeded)
			}
			d.Stop()
		}
	})
}

func TestForkOfAnErasedThread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.Game)
		k.StartOn("t", "game", "ann")
		k.WaitFor("t", perdure.Succeeded)
		k.MustFork(perdure.ForkRequest{Thread: "t", As: "a"})
		kit.WantErr(t, "erasing what was forked", k.Erase(t.Context(), "t", perdure.EraseOptions{}), perdure.ErrPinned)
		kit.WantErr(t, "erasing the fork", k.Erase(t.Context(), "a", perdure.EraseOptions{}), nil)
		k.MustFork(perdure.ForkRequest{Thread: "t", As: "a"}) // its id is free again
		kit.WantErr(t, "erasing both", k.Erase(t.Context(), "t", perdure.EraseOptions{Dependents: true}), nil)
		_, err := k.Fork(t.Context(), perdure.ForkRequest{Thread: "t"})
		kit.WantErr(t, "forking what was erased", err, perdure.ErrNoThread)
		_, err = k.Rewind(t.Context(), "t", 1, perdure.Note{})
		kit.WantErr(t, "rewinding it", err, perdure.ErrNoThread)
	})
}
