// Package worker decides who executes what, and when: it finds due work, takes
// turns between owners, claims runs and takes over those of workers that died. It
// may import internal/engine, upkeep and lease, and what those import.
package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure/internal/bell"
	"github.com/perdure/perdure/internal/due"
	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/lease"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/internal/upkeep"
	"github.com/perdure/perdure/store"
)

// Worker executes the runs that are due.
type Worker struct {
	staff   *Staff
	threads *threads.Threads
	engine  *engine.Engine
	opts    Options
	id      string
	io      context.Context // for the store: ends when the worker is gone
	lease   *lease.Lease
	others  *lease.Watcher
	wake    chan struct{}
	poked   atomic.Bool // by something else than news of a flow
	running sync.WaitGroup

	// Of the loop alone.
	queue    queue
	rounds   map[string]*round     // by flow: how far its hints were read
	turns    map[ownerKey]lastTurn // of owners with many threads
	news     bool                  // there may be hints of any flow that were not read
	nextRing time.Time             // when alarms are due
	told     time.Time             // when damaged hints were logged

	mu       sync.Mutex
	fresh    map[string]bool       // flows whose hints were written since they were read
	busy     map[string]bool       // threads that are looked at or executed
	passes   map[*engine.Pass]bool // under way
	again    map[hintKey]lookAgain // at what another worker holds, or what failed here
	early    map[hintKey]earlyHint // hints that are ahead of their journal
	losses   map[hintKey]losses    // runs that were lost here
	passed   map[string]bool       // busy threads whose hints were passed over
	active   int                   // threads that are looked at or executed
	peers    int                   // workers that are alive
	suspects map[hintKey]waiting   // threads that are to be run alone
	solo     string                // the suspect that runs: nothing else does
	cut      bool                  // the last scan found no free slot
	fatal    chan error            // why the worker cannot go on
	stopping bool
}

func newWorker(c *Staff, io context.Context) *Worker {
	return &Worker{staff: c, threads: c.threads, engine: c.engine, opts: c.opts, id: threads.NewRunID(), io: io, others: lease.NewWatcher(c.threads.Store), wake: make(chan struct{}, 1),
		rounds: map[string]*round{}, turns: map[ownerKey]lastTurn{}, suspects: map[hintKey]waiting{}, fresh: map[string]bool{}, busy: map[string]bool{}, passes: map[*engine.Pass]bool{},
		again: map[hintKey]lookAgain{}, early: map[hintKey]earlyHint{}, losses: map[hintKey]losses{}, passed: map[string]bool{},
		fatal: make(chan error, 1)}
}

// Work executes runs that are due until the context ends. A worker that has lost
// its lease begins anew as another.
func (s *Staff) Work(ctx context.Context) error {
	for {
		err := s.workOnce(ctx)
		if !errors.Is(err, fault.ErrFenced) {
			return err
		}
		s.threads.Log.Warn("a worker begins anew", "error", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(s.opts.Lease / 4):
		}
	}
}

// workOnce is one worker, until the context ends or its lease is lost.
func (s *Staff) workOnce(ctx context.Context) error {
	ctx = store.Patient(ctx) // runs wait until a full disk has space again
	io, gone := context.WithCancel(context.WithoutCancel(ctx))
	defer gone()
	w := newWorker(s, io)
	defer s.began(w.id)()
	// The lease lives as long as the worker; only taking it ends with ctx.
	holding, giveUp := context.WithCancel(io)
	defer giveUp()
	waiting := context.AfterFunc(ctx, giveUp)
	var err error
	if w.lease, err = lease.Hold(holding, s.threads.Store, w.id, s.opts.Lease, s.info()); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("perdure: starting a worker: %w", err)
	}
	waiting()
	s.has(w)
	watching, stopWatching := context.WithCancel(io)
	defer stopWatching()
	for flow := range s.opts.Flows {
		go func() {
			for range store.Watch(watching, s.threads.Store, due.Prefix(flow)) {
				w.pokeFlow(flow)
			}
			w.poke() // the store was closed: the next scan says so
		}()
	}
	go w.watchOthers(watching)
	go upkeep.Sweep(watching, s.threads)
	err = w.loop(ctx)
	w.drain(gone)
	release, cancel := context.WithTimeout(context.WithoutCancel(io), time.Second)
	defer cancel()
	if releaseErr := w.lease.Release(release); err == nil && releaseErr != nil && !errors.Is(releaseErr, store.ErrClosed) {
		w.threads.Log.Warn("releasing a lease", "error", releaseErr)
	}
	return err
}

// watchOthers looks who else works, about as often as leases are renewed. That it
// is not exactly as often keeps workers of one process from falling into step.
func (w *Worker) watchOthers(ctx context.Context) {
	every := w.opts.Lease * 7 / 26
	again := bell.New(every)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
			again.Reset(every)
			w.muster(ctx)
		}
	}
}

