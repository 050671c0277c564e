package worker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
)

func stepsThenAsk(name string, before ...string) perdure.Flow {
	return perdure.NewFlow(name, func(ctx context.Context, in string) (string, error) {
		for _, s := range before {
			if _, err := perdure.Step(ctx, s, func(context.Context) (string, error) { return s, nil }); err != nil {
				return "", err
			}
		}
		return perdure.Ask[string](ctx, "q", perdure.Question{})
	})
}

func TestACancelledRunThatDivergesEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		k := kit.New(t, s, perdure.Options{Version: "v1"}, stepsThenAsk("f", "a"))
		k.StartOn("t", "f", "")
		k.WaitFor("t", perdure.Suspended)
		k.Stop()
		kit.NoErr(t, k.Cancel(t.Context(), "t", "", perdure.Note{}))
		k2 := kit.New(t, s, perdure.Options{Version: "v2"}, stepsThenAsk("f", "b"))
		time.Sleep(time.Second)
		info, err := k2.GetRun(t.Context(), "t", "")
		kit.NoErr(t, err)
		if info.Resumes > 3 || !info.Status.Final() {
			t.Fatalf("%d resumes, status %s", info.Resumes, info.Status)
		}
	})
}

func sleep(name string, d time.Duration) perdure.Flow {
	return perdure.NewFlow(name, func(ctx context.Context, in string) (string, error) {
		return "done", perdure.Sleep(ctx, "s", d)
	})
}

// A due timer that waits for a run whose flow this worker lacks is no reason to
// look all the time.
func TestARunOfAnotherFlowAheadCostsLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		a, b := stepsThenAsk("a"), sleep("b", time.Minute)
		both := kit.New(t, s, perdure.Options{}, a, b)
		both.StartOn("t", "a", "")
		run := both.WaitFor("t", perdure.Suspended)
		both.MustStart(perdure.StartRequest{Thread: "t", Flow: "b", Input: "", Policy: perdure.Beside})
		time.Sleep(time.Second)
		both.Stop()
		both.AnswerAt(run, "/q", perdure.Answer{Value: "x"})
		if n := callsOf(t, s, 2*time.Minute, b); n > 1000 {
			t.Errorf("at least %d calls of the store in two quiet minutes", n)
		}
	})
}

// callsOf counts the calls of a worker for some time; a hot loop is cut off,
// since it would keep virtual time from advancing.
func callsOf(t *testing.T, s store.Store, d time.Duration, flows ...perdure.Flow) int64 {
	var n atomic.Int64
	limited := faulty.New(s, func(faulty.Call) faulty.Fault {
		if n.Add(1) > 3000 {
			return faulty.CrashBefore
		}
		return faulty.None
	})
	rt := kit.Runtime(t, limited, perdure.Options{}, flows...)
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	_ = rt.Work(ctx)
	return n.Load()
}

func TestARunBesideABlockedOneOfAnotherFlowGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		k1 := kit.New(t, s, perdure.Options{Version: "v1"}, stepsThenAsk("a", "x"), stepsThenAsk("b"))
		k1.StartOn("t", "a", "")
		run := k1.WaitFor("t", perdure.Suspended)
		k1.Stop()
		k1.AnswerAt(run, "/q", perdure.Answer{Value: "x"})
		k2 := kit.New(t, s, perdure.Options{Version: "v2"}, stepsThenAsk("a", "y"))
		time.Sleep(time.Second)
		k2.WaitFor("t", perdure.Blocked)
		k2.Stop()
		k3 := kit.New(t, s, perdure.Options{Version: "v3"}, stepsThenAsk("b"))
		beside, err := k3.Start(t.Context(), perdure.StartRequest{Thread: "t", Flow: "b", Input: "", Policy: perdure.Beside})
		kit.NoErr(t, err)
		time.Sleep(time.Hour)
		got, err := k3.GetRun(t.Context(), "t", beside.ID)
		kit.NoErr(t, err)
		if got.Status != perdure.Suspended {
			t.Errorf("the run beside a blocked one of another worker's flow is %s after an hour", got.Status)
		}
	})
}

func TestVersionsThatAreBlockedDoNotTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		k1 := kit.New(t, s, perdure.Options{Version: "v1"}, stepsThenAsk("a", "x"))
		k1.StartOn("t", "a", "")
		run := k1.WaitFor("t", perdure.Suspended)
		k1.Stop()
		k1.AnswerAt(run, "/q", perdure.Answer{Value: "x"})
		k2 := kit.New(t, s, perdure.Options{Version: "v2"}, stepsThenAsk("a", "y"))
		kit.New(t, s, perdure.Options{Version: "v3"}, stepsThenAsk("a", "z"))
		time.Sleep(time.Hour)
		th, err := k2.Get(t.Context(), "t")
		kit.NoErr(t, err)
		if th.Seq > 30 {
			t.Errorf("%d entries after an hour of being blocked", th.Seq)
		}
	})
}

