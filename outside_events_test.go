package perdure_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store/memstore"
)

// collect gathers events until it is stopped.
type collect struct {
	mu   sync.Mutex
	seqs []uint64
	errs []error
	stop func()
}

func follow(events func(context.Context) iter.Seq2[perdure.Event, error]) *collect {
	ctx, cancel := context.WithCancel(context.Background())
	c := &collect{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e, err := range events(ctx) {
			c.mu.Lock()
			if err != nil {
				c.errs = append(c.errs, err)
			} else {
				c.seqs = append(c.seqs, e.Seq)
			}
			c.mu.Unlock()
		}
	}()
	c.stop = func() { cancel(); <-done }
	return c
}

func (c *collect) got() []uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.seqs)
}

func upTo(from, to uint64) (all []uint64) {
	for i := from; i <= to; i++ {
		all = append(all, i)
	}
	return all
}

func TestEventsReplayThenFollowEachOnce(t *testing.T) {
	busy := perdure.NewFlow("busy", func(ctx context.Context, _ string) (int, error) {
		for i := range 30 {
			if err := perdure.Emit(ctx, fmt.Sprint("e", i), i); err != nil {
				return 0, err
			}
			if _, err := perdure.Step(ctx, fmt.Sprint("s", i), func(context.Context) (int, error) {
				time.Sleep(time.Duration(i%3) * time.Millisecond)
				return i, nil
			}); err != nil {
				return 0, err
			}
		}
		return 1, nil
	})
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		k := newKit(t, s, perdure.Options{}, busy)
		// Another runtime on the store, which executes nothing and does not
		// even have the flow.
		other, err := perdure.New(t.Context(), s, perdure.Options{})
		if err != nil {
			t.Fatal(err)
		}
		k.start("t", "busy", "")
		var followers []*collect
		var after []uint64
		for i := range 12 {
			rt := []*perdure.Runtime{k.Runtime, other}[i%2]
			from := uint64(i % 3)
			after = append(after, from)
			followers = append(followers, follow(func(ctx context.Context) iter.Seq2[perdure.Event, error] {
				return rt.Events(ctx, "t", perdure.EventOptions{After: from})
			}))
			time.Sleep(2 * time.Millisecond) // appends go on meanwhile
			wantErr(t, "signal", k.Signal(t.Context(), "t", "noise", i, perdure.SignalOptions{}), nil)
		}
		k.wait("t", perdure.Succeeded)
		wantErr(t, "a signal after the end", k.Signal(t.Context(), "t", "noise", "last", perdure.SignalOptions{}), nil)
		time.Sleep(time.Second)
		thread, err := k.Get(t.Context(), "t")
		if err != nil {
			t.Fatal(err)
		}
		for i, f := range followers {
			f.stop()
			if d := cmp.Diff(upTo(after[i]+1, thread.Seq), f.got()); d != "" || len(f.errs) != 0 {
				t.Errorf("follower %d: %v %s", i, f.errs, d)
			}
		}
	})
}

