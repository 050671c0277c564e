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
// commits go into the next statement. Each caller gets the outcome of its own. A group
// that waits for a lock for long is taken apart, so that those of its requests that do
// not wait are made, and others are not held up: see again.
type writer struct {
	s *Store

	mu     sync.Mutex
	came   sync.Cond // something is in the queue, or closed
	stuck  sync.Cond // a request that has waited for a lock is in the queue, or closed
	queue  []*request
	busy   map[string]struct{} // names in groups that are being written, see request.names
	closed bool
	ended  sync.WaitGroup
}

func newWriter(s *Store) *writer {
	w := &writer{s: s, busy: map[string]struct{}{}}
	w.came.L, w.stuck.L = &w.mu, &w.mu
	for range maxFlights {
		w.ended.Go(func() { w.fly(&w.came, w.take) })
		w.ended.Go(func() { w.fly(&w.stuck, w.takeStuck) })
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
	began    time.Time
	tries    int           // that ended because they waited for a lock
	share    int           // how many requests may be in its next group, if it has tries
	left     bool          // its caller has left, guarded by the writer's lock
	done     chan struct{} // closed when err is set
	err      error
}

// newRequest returns the request of a batch. It has copies of the values: a caller that
// leaves may reuse its slices while they are being sent.
func newRequest(b store.Batch) *request {
	r := &request{Batch: b, began: time.Now(), done: make(chan struct{})}
	r.Entries, r.Cells = slices.Clone(b.Entries), slices.Clone(b.Cells)
	for i, e := range r.Entries {
		r.size += len(e)
		r.Entries[i] = append([]byte{}, e...) // not nil, which would be NULL
	}
	for i, c := range r.Cells {
		r.size += len(c.Value)
		r.Cells[i].Value = append([]byte{}, c.Value...)
		r.versions = append(r.versions, store.Version(rand.Text()))
	}
	return r
}

// The bounds of groups.
const (
	maxFlights    = 2 // groups that are being written at a time, and as many of requests that are stuck
	maxGroup      = 256
	maxGroupBytes = 4 << 20
)

// lockWait returns how long the group of a request may wait for a lock. The first wait
// is long compared with those for other writers of a row, and short compared with a
// lease. While a group is being taken apart, they are short, so that this is soon over.
func (r *request) lockWait() time.Duration {
	const first, least, most = 100 * time.Millisecond, 10 * time.Millisecond, 400 * time.Millisecond
	switch {
	case r.tries == 0:
		return first
	case r.share > 1:
		return least
	}
	return min(least<<min(r.tries, 10), most)
}

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
	r.left = true
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

// fly writes one group after the other until the writer is closed. It waits for came
// if there is nothing to take.
func (w *writer) fly(came *sync.Cond, take func() []*request) {
	for group := w.next(came, take); group != nil; group = w.next(came, take) {
		w.landed(group, w.write(group))
	}
}

// landed frees the names of a group that was written, and puts back those of its
// requests that waited for a lock, ahead of later ones for the same names.
func (w *writer) landed(group, stuck []*request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range group {
		for name := range r.names {
			delete(w.busy, name)
		}
	}
	stuck = slices.DeleteFunc(stuck, func(r *request) bool { return r.left })
	if w.closed {
		refuse(stuck)
		stuck = nil
	}
	if len(stuck) > 0 {
		w.queue = slices.Concat(stuck, w.queue)
		w.stuck.Broadcast()
	}
	if group[0].tries > 0 {
		w.came.Signal() // what has waited for the names can go on
	}
}

// next waits for a group, and returns nil when the writer is closed.
func (w *writer) next(came *sync.Cond, take func() []*request) []*request {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		// Callers that were just told, or are about to write, join the group.
		w.mu.Unlock()
		runtime.Gosched()
		w.mu.Lock()
		if group := take(); len(group) > 0 {
			return group
		}
		if w.closed {
			return nil
		}
		came.Wait()
	}
}

