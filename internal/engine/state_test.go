package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

var (
	notes = perdure.NewList[string]("notes")
	liked = perdure.NewFact[string]("liked")
)

// seen writes down what flow code reads, to compare the passes of a run.
type seen struct {
	mu  sync.Mutex
	all map[string][]string
}

func (s *seen) at(ctx context.Context, where string) {
	v, ok, err := kit.Tone.Lookup(ctx)
	n, err2 := kit.Count.Get(ctx)
	l, err3 := notes.Get(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string][]string{}
	}
	s.all[where] = append(s.all[where], fmt.Sprintf("%q %v %d %q %v", v, ok, n, strings.Join(l, "+"), errors.Join(err, err2, err3)))
}

// TestStateIsStableInReplay reads the state at every place of a flow, in every
// pass of it.
func TestStateIsStableInReplay(t *testing.T) {
	for round := range 3 {
		kit.Bubble(t, fmt.Sprint(round), func(t *testing.T) {
			s := &seen{}
			flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
				s.at(ctx, "0 start")
				if err := kit.SetTone(ctx, "first", "a"); err != nil {
					return "", err
				}
				s.at(ctx, "1 after a step")
				_, err := perdure.Step(ctx, "outer", func(ctx context.Context) (bool, error) {
					if err := kit.SetTone(ctx, "inner", "b"); err != nil {
						return false, err
					}
					s.at(ctx, "2 inside a composite")
					return false, errors.New("the outer one fails")
				})
				if err == nil || errors.Is(err, perdure.ErrSuspended) {
					return "", errors.New("it did not fail")
				}
				s.at(ctx, "3 what the inner step changed stays")
				g := perdure.NewGroup(ctx)
				for i := range 3 {
					g.Go(fmt.Sprint("b", i), func(ctx context.Context) error {
						s.at(ctx, fmt.Sprint("4 branch ", i, " begins"))
						if _, err := perdure.Step(ctx, "w", func(ctx context.Context) (bool, error) {
							return true, errors.Join(kit.Tone.Set(ctx, fmt.Sprint("of ", i)), kit.Count.Add(ctx, 10), notes.Append(ctx, "x", "y"))
						}); err != nil {
							return err
						}
						s.at(ctx, fmt.Sprint("5 branch ", i, " sees its own"))
						if _, err := perdure.Ask[string](ctx, "ask", perdure.Question{}); err != nil {
							return err
						}
						s.at(ctx, fmt.Sprint("6 branch ", i, " after an answer"))
						_, err := perdure.Step(ctx, "w2", func(ctx context.Context) (bool, error) { return true, kit.Count.Add(ctx, 1) })
						return err
					})
				}
				if err := g.Wait(); err != nil {
					return "", err
				}
				s.at(ctx, "7 after Wait")
				return kit.Tone.Get(ctx)
			})
			k := kit.New(t, nil, perdure.Options{}, flow)
			k.StartOn("t", "f", "")
			var last string // the last writer in the journal
			for i := range 3 {
				run := k.WaitForRun("t", "", perdure.Suspended)
				k.AnswerAt(run, fmt.Sprintf("/b%d/ask", (i+round)%3), perdure.Answer{Value: ""})
				time.Sleep(time.Second)
			}
			run := k.WaitForRun("t", "", perdure.Succeeded)
			for _, e := range k.EventsOf("t") {
				if e.Kind == "step" && strings.HasSuffix(e.Path, "/w") {
					last = "of " + e.Path[2:3]
				}
			}
			kit.WantOutput(t, run, last)
			want := map[string]string{
				"0 start": `"" false 0 "" <nil>`, "1 after a step": `"a" true 0 "" <nil>`, "2 inside a composite": `"b" true 0 "" <nil>`,
				"3 what the inner step changed stays": `"b" true 0 "" <nil>`, "7 after Wait": fmt.Sprintf(`%q true 33 "x+y+x+y+x+y" <nil>`, last),
			}
			for i := range 3 {
				want[fmt.Sprint("4 branch ", i, " begins")] = `"b" true 0 "" <nil>`
				want[fmt.Sprint("5 branch ", i, " sees its own")] = fmt.Sprintf(`"of %d" true 10 "x+y" <nil>`, i)
				want[fmt.Sprint("6 branch ", i, " after an answer")] = fmt.Sprintf(`"of %d" true 10 "x+y" <nil>`, i)
			}
			for where, got := range s.all {
				for pass, v := range got {
					if v != want[where] {
						t.Errorf("%s, pass %d: %s, want %s", where, pass, v, want[where])
					}
				}
			}
			if len(s.all) != len(want) || len(s.all["0 start"]) < 2 {
				t.Errorf("%d places were passed, the first one %d times", len(s.all), len(s.all["0 start"]))
			}
		})
	}
}

func TestStateOutlivesTheRunAndItsFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flow := perdure.NewFlow("f", func(ctx context.Context, in string) (string, error) {
			before, err := kit.Tone.Get(ctx)
			if err != nil {
				return "", err
			}
			if _, err := perdure.Step(ctx, "leaf", func(ctx context.Context) (bool, error) {
				err := errors.Join(kit.Tone.Set(ctx, in), liked.Set(ctx, in+"!"), kit.Count.Add(ctx, 1))
				if got, _ := kit.Tone.Get(ctx); got != in {
					t.Errorf("a leaf reads %q behind its own write", got)
				}
				if in == "fails" {
					return false, errors.New("no")
				}
				return true, err
			}); err != nil {
				return "", err
			}
			_, err = perdure.Step(ctx, "drop", func(ctx context.Context) (bool, error) {
				if in != "deletes" {
					return false, nil
				}
				return true, kit.Tone.Delete(ctx)
			})
			return before, err
		})
		k := kit.New(t, nil, perdure.Options{}, flow)
		for i, c := range []struct{ in, before, state, fact, n string }{
			{"one", "", `"one"`, `"one!"`, "1"},
			{"two", "one", `"two"`, `"two!"`, "2"},
			{"fails", "", `"two"`, `"two!"`, "2"}, // a leaf that fails changes nothing
			{"deletes", "two", "", `"deletes!"`, "3"},
			{"five", "", `"five"`, `"five!"`, "4"},
		} {
			k.StartOn("t", "f", c.in)
			run, err := k.Wait(t.Context(), "t", "")
			kit.NoErr(t, err)
			if c.in == "fails" {
				if run.Status != perdure.Failed {
					t.Errorf("run %d is %s", i, run.Status)
				}
			} else {
				kit.WantOutput(t, run, c.before)
			}
			at, err := k.StateAt(t.Context(), "t", 0)
			if err != nil || string(at.State["tone"]) != c.state || string(at.Facts["liked"]) != c.fact || string(at.State["count"]) != c.n {
				t.Errorf("after run %d: %s, %s, %v", i, at.State, at.Facts, err)
			}
		}
	})
}

func TestStateIsWrittenInLeavesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (bool, error) {
			kit.WantErr(t, "in flow code", kit.Tone.Set(ctx, "x"), perdure.ErrNoLeaf)
			kit.WantErr(t, "add in flow code", kit.Count.Add(ctx, 1), perdure.ErrNoLeaf)
			kit.WantErr(t, "append in flow code", notes.Append(ctx, "x"), perdure.ErrNoLeaf)
			kit.WantErr(t, "spend in flow code", perdure.Spend(ctx, "cents", 1), perdure.ErrNoLeaf)
			var kept context.Context
			if _, err := perdure.Step(ctx, "leaf", func(ctx context.Context) (bool, error) {
				kept = ctx
				kit.WantErr(t, "an empty key", perdure.NewState[int]("").Set(ctx, 1), perdure.ErrName)
				kit.WantErr(t, "no JSON", perdure.NewState[func()]("f").Set(ctx, func() {}), perdure.ErrNotJSON)
				kit.WantErr(t, "a write", kit.Tone.Set(ctx, "x"), nil)
				_, err := perdure.Step(ctx, "late", func(context.Context) (bool, error) { return true, nil })
				kit.WantErr(t, "a verb behind a write", err, perdure.ErrComposite)
				return true, nil
			}); err != nil {
				return false, err
			}
			kit.WantErr(t, "when the step has returned", kit.Tone.Set(kept, "y"), perdure.ErrNoRun)
			_, err := perdure.Step(ctx, "composite", func(ctx context.Context) (bool, error) {
				if err := perdure.Emit(ctx, "e", 1); err != nil {
					return false, err
				}
				kit.WantErr(t, "a write behind a verb", kit.Tone.Set(ctx, "z"), perdure.ErrComposite)
				return true, nil
			})
			return true, err
		})
		k := kit.New(t, nil, perdure.Options{}, flow)
		k.StartOn("t", "f", "")
		k.WaitFor("t", perdure.Succeeded)
		kit.WantErr(t, "outside a run", kit.Tone.Set(t.Context(), "x"), perdure.ErrNoRun)
		_, err := kit.Tone.Get(t.Context())
		kit.WantErr(t, "read outside a run", err, perdure.ErrNoRun)
		at, err := k.StateAt(t.Context(), "t", 0)
		if err != nil || string(at.State["tone"]) != `"x"` || len(at.State) != 1 {
			t.Errorf("the state is %s, %v", at.State, err)
		}
	})
}

