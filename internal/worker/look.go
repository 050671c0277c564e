package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/due"
	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/lease"
	"github.com/perdure/perdure/internal/lifecycle"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

// blockedAgain is how long a worker waits before it looks again at a run that
// its code does not fit.
const blockedAgain = 30 * time.Second

// lookAt executes what is due on a thread that has a slot. On an erased thread
// nothing is due: it removes the hint, and what a pass has written for the
// thread.
func (w *Worker) lookAt(h due.Hint, execute func() error) {
	defer w.leave(h)
	err := w.threads.SweepIfErased(w.io, h.Thread, execute(), h.Flow)
	if err == nil || errors.Is(err, fault.ErrErased) {
		return
	}
	w.threads.Warn("looking at a thread", err, "thread", h.Thread)
	wait := time.Second
	if errors.Is(err, fault.ErrCorrupt) {
		wait = blockedAgain
	}
	w.later(h, wait)
	if threads.IsUnusable(err) {
		select {
		case w.fatal <- err:
		default:
		}
	}
}

// executeDue executes what is due on a thread, and then settles its hint.
func (w *Worker) executeDue(h due.Hint) error {
	if h.Err != nil {
		return h.Err
	}
	o, err := w.threads.ReadForest(w.io, h.Thread)
	if err != nil {
		return err
	}
	if err := w.threads.CheckMoved(w.io); err != nil && o.Thread.Moved == "" {
		if errors.Is(err, fault.ErrMoved) {
			w.later(h, blockedAgain) // the migration comes for it
			return nil
		}
		return err
	}
	return w.executeNext(o, h)
}

// executeNext executes runs of a thread, one after another, until none is due.
func (w *Worker) executeNext(o *threads.Opened, h due.Hint) error {
	for {
		run, _ := o.Thread.Next(clock.Micros(), w.fits)
		if _, mine := w.opts.Flows[flowOf(run)]; run == nil || !mine || w.stopped() {
			if w.arrives(o, h) {
				var err error
				if o, err = w.threads.ReadOn(w.io, o); err != nil {
					return err
				}
				continue
			}
			return w.settle(o, h)
		}
		if free, err := w.free(o, run, h); err != nil || !free {
			return err
		}
		if o.Trees[run.N] == nil { // it goes on where it stopped
			var err error
			if o, err = w.threads.Read(w.io, h.Thread); err != nil {
				return err
			}
			continue
		}
		how, err := w.suspect(o, run, h)
		if err != nil || how == waits {
			return err
		}
		if how != runsAlone {
			w.NotSuspect(h.Thread) // it may have been one
		}
		if how == changed {
			continue
		}
		p, err := w.claim(o, run, how == runsAlone)
		if err != nil {
			return err
		}
		if p == nil { // another entry came first
			if o, err = w.threads.ReadOn(w.io, o); err != nil {
				return err
			}
			continue
		}
		if o, h, err = w.execute(p, o, run, h); o == nil || err != nil {
			return err
		}
	}
}

// execute executes a claimed run. It returns the thread and its hint if there
// may be more to do.
func (w *Worker) execute(p *engine.Pass, o *threads.Opened, run *journal.Run, h due.Hint) (*threads.Opened, due.Hint, error) {
	w.run(p, run.Flow)
	p.Over()
	if err := p.Err(); errors.Is(err, fault.ErrFenced) || errors.Is(err, fault.ErrCorrupt) {
		if !p.Released() { // that has been said
			w.threads.Log.Info("a run was lost", "thread", o.Thread.ID, "run", run.ID, "error", err)
		}
		if errors.Is(err, fault.ErrErased) {
			return nil, h, err
		}
		w.later(h, w.noteLoss(h))
		if threads.IsUnusable(err) {
			return nil, h, err
		}
		return nil, h, nil
	}
	w.found(h)
	if p.Settled() {
		w.threads.Snapshot(w.io, o)
		w.threads.KeepExecuted(o)
		return nil, h, nil
	}
	found, there, err := due.Get(w.io, w.threads.Store, h.Flow, h.Thread)
	if err != nil {
		return nil, h, err
	}
	if there {
		h = found
	}
	if next, _ := o.Thread.Next(clock.Micros(), w.fits); next == nil {
		return nil, h, w.settle(o, h)
	}
	// The pass has kept the thread up to date, but not the trees of other runs.
	o, err = w.threads.ReadForest(w.io, h.Thread)
	return o, h, err
}

