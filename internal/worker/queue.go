package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/due"
	"github.com/perdure/perdure/store"
)

const (
	// restful is how long a filled queue is used before the hints are read
	// again, while it is not empty or hints were left unread.
	restful = 50 * time.Millisecond
	// crowd is the number of hints from which on rereading them is paced, see
	// rest.
	crowd = 8
	// stale is the age from which on a hint is read again before it is taken.
	stale = 200 * time.Millisecond
)

// queue holds the hints that a worker has found due, by owner.
type queue struct {
	owners map[string][]due.Hint
	last   string // the owner who had the last turn
	size   int
	found  time.Time
	met    int           // how many hints were read to fill it
	cost   time.Duration // how long that took
	vain   bool          // none of them was due here
}

// rest returns how long to wait at least before the queue is filled again. If
// there are many hints, most belong to runs in progress: each read is followed
// by a longer pause, so that a worker does not spend all its time on news. If
// there was nothing to take, the news was of such runs, as are the starts and
// ends of the worker's own, and the pause is longer still.
func (q *queue) rest() time.Duration {
	switch {
	case q.met < crowd:
		return 0
	case q.vain:
		return max(3*q.cost, min(20*q.cost, restful))
	}
	return 3 * q.cost
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

// clear forgets the hints, but not whose turn it is.
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
		w.cut = true // the next slot that becomes free pokes
		w.mu.Unlock()
		return wait, nil
	}
	if age := time.Since(w.queue.found); w.queue.size == 0 && age < w.queue.rest() {
		return min(wait, max(w.queue.rest()-age, time.Millisecond)), nil
	} else if w.queue.size == 0 || age >= restful {
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

// ring rings the alarms that are due, and returns the time until the next.
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
	// Alarms that are set in the meantime are further off than that.
	w.nextRing = time.Now().Add(wait)
	return wait, nil
}

// damaged reports whether an error only says that some cells are damaged, and
// logs that now and then.
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

// dueNow reports whether a hint is due for this worker now, and if not, how
// long until it should be looked at.
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

// hintKey identifies a hint. A thread has one for each of its flows.
type hintKey struct{ flow, thread string }

func keyOf(h due.Hint) hintKey { return hintKey{h.Flow, h.Thread} }

// lookAgain is when to look again at a thread whose hint has not changed since.
type lookAgain struct {
	at      time.Time
	version store.Version
	holder  string // the worker that holds it, if any: look again when it is gone, too
}

// later keeps the worker away from a thread for a while, unless its hint
// changes.
func (w *Worker) later(h due.Hint, wait time.Duration) { w.leaveTo(h, wait, "") }

// leaveTo is later for a thread that another worker holds: it is looked at
// again when a worker is gone, too.
func (w *Worker) leaveTo(h due.Hint, wait time.Duration, holder string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.again[keyOf(h)] = lookAgain{at: time.Now().Add(wait), version: h.Version, holder: holder}
}

// noteLoss returns how long to leave a thread alone whose run was lost here:
// longer each time.
func (w *Worker) noteLoss(h due.Hint) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.losses[keyOf(h)].n + 1
	w.losses[keyOf(h)] = losses{n, time.Now()}
	return min(50*time.Millisecond<<min(n, 10), blockedAgain)
}

// losses counts how many runs of a thread were lost here in a row.
type losses struct {
	n    int
	last time.Time
}

func (w *Worker) found(h due.Hint) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.losses, keyOf(h))
}