// poke makes the worker look for due work.
func (w *Worker) poke() {
	w.poked.Store(true)
	w.ringUp()
}

// pokeFlow makes the worker look for due work of one flow.
func (w *Worker) pokeFlow(flow string) {
	w.mu.Lock()
	w.fresh[flow] = true
	w.mu.Unlock()
	w.ringUp()
}

func (w *Worker) ringUp() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// loop looks for due work until the context ends or the lease is lost.
func (w *Worker) loop(ctx context.Context) error {
	again := bell.New(0)
	defer again.Stop()
	health := bell.New(w.opts.Lease)
	defer health.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-w.fatal:
			return fmt.Errorf("perdure: worker %s: %w", w.id, err)
		case <-health.C:
			health.Reset(w.opts.Lease)
			if err := w.lease.Err(); threads.IsUnusable(err) {
				return fmt.Errorf("perdure: worker %s: %w", w.id, err)
			}
			continue
		case <-w.lease.Lost():
			return fmt.Errorf("%w: the lease of worker %s: %w", fault.ErrFenced, w.id, w.lease.Err())
		case <-w.wake:
			w.news = w.poked.Swap(false) || w.news
		case <-again.C:
		}
		wait, err := w.scan(ctx)
		if err != nil && ctx.Err() == nil {
			if threads.IsUnusable(err) {
				return fmt.Errorf("perdure: worker %s: %w", w.id, err)
			}
			w.threads.Log.Warn("looking for due work", "error", err)
		}
		again.Reset(wait)
	}
}

// full reports whether the worker can take no thread more.
func (w *Worker) full() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.active >= w.opts.Concurrency || w.solo != ""
}

// take looks at a thread in a slot of its own, and reports whether it is seen to.
func (w *Worker) take(h due.Hint) bool {
	w.mu.Lock()
	if w.busy[h.Thread] {
		w.passed[h.Thread] = true
		w.mu.Unlock()
		return true
	}
	s, suspect := w.suspects[keyOf(h)]
	if w.solo != "" || !suspect && w.reserved() {
		w.mu.Unlock()
		return false
	}
	if suspect {
		s.confirmed = false
		w.suspects[keyOf(h)] = s
		if w.active == 0 {
			w.solo = h.Thread // nothing is to begin before it is looked at
		}
	}
	w.occupy(h.Thread)
	w.mu.Unlock()
	go w.lookAt(h, func() error { return w.executeDue(h) })
	return true
}

// occupy takes a slot for a thread. mu is held.
func (w *Worker) occupy(thread string) {
	w.running.Add(1)
	w.active++
	w.busy[thread] = true
}

// leave frees the slot of a thread.
func (w *Worker) leave(h due.Hint) {
	w.NotSuspect(h.Thread)
	w.mu.Lock()
	w.active--
	if s := w.suspects[keyOf(h)]; !s.confirmed {
		delete(w.suspects, keyOf(h)) // it is none any more, or another's
	}
	_, again := w.again[keyOf(h)]
	again = again || w.cut || w.passed[h.Thread] || len(w.suspects) > 0
	delete(w.busy, h.Thread)
	delete(w.passed, h.Thread)
	w.mu.Unlock()
	if again {
		w.poke()
	}
	w.running.Done()
}

// drain hands over what the worker executes. What cannot even be released,
// because the store does not answer, is given up.
func (w *Worker) drain(giveUp func()) {
	w.mu.Lock()
	w.stopping = true
	for p := range w.passes {
		p.Drain()
	}
	w.mu.Unlock()
	done := make(chan struct{})
	go func() {
		w.running.Wait()
		close(done)
	}()
	grace := time.NewTimer(w.opts.Grace)
	defer grace.Stop()
	select {
	case <-done:
		return
	case <-grace.C:
	}
	w.mu.Lock()
	for p := range w.passes {
		go p.Release()
	}
	w.mu.Unlock()
	grace.Reset(w.opts.Lease)
	select {
	case <-done:
		return
	case <-grace.C:
		giveUp()
	}
	grace.Reset(time.Second)
	select {
	case <-done:
	case <-grace.C:
		// Their runs are released or lost, and nothing that they do counts.
		w.threads.Log.Warn("the worker leaves steps behind that do not heed their context")
	}
}

func (w *Worker) stopped() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stopping
}

// LeaseValid reports whether the worker may believe that its runs are its own.
func (w *Worker) LeaseValid() bool { return w.lease.Valid() }

// ID names the worker in claims.
func (w *Worker) ID() string { return w.id }

// AwaitLease waits until the worker may believe that its runs are its own.
func (w *Worker) AwaitLease(ctx context.Context) error {
	for !w.lease.Valid() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-w.lease.Lost():
			return w.lease.Err()
		case <-time.After(w.opts.Lease / 20):
		}
	}
	return nil
}
