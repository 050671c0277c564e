package threads_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store/memstore"
)

func TestEventsBehindTheEndAreOneError(t *testing.T) {
	for _, replay := range []bool{false, true} {
		kit.Bubble(t, fmt.Sprintf("replay %v", replay), func(t *testing.T) {
			k := kit.New(t, nil, perdure.Options{}, kit.EchoFlow("echo"))
			k.StartOn("t", "echo", "")
			k.WaitFor("t", perdure.Succeeded)
			synctest.Wait()
			end := k.SeqOf("t")
			items := func(after uint64) (events int, errs []error) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				for _, err := range k.Events(ctx, "t", perdure.EventOptions{After: after, Replay: replay}) {
					if err != nil {
						errs = append(errs, err)
					} else {
						events++
					}
				}
				return events, errs
			}
			if n, errs := items(end); n != 0 || len(errs) != 0 {
				t.Errorf("after the last one: %d events, %v", n, errs)
			}
			for _, after := range []uint64{end + 1, end + 1000, 1 << 63} {
				n, errs := items(after)
				if n != 0 || len(errs) != 1 || !errors.Is(errs[0], perdure.ErrAhead) || !errors.Is(errs[0], perdure.ErrInvalid) ||
					!strings.Contains(errs[0].Error(), fmt.Sprintf("ends at %d", end)) {
					t.Errorf("after %d: %d events, %v; want one ErrAhead that names %d", after, n, errs, end)
				}
			}
		})
	}
}

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
		k := kit.New(t, s, perdure.Options{}, busy)
		// Another runtime on the store, without a worker or the flow.
		other := kit.Runtime(t, s, perdure.Options{})
		k.StartOn("t", "busy", "")
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
			kit.WantErr(t, "signal", k.Signal(t.Context(), "t", "noise", i, perdure.SignalOptions{}), nil)
		}
		k.WaitFor("t", perdure.Succeeded)
		kit.WantErr(t, "a signal after the end", k.Signal(t.Context(), "t", "noise", "last", perdure.SignalOptions{}), nil)
		time.Sleep(time.Second)
		thread, err := k.Get(t.Context(), "t")
		kit.NoErr(t, err)
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
		k := kit.New(t, nil, perdure.Options{}, kit.EchoFlow("idle"), kit.AskFlow("ask", perdure.Question{}))
		first := k.StartOn("t", "idle", "one")
		k.WaitFor("t", perdure.Succeeded)
		second := k.StartOn("t", "ask", "")
		run := k.WaitFor("t", perdure.Suspended)
		k.AnswerAt(run, "/ask", perdure.Answer{Value: "x", By: "ann"})
		k.WaitForRun("t", second.ID, perdure.Succeeded)
		all := k.EventsOf("t")
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
			t.Errorf("the runs have %d and %d events:\n%s", len(ofFirst), len(ofSecond), k.Trace("t"))
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
			t.Errorf("after the end: %v, %v", got, err)
		}
		_, err = get(perdure.EventOptions{After: end + 1})
		kit.WantErr(t, "after what is not there", err, perdure.ErrInvalid)
		for e, err := range k.Events(t.Context(), "t", perdure.EventOptions{After: end + 1}) {
			kit.WantErr(t, fmt.Sprintf("live after what is not there: %v", e), err, perdure.ErrInvalid)
		}
		for _, e := range all {
			if e.Kind == "answered" && (e.By != "ann" || string(e.Value) != `"x"` || e.Ask != run.Asks[0].ID || e.Path != "/ask") {
				t.Errorf("the answer's event is %+v", e)
			}
		}
		for range k.Events(t.Context(), "t", perdure.EventOptions{}) {
			break // a reader may stop early
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
		k := kit.New(t, nil, perdure.Options{}, flow)
		begun := time.Now()
		k.StartOn("t", "f", "")
		run := k.WaitFor("t", perdure.Suspended)
		if len(run.Asks) != 1 || time.Since(begun) < time.Minute {
			t.Errorf("after %v it is %+v", time.Since(begun), run)
		}
		k.AnswerAt(run, "/ask", perdure.Answer{Value: ""})
		run = k.WaitFor("t", perdure.Suspended)
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
		<-done // the run does not move, so this returns at once
		if other != perdure.Suspended {
			t.Errorf("another one saw %q", other)
		}
		k.MustSignal("t", "go", "end", "")
		kit.WantOutput(t, k.WaitFor("t", perdure.Succeeded), "end")
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (bool, error) {
			return true, perdure.Sleep(ctx, "nap", time.Hour)
		})
		k := kit.New(t, nil, perdure.Options{}, flow)
		k.StartOn("t", "f", "")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := k.Wait(ctx, "t", "")
		kit.WantErr(t, "wait", err, context.DeadlineExceeded)
	})
}

