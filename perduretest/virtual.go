package perduretest

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/lease"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
)

// Setup configures [Virtual].
type Setup struct {
	Flows   []perdure.Flow
	Options perdure.Options // Version, Lease and Grace have defaults for tests, and Development is always on
	Store   store.Store     // nil means a new store in memory
}

// Env is a runtime with a worker in virtual time. Its methods fail the test at
// once if something is not as expected. They must be called from the test's own
// goroutine.
type Env struct {
	Store   store.Store
	Effects *Effects

	t     *testing.T
	setup Setup
	life  *life
}

// Virtual calls f in a bubble of [testing/synctest], with a runtime and a worker
// on a store in memory. Time is virtual: it stands still while anything is busy,
// and jumps to the next timer when everything waits, so a flow that sleeps for a
// week takes no time. Everything is stopped when f returns.
//
// A bubble does not allow t.Run; call Virtual inside the subtest instead.
func Virtual(t *testing.T, s Setup, f func(t *testing.T, e *Env)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := &Env{Store: s.Store, Effects: new(Effects), t: t, setup: s}
		if e.Store == nil {
			e.Store = memstore.New()
		}
		e.setup.Options = defaults(s.Options)
		e.setup.Options.Observer = perdure.Observers(watcher{e.Effects}, s.Options.Observer)
		e.open()
		t.Cleanup(e.Stop)
		f(t, e)
	})
}

func (e *Env) open() {
	e.t.Helper()
	// The context of the test ends before its cleanups, which still need the
	// runtime.
	l, err := begin(context.WithoutCancel(e.t.Context()), e.Store, cut{}, e.setup.Options, e.setup.Flows)
	e.noError(err)
	e.life = l
}

func (e *Env) noError(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
}

// Runtime returns the current runtime.
func (e *Env) Runtime() *perdure.Runtime { return e.life.rt }

// Start starts a run of a flow on a thread.
func (e *Env) Start(thread, flow string, input any) *perdure.Run {
	e.t.Helper()
	run, err := e.Runtime().Start(e.t.Context(), perdure.StartRequest{Thread: thread, Flow: flow, Input: input})
	e.noError(err)
	return run
}

// Wait waits until the newest run of a thread has the status want, and returns the
// run. If the run waits for an ask or signal that expires, and want is another
// status, Wait waits for that too.
func (e *Env) Wait(thread string, want perdure.Status) *perdure.Run {
	e.t.Helper()
	for range maxTurns {
		run, err := e.Runtime().Wait(e.t.Context(), thread, "")
		e.noError(err)
		if run.Status == want {
			return run
		}
		due := nextDue(run)
		if due.IsZero() {
			e.t.Fatalf("run %s of thread %s is %s, want %s (%s%s)\n%s", run.ID, thread, run.Status, want, run.Error, run.Diff, e.Trace(thread))
		}
		time.Sleep(max(time.Millisecond, time.Until(due)))
		synctest.Wait()
	}
	e.t.Fatalf("the newest run of thread %s does not become %s\n%s", thread, want, e.Trace(thread))
	return nil
}

// nextDue returns when a waiting run continues by itself, or the zero time if it
// does not.
func nextDue(run *perdure.Run) time.Time {
	var due time.Time
	if run.Status != perdure.Suspended {
		return due
	}
	for _, w := range run.Waits {
		if !w.Due.IsZero() && (due.IsZero() || w.Due.Before(due)) {
			due = w.Due
		}
	}
	return due
}

// Answer waits until a thread has an open ask at a path, and answers it.
func (e *Env) Answer(thread, path string, a perdure.Answer) {
	e.t.Helper()
	run, err := e.Runtime().Wait(e.t.Context(), thread, "")
	e.noError(err)
	for _, ask := range run.Asks {
		if ask.Path == path {
			e.noError(e.Runtime().Answer(e.t.Context(), perdure.AskAnswer{Ask: ask.ID, Answer: a}))
			return
		}
	}
	e.t.Fatalf("thread %s has no open ask at %s\n%s", thread, path, e.Trace(thread))
}

// Signal sends a signal to a thread.
func (e *Env) Signal(thread, name string, v any) {
	e.t.Helper()
	e.noError(e.Runtime().Signal(e.t.Context(), thread, name, v, perdure.SignalOptions{}))
}

// Advance lets d pass, and then waits until nothing is busy.
func (e *Env) Advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// Restart kills the worker as kill -9 does, and starts another on the same store.
// The new one takes over the old one's runs when its lease has expired.
func (e *Env) Restart() {
	e.t.Helper()
	e.life.kill()
	e.open()
}

