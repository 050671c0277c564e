package worker

import (
	"context"
	"errors"
	"time"

	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/due"
	"github.com/perdure/perdure/store"
)

const (
	// restful is how long what was found is used before the hints are read
	// again, while there is still something in it or hints were left unread.
	restful = 50 * time.Millisecond
	// stale is when a hint that was found is read again before it is taken.
	stale = 200 * time.Millisecond
)

// queue is what a worker has found due, by owner.
type queue struct {
	owners map[string][]due.Hint
	last   string // the owner whose turn was last
	size   int
	found  time.Time
}

func (q *queue) add(h due.Hint) {
	if q.owners == nil {
		q.owners = map[string][]due.Hint{}
	}
	q.owners[h.Owner()] = append(q.owners[h.Owner()], h)
	q.size++
}

// pop returns a hint of the owner whose turn it is.
func (q *queue) pop() (due.Hint, bool) {
	if q.size == 0 {
		return due.Hint{}, false
	}
	next, first := "", ""
	for owner := range q.owners {
		if first == "" || owner < first {
			first = owner
		}
		if owner > q.last && (next == "" || owner < next) {
			next = owner
		}
	}
	if next == "" {
		next = first
	}
	list := q.owners[next]
	if len(list) == 1 {
		delete(q.owners, next)
	} else {
		q.owners[next] = list[1:]
	}
	q.size--
	q.last = next
	return list[0], true
}

// clear forgets what was found, but not whose turn it is.
func (q *queue) clear() { q.owners, q.size = nil, 0 }

// scan starts what is due and returns when to look again at the latest.
func (w *Worker) scan(ctx context.Context) (time.Duration, error) {
	wait, err := w.ring(ctx)
	if err != nil {
		return w.opts.Lease / 4, err
	}
	if ask, err := w.recall(ctx); err != nil {
		return w.opts.Lease / 4, err
	} else {
		wait = min(wait, ask)
	}
	if w.full() || w.closed() {
		w.mu.Lock()
		w.cut = true // the slot that is freed pokes
		w.mu.Unlock()
		return wait, nil
	}
	if age := time.Since(w.queue.found); w.queue.size == 0 || age >= restful {
		soon, err := w.fill(ctx)
		if err != nil {
			return w.opts.Lease / 4, err
		}
		wait = min(wait, soon)
	} else {
		wait = min(wait, restful-age)
	}
	for {
		if w.full() {
			w.mu.Lock()
			w.cut = w.queue.size > 0
			w.mu.Unlock()
			break
		}
		h, ok := w.queue.pop()
		if !ok {
			break
		}
		if time.Since(w.queue.found) > stale {
			fresh, there, err := due.Get(ctx, w.threads.Store, h.Flow, h.Thread)
			if err != nil {
				return w.opts.Lease / 4, err
			}
			if !there || fresh.Due > clock.Micros() {
				continue
			}
			h = fresh
		}
		if !w.take(h) {
			wait = min(wait, restful)
			break
		}
		w.had(h)
	}
	return max(wait, time.Millisecond), nil
}

// ring lets alarms ring that are due, and returns how long until the next.
func (w *Worker) ring(ctx context.Context) (time.Duration, error) {
	wait := due.Near
	if left := time.Until(w.nextRing); left > 0 {
		return min(wait, left), nil
	}
	for flow := range w.opts.Flows {
		rung, next, err := due.Ring(ctx, w.threads.Store, flow, clock.Micros(), pageSize)
		if err != nil && !w.damaged(err) {
			return 0, err
		}
		w.news = w.news || rung > 0
		if next != 0 {
			wait = min(wait, max(clock.Until(next), time.Millisecond))
		}
	}
	// An alarm that is set meanwhile is further off than that.
	w.nextRing = time.Now().Add(wait)
	return wait, nil
}

// damaged reports whether an error only says that cells of others are damaged,
// and logs that now and then.
func (w *Worker) damaged(err error) bool {
	if !errors.Is(err, store.ErrCorrupt) {
		return false
	}
	if now := time.Now(); now.Sub(w.told) > blockedAgain {
		w.told = now
		w.threads.Log.Error("hints are damaged; others are seen to", "error", err)
	}
	return true
}

// dueNow reports whether a hint is due for this worker now, and otherwise how
// long until it is to be looked at.
func (w *Worker) dueNow(h due.Hint) (time.Duration, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if later, ok := w.again[keyOf(h)]; ok {
		if left := time.Until(later.at); left > 0 && h.Version == later.version {
			return left, false
		}
		delete(w.again, keyOf(h))
	}
	if left := clock.Until(h.Due); left > 0 {
		return left, false
	}
	if w.busy[h.Thread] {
		w.passed[h.Thread] = true
		return due.Near, false
	}
	return 0, true
}

// hintKey names a hint. A thread has one for each of its flows.
type hintKey struct{ flow, thread string }

func keyOf(h due.Hint) hintKey { return hintKey{h.Flow, h.Thread} }

// lookAgain is when to look at a thread again whose hint was not written since.
type lookAgain struct {
	at      time.Time
	version store.Version
	holder  string // the worker that holds it, if one does: also when that is gone
}

// later keeps the worker from looking at a thread for a while, unless its hint
// is written.
func (w *Worker) later(h due.Hint, wait time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.again[keyOf(h)] = lookAgain{at: time.Now().Add(wait), version: h.Version}
}

// meanwhile leaves a thread to the worker that holds it, until its hint is
// written or a worker is gone.
func (w *Worker) meanwhile(h due.Hint, holder string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.again[keyOf(h)] = lookAgain{at: time.Now().Add(blockedAgain), version: h.Version, holder: holder}
}

// noteLoss returns how long to leave a thread alone whose run was lost here, the
// longer the more often.
func (w *Worker) noteLoss(h due.Hint) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.losses[keyOf(h)].n + 1
	w.losses[keyOf(h)] = losses{n, time.Now()}
	return min(50*time.Millisecond<<min(n, 10), blockedAgain)
}

// losses is how many runs of a thread were lost here, in a row.
type losses struct {
	n    int
	last time.Time
}

func (w *Worker) found(h due.Hint) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.losses, keyOf(h))
}

// muster looks who else works. What others hold is looked at again when one of
// them has died, who may have taken it over from the holder that was met, and
// when the holder is not among the living: another may have buried one that this
// worker met in a journal only.
func (w *Worker) muster(ctx context.Context) {
	alive, died, err := w.others.Roster(ctx, w.id)
	if err != nil {
		if ctx.Err() == nil {
			w.threads.Log.Warn("looking for other workers", "error", err)
		}
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.peers = len(alive)
	living := map[string]bool{}
	for _, other := range alive {
		living[other.ID] = true
	}
	for hint, a := range w.again {
		if a.holder != "" && (len(died) > 0 || !living[a.holder]) {
			delete(w.again, hint)
			w.poke()
		}
	}
}

// A worker finds due threads by pages of hints. It keeps those that it cannot
// take yet, and takes turns between their owners, so that one with many threads
// does not hold up one with few.
