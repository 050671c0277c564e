package bulk

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/bell"
	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/duty"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

// Verbs is what jobs do.
type Verbs interface {
	// Page returns the ids of at most so many threads that a job is for, after its
	// cursor, and the new cursor, "" at the end of the list.
	Page(ctx context.Context, j *Job, most int) (ids []string, cursor string, err error)
	// Apply does what the job is for to a thread, if the thread is still among those
	// that it is for.
	Apply(ctx context.Context, j *Job, id string) (Outcome, error)
}

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
)

var off bool

// Off makes Work do nothing, for tests that explore every order of calls.
func Off() { off = true }

// Work carries out jobs until the context ends, one after the other.
func Work(ctx context.Context, t *threads.Threads, lease time.Duration, v Verbs) {
	if off {
		return
	}
	ctx = store.Patient(ctx)
	w := &worker{threads: t, lease: lease, verbs: v, id: threads.NewRunID(), seen: duty.Sights{}}
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
	defer func() { <-over }()
	next := bell.New(seldom)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-over: // the store was closed
			return
		case <-news:
		case <-next.C:
		}
		wait, err := w.look(ctx)
		if err != nil && ctx.Err() == nil {
			if threads.IsUnusable(err) {
				return
			}
			t.Warn("looking for bulk jobs", err)
			wait = again
		}
		next.Reset(wait)
		select { // however often it is told
		case <-ctx.Done():
		case <-time.After(calm):
		}
	}
}

// worker carries out jobs.
type worker struct {
	threads *threads.Threads
	lease   time.Duration
	verbs   Verbs
	id      string
	seen    duty.Sights // jobs that others hold
}

// look carries out the jobs that nobody does, and returns when to look again.
func (w *worker) look(ctx context.Context) (time.Duration, error) {
	var cells []store.Cell
	for cell, err := range w.threads.Store.List(ctx, Prefix, "") {
		if err != nil {
			return 0, err
		}
		cells = append(cells, cell)
	}
	wait := seldom
	for _, cell := range cells {
		j, err := parse(cell.Value)
		switch {
		case err != nil:
			continue // Get tells
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
		h := &hold{worker: w, job: j}
		h.Hold = &duty.Hold{Store: w.threads.Store, Key: cell.Key, Version: cell.Version, Lease: w.lease, Encode: h.encode}
		if err := h.carryOut(ctx); err != nil && !errors.Is(err, duty.ErrLost) {
			return 0, err
		}
		wait = 0 // there may be others
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
	}
	return wait, nil
}

// hold is a job that this worker carries out.
type hold struct {
	*worker
	*duty.Hold
	job   *Job
	redo  int       // how many threads of the page may be done already
	tries int       // of the first one, that failed for a reason that may not last
	next  time.Time // when the rate allows the next thread
}

// encode returns the content of the job's cell.
func (h *hold) encode() ([]byte, error) {
	h.job.Beat++
	h.job.Updated = clock.Micros()
	return json.Marshal(h.job)
}

// carryOut carries out a job to its end, or until the context ends or it is lost.
func (h *hold) carryOut(ctx context.Context) error {
	j := h.job
	j.Holder, h.redo = h.id, len(j.Page)
	if err := h.Save(ctx); err != nil {
		return err
	}
	for {
		if ctx.Err() != nil {
			return h.release(ctx)
		}
		switch {
		case len(j.Page) > 0:
			if err := h.apply(ctx); err != nil {
				return h.leave(ctx, err)
			}
			continue
		case !j.Listed:
			if err := h.list(ctx); err != nil {
				return h.leave(ctx, err)
			}
		case len(j.Later) > 0 && j.Gained:
			for _, r := range j.Later {
				j.Page = append(j.Page, r.Thread)
			}
			j.Later, j.Gained = nil, false
		case j.Repeat && j.Gained:
			j.Cursor, j.Listed, j.Gained = "", false, false
			j.Lists++
		default:
			j.fail(j.Later...)
			j.Later, j.State, j.Holder, j.Ended = nil, Done, "", clock.Micros()
			return h.Save(ctx)
		}
		if err := h.Save(ctx); err != nil {
			return err
		}
	}
}

// leave lets the job go after an error, so that nobody has to wait for the lease.
func (h *hold) leave(ctx context.Context, err error) error {
	if errors.Is(err, duty.ErrLost) {
		return err
	}
	return errors.Join(err, h.release(ctx))
}

// release lets the job go.
func (h *hold) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	h.job.Holder = ""
	return h.Save(ctx)
}

// list reads the next page.
func (h *hold) list(ctx context.Context) error {
	j := h.job
	var ids []string
	var cursor string
	err := h.During(ctx, func(ctx context.Context) (err error) {
		ids, cursor, err = h.verbs.Page(ctx, j, pageSize)
		return err
	})
	switch {
	case err != nil && (errors.Is(err, duty.ErrLost) || ctx.Err() != nil || threads.IsUnusable(err)):
		return err
	case err != nil && !final(err): // the job must not end because it could not see a thread
		h.threads.Warn("listing the threads of a bulk job", err, "job", j.ID)
		return h.Pause(ctx, again)
	case err != nil:
		j.fail(newReport("", err))
	}
	j.Page, j.Cursor, j.Listed = ids, cursor, cursor == "" || err != nil
	return nil
}

// mostTries is how often a thread is tried again after an error that may not last.
const mostTries = 3

// final reports whether an error is one of the thread, which trying again does not
// change.
func final(err error) bool {
	about := []error{fault.ErrNothingToDo, fault.ErrStale, fault.ErrNewer, fault.ErrMoved, fault.ErrCorrupt, fault.ErrInvalid, fault.ErrPinned}
	return slices.ContainsFunc(about, func(e error) bool { return errors.Is(err, e) })
}

// apply does the first thread of the page.
func (h *hold) apply(ctx context.Context) error {
	j := h.job
	if err := h.Pause(ctx, time.Until(h.next)); err != nil {
		return err
	}
	h.next = time.Now().Add(time.Second / time.Duration(max(1, j.Rate)))
	id := j.Page[0]
	var got Outcome
	err := h.During(ctx, func(ctx context.Context) (err error) {
		got, err = h.verbs.Apply(ctx, j, id)
		return err
	})
	switch {
	case err != nil && (errors.Is(err, duty.ErrLost) || ctx.Err() != nil || threads.IsUnusable(err)):
		return err
	case duty.Passes(err):
		return h.Pause(ctx, again)
	case got == Failed && err != nil && !final(err) && h.tries < mostTries:
		h.tries++
		return h.Pause(ctx, again)
	case got == Applied, got == Skipped && (h.redo > 0 || h.tries > 0) && j.Lists == 0: // it was done before
		j.Done++
		j.Gained = true
	case j.Lists > 0: // it was counted before
	case got == Skipped:
		j.Skipped++
	case got == Later && len(j.Later) < mostLater:
		j.Later = append(j.Later, newReport(id, err))
	default:
		if err == nil {
			err = fault.ErrInvalid
		}
		j.fail(newReport(id, err))
	}
	j.Page, h.redo, h.tries = j.Page[1:], max(0, h.redo-1), 0
	return nil
}
