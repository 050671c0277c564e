package bulk

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure/internal/bell"
	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/duty"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

// Outcome is what came of a thread. With an error it is the thread that failed, unless
// the store did.
type Outcome int

// The outcomes.
const (
	Failed  Outcome = iota
	Applied         // it is done
	Skipped         // there was nothing to do, or the thread no longer matches
	Later           // it may work once other threads are done; the error says why not now
)

const (
	calm   = time.Second         // the least time between two looks for jobs
	seldom = 10 * time.Minute    // how often to look even if nothing has changed
	again  = time.Second         // the pause after an error of the store
	keep   = 30 * 24 * time.Hour // how long jobs that have ended are known

	atOnce   = 8                     // jobs that a worker carries out at a time
	patience = 50 * time.Millisecond // how long a job waits for its rate while others wait for their turn
)

// Work carries out jobs until the context ends, several at a time. If there are more,
// they take turns: a turn is a page, or a thread of a job whose rate makes it wait.
// Tenants take turns first, then those who have started jobs, and then their jobs.
func (v *Verbs) Work(ctx context.Context, lease time.Duration) {
	t := v.Threads
	if threads.IsBare(t.Store) {
		return
	}
	ctx, cancel := context.WithCancel(store.Patient(ctx))
	w := &worker{threads: t, lease: lease, verbs: v, id: threads.NewRunID(), seen: duty.Sights{},
		held: map[string]*hold{}, ended: make(chan ended, atOnce), served: map[string]uint64{}}
	news := make(chan struct{}, 1)
	over := make(chan struct{})
	go func() {
		defer close(over)
		for range store.Watch(ctx, t.Store, Prefix) {
			select {
			case news <- struct{}{}:
			default:
			}
		}
	}()
	defer func() {
		cancel()
		<-over
		for range w.held {
			<-w.ended
		}
	}()
	next := bell.New(seldom)
	defer next.Stop()
	calmUntil, lookBy := time.Now(), time.Now().Add(seldom)
	for {
		if !time.Now().Before(lookBy) {
			wait, err := w.findJobs(ctx)
			if err != nil && ctx.Err() == nil {
				if threads.IsUnusable(err) {
					return
				}
				t.Warn("looking for bulk jobs", err)
				wait = again
			}
			calmUntil, lookBy = time.Now().Add(calm), time.Now().Add(wait)
		}
		next.Reset(min(time.Until(lookBy), w.begin(ctx)))
		select {
		case <-ctx.Done():
			return
		case <-over: // the store was closed
			return
		case <-news:
			lookBy = earlier(lookBy, calmUntil) // however often it is told
		case e := <-w.ended:
			delete(w.held, e.Key)
			switch {
			case e.err == nil && e.job.State == Running:
				w.queue = append(w.queue, queued{e.Key, e.Version, e.job})
			case e.err != nil && !errors.Is(e.err, duty.ErrLost) && ctx.Err() == nil:
				if threads.IsUnusable(e.err) {
					return
				}
				t.Warn("carrying out a bulk job", e.err, "job", e.job.ID)
				lookBy = earlier(lookBy, time.Now().Add(again))
			}
		case <-next.C:
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// worker carries out jobs.
type worker struct {
	threads *threads.Threads
	lease   time.Duration
	verbs   *Verbs
	id      string
	seen    duty.Sights      // jobs that others hold
	held    map[string]*hold // by key
	ended   chan ended       // turns
	queue   []queued         // jobs that wait for a turn
	served  map[string]uint64
	turns   uint64
	crowded atomic.Bool // a job waits for a turn
}

// ended is a turn that has ended.
type ended struct {
	*hold
	err error
}

// queued is a job that waits for a turn.
type queued struct {
	key     string
	version store.Version
	job     *Job
}

// wait returns how long the job's rate makes it wait. No clock of another worker can
// make it longer than the rate does.
func (q *queued) wait() time.Duration {
	return min(max(0, clock.Until(q.job.Next)), q.job.gap())
}

// gap returns the time between two threads.
func (j *Job) gap() time.Duration { return time.Second / time.Duration(max(1, j.Rate)) }

// findJobs finds the jobs that nobody carries out, and returns when to look again.
func (w *worker) findJobs(ctx context.Context) (time.Duration, error) {
	var queue []queued
	wait, served := seldom, map[string]uint64{}
	for cell, err := range w.threads.Store.List(ctx, Prefix, "") {
		if err != nil {
			return 0, err
		}
		j, err := parse(cell.Value)
		if err != nil {
			continue // Get tells
		}
		for _, who := range turnsOf(cell.Key, j) {
			served[who] = w.served[who]
		}
		if h := w.held[cell.Key]; h != nil {
			if j.State != Running {
				h.told.Store(true)
			}
			continue
		}
		switch {
		case j.State != Running:
			delete(w.seen, cell.Key)
			if clock.Until(j.Updated) < -keep {
				_ = w.threads.Store.Delete(ctx, cell.Key, cell.Version)
			}
			continue
		case j.Holder != "":
			if left := w.seen.Wait(cell, w.lease); left > 0 {
				wait = min(wait, left)
				continue
			}
		}
		delete(w.seen, cell.Key)
		queue = append(queue, queued{cell.Key, cell.Version, j})
	}
	w.queue, w.served = queue, served
	return wait, nil
}

// turnsOf returns who takes turns with others, the most important first: the tenant,
// the user or the tenant itself, and the job.
func turnsOf(key string, j *Job) [3]string {
	owner := " " // no user has this name
	if j.Owner != nil {
		owner = *j.Owner
	}
	return [3]string{j.Tenant + "/", j.Tenant + "/" + owner + "/", key}
}

// begin begins turns, and returns how long to wait for the next one.
func (w *worker) begin(ctx context.Context) time.Duration {
	for len(w.held) < atOnce {
		first, wait := -1, seldom
		for i, q := range w.queue {
			if left := q.wait(); left > 0 {
				wait = min(wait, left)
			} else if first < 0 || w.before(q, w.queue[first]) {
				first = i
			}
		}
		if first < 0 {
			w.crowded.Store(false)
			return wait
		}
		q := w.queue[first]
		w.queue = slices.Delete(w.queue, first, first+1)
		w.turns++
		for _, who := range turnsOf(q.key, q.job) {
			w.served[who] = w.turns
		}
		h := w.newHold(q)
		w.held[q.key] = h
		go func() { w.ended <- ended{h, h.carryOut(ctx)} }()
	}
	w.crowded.Store(len(w.queue) > 0)
	return seldom
}

// before reports whether it is a's turn before it is b's.
func (w *worker) before(a, b queued) bool {
	theirs := turnsOf(b.key, b.job)
	for i, who := range turnsOf(a.key, a.job) {
		if n := cmp.Compare(w.served[who], w.served[theirs[i]]); n != 0 {
			return n < 0
		}
	}
	return a.job.Created < b.job.Created
}
