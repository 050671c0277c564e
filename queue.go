package perdure

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/perdure/perdure/internal/due"
	"github.com/perdure/perdure/store"
)

// A worker finds due threads by pages of hints. It keeps those that it cannot
// take yet, and takes turns between their owners, so that one with many threads
// does not hold up one with few.

const (
	pageSize = 256 // hints in a page
	maxPages = 8   // of a flow, read at a time

	// restful is how long what was found is used before the hints are read
	// again, while there is still something in it.
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
func (w *worker) scan(ctx context.Context) (time.Duration, error) {
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
			fresh, there, err := due.Get(ctx, w.store, h.Flow, h.Thread)
			if err != nil {
				return w.opts.Lease / 4, err
			}
			if !there || fresh.Due > wall() {
				continue
			}
			h = fresh
		}
		if !w.take(h) {
			wait = min(wait, restful)
			break
		}
	}
	return max(wait, time.Millisecond), nil
}

// ring lets alarms ring that are due, and returns how long until the next.
func (w *worker) ring(ctx context.Context) (time.Duration, error) {
	wait := due.Near
	if left := time.Until(w.nextRing); left > 0 {
		return min(wait, left), nil
	}
	for flow := range w.flows {
		_, next, err := due.Ring(ctx, w.store, flow, wall(), pageSize)
		if err != nil {
			return 0, err
		}
		if next != 0 {
			wait = min(wait, max(until(next), time.Millisecond))
		}
	}
	// An alarm that is set meanwhile is further off than that.
	w.nextRing = time.Now().Add(wait)
	return wait, nil
}

// fill reads the hints of all flows into the queue, some of each owner, and
// returns how long until one of them is due or to be looked at again.
func (w *worker) fill(ctx context.Context) (time.Duration, error) {
	wait := due.Near
	met := map[hintOf]bool{}
	whole := true
	w.queue.clear()
	w.queue.found = time.Now()
	w.mu.Lock()
	w.cut = false
	w.mu.Unlock()
	for flow := range w.flows {
		soon, all, err := w.fillFlow(ctx, flow, met)
		if err != nil {
			return 0, err
		}
		wait, whole = min(wait, soon), whole && all
	}
	w.mu.Lock()
	if whole {
		forget(w.again, met)
		forget(w.early, met)
		forget(w.losses, met)
	}
	crowd := w.peers > 1
	w.mu.Unlock()
	if crowd {
		// So that workers do not all begin with the same thread.
		for _, list := range w.queue.owners {
			rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		}
	}
	return wait, nil
}

// fillFlow reads hints of a flow into the queue, from where it stopped the last
// time. Of an owner with many it goes on to the next one when it has enough. It
// reports whether it has read all hints.
func (w *worker) fillFlow(ctx context.Context, flow string, met map[hintOf]bool) (time.Duration, bool, error) {
	wait, whole := due.Near, w.cursors[flow] == ""
	start := w.cursors[flow]
	cursor, wrapped := start, start == ""
	enough := 2 * w.opts.Concurrency
	count := map[string]int{}
	for range maxPages {
		hints, last, more, err := due.Page(ctx, w.store, flow, cursor, pageSize)
		if err != nil {
			return 0, false, err
		}
		for _, h := range hints {
			met[of(h)] = true
			if soon, take := w.judge(h); !take {
				wait = min(wait, soon)
			} else if count[h.Owner()]++; count[h.Owner()] <= enough {
				w.queue.add(h)
			}
		}
		cursor = last
		if n := len(hints); more && n > 0 && count[hints[n-1].Owner()] >= enough {
			cursor, whole = due.NextOwner(last), false
		}
		if !more {
			cursor = ""
			if wrapped {
				break
			}
			wrapped = true
		}
		if wrapped && start != "" && cursor >= start {
			break
		}
		if w.queue.size >= 4*enough {
			whole = false
			break
		}
	}
	w.cursors[flow] = cursor
	return wait, whole && cursor == "", nil
}

// judge reports whether a hint is due for this worker now, and otherwise how
// long until it is to be looked at.
func (w *worker) judge(h due.Hint) (time.Duration, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if later, ok := w.again[of(h)]; ok {
		if left := time.Until(later.at); left > 0 && h.Version == later.version {
			return left, false
		}
		delete(w.again, of(h))
	}
	if left := until(h.Due); left > 0 {
		return left, false
	}
	if w.busy[h.Thread] {
		w.passed[h.Thread] = true
		return due.Near, false
	}
	return 0, true
}

// forget removes what is kept about hints that are no more.
func forget[T any](kept map[hintOf]T, met map[hintOf]bool) {
	for hint := range kept {
		if !met[hint] {
			delete(kept, hint)
		}
	}
}

// hintOf names a hint. A thread has one for each of its flows.
type hintOf struct{ flow, thread string }

func of(h due.Hint) hintOf { return hintOf{h.Flow, h.Thread} }

// lookAgain is when to look at a thread again whose hint was not written since.
type lookAgain struct {
	at      time.Time
	version store.Version
	holder  string // the worker that holds it, if one does: also when that is gone
}

// later keeps the worker from looking at a thread for a while, unless its hint
// is written.
func (w *worker) later(h due.Hint, wait time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.again[of(h)] = lookAgain{at: time.Now().Add(wait), version: h.Version}
}

// meanwhile leaves a thread to the worker that holds it, until its hint is
// written or a worker is gone.
func (w *worker) meanwhile(h due.Hint, holder string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.again[of(h)] = lookAgain{at: time.Now().Add(blockedAgain), version: h.Version, holder: holder}
}

// muster looks who else works. What others hold is looked at again when one of
// them has died, who may have taken it over from the holder that was met, and
// when the holder is not among the living: another may have buried one that this
// worker met in a journal only.
func (w *worker) muster(ctx context.Context) {
	alive, died, err := w.others.Roster(ctx, w.id)
	if err != nil {
		if ctx.Err() == nil {
			w.log.Warn("looking for other workers", "error", err)
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
