package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/servertest"
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
		got := servertest.Must(s.Wait(ctx, "a/b c", ""))(t)
		if out, err := perdure.Output[string](got); out != "hi" || err != nil {
			t.Errorf("%q %v", out, err)
		}
		same(t, servertest.Must(s.rt.GetRun(ctx, "a/b c", run.ID))(t), servertest.Must(s.GetRun(ctx, "a/b c", run.ID))(t))
		same(t, servertest.Must(s.rt.Get(ctx, "a/b c"))(t), servertest.Must(s.Get(ctx, "a/b c"))(t))

		one, two := s.start(perdure.StartRequest{Flow: "echo", Input: "1"}), s.start(perdure.StartRequest{Flow: "echo", Input: "1"})
		if one.Thread == two.Thread || one.ID == two.ID {
			t.Errorf("two starts gave %s and %s", one.ID, two.ID)
		}
		again := servertest.Must(s.StartAgain(ctx, "a/b c", "", perdure.Note{}))(t)
		if done := s.end("a/b c"); again.ID == run.ID || string(done.Output) != `"hi"` {
			t.Errorf("%v", done)
		}
	})
}

func TestAnyIDIsAnAddress(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		for _, id := range []string{"a/b", "ü x", "...", "a?b#c", "%", "100%25", "a:b;c=d&e"} {
			run := s.start(perdure.StartRequest{Flow: "echo", Input: id, Thread: id})
			if done := s.end(id); done.ID != run.ID || done.Thread != id {
				t.Errorf("%q leads to run %s of %q", id, done.ID, done.Thread)
			}
			if events := servertest.All(t, s.Events(t.Context(), id, perdure.EventOptions{Run: run.ID})); len(events) < 3 {
				t.Errorf("%q has %d events", id, len(events))
			}
		}
	})
}

