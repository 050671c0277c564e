package pgstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/perdure/perdure/store"
)

// A writer makes the writes of a handle in groups: those that arrive while the server
// commits go into the next statement. Each caller gets the outcome of its own.
type writer struct {
	s *Store

	mu     sync.Mutex
	came   sync.Cond // something is in the queue, or closed
	queue  []*request
	busy   map[string]struct{} // names in groups that are being written, see request.names
	closed bool
	ended  sync.WaitGroup
}

func newWriter(s *Store) *writer {
	w := &writer{s: s, busy: map[string]struct{}{}}
	w.came.L = &w.mu
	for range maxFlights {
		w.ended.Go(w.fly)
	}
	return w
}

// A request is one write: an append with its cells, or a single cell, in which case
// the journal is "".
type request struct {
	store.Batch
	unsynced bool
	versions []store.Version // of its cells after the write: random, so that none recurs
	size     int
	done     chan struct{} // closed when err is set
	err      error
}

// The bounds of groups.
const (
	maxFlights    = 2 // groups that are being written at a time
	maxGroup      = 256
	maxGroupBytes = 4 << 20
)

// names yields the names of what a request changes. Requests with a name in common
// are never written at the same time.
func (r *request) names(yield func(string) bool) {
	if r.Journal != "" && !yield("j"+r.Journal) {
		return
	}
	for _, w := range r.Cells {
		if !yield("c" + w.Key) {
			return
		}
	}
}

// do writes r and returns its outcome. Until r is sent, the end of ctx or of the
// store withdraws it. After that, a caller whose ctx ends does not learn the outcome.
func (w *writer) do(ctx context.Context, r *request) error {
	// A caller that leaves may reuse its slices while they are being sent.
	r.Entries, r.Cells = slices.Clone(r.Entries), slices.Clone(r.Cells)
	for i, e := range r.Entries {
		r.size += len(e)
		r.Entries[i] = append([]byte{}, e...) // not nil, which would be NULL
	}
	for i, c := range r.Cells {
		r.size += len(c.Value)
		r.Cells[i].Value = append([]byte{}, c.Value...)
		r.versions = append(r.versions, store.Version(rand.Text()))
	}
	r.done = make(chan struct{})
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return store.ErrClosed
	}
	w.queue = append(w.queue, r)
	w.came.Signal()
	w.mu.Unlock()
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
	}
	w.mu.Lock()
	i := slices.Index(w.queue, r)
	if i >= 0 {
		w.queue = slices.Delete(w.queue, i, i+1)
	}
	w.mu.Unlock()
	if i >= 0 {
		return ctx.Err()
	}
	select {
	case <-r.done:
		return r.err
	default:
		return fmt.Errorf("pgstore: the write was sent and may have happened: %w", ctx.Err())
	}
}

// fly writes one group after the other until the writer is closed.
func (w *writer) fly() {
	for group := w.next(nil); group != nil; group = w.next(group) {
		w.write(group)
	}
}

// next waits for a group after another one was written, and returns nil when the
// writer is closed.
func (w *writer) next(written []*request) []*request {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range written {
		for name := range r.names {
			delete(w.busy, name)
		}
	}
	for {
		// Callers that were just told, or are about to write, join the group.
		w.mu.Unlock()
		runtime.Gosched()
		w.mu.Lock()
		if group := w.take(); len(group) > 0 {
			return group
		}
		if w.closed {
			return nil
		}
		w.came.Wait()
	}
}

// take removes the next group from the queue: for each name only the first request,
// and none for a name that is being written. The caller holds the lock.
func (w *writer) take() []*request {
	var group, left []*request
	size := 0
	for i, r := range w.queue {
		if len(group) == maxGroup || len(group) > 0 && size+r.size > maxGroupBytes {
			left = append(left, w.queue[i:]...)
			break
		}
		taken := false
		for name := range r.names {
			if _, taken = w.busy[name]; taken {
				break
			}
		}
		if taken {
			left = append(left, r)
			continue
		}
		for name := range r.names {
			w.busy[name] = struct{}{}
		}
		group = append(group, r)
		size += r.size
	}
	w.queue = left
	return group
}

// close waits for groups in progress, and refuses queued requests.
func (w *writer) close() {
	w.mu.Lock()
	w.closed = true
	for _, r := range w.queue {
		r.err = store.ErrClosed
		close(r.done)
	}
	w.queue = nil
	w.came.Broadcast()
	w.mu.Unlock()
	w.ended.Wait()
}

// settle sets the outcome of a request.
func (w *writer) settle(r *request, err error) {
	if r.err = err; err == nil {
		var names []string
		for name := range r.names {
			names = append(names, name[1:])
			w.s.Wake(name[1:])
		}
		w.s.news.wrote(names...)
	}
	close(r.done)
}

// write writes a group. Requests that were not made are examined: those in conflict
// are settled, and the others are written again.
func (w *writer) write(group []*request) {
	began := time.Now()
	for pause := time.Millisecond; len(group) > 0; pause = min(2*pause, 100*time.Millisecond) {
		ctx, cancel := w.s.call(context.Background())
		made, err := w.s.send(ctx, w.s.pool, group) // in one commit
		cancel()
		switch code(err) {
		case "PD001", "40P01", "40001": // nothing was written
		case "":
			if err == nil {
				break
			}
			fallthrough
		default:
			for _, r := range group {
				w.settle(r, w.s.failed("write to", err))
			}
			return
		}
		var left []*request
		for i, r := range group {
			if err == nil && made[i] {
				w.settle(r, nil)
			} else {
				left = append(left, r)
			}
		}
		if len(left) == 0 {
			return
		}
		ctx, cancel = w.s.call(context.Background())
		why, readErr := w.s.examine(ctx, w.s.pool, left)
		cancel()
		if readErr != nil {
			for _, r := range left {
				w.settle(r, w.s.failed("read why a write was refused from", readErr))
			}
			return
		}
		group = nil // not group[:0]: the caller still needs the slice it gave
		for i, r := range left {
			if why[i] != nil {
				w.settle(r, why[i])
			} else {
				group = append(group, r)
			}
		}
		if len(group) > 0 && time.Since(began) > w.s.timeout {
			busy := fmt.Errorf("%w: pgstore: other writes kept interfering; nothing was written, so try again", store.ErrBusy)
			for _, r := range group {
				w.settle(r, busy)
			}
			return
		}
		if len(group) > 0 && err != nil && code(err) != "PD001" {
			time.Sleep(pause) // so that two groups do not deadlock again at once
		}
	}
}
