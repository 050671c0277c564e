package worker

import (
	"context"

	"github.com/perdure/perdure/internal/due"
	"github.com/perdure/perdure/internal/lease"
)

// Hold returns a worker with a lease that has not begun to look for work.
func (s *Staff) Hold(io context.Context) (*Worker, error) {
	w := newWorker(s, io)
	var err error
	w.lease, err = lease.Hold(io, s.threads.Store, w.id, s.opts.Lease, nil)
	return w, err
}

// Loop looks for due work until the context ends.
func (w *Worker) Loop(ctx context.Context) error { return w.loop(ctx) }

// Take begins to look at a thread, unless the worker has no room for it.
func (w *Worker) Take(h due.Hint) bool { return w.take(h) }

// Join waits until nothing is executed.
func (w *Worker) Join() { w.running.Wait() }

// Remembered returns of how many threads the worker remembers something.
func (w *Worker) Remembered() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.again) + len(w.early) + len(w.busy) + len(w.passes)
}
