package perdure_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

func TestForkAsksAreApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t, nil, perdure.Options{}, askFlow("f", perdure.Question{Prompt: "?"}))
		k.start("t", "f", "")
		old := k.at(k.wait("t", perdure.Suspended), "/ask")
		k.forked(perdure.ForkRequest{Thread: "t", As: "a"})
		k.forked(perdure.ForkRequest{Thread: "t", As: "b"})
		a, b := k.at(k.wait("a", perdure.Paused), "/ask"), k.at(k.wait("b", perdure.Paused), "/ask")
		if a.ID == old.ID || b.ID == old.ID || a.ID == b.ID || a.Thread != "a" {
			t.Fatalf("the asks are %s, %s and %s of %s", old.ID, a.ID, b.ID, a.Thread)
		}
		wantErr(t, "answering in the fork", k.reply(a.ID, perdure.Answer{Value: "in a"}), nil)
		k.wait("t", perdure.Suspended)
		k.wait("a", perdure.Paused) // the answer waits for Resume
		wantErr(t, "answering in the parent", k.reply(old.ID, perdure.Answer{Value: "in t"}), nil)
		wantOutput(t, k.wait("t", perdure.Succeeded), "in t")
		if len(k.wait("b", perdure.Paused).Asks) != 1 {
			t.Error("an answer in the parent closed the ask of a fork")
		}
		wantErr(t, "resuming", k.Resume(t.Context(), "a", "", perdure.Note{}), nil)
		wantOutput(t, k.wait("a", perdure.Succeeded), "in a")
		wantErr(t, "another answer", k.reply(a.ID, perdure.Answer{Value: "x"}), perdure.ErrAnswered)
	})
}

// A fork of a fork of a fork shares what it should, also at points before its
// parent's own beginning.
func TestForkOfForks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t, nil, perdure.Options{}, echoFlow("f"))
		k.start("0", "f", "0")
		k.wait("0", perdure.Succeeded)
		for depth := 1; depth <= 5; depth++ {
			from, as := fmt.Sprint(depth-1), fmt.Sprint(depth)
			k.forked(perdure.ForkRequest{Thread: from, As: as})
			k.start(as, "f", as)
			wantOutput(t, k.wait(as, perdure.Succeeded), as)
		}
		last := k.stateAt("5", 0)
		if len(last.Thread.Runs) != 6 {
			t.Fatalf("%d runs after five forks", len(last.Thread.Runs))
		}
		for at := uint64(1); at <= last.Seq; at++ {
			as := fmt.Sprintf("early-%d", at)
			k.forked(perdure.ForkRequest{Thread: "5", At: at, As: as})
			alike(t, as, k.stateAt("5", at), k.stateAt(as, 0))
			d, err := k.Diff(t.Context(), perdure.Point{Thread: as}, perdure.Point{Thread: "5"})
			if err != nil || d.Common != at || len(d.Events) != int(last.Seq-at) || len(d.Left) != 1 {
				t.Errorf("%s and 5 have %d in common, %d and %d events behind it, %v", as, d.Common, len(d.Left), len(d.Events), err)
			}
		}
		for i, e := range k.events("5") {
			if e.Seq != uint64(i+1) {
				t.Fatalf("event %d follows %d", e.Seq, i)
			}
		}
	})
}