func TestAListIsRightAfterALostSummary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := perdure.NewFlow("f", func(ctx context.Context, in string) (string, error) { return in, nil })
		// the n-th write of the summary is lost
		for n := 1; n <= 4; n++ {
			inner := memstore.New()
			seen := 0
			s := faulty.New(inner, func(c faulty.Call) faulty.Fault {
				if c.Op == store.OpPut && len(c.Name) > 7 && c.Name[:7] == "thread/" {
					if seen++; seen == n {
						return faulty.FailBefore
					}
				}
				return faulty.None
			})
			k := kit.New(t, s, perdure.Options{}, f)
			_, err := k.Start(t.Context(), perdure.StartRequest{Thread: "t", Flow: "f", Input: ""})
			if err != nil {
				k.Stop()
				continue
			}
			k.WaitFor("t", perdure.Succeeded)
			time.Sleep(time.Hour)
			for item, err := range k.List(t.Context(), perdure.ListOptions{}) {
				if err != nil || item.Status != perdure.Succeeded {
					t.Errorf("write %d lost: listed as %s for ever (%v)", n, item.Status, err)
				}
			}
			k.Stop()
		}
	})
}

func TestAListThatIsNotWholeSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var bad atomic.Bool
		s := faulty.New(memstore.New(), func(c faulty.Call) faulty.Fault {
			if bad.Load() && c.Op == store.OpRead {
				return faulty.FailBefore
			}
			if !bad.Load() && c.Op == store.OpPut && len(c.Name) > 7 && c.Name[:7] == "thread/" && c.W > 3 {
				return faulty.FailBefore // summaries after the first
			}
			return faulty.None
		})
		rt := kit.Runtime(t, s, perdure.Options{}, stepsThenAsk("f"))
		kit.Start(t, rt, perdure.StartRequest{Thread: "t", Flow: "f", Input: ""})
		bad.Store(true)
		n := 0
		for _, err := range rt.List(t.Context(), perdure.ListOptions{}) {
			n++
			_ = err
		}
		if n == 0 {
			t.Error("a thread is left out of the list without an error because the store failed")
		}
	})
}

// A start that was interrupted before its first entry leaves a hint, which
// costs next to nothing.
func TestAHintWithoutAThreadCostsLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		f := stepsThenAsk("f")
		for _, id := range []string{"1", "2", "3", "4", "5"} {
			cut := faulty.New(s, func(c faulty.Call) faulty.Fault {
				if c.Op == store.OpAppend {
					return faulty.CrashBefore
				}
				return faulty.None
			})
			rt := kit.Runtime(t, cut, perdure.Options{}, f)
			if _, err := rt.Start(t.Context(), perdure.StartRequest{Thread: id, Flow: "f", Input: ""}); err == nil {
				t.Fatal("no error")
			}
		}
		if n := callsOf(t, s, 2*time.Minute, f); n > 1000 { // renewals are 160
			t.Errorf("at least %d calls of the store in two minutes for five starts that were cut off", n)
		}
	})
}

func TestAWorkerOnAPoisonedStoreEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var bad atomic.Bool
		ps := &poisonedStore{Store: memstore.New(), bad: &bad}
		rt := kit.Runtime(t, ps, perdure.Options{}, stepsThenAsk("f"))
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- rt.Work(ctx) }()
		time.Sleep(time.Second)
		kit.Start(t, rt, perdure.StartRequest{Thread: "t", Flow: "f", Input: ""})
		bad.Store(true)
		select {
		case err := <-done:
			t.Log(err)
		case <-time.After(time.Hour):
			t.Error("a worker on a handle that cannot write goes on for ever")
			cancel()
			<-done
		}
	})
}

type poisonedStore struct {
	store.Store
	bad *atomic.Bool
}

func (p *poisonedStore) Append(ctx context.Context, j string, after uint64, e ...[]byte) (uint64, error) {
	if p.bad.Load() {
		return 0, store.ErrPoisoned
	}
	return p.Store.Append(ctx, j, after, e...)
}

func (p *poisonedStore) Put(ctx context.Context, k string, v []byte, prev store.Version) (store.Version, error) {
	if p.bad.Load() {
		return "", store.ErrPoisoned
	}
	return p.Store.Put(ctx, k, v, prev)
}

