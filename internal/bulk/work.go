package bulk

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/bell"
	"github.com/perdure/perdure/internal/clock"
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

// Work carries out jobs until the context ends, one after the other.
func Work(ctx context.Context, t *threads.Threads, lease time.Duration, v Verbs) {
	ctx = store.Patient(ctx)
	w := &worker{threads: t, lease: lease, verbs: v, id: threads.NewRunID(), seen: map[string]sight{}}
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
	seen    map[string]sight // jobs that others hold
}

// sight is the version of a cell, and since when it has been seen.
type sight struct {
	version store.Version
	since   time.Time
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
			s := w.seen[cell.Key]
			if s.version != cell.Version {
				w.seen[cell.Key] = sight{cell.Version, time.Now()}
				wait = min(wait, w.lease)
				continue
			}
			if left := w.lease - time.Since(s.since); left > 0 {
				wait = min(wait, left)
				continue
			}
		}
		delete(w.seen, cell.Key)
		h := &hold{worker: w, key: cell.Key, version: cell.Version, job: j}
		if err := h.carryOut(ctx); err != nil && !errors.Is(err, errLost) {
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
	key     string
	version store.Version
	job     *Job
	redo    int // how many threads of the page may be done already
	tries   int // of the first one, that failed for a reason that may not last
	saved   time.Time
	next    time.Time // when the rate allows the next thread
}

// errLost means that somebody else has the job, or that it was stopped.
var errLost = errors.New("the bulk job is no longer held here")

// carryOut carries out a job to its end, or until the context ends or it is lost.
func (h *hold) carryOut(ctx context.Context) error {
	j := h.job
	j.Holder, h.redo = h.id, len(j.Page)
	if err := h.save(ctx); err != nil {
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
			return h.save(ctx)
		}
		if err := h.save(ctx); err != nil {
			return err
		}
	}
}

// leave lets the job go after an error, so that nobody has to wait for the lease.
func (h *hold) leave(ctx context.Context, err error) error {
	if errors.Is(err, errLost) {
		return err
	}
	return errors.Join(err, h.release(ctx))
}

// release lets the job go.
func (h *hold) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	h.job.Holder = ""
	return h.save(ctx)
}

// list reads the next page.
func (h *hold) list(ctx context.Context) error {
	j := h.job
	var ids []string
	var cursor string
	err := h.during(ctx, func(ctx context.Context) (err error) {
		ids, cursor, err = h.verbs.Page(ctx, j, pageSize)
		return err
	})
	switch {
	case err != nil && (errors.Is(err, errLost) || ctx.Err() != nil || threads.IsUnusable(err)):
		return err
	case err != nil && !final(err): // the job must not end because it could not see a thread
		h.threads.Warn("listing the threads of a bulk job", err, "job", j.ID)
		return h.pause(ctx, again)
	case err != nil:
		j.fail(newReport("", err))
	}
	j.Page, j.Cursor, j.Listed = ids, cursor, cursor == "" || err != nil
	return nil
}

// passes reports whether an error is one of the store, which does not last.
func passes(err error) bool {
	return errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrFull) || errors.Is(err, store.ErrBusy)
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
	if err := h.pause(ctx, time.Until(h.next)); err != nil {
		return err
	}
	h.next = time.Now().Add(time.Second / time.Duration(max(1, j.Rate)))
	id := j.Page[0]
	var got Outcome
	err := h.during(ctx, func(ctx context.Context) (err error) {
		got, err = h.verbs.Apply(ctx, j, id)
		return err
	})
	switch {
	case err != nil && (errors.Is(err, errLost) || ctx.Err() != nil || threads.IsUnusable(err)):
		return err
	case passes(err):
		return h.pause(ctx, again)
	case got == Failed && err != nil && !final(err) && h.tries < mostTries:
		h.tries++
		return h.pause(ctx, again)
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

// during calls a function, and shows meanwhile that the job is held.
func (h *hold) during(ctx context.Context, fn func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- fn(ctx) }()
	beat := bell.New(h.untilBeat())
	defer beat.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-beat.C:
			if err := h.save(ctx); err != nil {
				cancel()
				<-done
				return err
			}
			beat.Reset(h.untilBeat())
		}
	}
}

// pause waits, and shows meanwhile that the job is held.
func (h *hold) pause(ctx context.Context, d time.Duration) error {
	if d <= 0 && h.untilBeat() > 0 {
		return ctx.Err()
	}
	return h.during(ctx, func(ctx context.Context) error {
		select {
		case <-ctx.Done():
		case <-time.After(max(0, d)):
		}
		return ctx.Err()
	})
}

func (h *hold) untilBeat() time.Duration { return h.lease/4 - time.Since(h.saved) }

// save writes the job, unless somebody else has it.
func (h *hold) save(ctx context.Context) error {
	j := h.job
	j.Beat++
	j.Updated = clock.Micros()
	value, err := json.Marshal(j)
	if err != nil {
		return err
	}
	for {
		begun := time.Now()
		version, err := h.threads.Store.Put(ctx, h.key, value, h.version)
		if err == nil {
			h.version, h.saved = version, begun
			return nil
		}
		// The write may have happened, or a refusal be spurious.
		cell, getErr := h.threads.Store.Get(ctx, h.key)
		switch {
		case errors.Is(getErr, store.ErrNotFound), getErr == nil && cell.Version != h.version && string(cell.Value) != string(value):
			return errLost
		case getErr == nil && cell.Version != h.version:
			h.version, h.saved = cell.Version, begun
			return nil
		case !errors.Is(err, store.ErrConflict) && !passes(err):
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}