// Whatever a run was at, in a fork nothing of it goes on before a person says so.
func TestForkOfEveryStatus(t *testing.T) {
	bubble(t, "running", func(t *testing.T) {
		gate := make(chan struct{})
		var n specTally
		k := newKit(t, nil, perdure.Options{}, specFlow(func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "s", func(context.Context) (int, error) {
				n.hit("s")
				<-gate
				return 1, nil
			})
			return err
		}))
		k.start("t", "f", struct{}{})
		time.Sleep(time.Second)
		k.forked(perdure.ForkRequest{Thread: "t", As: "a"})
		k.wait("a", perdure.Paused)
		time.Sleep(time.Hour)
		if n.of("s") != 1 {
			t.Fatal("the fork ran by itself")
		}
		close(gate)
		k.wait("t", perdure.Succeeded)
		wantErr(t, "resume", k.Resume(t.Context(), "a", "", perdure.Note{}), nil)
		k.wait("a", perdure.Succeeded)
		if n.of("s") != 2 {
			t.Errorf("the step ran %d times in both", n.of("s"))
		}
	})
	bubble(t, "queued", func(t *testing.T) {
		k := newKit(t, nil, perdure.Options{}, askFlow("f", perdure.Question{}), echoFlow("e"))
		k.start("t", "f", "")
		k.wait("t", perdure.Suspended)
		k.start("t", "e", "later")
		k.forked(perdure.ForkRequest{Thread: "t", As: "a"})
		th := k.stateAt("a", 0).Thread
		for _, run := range th.Runs {
			if run.Status != perdure.Paused {
				t.Errorf("run of %s is %s", run.Flow, run.Status)
			}
			wantErr(t, "resume", k.Resume(t.Context(), "a", run.ID, perdure.Note{}), nil)
		}
		k.answer(k.waitRun("a", th.Runs[0].ID, perdure.Suspended), "/ask", perdure.Answer{Value: "x"})
		wantOutput(t, k.waitRun("a", th.Runs[1].ID, perdure.Succeeded), "later")
	})
	bubble(t, "blocked", func(t *testing.T) {
		s := memstore.New()
		old := newKit(t, s, perdure.Options{Version: "1"}, specFlow(func(ctx context.Context) error { return specAsk(ctx, "old") }))
		old.start("t", "f", struct{}{})
		run := old.wait("t", perdure.Suspended)
		old.stop()
		bad := newKit(t, s, perdure.Options{Version: "2"}, specFlow(func(ctx context.Context) error { return specAsk(ctx, "new") }))
		bad.yes(run, "/old")
		bad.wait("t", perdure.Blocked)
		bad.stop()
		good := newKit(t, s, perdure.Options{Version: "3"}, specFlow(func(ctx context.Context) error { return specAsk(ctx, "old") }))
		blocked := uint64(0)
		for _, e := range good.events("t") {
			if e.Kind == "blocked" {
				blocked = e.Seq
			}
		}
		good.forked(perdure.ForkRequest{Thread: "t", At: blocked, As: "a"})
		good.forked(perdure.ForkRequest{Thread: "t", At: blocked, As: "b"})
		good.forked(perdure.ForkRequest{Thread: "t", At: blocked, As: "c"})
		time.Sleep(time.Hour)
		good.wait("a", perdure.Blocked)
		wantErr(t, "resume", good.Resume(t.Context(), "a", "", perdure.Note{}), nil)
		wantErr(t, "retry", good.Retry(t.Context(), "b", "", perdure.Note{}), nil)
		for _, as := range []string{"a", "b"} { // nothing has come of the answer: it is the other thread's
			good.yes(good.wait(as, perdure.Suspended), "/old")
			good.wait(as, perdure.Succeeded)
		}
		wantErr(t, "cancel", good.Cancel(t.Context(), "c", "", perdure.Note{}), nil)
		good.wait("c", perdure.Cancelled)
	})
	bubble(t, "cancelled while it waits", func(t *testing.T) {
		var o odyssey
		k := newKit(t, nil, perdure.Options{}, o.flows()...)
		k.start("t", "linger", "")
		k.wait("t", perdure.Suspended)
		wantErr(t, "cancel", k.Cancel(t.Context(), "t", "", perdure.Note{}), nil)
		k.wait("t", perdure.Cancelled)
		at := uint64(0)
		for _, e := range k.events("t") {
			if e.Kind == "cancel" {
				at = e.Seq
			}
		}
		for _, end := range []func(context.Context, string, string, perdure.Note) error{k.Cancel, k.Resume} {
			o.reset()
			f := k.forked(perdure.ForkRequest{Thread: "t", At: at})
			held := k.wait(f.Thread, perdure.Paused).ID
			next := k.start(f.Thread, "echo", "next") // a worker looks at the thread
			time.Sleep(time.Hour)
			if k.waitRun(f.Thread, held, perdure.Paused); len(o.ran) != 0 {
				t.Fatalf("the fork did %v by itself", o.ran)
			}
			wantErr(t, "ending it", end(t.Context(), f.Thread, held, perdure.Note{}), nil)
			k.waitRun(f.Thread, held, perdure.Cancelled)
			wantOutput(t, k.waitRun(f.Thread, next.ID, perdure.Succeeded), "next")
			if ran, _ := o.reset(); !cmp.Equal(ran, []string{"/tidy"}) {
				t.Errorf("the fork did %v", ran)
			}
		}
	})
	bubble(t, "failed, with the state mended", func(t *testing.T) {
		var o odyssey
		k := newKit(t, nil, perdure.Options{}, o.flows()...)
		k.start("t", "wreck", "")
		k.wait("t", perdure.Failed)
		o.reset()
		k.forked(perdure.ForkRequest{Thread: "t", As: "same"})
		k.forked(perdure.ForkRequest{Thread: "t", As: "calm", State: map[string]any{"tone": "calm"}})
		for as, want := range map[string]perdure.Status{"same": perdure.Failed, "calm": perdure.Succeeded} {
			wantErr(t, "retry", k.Retry(t.Context(), as, "", perdure.Note{}), nil)
			k.wait(as, want)
			if ran, _ := o.reset(); !cmp.Equal(ran, []string{"/sink"}) {
				t.Errorf("%s ran %v", as, ran)
			}
		}
		k.wait("t", perdure.Failed)
	})
}

func TestForkStartsItsOwnRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t, nil, perdure.Options{}, game)
		for range 3 {
			k.start("t", "game", "ann")
			k.wait("t", perdure.Succeeded)
		}
		k.forked(perdure.ForkRequest{Thread: "t", As: "a", Title: "what if"})
		first := k.begin(perdure.StartRequest{Thread: "a", Flow: "game", Input: "bob", Key: "k"})
		k.wait("a", perdure.Succeeded)
		again := k.begin(perdure.StartRequest{Thread: "a", Flow: "game", Input: "bob", Key: "k"})
		if first.ID != again.ID {
			t.Error("the key started two runs")
		}
		mine, theirs := k.stateAt("a", 0), k.stateAt("t", 0)
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
		k := newKit(t, nil, perdure.Options{}, specFlow(func(ctx context.Context) error {
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
		k.start("t", "f", struct{}{})
		k.wait("t", perdure.Succeeded)
		intent := uint64(0)
		for _, e := range k.events("t") {
			if e.Kind == "intent" {
				intent = e.Seq
			}
		}
		k.forked(perdure.ForkRequest{Thread: "t", At: intent, As: "mid"})
		k.forked(perdure.ForkRequest{Thread: "mid", At: intent, As: "a"})
		wantErr(t, "resume", k.Resume(t.Context(), "a", "", perdure.Note{}), nil)
		ask := k.at(k.wait("a", perdure.Suspended), "/pay")
		if ask.Kind != perdure.KindOutcome || ask.Guards != started[0] {
			t.Errorf("the ask is %q about %s, the start was made under %s", ask.Kind, ask.Guards, started[0])
		}
		k.forked(perdure.ForkRequest{Thread: "mid", As: "b"})
		wantErr(t, "resume", k.Resume(t.Context(), "b", "", perdure.Note{}), nil)
		k.wait("b", perdure.Succeeded)
		if asked[0] != started[0] || asked[1] != started[0] || len(started) != 2 || started[1] == started[0] {
			t.Errorf("started under %q, looked for under %q", started, asked)
		}
	})
}

func TestForkRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t, nil, perdure.Options{}, game)
		k.start("t", "game", "ann")
		k.wait("t", perdure.Succeeded)
		k.start("u", "game", "ann")
		k.wait("u", perdure.Succeeded)
		k.forked(perdure.ForkRequest{Thread: "u", As: "of-u"})
		pins := func() (n int) {
			for _, err := range k.store.List(t.Context(), "pin/", "") {
				wantErr(t, "list", err, nil)
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
			wantErr(t, what, err, c.want)
		}
		_, err := k.Tenant("other").Fork(t.Context(), perdure.ForkRequest{Thread: "t"})
		wantErr(t, "of another tenant's", err, perdure.ErrNoThread)
		if pins() != before {
			t.Errorf("refused forks left %d pins", pins()-before)
		}
	})
}