func (p *poisonedStore) Delete(ctx context.Context, k string, prev store.Version) error {
	if p.bad.Load() {
		return store.ErrPoisoned
	}
	return p.Store.Delete(ctx, k, prev)
}

// A cancelled run whose input is gone ends, and is not claimed again and again.
func TestACancelledRunWithLostInputEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		f := stepsThenAsk("f", "a")
		k := kit.New(t, s, perdure.Options{}, f)
		k.StartOn("t", "f", strings.Repeat("x", 100<<10))
		k.WaitFor("t", perdure.Suspended)
		k.Stop()
		kit.NoErr(t, store.DeletePrefix(t.Context(), s, "blob/"))
		kit.NoErr(t, k.Cancel(t.Context(), "t", "", perdure.Note{}))
		n := callsOf(t, s, time.Minute, f)
		run, err := k.GetRun(t.Context(), "t", "")
		if err != nil || run.Status != perdure.Cancelled || n > 1000 {
			t.Errorf("after %d calls the run is %s, claimed again %d times (%v)", n, run.Status, run.Resumes, err)
		}
	})
}

// Work returns soon after the grace, although a step does not stop.
func TestAWorkerReturnsThoughAStepDoesNotStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := perdure.NewFlow("f", func(ctx context.Context, in string) (string, error) {
			return perdure.Step(ctx, "a", func(ctx context.Context) (string, error) { time.Sleep(5 * time.Hour); return "x", nil })
		})
		k := kit.New(t, nil, perdure.Options{Lease: 3 * time.Second}, f)
		k.StartOn("t", "f", "")
		time.Sleep(time.Second)
		began := time.Now()
		k.Stop()
		if d := time.Since(began); d > time.Minute {
			t.Errorf("Work returned %v after it was stopped", d)
		}
		time.Sleep(6 * time.Hour) // let the step end inside the bubble
	})
}

func TestEventsOfAClosedStoreEndWithAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		rt := kit.Runtime(t, s, perdure.Options{}, stepsThenAsk("f"))
		kit.Start(t, rt, perdure.StartRequest{Thread: "t", Flow: "f", Input: ""})
		time.AfterFunc(time.Second, func() { s.Close() })
		var last error
		for _, err := range rt.Events(t.Context(), "t", perdure.EventOptions{}) {
			last = err
		}
		if last == nil {
			t.Error("the events of a store that was closed end as if all was well")
		}
	})
}

func TestProgressOfNoAskKeepsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		rt := kit.Runtime(t, s, perdure.Options{}, stepsThenAsk("f"))
		for _, id := range []string{"made.up", "../x.y", "a/b.c"} {
			if err := rt.Progress(t.Context(), id, strings.Repeat("x", 100<<10), perdure.Note{}); err == nil {
				t.Error("no error")
			}
		}
		for cell := range s.List(t.Context(), "blob/", "") {
			t.Errorf("a blob is left: %s", cell.Key)
		}
	})
}

// random faults on every handle, workers that come and go, flows on some of them only.
func TestWorkersUnderRandomFaults(t *testing.T) {
	for seed := range uint64(4) {
		synctest.Test(t, func(t *testing.T) { stress(t, seed) })
	}
}