// Reserve reserves a slot for a thread on which a run is being started.
func (s *Staff) Reserve(flow, thread string) lifecycle.Room {
	if _, has := s.opts.Flows[flow]; !has {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.hands {
		if w != nil && w.reserve(thread) {
			return &room{w, due.Hint{Flow: flow, Thread: thread}}
		}
	}
	return nil
}

// reserve takes a slot for a thread, if the worker has one that nothing else is
// waiting for.
func (w *Worker) reserve(thread string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopping || w.cut || w.active >= w.opts.Concurrency || w.solo != "" || len(w.suspects) > 0 || w.busy[thread] || !w.lease.Valid() {
		return false
	}
	w.occupy(thread)
	return true
}

// room is a slot for a run that is being started. Its hint was not read from
// the store.
type room struct {
	worker *Worker
	hint   due.Hint
}

func (r *room) Claim(t *journal.Thread, run uint64) threads.Line { return r.worker.claimOf(t, run) }

// Leave looks again a moment after an error: the start and its claim may have
// happened all the same, or happen just now, and nobody was woken by them. What
// happens later still is met by the next round.
func (r *room) Leave(err error) {
	r.worker.leave(r.hint)
	if err != nil {
		time.AfterFunc(time.Second, r.worker.poke)
	}
}

func (r *room) Execute(o *threads.Opened, entries []journal.Entry) {
	w, claimed := r.worker, entries[len(entries)-1:]
	run := o.Thread.Run(claimed[0].Run)
	p := w.engine.NewPass(w, w.io, o, run, claimed, false)
	go w.lookAt(r.hint, func() error {
		o, h, err := w.execute(p, o, run, r.hint)
		if o == nil || err != nil {
			return err
		}
		return w.executeNext(o, h)
	})
}

// fits reports whether the worker may try a blocked run: it has the flow, and
// the run was not blocked by this version.
func (w *Worker) fits(run *journal.Run) bool {
	_, has := w.opts.Flows[run.Flow]
	return has && !run.Misfits[w.opts.Version]
}

func flowOf(run *journal.Run) string {
	if run == nil {
		return ""
	}
	return run.Flow
}

// settle postpones or removes the hint, according to the journal.
func (w *Worker) settle(o *threads.Opened, h due.Hint) error {
	if o.Thread.Moved != "" {
		if h.Version == "" {
			return nil
		}
		return due.Settle(w.io, w.threads.Store, h, max(o.Thread.Seq, h.Seq), 0, clock.Micros())
	}
	if w.stopped() || o.Thread.Foreign != "" {
		// Left to another worker or another version.
		w.later(h, blockedAgain)
		if o.Thread.Foreign == "" {
			return w.threads.Summarise(w.io, o) // nobody may come for a while, and lists show the summary until then
		}
		return nil
	}
	// The hint stays until the parent knows about the end.
	if err := lifecycle.New(w.threads.Tenant(o.Thread.Tenant), 0, nil).TellParent(w.io, o); err != nil {
		return err
	}
	var next int64
	blocked := false
	soon := func(at int64) {
		if at != 0 && (next == 0 || at < next) {
			next = at
		}
	}
	for _, run := range o.Thread.OpenRuns() {
		if run.Flow != h.Flow {
			continue
		}
		switch run.Status {
		case journal.StatusSuspended:
			soon(run.Due())
		case journal.StatusBlocked:
			blocked = true
		case journal.StatusRunning:
			w.later(h, w.opts.Lease/4)
			return nil
		}
	}
	switch {
	case o.Thread.Seq < h.Seq:
		return w.ahead(o, h)
	case next != 0 && next <= clock.Micros():
		// Another run is first, of a flow that this worker does not have. Its
		// end or suspension announces the others.
		w.later(h, w.opts.Lease/4)
		return nil
	case blocked:
		// The hint stays for workers with other code, which look at it at once.
		wait := blockedAgain
		if next != 0 {
			wait = min(wait, clock.Until(next))
		}
		w.later(h, wait)
		return w.threads.Summarise(w.io, o)
	}
	w.threads.Snapshot(w.io, o)
	w.threads.KeepExecuted(o)
	// The summary must be right before the hint goes, in case of a crash.
	if err := w.threads.Summarise(w.io, o); err != nil {
		return err
	}
	if h.Version == "" {
		return nil // there is none
	}
	return due.Settle(w.io, w.threads.Store, h, o.Thread.Seq, next, clock.Micros())
}

// ahead deals with a hint whose fact is not in the journal yet: its writer is
// about to append it, or has died. After a while a nudge takes the place of the
// fact, so that a slow writer gets a conflict and announces it again.
func (w *Worker) ahead(o *threads.Opened, h due.Hint) error {
	w.mu.Lock()
	first, seen := w.early[keyOf(h)]
	if !seen || first.seq != h.Seq {
		first = earlyHint{seq: h.Seq, since: time.Now()}
	}
	first.seen = time.Now()
	w.early[keyOf(h)] = first
	w.mu.Unlock()
	switch waited := time.Since(first.since); {
	case waited < w.opts.Lease:
		w.later(h, min(w.opts.Lease, max(waited, 10*time.Millisecond)))
		return nil
	case o.Thread.Seq == 0:
		// Nothing was ever written: whoever starts the thread announces it.
		w.later(h, blockedAgain)
		return nil
	}
	w.mu.Lock()
	delete(w.early, keyOf(h))
	w.mu.Unlock()
	_, _, err := w.threads.Change(w.io, h.Thread, func(t *journal.Thread) ([]threads.Line, []string, error) {
		if t.Seq >= h.Seq {
			return nil, nil, threads.ErrNothing
		}
		return []threads.Line{{Kind: journal.Nudge}}, nil, nil
	})
	return err
}

// arrives waits a moment for the fact of a hint that is ahead of its journal:
// when the hint is first met, its writer is probably about to append the fact.
func (w *Worker) arrives(o *threads.Opened, h due.Hint) bool {
	w.mu.Lock()
	first, seen := w.early[keyOf(h)]
	w.mu.Unlock()
	if o.Thread.Seq >= h.Seq || seen && first.seq == h.Seq || w.stopped() {
		return false
	}
	ctx, cancel := context.WithTimeout(w.io, 10*time.Millisecond)
	defer cancel()
	for range store.Watch(ctx, w.threads.Store, threads.JournalKey(h.Thread)) {
		for _, err := range w.threads.Store.Read(ctx, threads.JournalKey(h.Thread), o.Thread.Seq-o.Thread.Base) {
			return err == nil
		}
	}
	return false
}

// earlyHint is a hint that was seen before its fact.
type earlyHint struct {
	seq         uint64
	since, seen time.Time
}

// free reports whether a run may be claimed: no living worker holds it.
func (w *Worker) free(o *threads.Opened, run *journal.Run, h due.Hint) (bool, error) {
	holder := o.Thread.Worker
	if run.Status != journal.StatusRunning || holder == "" || holder == w.id {
		return true, nil
	}
	dead, _, err := w.others.Dead(w.io, holder)
	if err != nil {
		return false, err
	}
	if dead {
		if err := w.others.Bury(w.io, holder); err == nil {
			return true, nil
		} else if !errors.Is(err, lease.ErrAlive) {
			return false, err
		}
	}
	if o.Thread.Seq < h.Seq {
		return false, w.ahead(o, h) // what its holder is about to write may free it
	}
	w.leaveTo(h, blockedAgain, holder)
	return false, nil
}

// claim appends the claim of a run, along with entries for waits whose time is
// up, and returns its pass, nil if another entry came first.
func (w *Worker) claim(o *threads.Opened, run *journal.Run, alone bool) (*engine.Pass, error) {
	t := o.Thread
	lines := engine.DueLines(t, run, clock.Micros())
	lines = append(lines, w.claimOf(t, run.N))
	entries, data, err := threads.EncodeLines(t, lines)
	if err != nil {
		return nil, err
	}
	summary, foreseen := w.threads.Foreseen(w.io, o, entries)
	if err := w.threads.Append(w.io, o, data, nil, summary...); errors.Is(err, store.ErrConflict) && w.io.Err() == nil {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if err := errors.Join(t.Apply(e), o.Grow(e)); err != nil {
			return nil, fmt.Errorf("%w: entry %d: %w", fault.ErrCorrupt, e.Seq, err)
		}
	}
	if !foreseen { // otherwise it was written with the claim
		_ = w.threads.Summarise(w.io, o)
	}
	return w.engine.NewPass(w, w.io, o, run, entries, alone), nil
}

// claimOf returns the worker's claim of a run.
func (w *Worker) claimOf(t *journal.Thread, run uint64) threads.Line {
	return threads.Line{Kind: journal.Claimed, Run: run, Epoch: t.Epoch + 1, Body: journal.Body{Worker: w.id, Version: w.opts.Version}}
}

func (w *Worker) run(p *engine.Pass, flow string) {
	w.mu.Lock()
	w.passes[p] = true
	if w.stopping {
		p.Drain()
	}
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		delete(w.passes, p)
		w.mu.Unlock()
	}()
	p.Execute(w.opts.Flows[flow])
}
