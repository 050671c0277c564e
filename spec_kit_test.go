package perdure_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
)

// specFlow returns a flow called f without input and output.
func specFlow(fn func(context.Context) error) perdure.Flow {
	return perdure.NewFlow("f", func(ctx context.Context, _ struct{}) (struct{}, error) { return struct{}{}, fn(ctx) })
}

// specOnce runs a flow on a thread t until it stands, and expects a status.
func specOnce(t *testing.T, want perdure.Status, fn func(context.Context) error) (k *kit, run *perdure.Run) {
	t.Helper()
	k = newKit(t, nil, perdure.Options{}, specFlow(fn))
	k.start("t", "f", struct{}{})
	return k, k.wait("t", want)
}

// ends waits until the newest run of a thread has ended or is blocked, and
// expects a status.
func (k *kit) ends(thread string, want perdure.Status) *perdure.Run {
	k.t.Helper()
	var run *perdure.Run
	k.until("the run ends", func() bool {
		var err error
		if run, err = k.GetRun(k.t.Context(), thread, ""); err != nil {
			k.t.Fatal(err)
		}
		return run.Status.Final() || run.Status == perdure.Blocked
	})
	if run.Status != want {
		k.t.Fatalf("run is %s, want %s (%s%s)\n%s", run.Status, want, run.Error, run.Diff, k.trace(thread))
	}
	return run
}

// until lets virtual time pass until something holds.
func (k *kit) until(what string, holds func() bool) {
	k.t.Helper()
	pause := 10 * time.Millisecond
	for range 1000 {
		synctest.Wait()
		if holds() {
			return
		}
		time.Sleep(pause)
		pause = min(2*pause, 2*time.Second)
	}
	k.t.Fatalf("never: %s\n%s", what, k.trace("t"))
}

// specMortal is a kit whose process can die: die makes every later call of its
// store fail. Its worker may end with an error.
type specMortal struct {
	*kit
	dead atomic.Bool
}

func newSpecMortal(t *testing.T, inner store.Store, o perdure.Options, flows ...perdure.Flow) *specMortal {
	t.Helper()
	m := &specMortal{kit: &kit{t: t, store: inner}}
	if o.Version == "" {
		o.Version = "test"
	}
	s := faulty.New(inner, func(faulty.Call) faulty.Fault {
		if m.dead.Load() {
			return faulty.CrashBefore
		}
		return faulty.None
	})
	rt, err := perdure.New(t.Context(), s, o, flows...)
	if err != nil {
		t.Fatal(err)
	}
	m.Runtime = rt
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = rt.Work(ctx) // it may have died
	}()
	m.stop = func() { cancel(); <-done }
	t.Cleanup(m.stop)
	return m
}

func (m *specMortal) die() { m.dead.Store(true) }

// specCommitted is an observer that is told of each entry that was committed.
type specCommitted func(perdure.Event)

func (specCommitted) StepStarted(ctx context.Context, _ perdure.StepInfo) (context.Context, func(error)) {
	return ctx, func(error) {}
}
func (f specCommitted) Committed(e perdure.Event) { f(e) }

// specTally counts what happened, by name.
type specTally struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *specTally) hit(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[name]++
	return c.n[name]
}

func (c *specTally) of(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[name]
}

func (c *specTally) all() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.n)
}

// step runs a leaf that is counted, and returns what the leaf is given to
// return, one result an attempt; the last one repeats.
func (c *specTally) step(ctx context.Context, name string, results []error, opts ...perdure.StepOption) error {
	_, err := perdure.Step(ctx, name, func(context.Context) (int, error) {
		n := c.hit(name)
		if len(results) == 0 {
			return n, nil
		}
		return n, results[min(n, len(results))-1]
	}, opts...)
	return err
}

// ok runs a leaf that is counted and succeeds.
func (c *specTally) ok(ctx context.Context, name string, opts ...perdure.StepOption) error {
	return c.step(ctx, name, nil, opts...)
}

// hasLines expects lines in the trace of thread "t", in any order.
func (k *kit) hasLines(want ...string) {
	k.t.Helper()
	trace := k.trace("t")
	have := strings.Split(trace, "\n")
	for _, line := range want {
		if !slices.Contains(have, line) {
			k.t.Errorf("the journal lacks %q:\n%s", line, trace)
		}
	}
}

// specAsk asks for a yes or no at a name.
func specAsk(ctx context.Context, name string) error {
	_, err := perdure.Ask[bool](ctx, name, perdure.Question{Prompt: name + "?"})
	return err
}

// yes answers the ask at a path of a run with true.
func (k *kit) yes(run *perdure.Run, path string) {
	k.t.Helper()
	k.answer(run, path, perdure.Answer{Value: true})
}

// specHook is a store that calls before ahead of an append, with its bytes.
type specHook struct {
	store.Store
	before func(journal string, lines string)
}

func (h *specHook) Unwrap() store.Store { return h.Store }

func (h *specHook) Append(ctx context.Context, journal string, after uint64, entries ...[]byte) (uint64, error) {
	var b strings.Builder
	for _, e := range entries {
		b.Write(e)
	}
	h.before(journal, b.String())
	return h.Store.Append(ctx, journal, after, entries...)
}