// muster finds out which other workers are alive. Threads held by others are
// looked at again when any worker has died, since it may have taken over from
// the known holder, and when the holder is not alive: someone else may have
// buried a worker that this one has only met in a journal.
func (w *Worker) muster(ctx context.Context) {
	alive, died, err := w.others.Roster(ctx, w.id)
	if err != nil {
		if ctx.Err() == nil {
			w.threads.Warn("looking for other workers", err)
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
	if len(died) > 0 {
		w.poke() // what they held from its start on, this worker has not met
	}
	for hint, a := range w.again {
		if a.holder != "" && (len(died) > 0 || !living[a.holder]) {
			delete(w.again, hint)
			w.poke()
		}
	}
}

// A worker finds due threads by reading pages of hints. It keeps those that it
// cannot take yet, and gives their owners turns, so that one with many threads
// does not hold up one with few.

const (
	pageSize = 256 // hints in a page
	maxPages = 8   // of a flow that are read at a time

	// forgetAfter is how long a worker remembers hints and owners that it does
	// not meet again.
	forgetAfter = 5 * time.Minute
)

// round is one walk through the hints of a flow, from where the last one
// stopped around to the same place. With many hints it takes several fills.
// News begins a new round, so that every hint is read after the latest news.
type round struct {
	at      string    // the cursor: the last hint read
	from    string    // where it began
	wrapped bool      // it has passed the last hint and continued with the first
	walking bool      // it has not come full circle yet
	skipped bool      // it has skipped hints of an owner with many
	soon    time.Time // when the earliest hint that it met is due
}

func (r *round) begin() {
	*r = round{at: r.at, from: r.at, wrapped: r.at == "", walking: true, soon: time.Now().Add(due.Near)}
}

func (r *round) met(left time.Duration) {
	if at := time.Now().Add(left); at.Before(r.soon) {
		r.soon = at
	}
}

// read notes how far the hints were read, and whether there are more.
func (r *round) read(last string, more bool) {
	r.at = last
	if !more {
		r.at, r.walking, r.wrapped = "", !r.wrapped, true
	}
	if r.wrapped && r.from != "" && r.at >= r.from {
		r.walking = false
	}
}

// skip skips the hints up to a cursor.
func (r *round) skip(to string) {
	r.skipped = true
	r.read(to, true)
}

func (r *round) wait() time.Duration {
	if r.walking || r.skipped {
		return restful
	}
	return time.Until(r.soon)
}

// ownerKey identifies an owner's due threads of a flow.
type ownerKey struct{ flow, owner string }

// lastTurn is the thread of an owner that was taken last, and when. The threads
// after it come next, so that all get a turn even if the first ones keep
// becoming due.
type lastTurn struct {
	thread string
	at     time.Time
}

func (w *Worker) had(h due.Hint) {
	w.turns[ownerKey{h.Flow, h.Owner()}] = lastTurn{h.Thread, time.Now()}
}

// fill reads hints of all flows into the queue, some for each owner, and
// returns how long until more should be read.
func (w *Worker) fill(ctx context.Context) (time.Duration, error) {
	wait := due.Near
	left := w.queue.size > 0 // what is left in it will be read again
	w.queue.clear()
	w.queue.found, w.queue.met = time.Now(), 0
	defer func() { w.queue.cost, w.queue.vain = time.Since(w.queue.found), w.queue.size == 0 }()
	w.mu.Lock()
	w.cut = false
	fresh := w.fresh
	w.fresh = map[string]bool{}
	w.mu.Unlock()
	for flow := range w.opts.Flows {
		r := w.rounds[flow]
		if r == nil {
			r = &round{}
			w.rounds[flow] = r
		}
		if w.news || fresh[flow] || left || !r.walking && r.wait() <= restful {
			r.begin()
		}
		if !r.walking {
			wait = min(wait, r.wait())
			continue
		}
		if err := w.fillFlow(ctx, flow, r); err != nil {
			w.news, r.walking = true, false // the hints found so far are lost
			return 0, err
		}
		wait = min(wait, r.wait())
	}
	w.news = false
	w.forget()
	w.mu.Lock()
	crowded := w.peers > 1
	w.mu.Unlock()
	if crowded {
		// So that workers do not all begin with the same thread.
		for _, list := range w.queue.owners {
			rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		}
	}
	return wait, nil
}

// fillFlow reads hints of a flow into the queue. When it has enough of an owner
// with many, it skips to the next owner.
func (w *Worker) fillFlow(ctx context.Context, flow string, r *round) error {
	enough := 2 * w.opts.Concurrency
	ready := map[string][]due.Hint{} // by owner
	next := map[string]int{}         // how many of them come after the last turn
	count := w.queue.size
	for page := 0; page < maxPages && r.walking && count < 4*enough; page++ {
		hints, last, more, err := due.Page(ctx, w.threads.Store, flow, r.at, pageSize)
		if err != nil && !w.damaged(err) {
			return err
		}
		owner := ""
		w.queue.met += len(hints)
		for _, h := range hints {
			owner = h.Owner()
			left, take := w.dueNow(h)
			if !take {
				r.met(left)
				continue
			}
			ready[owner] = append(ready[owner], h)
			if h.Thread > w.turns[ownerKey{flow, owner}].thread {
				next[owner]++
			}
			if len(ready[owner]) <= enough {
				count++
			}
		}
		r.read(last, more)
		switch behind := owner + "/" + w.turns[ownerKey{flow, owner}].thread; {
		case !more || !r.walking:
		case next[owner] >= enough:
			r.skip(due.NextOwner(last))
		case len(ready[owner]) >= enough && behind > last:
			r.skip(behind)
		}
	}
	for owner, list := range ready {
		turn := w.turns[ownerKey{flow, owner}].thread
		added := 0
		for _, behind := range []bool{true, false} {
			for _, h := range list {
				if behind != (h.Thread > turn) {
					continue
				}
				if added++; added > enough {
					r.skipped = true
					break
				}
				w.queue.add(h)
			}
		}
	}
	return nil
}

// forget drops what is kept about hints that were not met for a long time.
func (w *Worker) forget() {
	now := time.Now()
	for owner, turn := range w.turns {
		if now.Sub(turn.at) > forgetAfter {
			delete(w.turns, owner)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for hint, a := range w.again {
		if !a.at.After(now) {
			delete(w.again, hint)
		}
	}
	for hint, e := range w.early {
		if now.Sub(e.seen) > forgetAfter {
			delete(w.early, hint)
		}
	}
	for hint, l := range w.losses {
		if now.Sub(l.last) > forgetAfter {
			delete(w.losses, hint)
		}
	}
}