// Stop stops the worker gracefully. The runtime can still be used.
func (e *Env) Stop() {
	e.t.Helper()
	if err := e.life.stop(); err != nil {
		e.t.Errorf("the worker: %v", err)
	}
}

// Trace returns the journal of a thread in readable form: see [Trace].
func (e *Env) Trace(thread string) string {
	text, err := Trace(context.WithoutCancel(e.t.Context()), e.Store, thread)
	if err != nil {
		return err.Error()
	}
	return text
}

// Golden compares the journal of a thread with a file: see [Golden].
func (e *Env) Golden(thread, file string) {
	e.t.Helper()
	synctest.Wait()
	Golden(e.t, e.Store, thread, file)
}

// cut says at which write a life ends, and how. The zero cut is none.
type cut struct {
	class string // of writes, see classOf
	n     int    // among those, from 1, without what depends only on time
	fault faulty.Fault
}

// classOf classifies a write by the call and the first part of the name. A worker
// and the callers of the runtime write at the same time, so the number of a write
// among all of them differs from run to run; within a class it does not, or
// hardly.
func classOf(c faulty.Call) string {
	what, _, _ := strings.Cut(c.Name, "/")
	return string(c.Op) + " " + what
}

// life is a runtime and its worker on a handle of a store, from start to death. It
// represents a process.
type life struct {
	rt     *perdure.Runtime
	handle *faulty.Store
	killed atomic.Bool // from now on every call fails
	cancel context.CancelFunc
	worked chan error    // nil if there is no worker
	gone   chan struct{} // closed when the worker is

	cut    cut
	mu     sync.Mutex
	writes map[string]int // that count for cuts, by class
	steady map[string]int // writes of cells that are written repeatedly; guarded by the handle, which asks about one call at a time
	at     faulty.Call    // where the cut was
}

// begin starts a runtime and its worker. After an error the life is over.
func begin(ctx context.Context, s store.Store, c cut, o perdure.Options, flows []perdure.Flow) (*life, error) {
	l := &life{cut: c, steady: map[string]int{}, writes: map[string]int{}, cancel: func() {}}
	l.handle = faulty.New(s, l.plan)
	rt, err := perdure.New(ctx, l.handle, o, flows...)
	if err != nil {
		return l, err
	}
	l.rt = rt
	ctx, l.cancel = context.WithCancel(context.WithoutCancel(ctx))
	l.handle.OnCrash(l.cancel)
	l.worked, l.gone = make(chan error, 1), make(chan struct{})
	go func() {
		defer close(l.gone)
		l.worked <- rt.Work(ctx)
	}()
	return l, nil
}

// plan fails the call at the cut, and every call after a kill.
func (l *life) plan(c faulty.Call) faulty.Fault {
	if l.killed.Load() {
		return faulty.CrashBefore
	}
	if c.W == 0 {
		return faulty.None
	}
	if most := steadyWrites(c); most > 0 {
		if l.steady[c.Name]++; l.steady[c.Name] > most {
			return faulty.None
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	class := classOf(c)
	l.writes[class]++
	if class != l.cut.class || l.writes[class] != l.cut.n {
		return faulty.None
	}
	l.at = c
	l.at.W = l.writes[class]
	return l.cut.fault
}

// steadyWrites returns how many writes of a cell are cut if their number depends
// only on time: the first of a lease, and the two of the first sweep for the mark
// of sweeps. 0 means all.
func steadyWrites(c faulty.Call) int {
	switch {
	case c.Op != store.OpPut:
		return 0
	case strings.HasPrefix(c.Name, lease.Prefix):
		return 1
	case c.Name == "perdure/sweep":
		return 2
	}
	return 0
}

// kill ends the life as kill -9 does: nothing is released or handed over. The
// contexts of running functions are cancelled. It returns when all of them have
// returned.
func (l *life) kill() {
	l.killed.Store(true)
	_ = l.stop()
}

// stop ends the life gracefully, as SIGTERM does.
func (l *life) stop() error {
	l.cancel()
	if l.worked == nil {
		return nil
	}
	err := <-l.worked
	l.worked = nil
	if errors.Is(err, faulty.ErrInjected) {
		return nil // it died of the cut
	}
	return err
}

// defaults makes options fit for virtual time.
func defaults(o perdure.Options) perdure.Options {
	o.Version = cmp.Or(o.Version, "test")
	o.Lease = cmp.Or(o.Lease, time.Minute) // renewals are rare enough for a flow that sleeps for weeks
	o.Grace = cmp.Or(o.Grace, time.Millisecond)
	o.Development = true
	return o
}