// TestRunsBesideDoNotSeeEachOther has two runs that are active at once.
func TestRunsBesideDoNotSeeEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flow := perdure.NewFlow("f", func(ctx context.Context, in string) (string, error) {
			if _, err := perdure.Ask[string](ctx, "go", perdure.Question{}); err != nil {
				return "", err
			}
			before, err := kit.Tone.Get(ctx)
			if err != nil {
				return "", err
			}
			if _, err := perdure.Step(ctx, "w", func(ctx context.Context) (bool, error) {
				return true, errors.Join(kit.Tone.Set(ctx, in), kit.Count.Add(ctx, 1))
			}); err != nil {
				return "", err
			}
			if _, err := perdure.Ask[string](ctx, "end", perdure.Question{}); err != nil {
				return "", err
			}
			after, err := kit.Tone.Get(ctx)
			if err != nil {
				return "", err
			}
			n, err := kit.Count.Get(ctx)
			return fmt.Sprint(before, " ", after, " ", n), err
		})
		k := kit.New(t, nil, perdure.Options{}, flow)
		a := k.StartOn("t", "f", "a")
		ra := k.WaitForRun("t", a.ID, perdure.Suspended)
		b := k.MustStart(perdure.StartRequest{Thread: "t", Flow: "f", Input: "b", Policy: perdure.Beside})
		rb := k.WaitForRun("t", b.ID, perdure.Suspended)
		k.AnswerAt(ra, "/go", perdure.Answer{Value: ""})
		ra = k.WaitForRun("t", a.ID, perdure.Suspended) // a has written
		k.AnswerAt(rb, "/go", perdure.Answer{Value: ""})
		rb = k.WaitForRun("t", b.ID, perdure.Suspended) // b has written after it
		k.AnswerAt(ra, "/end", perdure.Answer{Value: ""})
		kit.WantOutput(t, k.WaitForRun("t", a.ID, perdure.Succeeded), " a 1")
		k.AnswerAt(rb, "/end", perdure.Answer{Value: ""})
		kit.WantOutput(t, k.WaitForRun("t", b.ID, perdure.Succeeded), " b 1")
		at, err := k.StateAt(t.Context(), "t", 0)
		if err != nil || string(at.State["tone"]) != `"b"` || string(at.State["count"]) != "2" {
			t.Errorf("in the order of the journal: %s, %v", at.State, err)
		}
	})
}

// TestCleanupSeesWhatAnInterruptedStepChanged cancels a run inside a composite.
func TestCleanupSeesWhatAnInterruptedStepChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var atCleanup string
		flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (out string, err error) {
			defer func() {
				if err != nil {
					_ = perdure.Cleanup(ctx, "undo", func(ctx context.Context) error {
						atCleanup, err = kit.Tone.Get(ctx)
						return err
					})
				}
			}()
			return perdure.Step(ctx, "outer", func(ctx context.Context) (string, error) {
				if err := kit.SetTone(ctx, "inner", "booked"); err != nil {
					return "", err
				}
				return perdure.Ask[string](ctx, "ask", perdure.Question{})
			})
		})
		k := kit.New(t, nil, perdure.Options{}, flow)
		k.StartOn("t", "f", "")
		run := k.WaitFor("t", perdure.Suspended)
		kit.WantErr(t, "cancel", k.Control("cancel", "t", run.ID), nil)
		k.WaitFor("t", perdure.Cancelled)
		if atCleanup != "booked" {
			t.Errorf("the cleanup reads %q", atCleanup)
		}
	})
}

