package perduretest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/lease"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
)

// cut says at which write a life ends, and how. The zero cut is none.
type cut struct {
	class string // of writes, see classOf
	n     int    // among those, from 1, what depends on time alone left out
	fault faulty.Fault
}

// classOf names what a write is: the call, and the first part of the name. A
// worker and those who call the runtime write at the same time, so the number
// of a write among all of them differs from run to run; within a class it does
// not, or hardly.
func classOf(c faulty.Call) string {
	what, _, _ := strings.Cut(c.Name, "/")
	return string(c.Op) + " " + what
}

// life is a runtime and its worker on a handle of a store, from its start to
// its death. It stands for a process.
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
	steady map[string]int // writes of cells that are written again and again; guarded by the handle, which asks about one call at a time
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

// steadyWrites returns how many writes of a cell are cut, if how often it is
// written depends on time alone: of a lease the first, and of the mark of sweeps
// the two of the first sweep. 0 is all.
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
// functions that are running see their contexts end. It returns when all of
// them have.
func (l *life) kill() {
	l.killed.Store(true)
	_ = l.stop()
}

// stop ends the life in order, as SIGTERM does.
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
	if o.Version == "" {
		o.Version = "test"
	}
	if o.Lease == 0 {
		o.Lease = time.Minute // renewals are rare enough for a flow that sleeps for weeks
	}
	if o.Grace == 0 {
		o.Grace = time.Millisecond
	}
	o.Development = true
	return o
}
