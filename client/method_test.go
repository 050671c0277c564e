package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/client"
)

// bubble runs a test against a site of its own, in virtual time.
func bubble(t *testing.T, fn func(t *testing.T, s *site)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { fn(t, newSite(t, client.Options{}, echo, failing, asking, counting, hearing)) })
}

func TestRunIsStartedWaitedForAndLookedAt(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		ctx := t.Context()
		q := perdure.StartRequest{Flow: "echo", Input: "hi", Thread: "a/b c", Title: "T", User: "u", Metadata: map[string]string{"k": "v"}, Key: "k1", Budget: map[string]int64{"usd": 5}}
		run := s.start(q)
		if again := s.start(q); again.ID != run.ID || run.Thread != "a/b c" {
			t.Errorf("%v and %v", run, again)
		}
		q.Input = "ho"
		if _, err := s.Start(ctx, q); !errors.Is(err, perdure.ErrKeyReused) {
			t.Error(err)
		}
		got := ok[*perdure.Run](t)(s.Wait(ctx, "a/b c", ""))
		if out, err := perdure.Output[string](got); out != "hi" || err != nil {
			t.Errorf("%q %v", out, err)
		}
		same(t, ok[*perdure.Run](t)(s.rt.GetRun(ctx, "a/b c", run.ID)), ok[*perdure.Run](t)(s.GetRun(ctx, "a/b c", run.ID)))
		same(t, ok[*perdure.Thread](t)(s.rt.Get(ctx, "a/b c")), ok[*perdure.Thread](t)(s.Get(ctx, "a/b c")))

		one, two := s.start(perdure.StartRequest{Flow: "echo", Input: "1"}), s.start(perdure.StartRequest{Flow: "echo", Input: "1"})
		if one.Thread == two.Thread || one.ID == two.ID {
			t.Errorf("two starts gave %s and %s", one.ID, two.ID)
		}
		again := ok[*perdure.Run](t)(s.StartAgain(ctx, "a/b c", "", perdure.Note{}))
		if done := s.end("a/b c"); again.ID == run.ID || string(done.Output) != `"hi"` {
			t.Errorf("%v", done)
		}
	})
}

func TestAnyIDIsAnAddress(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		for _, id := range []string{"a/b", "ü x", ".", "..", "...", "a?b#c", "%", "100%25", "a:b;c=d&e"} {
			run := s.start(perdure.StartRequest{Flow: "echo", Input: id, Thread: id})
			if done := s.end(id); done.ID != run.ID || done.Thread != id {
				t.Errorf("%q leads to run %s of %q", id, done.ID, done.Thread)
			}
			if events := all(t, s.Events(t.Context(), id, perdure.EventOptions{Run: run.ID})); len(events) < 3 {
				t.Errorf("%q has %d events", id, len(events))
			}
		}
	})
}

func TestFailureOfARunIsAnErrorOfItsOutput(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		run := s.start(perdure.StartRequest{Flow: "failing", Input: ""})
		done := ok[*perdure.Run](t)(s.Wait(t.Context(), run.Thread, run.ID))
		if _, err := perdure.Output[string](done); !errors.Is(err, errNoLuck) || errors.Is(err, perdure.ErrBudget) || !strings.Contains(err.Error(), "no luck") {
			t.Error(err)
		}
		if err := s.Retry(t.Context(), run.Thread, "", perdure.Note{Reason: "once more"}); err != nil {
			t.Error(err)
		}
		if done = s.end(run.Thread); done.Retries != 1 || done.Err == nil {
			t.Errorf("%v", done)
		}
	})
}

func TestWaitGoesOnForLongerThanARequest(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		run := s.start(perdure.StartRequest{Flow: "counting", Input: 300})
		if done := ok[*perdure.Run](t)(s.Wait(t.Context(), run.Thread, "")); done.Status != perdure.Succeeded {
			t.Errorf("it is %s", done.Status)
		}
		run = s.start(perdure.StartRequest{Flow: "hearing", Input: ""})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := s.WaitEnd(ctx, run.Thread, ""); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "suspended") {
			t.Error(err)
		}
		if err := s.Signal(t.Context(), run.Thread, "word", "so", perdure.SignalOptions{Key: "k"}); err != nil {
			t.Error(err)
		}
		if done := s.end(run.Thread); string(done.Output) != `"so"` {
			t.Errorf("%s", done.Output)
		}
	})
}