func TestEventsThatAreChosen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t, nil, perdure.Options{}, echoFlow("idle"), askFlow("ask", perdure.Question{}))
		first := k.start("t", "idle", "one")
		k.wait("t", perdure.Succeeded)
		second := k.start("t", "ask", "")
		run := k.wait("t", perdure.Suspended)
		k.answer(run, "/ask", perdure.Answer{Value: "x", By: "ann"})
		k.waitRun("t", second.ID, perdure.Succeeded)
		all := k.events("t")
		for i, e := range all {
			if e.Seq != uint64(i+1) || e.Thread != "t" || e.Time.IsZero() {
				t.Errorf("event %d is %+v", i+1, e)
			}
		}
		get := func(o perdure.EventOptions) (got []perdure.Event, err error) {
			o.Replay = true
			for e, err := range k.Events(t.Context(), "t", o) {
				if err != nil {
					return got, err
				}
				got = append(got, e)
			}
			return got, nil
		}
		seqs := func(list []perdure.Event) (seqs []uint64) {
			for _, e := range list {
				seqs = append(seqs, e.Seq)
			}
			return seqs
		}
		var ofFirst, ofSecond []uint64
		for _, e := range all {
			switch e.Run {
			case first.ID:
				ofFirst = append(ofFirst, e.Seq)
			case second.ID:
				ofSecond = append(ofSecond, e.Seq)
			}
		}
		if len(ofFirst) != 3 || len(ofSecond) != 7 {
			t.Errorf("the runs have %d and %d events:\n%s", len(ofFirst), len(ofSecond), k.trace("t"))
		}
		got, err := get(perdure.EventOptions{Run: first.ID})
		if d := cmp.Diff(ofFirst, seqs(got)); d != "" || err != nil {
			t.Errorf("%v %s", err, d)
		}
		got, err = get(perdure.EventOptions{Run: second.ID, After: ofSecond[2]})
		if d := cmp.Diff(ofSecond[3:], seqs(got)); d != "" || err != nil {
			t.Errorf("%v %s", err, d)
		}
		end := all[len(all)-1].Seq
		if got, err = get(perdure.EventOptions{After: end}); len(got) != 0 || err != nil {
			t.Errorf("behind the end: %v, %v", got, err)
		}
		_, err = get(perdure.EventOptions{After: end + 1})
		wantErr(t, "after what is not there", err, perdure.ErrInvalid)
		for e, err := range k.Events(t.Context(), "t", perdure.EventOptions{After: end + 1}) {
			wantErr(t, fmt.Sprintf("live after what is not there: %v", e), err, perdure.ErrInvalid)
		}
		for _, e := range all {
			if e.Kind == "answered" && (e.By != "ann" || string(e.Value) != `"x"` || e.Ask != run.Asks[0].ID || e.Path != "/ask") {
				t.Errorf("the answer's event is %+v", e)
			}
		}
		for range k.Events(t.Context(), "t", perdure.EventOptions{}) {
			break // whoever has seen enough may leave
		}
	})
}

func TestWaitReturnsWhenTheRunStands(t *testing.T) {
	flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
		if err := perdure.Sleep(ctx, "nap", time.Minute); err != nil {
			return "", err
		}
		if _, err := perdure.Ask[string](ctx, "ask", perdure.Question{}); err != nil {
			return "", err
		}
		return perdure.Receive[string](ctx, "r", "go", 0)
	})
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t, nil, perdure.Options{}, flow)
		begun := time.Now()
		k.start("t", "f", "")
		run := k.wait("t", perdure.Suspended)
		if len(run.Asks) != 1 || time.Since(begun) < time.Minute {
			t.Errorf("after %v it is %+v", time.Since(begun), run)
		}
		k.answer(run, "/ask", perdure.Answer{Value: ""})
		run = k.wait("t", perdure.Suspended)
		if len(run.Waits) != 1 || run.Waits[0].Signal != "go" {
			t.Errorf("Wait did not see the answer through: %+v", run.Waits)
		}
		var other perdure.Status
		done := make(chan struct{})
		go func() {
			defer close(done)
			if r, err := k.Wait(context.Background(), "t", ""); err == nil {
				other = r.Status
			}
		}()
		<-done // it stands, so this comes back at once
		if other != perdure.Suspended {
			t.Errorf("another one saw %q", other)
		}
		k.signal("t", "go", "end", "")
		wantOutput(t, k.wait("t", perdure.Succeeded), "end")
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (bool, error) {
			return true, perdure.Sleep(ctx, "nap", time.Hour)
		})
		k := newKit(t, nil, perdure.Options{}, flow)
		k.start("t", "f", "")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := k.Wait(ctx, "t", "")
		wantErr(t, "wait", err, context.DeadlineExceeded)
	})
}