func stress(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	inner := memstore.New()
	var mu sync.Mutex
	once := map[string]int{}
	mk := func(name string) perdure.Flow {
		return perdure.NewFlow(name, func(ctx context.Context, in string) (string, error) {
			g := perdure.NewGroup(ctx)
			g.Go("l", func(ctx context.Context) error {
				_, err := perdure.Ask[string](ctx, "q", perdure.Question{})
				return err
			})
			g.Go("r", func(ctx context.Context) error {
				if err := perdure.Sleep(ctx, "s", time.Duration(len(in))*time.Second); err != nil {
					return err
				}
				_, err := perdure.Step(ctx, "once", func(ctx context.Context) (string, error) {
					mu.Lock()
					defer mu.Unlock()
					once[perdure.Key(ctx)]++
					return "x", nil
				}, perdure.AtMostOnce(), perdure.Timeout(time.Second), perdure.Reconcile(func(ctx context.Context) (string, perdure.Outcome, error) {
					mu.Lock()
					defer mu.Unlock()
					if once[perdure.Key(ctx)] > 0 {
						return "x", perdure.OutcomeDone, nil
					}
					return "", perdure.OutcomeNotDone, nil
				}))
				return err
			})
			if err := g.Wait(); err != nil {
				return "", err
			}
			return perdure.Receive[string](ctx, "sig", "go", 0)
		})
	}
	a, b := mk("a"), mk("b")
	handle := func(n uint64) store.Store {
		return faulty.New(inner, faulty.Random(seed*100+n, faulty.Rate{Fault: faulty.FailBefore, P: .03}, faulty.Rate{Fault: faulty.FailAfter, P: .03},
			faulty.Rate{Fault: faulty.Conflict, P: .03}, faulty.Rate{Fault: faulty.Delay(50 * time.Millisecond), P: .03}, faulty.Rate{Fault: faulty.FailAmid(1), P: .02}))
	}
	sets := [][]perdure.Flow{{a}, {b}, {a, b}}
	end, finish := context.WithCancel(context.Background())
	var workers sync.WaitGroup
	for i := range 3 {
		n := uint64(i + 1)
		pauses := rand.New(rand.NewPCG(seed, n))
		workers.Go(func() {
			for end.Err() == nil {
				rt, err := perdure.New(end, handle(n+10*pauses.Uint64N(1000)), perdure.Options{Version: "v", Grace: time.Second, Concurrency: 4}, sets[i]...)
				if err != nil {
					continue
				}
				ctx, cancel := context.WithTimeout(end, time.Duration(1+pauses.IntN(20_000))*time.Millisecond)
				_ = rt.Work(ctx)
				cancel()
			}
		})
	}
	var rt *perdure.Runtime
	var err error
	for rt == nil {
		rt, err = perdure.New(t.Context(), handle(9+rnd.Uint64N(1000)), perdure.Options{Version: "v"}, a, b)
	}
	try := func(f func() error) {
		for range 200 {
			if err = f(); err == nil {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Errorf("seed %d: gave up: %v", seed, err)
	}
	const threads, runs = 6, 3
	policies := []perdure.Policy{perdure.Enqueue, perdure.Beside, perdure.Steer, perdure.Interrupt}
	for i := range runs {
		for th := range threads {
			id := fmt.Sprint("t", th)
			try(func() error {
				_, err := rt.Start(t.Context(), perdure.StartRequest{Thread: id, Flow: []string{"a", "b"}[(th+i)%2], Input: strings.Repeat("x", th+i), Key: fmt.Sprint("k", i), Policy: policies[(th+i+int(seed))%4]})
				return err
			})
			try(func() error {
				return rt.Signal(t.Context(), id, "go", "v", perdure.SignalOptions{Key: fmt.Sprint(i)})
			})
			time.Sleep(time.Duration(rnd.IntN(2000)) * time.Millisecond)
		}
	}
	clean := kit.Runtime(t, inner, perdure.Options{Version: "v"}, a, b)
	deadline := time.Now().Add(30 * time.Minute)
	for open := true; open; {
		open = false
		for th := range threads {
			info, err := clean.Get(t.Context(), fmt.Sprint("t", th))
			kit.NoErr(t, err)
			for _, run := range info.Runs {
				if !run.Status.Final() {
					open = true
				}
				for _, ask := range run.Asks {
					try(func() error {
						err := rt.Answer(t.Context(), perdure.AskAnswer{Ask: ask.ID, Answer: perdure.Answer{Value: "y"}})
						if errors.Is(err, perdure.ErrAskOver) { // its run was interrupted meanwhile
							return nil
						}
						return err
					})
				}
			}
		}
		time.Sleep(time.Second)
		if time.Now().After(deadline) {
			break
		}
	}
	time.Sleep(5 * time.Minute)
	for th := range threads {
		info, err := clean.Get(t.Context(), fmt.Sprint("t", th))
		kit.NoErr(t, err)
		if len(info.Runs) != runs {
			t.Errorf("seed %d: thread %d has %d runs", seed, th, len(info.Runs))
		}
		for _, run := range info.Runs {
			if run.Status != perdure.Succeeded && run.Status != perdure.Cancelled {
				t.Errorf("seed %d: t%d %s is %s %s %s waits %+v", seed, th, run.Flow, run.Status, run.Error, run.Diff, run.Waits)
			}
		}
	}
	for k, n := range once {
		if n > 1 {
			t.Errorf("seed %d: %s happened %d times", seed, k, n)
		}
	}
	for cell := range inner.List(t.Context(), "due/", "") {
		t.Errorf("seed %d: a hint is left: %s %s", seed, cell.Key, cell.Value)
	}
	for item := range clean.List(t.Context(), perdure.ListOptions{}) {
		if !item.Status.Final() {
			t.Errorf("seed %d: listed as %s", seed, item.Status)
		}
	}
	finish()
	workers.Wait()
}