func TestFailureOfARunIsAnErrorOfItsOutput(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		run := s.start(perdure.StartRequest{Flow: "failing", Input: ""})
		done := servertest.Must(s.Wait(t.Context(), run.Thread, run.ID))(t)
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
		if done := servertest.Must(s.Wait(t.Context(), run.Thread, ""))(t); done.Status != perdure.Succeeded {
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
		if err := s.Signal(t.Context(), run.Thread, "word", "so?", perdure.SignalOptions{Key: "k"}); !errors.Is(err, perdure.ErrKeyReused) {
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
			if r := servertest.Must(s.Wait(ctx, run.Thread, ""))(t); r.Status != perdure.Suspended || len(r.Asks) != i+1 {
				t.Fatalf("%v", r)
			}
		}
		synctest.Wait() // a list may lag behind
		servertest.Must(s.rt.Create(ctx, perdure.CreateRequest{Thread: "without asks"}))(t)
		for _, o := range []perdure.ListOptions{{AsksOf: []string{"bob", "group:g"}}, {AsksOf: []string{"bob"}, Limit: 2}, {Expiring: true}} {
			want := servertest.All(t, s.rt.List(ctx, o))
			if same(t, want, servertest.All(t, s.List(ctx, o))); len(want) < 2 || len(want) > 3 {
				t.Errorf("%v: %d threads", o, len(want))
			}
		}
		for _, list := range []iter.Seq2[perdure.Summary, error]{s.rt.List(ctx, perdure.ListOptions{AsksOf: []string{}}), s.List(ctx, perdure.ListOptions{AsksOf: []string{}})} {
			n := 0
			for _, err := range list {
				if n++; !errors.Is(err, perdure.ErrInvalid) {
					t.Error(err)
				}
			}
			if n != 1 {
				t.Errorf("a list of the asks of nobody has %d items, not one error", n)
			}
		}
		of := map[string][]string{}
		var ids []string
		for a, err := range s.Asks(ctx, api.ListAsks{Limit: 1}) {
			if err != nil {
				t.Fatal(err)
			}
			ids, of[a.Thread] = append(ids, a.ID), append(of[a.Thread], a.ID)
			same(t, servertest.Must(s.rt.GetAsk(ctx, a.ID))(t), servertest.Must(s.GetAsk(ctx, a.ID))(t))
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
		servertest.Must(s.Wait(ctx, "t", ""))(t)
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
		made := servertest.Must(s.Create(ctx, perdure.CreateRequest{Thread: "made", Title: "T", User: "u", State: map[string]any{"n": 7}}))(t)
		same(t, servertest.Must(s.rt.Get(ctx, "made"))(t), made)
		if _, err := s.Create(ctx, perdure.CreateRequest{Thread: "made"}); !errors.Is(err, perdure.ErrExists) {
			t.Error(err)
		}
		title := "New"
		if err := s.SetMetadata(ctx, "made", &title, map[string]string{"a": "b"}, perdure.Note{}); err != nil {
			t.Error(err)
		}
		if got := servertest.Must(s.Get(ctx, "made"))(t); got.Title != "New" || got.Metadata["a"] != "b" {
			t.Errorf("%v", got)
		}
		for i := range 1200 {
			servertest.Must(s.rt.Create(ctx, perdure.CreateRequest{User: fmt.Sprint("u", i%2)}))(t)
		}
		for _, o := range []perdure.ListOptions{{}, {Limit: 1}, {Limit: 500}, {Limit: 700}, {User: "u1"}, {User: "u1", Limit: 550}, {User: "nobody"}} {
			want, got := servertest.All(t, s.rt.List(ctx, o)), servertest.All(t, s.List(ctx, o))
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%v: %d and %d threads", o, len(want), len(got))
			}
			if len(want) > 2 {
				o.After = want[1].Cursor
				if d := cmp.Diff(servertest.All(t, s.rt.List(ctx, o)), servertest.All(t, s.List(ctx, o))); d != "" {
					t.Errorf("%v: %s", o, d)
				}
			}
		}
		for _, o := range []perdure.ListOptions{{User: "u1", Limit: 1}, {User: "u1", After: "c"}, {User: "u1", AsksOf: []string{}}} {
			q := perdure.BulkRequest{Verb: perdure.BulkErase, Filter: o}
			for name, err := range map[string]error{"plan": second(s.PlanBulk(ctx, q)), "job": second(s.StartBulk(ctx, q)), "plan of the runtime": second(s.rt.PlanBulk(ctx, q))} {
				if !errors.Is(err, perdure.ErrInvalid) {
					t.Errorf("%s of %v: %v", name, o, err)
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
		seq := servertest.Must(s.Get(ctx, "t"))(t).Seq
		for _, at := range []uint64{0, 1, seq} {
			same(t, servertest.Must(s.rt.StateAt(ctx, "t", at))(t), servertest.Must(s.StateAt(ctx, "t", at))(t))
		}
		if _, err := s.StateAt(ctx, "t", seq+1); !errors.Is(err, perdure.ErrInvalid) {
			t.Error(err)
		}
		fork := servertest.Must(s.Fork(ctx, perdure.ForkRequest{Thread: "t", At: 3, Title: "F", State: map[string]any{"n": 1}}))(t)
		if fork.From != "t" || fork.At != 3 || fork.Thread == "" || fork.Thread == "t" {
			t.Errorf("%v", fork)
		}
		same(t, servertest.Must(s.rt.Family(ctx, fork.Thread))(t), servertest.Must(s.Family(ctx, fork.Thread))(t))
		if _, err := s.Fork(ctx, perdure.ForkRequest{Thread: "t", At: 2, As: fork.Thread}); !errors.Is(err, perdure.ErrExists) {
			t.Error(err)
		}
		for _, to := range []perdure.Point{{Thread: "t", Seq: seq}, {Thread: fork.Thread}} {
			from := perdure.Point{Thread: "t", Seq: 2}
			same(t, servertest.Must(s.rt.Diff(ctx, from, to))(t), servertest.Must(s.Diff(ctx, from, to))(t))
		}
		var pinned *perdure.PinnedError
		if err := s.Erase(ctx, "t", perdure.EraseOptions{}); !errors.As(err, &pinned) || !slices.Equal(pinned.By, []string{fork.Thread}) {
			t.Errorf("%v", err)
		}
		same(t, servertest.Must(s.rt.Verify(ctx, "t"))(t), servertest.Must(s.Verify(ctx, "t"))(t))
		rewound := servertest.Must(s.Rewind(ctx, "t", back, perdure.Note{IfSeq: seq}))(t)
		if rewound.To != back || rewound.Seq != seq+1 {
			t.Errorf("%v", rewound)
		}

		var here, there bytes.Buffer
		servertest.Check(t, errors.Join(s.rt.Export(ctx, "t", &here, perdure.ExportOptions{}), s.Export(ctx, "t", &there, perdure.ExportOptions{})))
		if !bytes.Equal(here.Bytes(), there.Bytes()) {
			t.Error("the exports differ")
		}
		if id := servertest.Must(s.Import(ctx, bytes.NewReader(there.Bytes()), perdure.ImportOptions{As: "copy"}))(t); id != "copy" {
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
		last := servertest.Must(s.Get(ctx, "t"))(t).Seq
		for _, o := range []perdure.EventOptions{{}, {After: 4}, {After: last}, {Run: first.ID}, {Run: first.ID, After: 3}, {Run: "none"}} {
			o.Replay = true
			want := servertest.All(t, s.rt.Events(ctx, "t", o))
			if d := cmp.Diff(want, servertest.All(t, s.Events(ctx, "t", o))); d != "" {
				t.Errorf("%v: %s", o, d)
			}
		}
		// The stream of a run ends with it.
		got := servertest.All(t, s.Events(ctx, "t", perdure.EventOptions{Run: first.ID}))
		if d := cmp.Diff(servertest.All(t, s.rt.Events(ctx, "t", perdure.EventOptions{Run: first.ID, Replay: true})), got); d != "" {
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
		if d := cmp.Diff(s.rt.Flows(), servertest.Must(s.Flows(t.Context()))(t)); d != "" {
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
		servertest.Check(t, s.Erase(ctx, "t", perdure.EraseOptions{}))
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

// differ says why a method is not the same over HTTP.
var differ = map[string]string{
	"Flows":         "it has to ask the server",
	"Flow":          "a function is where its worker is",
	"Close":         "there is nothing to close",
	"Work":          "workers are next to the store",
	"WorkSchedules": "workers are next to the store",
	"WorkBulk":      "workers are next to the store",
	"Tenant":        "the tenant is that of the token",
	"User":          "the user is that of the token",
	"Rebuild":       "it repairs a store",
	"ExportKey":     "each export names it, and VerifyExport shows it",
	"CheckReceipt":  "UserReceipt returns the receipt to compare with",
	"Tag":           "events and threads have it as their life",
	"Life":          "it is for those who read a store in pieces",
	"Watch":         "a list is followed by events.watch",

	"Asks":   "of the API: the asks of all threads",
	"Follow": "of the API: events, deltas and the end of a run over one connection",
}

func TestClientHasTheMethodsOfARuntime(t *testing.T) {
	methods := func(t reflect.Type) map[string]reflect.Type {
		all := map[string]reflect.Type{}
		for m := range t.Methods() {
			all[m.Name] = m.Type
		}
		return all
	}
	ours, theirs := methods(reflect.TypeFor[*client.Client]()), methods(reflect.TypeFor[*perdure.Runtime]())
	same := func(a, b reflect.Type) bool {
		if a == nil || b == nil || a.NumIn() != b.NumIn() || a.NumOut() != b.NumOut() || a.IsVariadic() != b.IsVariadic() {
			return false
		}
		for i := 1; i < a.NumIn(); i++ { // the first is the receiver
			if a.In(i) != b.In(i) {
				return false
			}
		}
		for i := range a.NumOut() {
			if a.Out(i) != b.Out(i) {
				return false
			}
		}
		return true
	}
	for name := range union(ours, theirs) {
		_, excused := differ[name]
		if is := same(ours[name], theirs[name]); is == excused {
			t.Errorf("%s: the client has %v, the runtime has %v, and a difference is expected: %v", name, ours[name], theirs[name], excused)
		}
	}
	for name := range differ {
		if ours[name] == nil && theirs[name] == nil {
			t.Errorf("nobody has a method %s", name)
		}
	}
}

func union(a, b map[string]reflect.Type) map[string]bool {
	all := map[string]bool{}
	for name := range a {
		all[name] = true
	}
	for name := range b {
		all[name] = true
	}
	return all
}

func TestRunsComeInPages(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		ctx := t.Context()
		const n = 23
		for i := range n {
			s.start(perdure.StartRequest{Flow: "echo", Input: fmt.Sprint(i), Thread: "t"})
			s.end("t")
		}
		all := servertest.Must(s.Get(ctx, "t"))(t)
		if all.Earlier != 0 || len(all.Runs) != n {
			t.Fatalf("%d runs, and %d earlier", len(all.Runs), all.Earlier)
		}
		var paged []*perdure.Run
		for before := uint64(0); ; {
			page := servertest.Must(s.GetPage(ctx, "t", perdure.RunPage{Before: before, Limit: 9}))(t)
			same(t, servertest.Must(s.rt.GetPage(ctx, "t", perdure.RunPage{Before: before, Limit: 9}))(t), page)
			paged = append(slices.Clone(page.Runs), paged...)
			if page.Earlier != n-len(paged) {
				t.Fatalf("%d runs are earlier than %d of %d", page.Earlier, len(paged), n)
			}
			if page.Earlier == 0 {
				break
			}
			before = page.Runs[0].Seq
		}
		same(t, all.Runs, paged)
		newest := servertest.Must(client.Do(ctx, s.Client, api.ThreadsGet, api.GetThread{Thread: "t"}))(t)
		list := servertest.Must(client.Do(ctx, s.Client, api.RunsList, api.GetThread{Thread: "t"}))(t)
		same(t, newest.Runs, list.Runs)
		same(t, all.Runs[n-20:], list.Runs)
		if newest.Earlier != n-20 || list.Earlier != n-20 {
			t.Errorf("%d and %d runs are earlier than the newest 20 of %d", newest.Earlier, list.Earlier, n)
		}
		if _, err := s.GetPage(ctx, "t", perdure.RunPage{Limit: -1}); !errors.Is(err, perdure.ErrInvalid) {
			t.Error(err)
		}
	})
}