func TestAsksAreListedAndAnswered(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		ctx := t.Context()
		var threads []string
		for i := range 3 {
			run := s.start(perdure.StartRequest{Flow: "asking", Input: i + 1, Thread: fmt.Sprint("t", i)})
			threads = append(threads, run.Thread)
			if r := ok[*perdure.Run](t)(s.Wait(ctx, run.Thread, "")); r.Status != perdure.Suspended || len(r.Asks) != i+1 {
				t.Fatalf("%v", r)
			}
		}
		synctest.Wait() // a list may lag behind
		of := map[string][]string{}
		var ids []string
		for a, err := range s.Asks(ctx, api.ListAsks{Limit: 1}) {
			if err != nil {
				t.Fatal(err)
			}
			ids, of[a.Thread] = append(ids, a.ID), append(of[a.Thread], a.ID)
			same(t, ok[*perdure.AskInfo](t)(s.rt.GetAsk(ctx, a.ID)), ok[*perdure.AskInfo](t)(s.GetAsk(ctx, a.ID)))
		}
		if len(ids) != 6 || len(slices.Compact(slices.Sorted(slices.Values(ids)))) != 6 {
			t.Fatalf("the asks are %q", ids)
		}
		ids = append(of["t0"], of["t1"]...)
		if err := s.Progress(ctx, ids[0], "soon", perdure.Note{}); err != nil {
			t.Error(err)
		}
		approve := perdure.Answer{Decision: "approve"}
		for range 2 { // the second changes nothing
			if err := s.Answer(ctx, perdure.AskAnswer{Ask: ids[0], Answer: approve}); err != nil {
				t.Error(err)
			}
		}
		for want, err := range map[error]error{
			perdure.ErrAnswered: s.Answer(ctx, perdure.AskAnswer{Ask: ids[0], Answer: perdure.Answer{Decision: "reject"}}),
			perdure.ErrAnswer:   s.Answer(ctx, perdure.AskAnswer{Ask: ids[1], Answer: perdure.Answer{Decision: "maybe"}}),
			perdure.ErrStale:    s.Answer(ctx, perdure.AskAnswer{Ask: ids[1], Answer: approve, IfSeq: 1}),
			perdure.ErrNoAsk:    s.Answer(ctx, perdure.AskAnswer{Ask: "none", Answer: approve}),
			perdure.ErrInvalid:  s.Answer(ctx),
		} {
			if !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		}
		// All or none.
		if err := s.Answer(ctx, perdure.AskAnswer{Ask: ids[1], Answer: approve}, perdure.AskAnswer{Ask: ids[2], Answer: perdure.Answer{Decision: "maybe"}}); !errors.Is(err, perdure.ErrAnswer) {
			t.Error(err)
		}
		if err := s.Answer(ctx, perdure.AskAnswer{Ask: ids[1], Answer: approve}, perdure.AskAnswer{Ask: ids[2], Answer: perdure.Answer{Decision: "reject"}}); err != nil {
			t.Error(err)
		}
		if done := s.end(threads[1]); !strings.Contains(string(done.Output), "reject") {
			t.Errorf("%s", done.Output)
		}
	})
}