// watcher is an observer that writes down what it sees.
type watcher struct {
	mu        sync.Mutex
	started   []perdure.StepInfo
	ended     []string
	committed []perdure.Event
}

type traceKey struct{}

func (w *watcher) StepStarted(ctx context.Context, s perdure.StepInfo) (context.Context, func(error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.started = append(w.started, s)
	return context.WithValue(ctx, traceKey{}, "span of "+s.Path), func(err error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.ended = append(w.ended, fmt.Sprint(s.Path, " ", s.Attempt, " ", err))
	}
}

func (w *watcher) Committed(e perdure.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.committed = append(w.committed, e)
}

func TestObserverSeesStepsAndEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
			return perdure.Step(ctx, "outer", func(ctx context.Context) (string, error) {
				return perdure.Step(ctx, "inner", func(ctx context.Context) (string, error) {
					if tries++; tries == 1 {
						return "", fmt.Errorf("try %d", tries)
					}
					return fmt.Sprint(ctx.Value(traceKey{})), nil
				}, perdure.Retry(perdure.RetryPolicy{}))
			})
		})
		w := &watcher{}
		k := newKit(t, nil, perdure.Options{Observer: w}, flow)
		start := k.begin(perdure.StartRequest{Thread: "t", Flow: "f", Input: "", Trace: "00-abc"})
		wantOutput(t, k.wait("t", perdure.Succeeded), "span of /outer/inner")
		info := func(path string, attempt int) perdure.StepInfo {
			return perdure.StepInfo{Thread: "t", Run: start.ID, Flow: "f", Path: path, Attempt: attempt, Trace: "00-abc"}
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if d := cmp.Diff([]perdure.StepInfo{info("/outer", 1), info("/outer/inner", 1), info("/outer/inner", 2)}, w.started); d != "" {
			t.Error(d)
		}
		if d := cmp.Diff([]string{"/outer/inner 1 try 1", "/outer/inner 2 <nil>", "/outer 1 <nil>"}, w.ended); d != "" {
			t.Error(d)
		}
		// The run's own entries, as Events shows them.
		var want []perdure.Event
		for _, e := range k.events("t") {
			if e.Kind != "created" && e.Kind != "queued" {
				want = append(want, e)
			}
		}
		if d := cmp.Diff(want, w.committed); d != "" {
			t.Error(d)
		}
	})
}

func TestDeltasAreLiveOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (int, error) {
			if _, err := perdure.Ask[string](ctx, "ask", perdure.Question{}); err != nil {
				return 0, err
			}
			return perdure.Step(ctx, "write", func(ctx context.Context) (int, error) {
				for i := range 3 {
					perdure.Delta(ctx, fmt.Sprint("token ", i))
				}
				return 3, nil
			})
		})
		k := newKit(t, nil, perdure.Options{}, flow)
		k.start("t", "f", "")
		run := k.wait("t", perdure.Suspended)
		ctx, cancel := context.WithCancel(t.Context())
		var got []perdure.DeltaEvent
		done := make(chan struct{})
		go func() {
			defer close(done)
			for d, err := range k.Deltas(ctx, "t") {
				if err != nil {
					t.Error(err)
				}
				got = append(got, d)
			}
		}()
		synctest.Wait()
		k.answer(run, "/ask", perdure.Answer{Value: ""})
		k.waitRun("t", "", perdure.Succeeded)
		synctest.Wait()
		cancel()
		<-done
		var want []perdure.DeltaEvent
		for i := range 3 {
			want = append(want, perdure.DeltaEvent{Run: run.ID, Path: "/write", Pass: 2, Attempt: 1, Offset: int64(i), Data: json.RawMessage(fmt.Sprintf(`"token %d"`, i))})
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
		perdure.Delta(context.Background(), "outside a run it is nothing")
		for _, e := range k.events("t") {
			if e.Kind == "delta" {
				t.Error("a delta is in the journal")
			}
		}
	})
}
