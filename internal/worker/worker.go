// Package worker decides who executes what, and when: it finds due work, gives
// owners turns, claims runs and takes over those of dead workers. It may import
// internal/engine, upkeep and lease, and what those import.
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

// Worker executes runs that are due.
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
	poked   atomic.Bool // by something other than news about a flow
	running sync.WaitGroup

	// Used only by the loop.
	queue    queue
	rounds   map[string]*round     // by flow: how far its hints have been read
	turns    map[ownerKey]lastTurn // the last turns of owners
	news     bool                  // there may be unread hints of any flow
	nextRing time.Time             // when to ring alarms next
	told     time.Time             // when damaged hints were last logged

	mu       sync.Mutex
	fresh    map[string]bool       // flows whose hints have changed since they were read
	busy     map[string]bool       // threads that are looked at or executed
	passes   map[*engine.Pass]bool // that are running
	again    map[hintKey]lookAgain // at threads that another worker holds or that failed here
	early    map[hintKey]earlyHint // hints that are ahead of their journal
	losses   map[hintKey]losses    // runs that were lost here
	passed   map[string]bool       // busy threads whose hints were met meanwhile
	active   int                   // threads that are looked at or executed
	peers    int                   // workers that are alive
	suspects map[hintKey]waiting   // threads that must run alone
	solo     string                // the suspect that is running; nothing else begins
	cut      bool                  // the last scan found no free slot
	fatal    chan error            // why the worker cannot continue
	stopping bool
}

func newWorker(c *Staff, io context.Context) *Worker {
	return &Worker{staff: c, threads: c.threads, engine: c.engine, opts: c.opts, id: threads.NewRunID(), io: io, others: lease.NewWatcher(c.threads.Store), wake: make(chan struct{}, 1),
		rounds: map[string]*round{}, turns: map[ownerKey]lastTurn{}, suspects: map[hintKey]waiting{}, fresh: map[string]bool{}, busy: map[string]bool{}, passes: map[*engine.Pass]bool{},
		again: map[hintKey]lookAgain{}, early: map[hintKey]earlyHint{}, losses: map[hintKey]losses{}, passed: map[string]bool{},
		fatal: make(chan error, 1)}
}

// Work executes runs that are due until the context ends. A worker that has
// lost its lease starts over under a new id.
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
	// The lease lives as long as the worker; only the attempt to take it ends
	// with ctx.
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
			w.poke() // the store was closed, as the next scan will report
		}()
	}
	go w.watchOthers(watching)
	go s.threads.CheckMoved(watching) // which logs it
	go upkeep.Sweep(watching, s.threads, s.opts.Finish)
	go upkeep.FinishLeaving(watching, s.threads)
	err = w.loop(ctx)
	w.drain(gone)
	release, cancel := context.WithTimeout(context.WithoutCancel(io), releaseTime)
	defer cancel()
	if releaseErr := w.lease.Release(release); err == nil && releaseErr != nil && !errors.Is(releaseErr, store.ErrClosed) {
		w.threads.Warn("releasing a lease", releaseErr)
	}
	return err
}

// releaseTime is how long a worker that ends tries to give up its lease. If it cannot,
// others wait for the lease to pass.
const releaseTime = 5 * time.Second

// watchOthers looks for other workers about as often as leases are renewed. Not
// exactly as often, so that workers of one process do not fall into step.
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
			w.threads.Warn("looking for due work", err)
		}
		again.Reset(wait)
	}
}

// full reports whether the worker can take no more threads.
func (w *Worker) full() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.active >= w.opts.Concurrency || w.solo != ""
}

// take starts to look at a thread in a slot of its own, and reports whether the
// hint is taken care of.
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
			w.solo = h.Thread // nothing else may begin before it is looked at
		}
	}
	w.occupy(h.Thread)
	w.mu.Unlock()
	go w.lookAt(h, func() error { return w.executeDue(h) })
	return true
}

// occupy takes a slot for a thread. The caller holds mu.
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
		delete(w.suspects, keyOf(h)) // it is no longer a suspect, or another worker holds it
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

// drain hands over the runs that the worker executes. Runs that cannot even be
// released, because the store does not answer, are given up.
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
		// Their runs are released or lost, and nothing that they do counts any
		// more.
		w.threads.Log.Warn("the worker leaves steps behind that do not heed their context")
	}
}

func (w *Worker) stopped() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stopping
}

// LeaseValid reports whether the worker's lease is valid.
func (w *Worker) LeaseValid() bool { return w.lease.Valid() }

// ID names the worker in claims.
func (w *Worker) ID() string { return w.id }

// AwaitLease waits until the worker's lease is valid.
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