func TestRunIsPausedResumedAndCancelled(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		ctx := t.Context()
		run := s.start(perdure.StartRequest{Flow: "hearing", Input: "", Thread: "t"})
		ok[*perdure.Run](t)(s.Wait(ctx, "t", ""))
		if err := s.Resume(ctx, "t", "", perdure.Note{}); !errors.Is(err, perdure.ErrNothingToDo) {
			t.Errorf("nothing is paused: %v", err)
		}
		var busy *perdure.BusyError
		if _, err := s.Start(ctx, perdure.StartRequest{Flow: "echo", Input: "", Thread: "t", Policy: perdure.Reject}); !errors.As(err, &busy) || busy.Run != run.ID {
			t.Errorf("%v", err)
		}
		var stale *perdure.StaleError
		if err := s.Pause(ctx, "t", "", perdure.Note{IfSeq: 1}); !errors.As(err, &stale) || stale.Seq < 2 {
			t.Errorf("%v", err)
		}
		for i, err := range []error{
			s.Pause(ctx, "t", "", perdure.Note{IfSeq: stale.Seq, Reason: "lunch"}), s.Resume(ctx, "t", run.ID, perdure.Note{}), s.Cancel(ctx, "t", "", perdure.Note{}),
		} {
			if err != nil {
				t.Errorf("%d: %v", i, err)
			}
		}
		if done := s.end("t"); done.Status != perdure.Cancelled {
			t.Errorf("%v", done)
		}
		for want, err := range map[error]error{
			perdure.ErrNothingToDo: s.Pause(ctx, "t", run.ID, perdure.Note{}),
			perdure.ErrRunNotFound: s.Cancel(ctx, "t", "none", perdure.Note{}),
			perdure.ErrNoThread:    s.Cancel(ctx, "none", "", perdure.Note{}),
			perdure.ErrNoFlow:      second(s.Start(ctx, perdure.StartRequest{Flow: "none"})),
		} {
			if !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		}
	})
}

func TestThreadsAreMadeListedChangedAndErased(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		ctx := t.Context()
		made := ok[*perdure.Thread](t)(s.Create(ctx, perdure.CreateRequest{Thread: "made", Title: "T", User: "u", State: map[string]any{"n": 7}}))
		same(t, ok[*perdure.Thread](t)(s.rt.Get(ctx, "made")), made)
		if _, err := s.Create(ctx, perdure.CreateRequest{Thread: "made"}); !errors.Is(err, perdure.ErrExists) {
			t.Error(err)
		}
		title := "New"
		if err := s.SetMetadata(ctx, "made", &title, map[string]string{"a": "b"}, perdure.Note{}); err != nil {
			t.Error(err)
		}
		if got := ok[*perdure.Thread](t)(s.Get(ctx, "made")); got.Title != "New" || got.Metadata["a"] != "b" {
			t.Errorf("%v", got)
		}
		for i := range 1200 {
			ok[*perdure.Thread](t)(s.rt.Create(ctx, perdure.CreateRequest{User: fmt.Sprint("u", i%2)}))
		}
		for _, o := range []perdure.ListOptions{{}, {Limit: 1}, {Limit: 500}, {Limit: 700}, {User: "u1"}, {User: "u1", Limit: 550}, {User: "nobody"}} {
			want, got := all(t, s.rt.List(ctx, o)), all(t, s.List(ctx, o))
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%v: %d and %d threads", o, len(want), len(got))
			}
			if len(want) > 2 {
				o.After = want[1].Cursor
				if d := cmp.Diff(all(t, s.rt.List(ctx, o)), all(t, s.List(ctx, o))); d != "" {
					t.Errorf("%v: %s", o, d)
				}
			}
		}
		n := 0
		for range s.List(ctx, perdure.ListOptions{}) {
			if n++; n == 3 {
				break
			}
		}
		if err := s.Erase(ctx, "made", perdure.EraseOptions{Note: perdure.Note{Reason: "asked to"}}); err != nil {
			t.Error(err)
		}
		if _, err := s.Get(ctx, "made"); !errors.Is(err, perdure.ErrNoThread) {
			t.Error(err)
		}
	})
}