// watcher is an observer that records what it sees.
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
		k := kit.New(t, nil, perdure.Options{Observer: w}, flow)
		start := k.MustStart(perdure.StartRequest{Thread: "t", Flow: "f", Input: "", Trace: "00-abc"})
		kit.WantOutput(t, k.WaitFor("t", perdure.Succeeded), "span of /outer/inner")
		info := func(path string, attempt int) perdure.StepInfo {
			return perdure.StepInfo{Thread: "t", Run: start.ID, Flow: "f", Path: path, Attempt: attempt, Trace: "00-abc"}
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		kit.NoDiff(t, cmp.Diff([]perdure.StepInfo{info("/outer", 1), info("/outer/inner", 1), info("/outer/inner", 2)}, w.started))
		kit.NoDiff(t, cmp.Diff([]string{"/outer/inner 1 try 1", "/outer/inner 2 <nil>", "/outer 1 <nil>"}, w.ended))
		// The run's own entries, as Events shows them.
		var want []perdure.Event
		for _, e := range k.EventsOf("t") {
			if e.Kind != "created" && e.Kind != "queued" {
				want = append(want, e)
			}
		}
		kit.NoDiff(t, cmp.Diff(want, w.committed))
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
		k := kit.New(t, nil, perdure.Options{}, flow)
		k.StartOn("t", "f", "")
		run := k.WaitFor("t", perdure.Suspended)
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
		k.AnswerAt(run, "/ask", perdure.Answer{Value: ""})
		k.WaitForRun("t", "", perdure.Succeeded)
		synctest.Wait()
		cancel()
		<-done
		var want []perdure.DeltaEvent
		for i := range 3 {
			want = append(want, perdure.DeltaEvent{Run: run.ID, Path: "/write", Pass: 2, Attempt: 1, Offset: int64(i), Data: json.RawMessage(fmt.Sprintf(`"token %d"`, i))})
		}
		kit.NoDiff(t, cmp.Diff(want, got))
		perdure.Delta(context.Background(), "outside a run it is nothing")
		for _, e := range k.EventsOf("t") {
			if e.Kind == "delta" {
				t.Error("a delta is in the journal")
			}
		}
	})
}

// TestEventsOfALife reads a thread, and a later one with the same id.
func TestEventsOfALife(t *testing.T) {
	st := memstore.New()
	defer st.Close()
	rt := kit.Runtime(t, st, perdure.Options{})
	if _, err := rt.Life(t.Context(), "a"); !errors.Is(err, perdure.ErrNoThread) {
		t.Errorf("before: %v", err)
	}
	read := func(life string) (n int, err error) {
		for _, err := range rt.Events(t.Context(), "a", perdure.EventOptions{Replay: true, Life: life}) {
			if err != nil {
				return n, err
			}
			n++
		}
		return n, nil
	}
	var lives []string
	for range 2 {
		if _, err := rt.Create(t.Context(), perdure.CreateRequest{Thread: "a"}); err != nil {
			t.Fatal(err)
		}
		life, err := rt.Life(t.Context(), "a")
		kit.NoErr(t, err)
		if n, err := read(life); n == 0 || err != nil {
			t.Errorf("of its life there are %d: %v", n, err)
		}
		for _, old := range lives {
			if n, err := read(old); n != 0 || !errors.Is(err, perdure.ErrErased) {
				t.Errorf("of another life there are %d: %v", n, err)
			}
		}
		kit.NoErr(t, rt.Erase(t.Context(), "a", perdure.EraseOptions{}))
		if n, err := read(life); n != 0 || !errors.Is(err, perdure.ErrErased) {
			t.Errorf("of an erased life there are %d: %v", n, err)
		}
		lives = append(lives, life)
	}
	if lives[0] == lives[1] {
		t.Error("both lives are the same")
	}
}

