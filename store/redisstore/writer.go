package redisstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/perdure/perdure/store"
)

// A writer makes the writes of a handle in groups: those that arrive while the server
// is busy go to it together, in one pipeline. Each is a script of its own, and each
// caller gets the outcome of its own.
type writer struct {
	s *Store

	mu     sync.Mutex
	came   sync.Cond // something is in the queue, or closed
	queue  []*request
	closed bool
	ended  sync.WaitGroup
}

func newWriter(s *Store) *writer {
	w := &writer{s: s}
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
	versions []store.Version // of its cells after the write: random, so that none recurs
	size     int
	done     chan struct{} // closed when err is set
	err      error
}

// The bounds of groups.
const (
	maxFlights    = 4 // groups that are being written at a time
	maxGroup      = 64
	maxGroupBytes = 1 << 20
)

// do writes r and returns its outcome. Until r is sent, the end of ctx or of the
// store withdraws it. After that, a caller whose ctx ends does not learn the outcome.
func (w *writer) do(ctx context.Context, r *request) error {
	// A caller that leaves may reuse its slices while they are being sent.
	r.Entries, r.Cells = slices.Clone(r.Entries), slices.Clone(r.Cells)
	for i, e := range r.Entries {
		r.size += len(e)
		r.Entries[i] = slices.Clone(e)
	}
	for i, c := range r.Cells {
		version := rand.Text()
		r.size += len(c.Value)
		r.versions = append(r.versions, store.Version(version))
		r.Cells[i].Value = append([]byte(version), c.Value...)
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
		return fmt.Errorf("redisstore: the write was sent and may have happened: %w", ctx.Err())
	}
}

// fly writes one group after the other until the writer is closed.
func (w *writer) fly() {
	for group := w.next(); group != nil; group = w.next() {
		w.write(group)
	}
}

// next waits for a group, and returns nil when the writer is closed.
func (w *writer) next() []*request {
	// Callers that were just told, or are about to write, join the group.
	runtime.Gosched()
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.queue) == 0 {
		if w.closed {
			return nil
		}
		w.came.Wait()
	}
	n, size := 0, 0
	for _, r := range w.queue {
		if n == maxGroup || n > 0 && size+r.size > maxGroupBytes {
			break
		}
		n++
		size += r.size
	}
	group := slices.Clone(w.queue[:n])
	w.queue = slices.Delete(w.queue, 0, n)
	if len(w.queue) > 0 {
		w.came.Signal()
	}
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

// write writes a group. What the server did not execute, since it does not know the
// script or another one has the store, is sent again.
func (w *writer) write(group []*request) {
	ctx, cancel := context.WithTimeout(context.Background(), w.s.timeout)
	defer cancel()
	whole := false // whether to send the script and not its hash
	for hops := 0; ; hops++ {
		c := w.s.link.client()
		replies := make([]*redis.Cmd, len(group))
		_, failed := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, r := range group {
				names, args := w.s.arguments(r)
				script := writeScript
				if r.removes() {
					script = removeScript
				}
				if whole {
					replies[i] = script.Eval(ctx, p, names, args...)
				} else {
					replies[i] = script.EvalSha(ctx, p, names, args...)
				}
			}
			return nil
		})
		var left []*request
		for i, r := range group {
			answer, err := replies[i].Result()
			if err == nil && answer == nil {
				err = failed // nothing was sent, since the server refused the connection
			}
			list, _ := answer.([]any)
			unknown := redis.HasErrorPrefix(err, "NOSCRIPT")
			whole = whole || unknown
			if err != nil && hops < maxHops && (unknown || w.s.link.redirect(c, err)) {
				left = append(left, r)
				continue
			}
			w.settle(r, w.s.outcome(r, reply(list), err))
		}
		if group = left; len(group) == 0 {
			return
		}
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

// removes reports whether a request only removes cells.
func (r *request) removes() bool {
	return r.Journal == "" && !slices.ContainsFunc(r.Cells, func(c store.Write) bool { return !c.Remove })
}

// arguments returns those of writeScript.
func (s *Store) arguments(r *request) (names []string, args []any) {
	names = append(make([]string, 0, 5+len(r.Cells)), s.keys.format, s.keys.journals, s.keys.dropped, s.keys.cells)
	if r.Journal != "" {
		names = append(names, s.keys.journal+r.Journal)
	}
	args = append(make([]any, 0, 4+len(r.Entries)+4*len(r.Cells)), s.format, r.Journal, strconv.FormatUint(r.After, 10), len(r.Entries))
	for _, e := range r.Entries {
		args = append(args, e)
	}
	for _, c := range r.Cells {
		kind := puts
		switch {
		case c.Remove && c.Optional:
			kind = removesOptional
		case c.Remove:
			kind = removes
		case c.Optional:
			kind = putsOptional
		}
		names = append(names, s.keys.cell+c.Key)
		args = append(args, kind, c.Key, string(c.Prev), c.Value)
	}
	return names, args
}

// outcome returns the error of a request that the server answered.
func (s *Store) outcome(r *request, a reply, err error) error {
	if err != nil {
		return s.failed("write to", err)
	}
	if err := s.refusedBy(a); err != nil {
		return err
	}
	switch a.text(0) {
	case made:
		return nil
	case wasDropped:
		return store.WasDropped(r.Journal)
	case wasLost:
		return s.lostJournal(r.Journal)
	case notAtEnd:
		return store.NotAtEnd(r.Journal, r.After, uint64(a.number(1)))
	case notVersion:
		i, now := a.number(1), a.text(2)
		if i < 1 || int(i) > len(r.Cells) {
			break
		}
		c := r.Cells[i-1]
		if now == lostVersion {
			return s.lostCell(c.Key)
		}
		err := store.NotVersion(c.Key, c.Prev, store.Version(now))
		if r.Journal != "" {
			err = &store.CellConflict{Key: c.Key, Err: err}
		}
		return err
	}
	return fmt.Errorf("%w: redisstore: the server answered a write, which may have happened, with %v", store.ErrUnavailable, a)
}