// living is a store that notes what a runtime says after each append.
type living struct {
	store.Store
	mu   sync.Mutex
	rt   *perdure.Runtime
	seen map[uint64]string
}

func (l *living) Unwrap() store.Store { return l.Store }

func (l *living) Append(ctx context.Context, name string, after uint64, entries ...[]byte) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, err := l.Store.Append(ctx, name, after, entries...)
	if err == nil && l.rt != nil {
		c, err := l.rt.StateAt(ctx, "t", 0)
		thread, err2 := l.rt.Get(ctx, "t")
		if err = errors.Join(err, err2); err != nil {
			l.seen[last] = err.Error()
		} else {
			thread.Why = nil // it is about the present
			l.seen[last] = asJSON(c) + "\n" + asJSON(thread)
		}
	}
	return last, err
}

func asJSON(v any) string {
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// travelled is a flow with something of everything.
func travelled() perdure.Flow {
	tries := 0
	return perdure.NewFlow("f", func(ctx context.Context, in string) (string, error) {
		if err := perdure.Plan(ctx, "one", "two"); err != nil {
			return "", err
		}
		if err := kit.SetTone(ctx, "one", in); err != nil {
			return "", err
		}
		if err := perdure.Sleep(ctx, "nap", time.Second); err != nil {
			return "", err
		}
		g := perdure.NewGroup(ctx)
		g.Go("a", func(ctx context.Context) error {
			_, err := perdure.Ask[string](ctx, "ask", perdure.Question{Prompt: "?"})
			return err
		})
		g.Go("b", func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "two", func(ctx context.Context) (int, error) {
				if tries++; tries == 1 {
					return 0, errors.Join(perdure.Spend(ctx, "cents", 3), errors.New("again"))
				}
				return 2, errors.Join(kit.Count.Add(ctx, 2), notes.Append(ctx, "n"), perdure.Spend(ctx, "cents", 4))
			}, perdure.Retry(perdure.RetryPolicy{}))
			return err
		})
		if err := g.Wait(); err != nil {
			return "", err
		}
		if _, _, err := perdure.Take[string](ctx, "take"); err != nil {
			return "", err
		}
		v, err := perdure.Receive[string](ctx, "r", "go", time.Hour)
		if err != nil {
			return "", err
		}
		if err := perdure.Emit(ctx, "news", v); err != nil {
			return "", err
		}
		_, err = perdure.Step(ctx, "last", func(ctx context.Context) (int, error) { return 0, liked.Set(ctx, v) })
		return v, err
	})
}