func TestEventsSayWhereForksComeFromAndRewindsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.EchoFlow("echo"))
		for range 2 {
			k.StartOn("t", "echo", "x")
			k.WaitFor("t", perdure.Succeeded)
		}
		synctest.Wait()
		k.MustRewind("t", 4)
		k.MustFork(perdure.ForkRequest{Thread: "t", As: "f", At: 2})
		k.MustImport(k.MustExport("t", perdure.ExportOptions{}), "i")
		seq := k.SeqOf("t")
		for thread, want := range map[string]perdure.Event{
			"t": {Kind: "rewound", Seq: seq, To: 4},
			"f": {Kind: "forked", Seq: 3, From: "t", At: 2},
			"i": {Kind: "forked", Seq: seq + 1, From: "t", At: seq},
		} {
			found := false
			for _, e := range k.EventsOf(thread) {
				if e.Kind == want.Kind {
					found = true
					if e.Seq != want.Seq || e.From != want.From || e.At != want.At || e.To != want.To {
						t.Errorf("thread %s: %s at %d from %q at %d to %d, want %+v", thread, e.Kind, e.Seq, e.From, e.At, e.To, want)
					}
				} else if e.From != "" || e.At != 0 && e.Kind != "forked" || e.To != 0 && e.Kind != "rewound" {
					t.Errorf("thread %s: %+v", thread, e)
				}
			}
			if !found {
				t.Errorf("thread %s has no event %q", thread, want.Kind)
			}
		}
	})
}

// TestDeltasBeginWithWhatWasSaid has listeners arrive before, during and after a
// step that says more or less than is kept, on a store that loses messages.
func TestDeltasBeginWithWhatWasSaid(t *testing.T) {
	const deltas = 20
	var all []int64
	for i := range int64(deltas) {
		all = append(all, i)
	}
	for _, c := range []struct {
		name        string
		size        int     // of a delta's text
		early, late []int64 // the offsets that listeners get
	}{
		{"as much as is kept", 10, all, all},
		{"more than is kept", 10 << 10, []int64{0, deltas - 1}, []int64{deltas - 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				say := make(chan bool)
				flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (int, error) {
					for _, step := range []string{"one", "two"} {
						if _, err := perdure.Step(ctx, step, func(ctx context.Context) (int, error) {
							for range deltas {
								perdure.Delta(ctx, strings.Repeat("x", c.size))
								<-say
							}
							return 0, nil
						}); err != nil {
							return 0, err
						}
					}
					return 0, nil
				})
				lossy := &lossyStore{Store: memstore.New()}
				k := kit.New(t, lossy, perdure.Options{}, flow)
				k.StartOn("t", "f", "")
				time.Sleep(time.Minute) // the first delta is said
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				listen := func() *[]int64 {
					got := new([]int64)
					go func() {
						for d, err := range k.Deltas(ctx, "t") {
							if err != nil {
								t.Error(err)
							}
							if d.Path == "/one" {
								*got = append(*got, d.Offset)
							}
						}
					}()
					synctest.Wait()
					return got
				}
				next := func() {
					say <- true
					synctest.Wait()
				}
				early := listen()
				lossy.lose.Store(true)
				for range deltas - 2 {
					next()
				}
				lossy.lose.Store(false)
				late := listen()
				next() // the last delta
				kit.NoDiff(t, cmp.Diff(c.early, *early))
				kit.NoDiff(t, cmp.Diff(c.late, *late))
				next() // the end of the step
				if after := listen(); len(*after) > 0 {
					t.Errorf("of a step that is over there are still %v", *after)
				}
				for range deltas {
					say <- true
				}
				k.WaitForRun("t", "", perdure.Succeeded)
			})
		})
	}
}

// lossyStore loses messages when it is told to.
type lossyStore struct {
	*memstore.Store
	lose atomic.Bool
}

func (s *lossyStore) Cast(ctx context.Context, topic string, message []byte) error {
	if s.lose.Load() {
		return nil
	}
	return s.Store.Cast(ctx, topic, message)
}
