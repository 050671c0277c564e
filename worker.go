package perdure

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/due"
	"github.com/perdure/perdure/internal/lease"
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
	slots   chan struct{}
	running sync.WaitGroup

	mu       sync.Mutex
	busy     map[string]bool      // threads that are looked at or executed
	passes   map[*pass]bool       // under way
	again    map[string]time.Time // when to look again at what another worker holds, or what failed here
	early    map[string]earlyHint // hints that are ahead of their journal
	stopping bool
}

// Work executes runs that are due, of the flows that the runtime has, until
// the context ends. Then it hands over what is between two steps at once,
// gives running steps Options.Grace, and returns nil. Runs of all tenants are
// executed. Any number of workers may share a store.
func (r *Runtime) Work(ctx context.Context) error {
	io, gone := context.WithCancel(context.WithoutCancel(ctx))
	defer gone()
	w := &worker{core: r.core, id: newRunID(), io: io, others: lease.NewWatcher(r.store), wake: make(chan struct{}, 1),
		slots: make(chan struct{}, r.opts.Concurrency), busy: map[string]bool{}, passes: map[*pass]bool{}, again: map[string]time.Time{}, early: map[string]earlyHint{}}
	var err error
	if w.lease, err = lease.Hold(io, r.store, w.id, r.opts.Lease); err != nil {
		return fmt.Errorf("perdure: starting a worker: %w", err)
	}
	watching, stopWatching := context.WithCancel(io)
	defer stopWatching()
	for flow := range r.flows {
		go func() {
			for range store.Watch(watching, r.store, due.Prefix(flow)) {
				w.poke()
			}
			w.poke() // the store was closed: the next scan says so
		}()
	}
	err = w.loop(ctx)
	w.drain()
	w.running.Wait()
	release, cancel := context.WithTimeout(io, time.Second)
	defer cancel()
	if releaseErr := w.lease.Release(release); err == nil && releaseErr != nil && !errors.Is(releaseErr, store.ErrClosed) {
		w.log.Warn("releasing a lease", "error", releaseErr)
	}
	return err
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
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.lease.Lost():
			return fmt.Errorf("%w: the lease of worker %s: %w", ErrFenced, w.id, w.lease.Err())
		case <-w.wake:
		case <-timer.C:
		}
		wait, err := w.scan(ctx)
		if err != nil && ctx.Err() == nil {
			if errors.Is(err, store.ErrClosed) || errors.Is(err, store.ErrPoisoned) {
				return fmt.Errorf("perdure: worker %s: %w", w.id, err)
			}
			w.log.Warn("looking for due work", "error", err)
		}
		timer.Reset(wait)
	}
}

// scan starts what is due and returns when to look again at the latest.
func (w *worker) scan(ctx context.Context) (time.Duration, error) {
	const longest = time.Minute
	wait := longest
	now := time.Now()
	for flow := range w.flows {
		for h, err := range due.List(ctx, w.store, flow) {
			if err != nil {
				return w.opts.Lease / 4, err
			}
			at := time.UnixMicro(h.Due)
			w.mu.Lock()
			if later, ok := w.again[h.Thread]; ok {
				if now.Before(later) {
					at = later
				} else {
					delete(w.again, h.Thread)
				}
			}
			busy := w.busy[h.Thread]
			w.mu.Unlock()
			switch {
			case at.After(now):
				wait = min(wait, at.Sub(now))
			case busy:
			case !w.take(h):
				return longest, nil // all slots are taken; the one that is freed pokes
			}
		}
	}
	return max(wait, time.Millisecond), nil
}

// take looks at a thread in a slot of its own, if one is free.
func (w *worker) take(h due.Hint) bool {
	select {
	case w.slots <- struct{}{}:
	default:
		return false
	}
	w.mu.Lock()
	w.busy[h.Thread] = true
	w.mu.Unlock()
	w.running.Go(func() {
		defer func() {
			w.mu.Lock()
			delete(w.busy, h.Thread)
			w.mu.Unlock()
			<-w.slots
			w.poke()
		}()
		if err := w.look(h); err != nil {
			w.log.Warn("looking at a thread", "thread", h.Thread, "error", err)
			w.later(h.Thread, time.Second)
		}
	})
	return true
}

// later keeps the worker from looking at a thread for a while.
func (w *worker) later(thread string, wait time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.again[thread] = time.Now().Add(wait)
}

// drain hands over what the worker executes.
func (w *worker) drain() {
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
	defer w.mu.Unlock()
	for p := range w.passes {
		go p.release()
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