func TestStateAtEveryPrefixIsWhatWasLiveThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &living{Store: memstore.New(), seen: map[uint64]string{}}
		k := kit.New(t, l, perdure.Options{}, travelled())
		synctest.Wait() // the worker is known
		l.mu.Lock()
		l.rt = k.Runtime
		l.mu.Unlock()
		k.MustStart(perdure.StartRequest{Thread: "t", Flow: "f", Input: "hi", User: "ann", Budget: map[string]int64{"cents": 100}})
		run := k.WaitFor("t", perdure.Suspended)
		kit.WantErr(t, "pause", k.Control("pause", "t", run.ID), nil)
		k.MustStart(perdure.StartRequest{Thread: "t", Flow: "f", Input: "steer", Policy: perdure.Steer})
		kit.WantErr(t, "progress", k.Progress(t.Context(), k.AskAt(run, "/a/ask").ID, "seen", perdure.Note{}), nil)
		k.AnswerAt(run, "/a/ask", perdure.Answer{Value: "x"})
		kit.WantErr(t, "resume", k.Control("resume", "t", run.ID), nil)
		k.WaitForRun("t", run.ID, perdure.Suspended)
		title := "new"
		kit.WantErr(t, "metadata", k.SetMetadata(t.Context(), "t", &title, map[string]string{"a": "b"}, perdure.Note{}), nil)
		k.MustSignal("t", "go", "end", "")
		k.WaitForRun("t", run.ID, perdure.Succeeded)

		l.mu.Lock()
		live := maps.Clone(l.seen)
		l.rt = nil
		l.mu.Unlock()
		now, err := k.StateAt(t.Context(), "t", 0)
		kit.NoErr(t, err)
		if now.Seq < 20 {
			t.Fatalf("the thread has %d entries only", now.Seq)
		}
		for seq := uint64(1); seq <= now.Seq; seq++ {
			c, err := k.StateAt(t.Context(), "t", seq)
			if err != nil || c.Seq != seq {
				t.Fatalf("at %d: %v", seq, err)
			}
			if was, ok := live[seq]; ok {
				if d := cmp.Diff(was, asJSON(c)+"\n"+asJSON(c.Thread)); d != "" {
					t.Errorf("at %d it differs from what was live then: %s", seq, d)
				}
			}
		}
		_, err = k.StateAt(t.Context(), "t", now.Seq+1)
		kit.WantErr(t, "a sequence that is not there", err, perdure.ErrInvalid)
		_, err = k.StateAt(t.Context(), "u", 1)
		kit.WantErr(t, "a thread that is not there", err, perdure.ErrNoThread)
		if len(live) < 15 {
			t.Errorf("only %d moments were compared", len(live))
		}
	})
}

func TestDiffSaysWhatChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, travelled())
		k.StartOn("t", "f", "hi")
		run := k.WaitFor("t", perdure.Suspended)
		before, err := k.StateAt(t.Context(), "t", 0)
		kit.NoErr(t, err)
		k.AnswerAt(run, "/a/ask", perdure.Answer{Value: "x"})
		k.MustSignal("t", "go", "end", "")
		k.WaitFor("t", perdure.Succeeded)
		d, err := k.Diff(t.Context(), perdure.Point{Thread: "t", Seq: before.Seq}, perdure.Point{Thread: "t", Seq: 0})
		kit.NoErr(t, err)
		kinds := map[string]int{}
		for _, e := range d.Events {
			kinds[e.Kind]++
		}
		if len(d.Closed) != 1 || d.Closed[0].Path != "/a/ask" || len(d.Opened) != 0 || len(d.Runs) != 1 || d.Runs[0].Before != perdure.Suspended ||
			d.Runs[0].After != perdure.Succeeded || d.Runs[0].Steps != 1 || kinds["answered"] != 1 || kinds["ended"] != 1 {
			t.Errorf("the difference is %+v", d)
		}
		if want := []perdure.KeyDiff{{Key: "liked", After: json.RawMessage(`"end"`)}}; cmp.Diff(want, d.Facts) != "" || len(d.State) != 0 {
			t.Errorf("facts %v, state %v", d.Facts, d.State)
		}
		d, err = k.Diff(t.Context(), perdure.Point{Thread: "t", Seq: 1}, perdure.Point{Thread: "t", Seq: before.Seq})
		if err != nil || len(d.Opened) != 1 || len(d.Closed) != 0 || len(d.Runs) != 1 || d.Runs[0].Before != "" {
			t.Errorf("from the beginning: %+v, %v", d, err)
		}
		keys := []string{}
		for _, s := range d.State {
			keys = append(keys, s.Key)
		}
		if !slices.Equal(keys, []string{"count", "notes", "tone"}) {
			t.Errorf("changed keys: %v", keys)
		}
		if d, err = k.Diff(t.Context(), perdure.Point{Thread: "t", Seq: 5}, perdure.Point{Thread: "t", Seq: 5}); err != nil || len(d.Events)+len(d.State)+len(d.Runs) != 0 {
			t.Errorf("of the same: %+v, %v", d, err)
		}
		for _, c := range [][2]uint64{{0, 3}, {5, 4}, {1, 1000}, {1000, 0}} {
			_, err = k.Diff(t.Context(), perdure.Point{Thread: "t", Seq: c[0]}, perdure.Point{Thread: "t", Seq: c[1]})
			kit.WantErr(t, fmt.Sprint(c), err, perdure.ErrInvalid)
		}
	})
}
