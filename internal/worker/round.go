package worker

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/perdure/perdure/internal/due"
)

const (
	pageSize = 256 // hints in a page
	maxPages = 8   // of a flow, read at a time

	// forgetAfter is how long a worker remembers what it has not met again.
	forgetAfter = 5 * time.Minute
)

// round is a walk through the hints of a flow, from where the last one ended to
// the same place. Where there are many hints it takes several fills. News begin
// a new one, so that each hint is read after the last news.
type round struct {
	at      string    // the cursor: what was read last
	from    string    // where it began
	wrapped bool      // it has begun again with the first hint
	walking bool      // it is not back yet
	skipped bool      // it has left out hints of an owner with many
	soon    time.Time // when the first hint that it met is due
}

func (r *round) begin() {
	*r = round{at: r.at, from: r.at, wrapped: r.at == "", walking: true, soon: time.Now().Add(due.Near)}
}

// met notes that a hint is due later.
func (r *round) met(left time.Duration) {
	if at := time.Now().Add(left); at.Before(r.soon) {
		r.soon = at
	}
}

// read notes that the hints up to a cursor were read, and whether there are
// more.
func (r *round) read(last string, more bool) {
	r.at = last
	if !more {
		r.at, r.walking, r.wrapped = "", !r.wrapped, true
	}
	if r.wrapped && r.from != "" && r.at >= r.from {
		r.walking = false
	}
}

// skip leaves out the hints up to a cursor.
func (r *round) skip(to string) {
	r.skipped = true
	r.read(to, true)
}

// wait returns how long until the next hint has to be read.
func (r *round) wait() time.Duration {
	if r.walking || r.skipped {
		return restful
	}
	return time.Until(r.soon)
}

// ownerKey names the threads of an owner that are due for a flow.
type ownerKey struct{ flow, owner string }

// lastTurn is the thread of an owner that was taken last, and when. The next ones
// are those behind it, so that all get their turn also where those in front are
// due again and again.
type lastTurn struct {
	thread string
	at     time.Time
}

// had notes that a thread had its turn.
func (w *Worker) had(h due.Hint) {
	w.turns[ownerKey{h.Flow, h.Owner()}] = lastTurn{h.Thread, time.Now()}
}

// fill reads hints of all flows into the queue, some of each owner, and returns
// how long until more are to be read.
func (w *Worker) fill(ctx context.Context) (time.Duration, error) {
	wait := due.Near
	w.queue.clear()
	w.queue.found = time.Now()
	w.mu.Lock()
	w.cut = false
	w.mu.Unlock()
	for flow := range w.opts.Flows {
		r := w.rounds[flow]
		if r == nil {
			r = &round{}
			w.rounds[flow] = r
		}
		if w.news || !r.walking {
			r.begin()
		}
		if err := w.fillFlow(ctx, flow, r); err != nil {
			r.walking = false // what was found is lost
			return 0, err
		}
		wait = min(wait, r.wait())
	}
	w.news = false
	w.forget()
	if w.crowded() {
		// So that workers do not all begin with the same thread.
		for _, list := range w.queue.owners {
			rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		}
	}
	return wait, nil
}

// fillFlow reads hints of a flow into the queue. Of an owner with many it goes
// on to the next one when it has enough.
func (w *Worker) fillFlow(ctx context.Context, flow string, r *round) error {
	enough := 2 * w.opts.Concurrency
	ready := map[string][]due.Hint{} // by owner
	next := map[string]int{}         // how many of them are behind the last turn
	count := w.queue.size
	for page := 0; page < maxPages && r.walking && count < 4*enough; page++ {
		hints, last, more, err := due.Page(ctx, w.threads.Store, flow, r.at, pageSize)
		if err != nil && !w.damaged(err) {
			return err
		}
		owner := ""
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

func (w *Worker) crowded() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.peers > 1
}

// forget removes what is kept about hints that are no more, or were not met for
// long.
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