func TestTravel(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		ctx := t.Context()
		back := uint64(0) // where the second run had not begun
		for range 2 {
			back = s.start(perdure.StartRequest{Flow: "echo", Input: "x", Thread: "t"}).Seq - 1
			s.end("t")
		}
		seq := ok[*perdure.Thread](t)(s.Get(ctx, "t")).Seq
		for _, at := range []uint64{0, 1, seq} {
			same(t, ok[*perdure.Checkpoint](t)(s.rt.StateAt(ctx, "t", at)), ok[*perdure.Checkpoint](t)(s.StateAt(ctx, "t", at)))
		}
		if _, err := s.StateAt(ctx, "t", seq+1); !errors.Is(err, perdure.ErrInvalid) {
			t.Error(err)
		}
		fork := ok[*perdure.Fork](t)(s.Fork(ctx, perdure.ForkRequest{Thread: "t", At: 3, Title: "F", State: map[string]any{"n": 1}}))
		if fork.From != "t" || fork.At != 3 || fork.Thread == "" || fork.Thread == "t" {
			t.Errorf("%v", fork)
		}
		if _, err := s.Fork(ctx, perdure.ForkRequest{Thread: "t", At: 2, As: fork.Thread}); !errors.Is(err, perdure.ErrExists) {
			t.Error(err)
		}
		for _, to := range []perdure.Point{{Thread: "t", Seq: seq}, {Thread: fork.Thread}} {
			from := perdure.Point{Thread: "t", Seq: 2}
			same(t, ok[*perdure.Difference](t)(s.rt.Diff(ctx, from, to)), ok[*perdure.Difference](t)(s.Diff(ctx, from, to)))
		}
		var pinned *perdure.PinnedError
		if err := s.Erase(ctx, "t", perdure.EraseOptions{}); !errors.As(err, &pinned) || !slices.Equal(pinned.By, []string{fork.Thread}) {
			t.Errorf("%v", err)
		}
		same(t, ok[*perdure.Verification](t)(s.rt.Verify(ctx, "t")), ok[*perdure.Verification](t)(s.Verify(ctx, "t")))
		rewound := ok[*perdure.Rewound](t)(s.Rewind(ctx, "t", back, perdure.Note{IfSeq: seq}))
		if rewound.To != back || rewound.Seq != seq+1 {
			t.Errorf("%v", rewound)
		}

		var here, there bytes.Buffer
		if err := errors.Join(s.rt.Export(ctx, "t", &here, perdure.ExportOptions{}), s.Export(ctx, "t", &there, perdure.ExportOptions{})); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(here.Bytes(), there.Bytes()) {
			t.Error("the exports differ")
		}
		if id := ok[string](t)(s.Import(ctx, bytes.NewReader(there.Bytes()), perdure.ImportOptions{As: "copy"})); id != "copy" {
			t.Errorf("it is %s", id)
		}
		for want, err := range map[error]error{
			perdure.ErrExists:  second(s.Import(ctx, &here, perdure.ImportOptions{})),
			perdure.ErrCorrupt: second(s.Import(ctx, bytes.NewReader(there.Bytes()[:there.Len()/2]), perdure.ImportOptions{As: "half"})),
		} {
			if !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		}
		if err := s.Export(ctx, "none", &here, perdure.ExportOptions{}); !errors.Is(err, perdure.ErrNoThread) {
			t.Error(err)
		}
	})
}

func TestEventsAreThoseOfTheRuntime(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		ctx := t.Context()
		first := s.start(perdure.StartRequest{Flow: "counting", Input: 5, Thread: "t"})
		s.end("t")
		s.start(perdure.StartRequest{Flow: "echo", Input: "x", Thread: "t"})
		s.end("t")
		synctest.Wait()
		last := ok[*perdure.Thread](t)(s.Get(ctx, "t")).Seq
		for _, o := range []perdure.EventOptions{{}, {After: 4}, {After: last}, {Run: first.ID}, {Run: first.ID, After: 3}, {Run: "none"}} {
			o.Replay = true
			want := all(t, s.rt.Events(ctx, "t", o))
			if d := cmp.Diff(want, all(t, s.Events(ctx, "t", o))); d != "" {
				t.Errorf("%v: %s", o, d)
			}
		}
		// The stream of a run ends with it.
		got := all(t, s.Events(ctx, "t", perdure.EventOptions{Run: first.ID}))
		if d := cmp.Diff(all(t, s.rt.Events(ctx, "t", perdure.EventOptions{Run: first.ID, Replay: true})), got); d != "" {
			t.Error(d)
		}
		for _, replay := range []bool{true, false} {
			for want, seq := range map[error]iterEvents{
				perdure.ErrAhead:    s.Events(ctx, "t", perdure.EventOptions{After: last + 1, Replay: replay}),
				perdure.ErrNoThread: s.Events(ctx, "none", perdure.EventOptions{Replay: replay}),
			} {
				n := 0
				for _, err := range seq {
					if n++; !errors.Is(err, want) {
						t.Errorf("%v, want %v", err, want)
					}
				}
				if n != 1 {
					t.Errorf("%d items", n)
				}
			}
		}
	})
}