// take removes the next group from the queue: for each name only the first request,
// and none for a name that is being written or that a stuck request waits for. The
// caller holds the lock.
func (w *writer) take() []*request {
	var group, left []*request
	var stuck map[string]struct{}
	size := 0
	for i, r := range w.queue {
		if len(group) == maxGroup || len(group) > 0 && size+r.size > maxGroupBytes {
			left = append(left, w.queue[i:]...)
			break
		}
		taken := r.tries > 0
		for name := range r.names {
			_, busy := w.busy[name]
			_, waits := stuck[name]
			if taken = taken || busy || waits; r.tries > 0 {
				if stuck == nil {
					stuck = map[string]struct{}{}
				}
				stuck[name] = struct{}{}
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

// takeStuck removes the next group of stuck requests from the queue: those with the
// fewest tries, so that one that waits for long does not hold up others. The caller
// holds the lock.
func (w *writer) takeStuck() []*request {
	var next *request
	for _, r := range w.queue {
		if r.tries > 0 && (next == nil || r.tries < next.tries) {
			next = r
		}
	}
	var group, left []*request
	for _, r := range w.queue {
		if next == nil || r.tries != next.tries || r.share != next.share || len(group) == next.share {
			left = append(left, r)
			continue
		}
		for name := range r.names {
			w.busy[name] = struct{}{}
		}
		group = append(group, r)
	}
	w.queue = left
	return group
}

// close waits for groups in progress, and refuses queued requests.
func (w *writer) close() {
	w.mu.Lock()
	w.closed = true
	refuse(w.queue)
	w.queue = nil
	w.came.Broadcast()
	w.stuck.Broadcast()
	w.mu.Unlock()
	w.ended.Wait()
}

// refuse settles requests of a writer that is closed.
func refuse(rs []*request) {
	for _, r := range rs {
		r.err = store.ErrClosed
		close(r.done)
	}
}

// settle sets the outcome of a request.
func (w *writer) settle(r *request, err error) {
	if r.err = err; err == nil {
		var names []string
		for name := range r.Heard {
			names = append(names, name)
			w.s.Wake(name)
		}
		w.s.news.wrote(names...)
	}
	close(r.done)
}

// write writes a group. Requests that were not made are examined: those in conflict
// are settled, and the others are written again. It returns those that have to wait
// for a lock.
func (w *writer) write(group []*request) (stuck []*request) {
	began := time.Now()
	for pause := time.Millisecond; len(group) > 0; pause = min(2*pause, 100*time.Millisecond) {
		ctx, cancel := w.s.call(context.Background())
		made, err := w.s.send(ctx, w.s.pool, group, group[0].lockWait()) // in one commit
		cancel()
		switch code(err) {
		case "PD001", "40P01", "40001": // nothing was written
		case "55P03": // nor here
			return w.again(group)
		case "":
			if err == nil {
				break
			}
			fallthrough
		default:
			for _, r := range group {
				w.settle(r, w.s.failed("write to", err))
			}
			return nil
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
			return nil
		}
		ctx, cancel = w.s.call(context.Background())
		why, readErr := w.s.examine(ctx, w.s.pool, left)
		cancel()
		if readErr != nil {
			for _, r := range left {
				w.settle(r, w.s.failed("read why a write was refused from", readErr))
			}
			return nil
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
			for _, r := range group {
				w.settle(r, errBusy)
			}
			return nil
		}
		if len(group) > 0 && err != nil && code(err) != "PD001" {
			time.Sleep(pause) // so that two groups do not deadlock again at once
		}
	}
	return nil
}

var errBusy = fmt.Errorf("%w: pgstore: other writes kept interfering; nothing was written, so try again", store.ErrBusy)

// again returns the requests of a group in which some wait for a lock, to be written
// in groups of half the size. After a few rounds only those that wait are left. One
// that has waited for too long is settled.
func (w *writer) again(group []*request) (stuck []*request) {
	for _, r := range group {
		if time.Since(r.began) > w.s.timeout {
			w.settle(r, errBusy)
			continue
		}
		r.tries++
		r.share = max(1, len(group)/2)
		stuck = append(stuck, r)
	}
	return stuck
}
