package bulk

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/duty"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/threads"
)

// hold is a job that this worker carries out.
type hold struct {
	*worker
	*duty.Hold
	job   *Job
	pages int         // that were listed in this turn
	tries int         // of the first thread of the page, that failed for a reason that may not last
	next  time.Time   // when the rate allows the next thread
	told  atomic.Bool // someone has changed the cell
}

// newHold returns the hold of a job whose cell was read.
func (w *worker) newHold(q queued) *hold {
	h := &hold{worker: w, job: q.job, next: time.Now().Add(q.wait())}
	h.Hold = &duty.Hold{Store: w.threads.Store, Key: q.key, Version: q.version, Lease: w.lease, Encode: h.encode, Merge: h.merge}
	return h
}

// merge takes over what others than holders write: a stop or a resume, and reports
// that were shortened.
func (h *hold) merge(value []byte) bool {
	there, err := parse(value)
	if err != nil || there.Holder != h.id {
		return false
	}
	if h.job.State != Done {
		h.job.State = there.State
	}
	copy(h.job.Errors, there.Errors)
	return true
}

// encode returns the content of the job's cell.
func (h *hold) encode() ([]byte, error) {
	h.job.Beat++
	h.job.Updated = clock.Micros()
	return json.Marshal(h.job)
}

// carryOut carries out a job to its end, or until it is stopped or lost, the context
// ends, or another job should have its turn.
func (h *hold) carryOut(ctx context.Context) error {
	j := h.job
	if j.Holder != "" { // it has died
		j.Redo = len(j.Page)
	}
	j.Holder = h.id
	if err := h.Save(ctx); err != nil {
		return err
	}
	for {
		if h.told.Swap(false) {
			if err := h.Save(ctx); err != nil {
				return err
			}
		}
		if ctx.Err() != nil || j.State != Running || h.yields() {
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
		h.pages++
		if err := h.Save(ctx); err != nil {
			return err
		}
	}
}

// yields reports whether it is the turn of another job: one waits, and this one has
// done a page or waits for its rate.
func (h *hold) yields() bool {
	return h.crowded.Load() && (h.pages > 0 && len(h.job.Page) == 0 || time.Until(h.next) > patience)
}

// leave lets the job go after an error, so that nobody has to wait for the lease.
func (h *hold) leave(ctx context.Context, err error) error {
	if errors.Is(err, duty.ErrLost) {
		return err
	}
	if len(h.job.Page) > 0 { // it may be done
		h.job.Redo = max(h.job.Redo, 1)
	}
	return errors.Join(err, h.release(ctx))
}

// release lets the job go.
func (h *hold) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if h.tries > 0 {
		h.job.Redo = max(h.job.Redo, 1)
	}
	h.job.Holder, h.job.Next = "", clock.Micros()+time.Until(h.next).Microseconds()
	return h.Save(ctx)
}

// list reads the next page.
func (h *hold) list(ctx context.Context) error {
	j := h.job
	var ids []string
	var cursor string
	err := h.During(ctx, func(ctx context.Context) (err error) {
		ids, cursor, err = h.verbs.page(ctx, j, pageSize)
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
	h.next = time.Now().Add(j.gap())
	id := j.Page[0]
	var got Outcome
	err := h.During(ctx, func(ctx context.Context) (err error) {
		got, err = h.verbs.apply(ctx, j, id)
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
	case got == Applied, got == Skipped && (j.Redo > 0 || h.tries > 0) && j.Lists == 0: // it was done before
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
	j.Page, j.Redo, h.tries = j.Page[1:], max(0, j.Redo-1), 0
	return nil
}