func TestDeltasAndTheEndOfARunComeBesideItsEvents(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		run := s.start(perdure.StartRequest{Flow: "counting", Input: 3, Thread: "t"})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		deltas := make(chan perdure.DeltaEvent, 10)
		go func() {
			defer close(deltas)
			for d, err := range s.Deltas(ctx, "t") {
				if err != nil {
					t.Error(err)
				}
				deltas <- d
			}
		}()
		var done *api.Done
		events := 0
		for u, err := range s.Follow(ctx, "t", client.FollowOptions{Run: api.Newest}) {
			if err != nil {
				t.Fatal(err)
			}
			if u.Event != nil {
				events++
			}
			done = u.Done
		}
		if done == nil || done.Run != run.ID || done.Status != perdure.Succeeded || string(done.Output) != "3" || events < 5 {
			t.Errorf("%v after %d events", done, events)
		}
		cancel()
		if d, got := <-deltas; !got || d.Run != run.ID {
			t.Errorf("no delta came: %v", d)
		}
		for range deltas { // until it has ended
		}

		asked := s.start(perdure.StartRequest{Flow: "asking", Input: 2})
		for u, err := range s.Follow(t.Context(), asked.Thread, client.FollowOptions{Run: asked.ID, Wait: true}) {
			if err != nil {
				t.Fatal(err)
			}
			done = u.Done
		}
		if done == nil || done.Status != perdure.Suspended || len(done.Asks) != 2 {
			t.Errorf("%v", done)
		}
	})
}

func TestFlowsAndWorkers(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		if d := cmp.Diff(s.rt.Flows(), ok[[]string](t)(s.Flows(t.Context()))); d != "" {
			t.Error(d)
		}
		if _, err := s.Workers(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestAReusedIDIsNotFollowed: who followed a thread that was erased since does
// not go on with another one that has its id.
func TestAReusedIDIsNotFollowed(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		ctx := t.Context()
		lived := func() (events []perdure.Event) {
			s.start(perdure.StartRequest{Flow: "echo", Input: "x", Thread: "t"})
			s.end("t")
			for e, err := range s.Events(ctx, "t", perdure.EventOptions{Replay: true}) {
				if err != nil {
					t.Fatal(err)
				}
				events = append(events, e)
			}
			return events
		}
		first := lived()
		if err := s.Erase(ctx, "t", perdure.EraseOptions{}); err != nil {
			t.Fatal(err)
		}
		second := lived()
		if first[0].Life != "" || second[0].Life == "" {
			t.Fatalf("the lives are %q and %q", first[0].Life, second[0].Life)
		}
		for _, replay := range []bool{true, false} {
			var last error
			for _, err := range s.Events(ctx, "t", perdure.EventOptions{After: first[1].Seq, Replay: replay}) {
				last = err
			}
			if !errors.Is(last, perdure.ErrErased) {
				t.Errorf("a reader of the first life (%v) is told %v", replay, last)
			}
		}
		n := 0
		for e, err := range s.Events(ctx, "t", perdure.EventOptions{After: second[1].Seq, Life: second[1].Life, Replay: true}) {
			if n++; err != nil || e.Seq != second[n+1].Seq {
				t.Fatal(e, err)
			}
		}
		if n != len(second)-2 {
			t.Errorf("%d events of %d", n, len(second))
		}
	})
}