func TestForkIsRepeatable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t, nil, perdure.Options{}, game)
		k.start("t", "game", "ann")
		k.wait("t", perdure.Succeeded)
		q := perdure.ForkRequest{Thread: "t", As: "a", State: map[string]any{"last": "eve", "big": strings.Repeat("x", 100<<10)}, By: "ann"}
		first := k.forked(q)
		k.start("a", "game", "bob")
		k.wait("a", perdure.Succeeded)
		k.start("t", "game", "cat") // the end has moved, the fork has not
		k.wait("t", perdure.Succeeded)
		now := k.stateAt("a", 0)
		again := k.forked(q)
		if again.At != first.At || !cmp.Equal(now.State, k.stateAt("a", 0).State) {
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
			wantErr(t, what, err, perdure.ErrExists)
		}
	})
}

// A list says what a fork is, not what its parent is now.
func TestForkIsListedAsItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t, nil, perdure.Options{}, askFlow("f", perdure.Question{}))
		k.begin(perdure.StartRequest{Thread: "t", Flow: "f", Input: "", User: "ann"})
		run := k.wait("t", perdure.Suspended)
		at := k.stateAt("t", 0).Seq
		k.answer(run, "/ask", perdure.Answer{Value: "x"})
		k.wait("t", perdure.Succeeded)
		synctest.Wait()
		k.forked(perdure.ForkRequest{Thread: "t", At: at, As: "a"})
		for range 2 {
			var got []string
			for s, err := range k.List(t.Context(), perdure.ListOptions{User: "ann", Status: perdure.Paused}) {
				wantErr(t, "list", err, nil)
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
		k := newKit(t, s, perdure.Options{}, game)
		for range 3 {
			k.start("t", "game", "ann")
			k.wait("t", perdure.Succeeded)
		}
		k.stop()
		last := k.stateAt("t", 0).Seq
		for bad := uint64(2); bad <= last; bad++ {
			d := newKit(t, &flipped{s, journalsOf(t, s)[0], bad}, perdure.Options{}, game)
			_, err := d.Fork(t.Context(), perdure.ForkRequest{Thread: "t", At: bad})
			wantErr(t, "at the damage", err, perdure.ErrCorrupt)
			if want := fmt.Sprintf("good up to entry %d, where it can be forked", bad-1); err == nil || !strings.Contains(err.Error(), want) {
				t.Fatalf("%v does not say %q", err, want)
			}
			f := d.forked(perdure.ForkRequest{Thread: "t", At: bad - 1})
			alike(t, "the good part", k.stateAt("t", bad-1), d.stateAt(f.Thread, 0))
			if bad == last {
				d.start(f.Thread, "game", "bob")
				for _, run := range d.stateAt(f.Thread, 0).Thread.Runs {
					if run.Status == perdure.Paused {
						wantErr(t, "resume", d.Resume(t.Context(), f.Thread, run.ID, perdure.Note{}), nil)
					}
				}
				d.wait(f.Thread, perdure.Succeeded)
			}
			d.stop()
		}
	})
}

// flipped is a store with one entry damaged.
type flipped struct {
	store.Store
	journal string
	seq     uint64
}

func (f *flipped) Unwrap() store.Store { return f.Store }

func (f *flipped) Read(ctx context.Context, journal string, after uint64) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		for e, err := range f.Store.Read(ctx, journal, after) {
			if err == nil && journal == f.journal && e.Seq == f.seq {
				e.Data = []byte(strings.Replace(string(e.Data), `"t":`, `"t":1`, 1))
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

func TestForkOfAnErasedThread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t, nil, perdure.Options{}, game)
		k.start("t", "game", "ann")
		k.wait("t", perdure.Succeeded)
		k.forked(perdure.ForkRequest{Thread: "t", As: "a"})
		wantErr(t, "erasing what was forked", k.Erase(t.Context(), "t", perdure.EraseOptions{}), perdure.ErrPinned)
		wantErr(t, "erasing the fork", k.Erase(t.Context(), "a", perdure.EraseOptions{}), nil)
		k.forked(perdure.ForkRequest{Thread: "t", As: "a"}) // its id is free again
		wantErr(t, "erasing both", k.Erase(t.Context(), "t", perdure.EraseOptions{Dependents: true}), nil)
		_, err := k.Fork(t.Context(), perdure.ForkRequest{Thread: "t"})
		wantErr(t, "forking what was erased", err, perdure.ErrNoThread)
		_, err = k.Rewind(t.Context(), "t", 1, perdure.Note{})
		wantErr(t, "rewinding it", err, perdure.ErrNoThread)
	})
}
