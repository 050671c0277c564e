package perdure

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/bell"
	"github.com/perdure/perdure/internal/due"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/lease"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/internal/upkeep"
	"github.com/perdure/perdure/store"
)

// worker executes the runs that are due.
type worker struct {
	*core
	id      string
	io      context.Context // for the store: ends when the worker is gone
	lease   *lease.Lease
	others  *lease.Watcher
	wake    chan struct{}
	running sync.WaitGroup

	// Of the loop alone.
	queue    queue
	rounds   map[string]*round    // by flow: how far its hints were read
	turns    map[ownerOf]lastTurn // of owners with many threads
	news     bool                 // there may be hints that were not read
	nextRing time.Time            // when alarms are due
	told     time.Time            // when damaged hints were logged

	mu       sync.Mutex
	busy     map[string]bool      // threads that are looked at or executed
	passes   map[*pass]bool       // under way
	again    map[hintOf]lookAgain // at what another worker holds, or what failed here
	early    map[hintOf]earlyHint // hints that are ahead of their journal
	losses   map[hintOf]losses    // runs that were lost here
	passed   map[string]bool      // busy threads whose hints were passed over
	active   int                  // threads that are looked at or executed
	peers    int                  // workers that are alive
	suspects map[hintOf]waiting   // threads that are to be run alone
	solo     string               // the suspect that runs: nothing else does
	cut      bool                 // the last scan found no free slot
	fatal    chan error           // why the worker cannot go on
	stopping bool
}

func newWorker(c *core, io context.Context) *worker {
	return &worker{core: c, id: threads.NewRunID(), io: io, others: lease.NewWatcher(c.threads.Store), wake: make(chan struct{}, 1),
		rounds: map[string]*round{}, turns: map[ownerOf]lastTurn{}, suspects: map[hintOf]waiting{}, busy: map[string]bool{}, passes: map[*pass]bool{},
		again: map[hintOf]lookAgain{}, early: map[hintOf]earlyHint{}, losses: map[hintOf]losses{}, passed: map[string]bool{},
		fatal: make(chan error, 1)}
}

// Work executes runs that are due, of the flows that the runtime has, until
// the context ends. Then it hands over what is between two steps at once,
// gives running steps Options.Grace, and returns nil. Runs of all tenants are
// executed. Any number of workers may share a store. One that has lost its
// lease, because the machine slept or the store was away, begins anew as another
// worker.
func (r *Runtime) Work(ctx context.Context) error {
	for {
		err := r.work(ctx)
		if !errors.Is(err, fault.ErrFenced) {
			return err
		}
		r.threads.Log.Warn("a worker begins anew", "error", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(r.opts.Lease / 4):
		}
	}
}

// work is one worker, until the context ends or its lease is lost.
func (r *Runtime) work(ctx context.Context) error {
	ctx = store.Patient(ctx) // runs wait until a full disk has space again
	io, gone := context.WithCancel(context.WithoutCancel(ctx))
	defer gone()
	w := newWorker(r.core, io)
	defer r.began(w.id)()
	// The lease lives as long as the worker; only taking it ends with ctx.
	holding, giveUp := context.WithCancel(io)
	defer giveUp()
	waiting := context.AfterFunc(ctx, giveUp)
	var err error
	if w.lease, err = lease.HoldWith(holding, r.threads.Store, w.id, r.opts.Lease, r.workerInfo()); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("perdure: starting a worker: %w", err)
	}
	waiting()
	watching, stopWatching := context.WithCancel(io)
	defer stopWatching()
	for flow := range r.flows {
		go func() {
			for range store.Watch(watching, r.threads.Store, due.Prefix(flow)) {
				w.poke()
			}
			w.poke() // the store was closed: the next scan says so
		}()
	}
	go w.watchOthers(watching)
	go upkeep.Sweep(watching, r.threads)
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
func (w *worker) watchOthers(ctx context.Context) {
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
func (w *worker) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// loop looks for due work until the context ends or the lease is lost.
func (w *worker) loop(ctx context.Context) error {
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
			if err := w.lease.Err(); useless(err) {
				return fmt.Errorf("perdure: worker %s: %w", w.id, err)
			}
			continue
		case <-w.lease.Lost():
			return fmt.Errorf("%w: the lease of worker %s: %w", fault.ErrFenced, w.id, w.lease.Err())
		case <-w.wake:
			w.news = true
		case <-again.C:
		}
		wait, err := w.scan(ctx)
		if err != nil && ctx.Err() == nil {
			if useless(err) {
				return fmt.Errorf("perdure: worker %s: %w", w.id, err)
			}
			w.threads.Log.Warn("looking for due work", "error", err)
		}
		again.Reset(wait)
	}
}

// useless reports whether a store's handle has to be opened anew. One that is
// unavailable does that itself.
func useless(err error) bool {
	return errors.Is(err, store.ErrClosed) || errors.Is(err, store.ErrPoisoned)
}

// full reports whether the worker can take no thread more.
func (w *worker) full() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.active >= w.opts.Concurrency || w.solo != ""
}

// take looks at a thread, in a slot of its own. It reports whether the thread
// is seen to.
func (w *worker) take(h due.Hint) bool {
	w.mu.Lock()
	if w.busy[h.Thread] {
		w.passed[h.Thread] = true
		w.mu.Unlock()
		return true
	}
	s, suspect := w.suspects[of(h)]
	if w.solo != "" || !suspect && w.reserved() {
		w.mu.Unlock()
		return false
	}
	if suspect {
		s.confirmed = false
		w.suspects[of(h)] = s
		if w.active == 0 {
			w.solo = h.Thread // nothing is to begin before it is looked at
		}
	}
	w.active++
	w.busy[h.Thread] = true
	w.mu.Unlock()
	w.running.Go(func() {
		defer func() {
			w.together(h.Thread)
			w.mu.Lock()
			w.active--
			if s := w.suspects[of(h)]; !s.confirmed {
				delete(w.suspects, of(h)) // it is none any more, or another's
			}
			_, again := w.again[of(h)]
			again = again || w.cut || w.passed[h.Thread] || len(w.suspects) > 0
			delete(w.busy, h.Thread)
			delete(w.passed, h.Thread)
			w.mu.Unlock()
			if again {
				w.poke()
			}
		}()
		if err := w.look(h); err != nil {
			w.threads.Log.Warn("looking at a thread", "thread", h.Thread, "error", err)
			wait := time.Second
			if errors.Is(err, fault.ErrCorrupt) {
				wait = blockedAgain
			}
			w.later(h, wait)
			if useless(err) {
				select {
				case w.fatal <- err:
				default:
				}
			}
		}
	})
	return true
}

// drain hands over what the worker executes. What cannot even be released,
// because the store does not answer, is given up.
func (w *worker) drain(giveUp func()) {
	w.mu.Lock()
	w.stopping = true
	for p := range w.passes {
		p.drain()
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
		go p.release()
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

func (w *worker) stopped() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stopping
}

func (w *worker) leaseValid() bool { return w.lease.Valid() }

// awaitLease waits until the worker may believe that its runs are its own.
func (w *worker) awaitLease(ctx context.Context) error {
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
