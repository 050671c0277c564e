package perdure

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/perdure/perdure/internal/bulk"
	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/lifecycle"
	"github.com/perdure/perdure/internal/threads"
)

// selection is the threads that a job is for.
type selection struct {
	verb   BulkVerb
	filter ListOptions
	at     int64 // when the job began
}

// options returns the options of a list of them, after a cursor. The list may have
// some that lists refuses: those that have moved, or whose summary lags.
func (s *selection) options(after string) ListOptions {
	o := s.filter
	o.After = after
	later := clock.Stamp(s.at + 1)
	o.CreatedBefore = earlier(o.CreatedBefore, later)
	if s.verb != BulkCancel {
		o.UpdatedBefore = earlier(o.UpdatedBefore, later)
	}
	return o
}

// earlier returns the earlier of two times; a is zero for none.
func earlier(a, b time.Time) time.Time {
	if !a.IsZero() && a.Before(b) {
		return a
	}
	return b
}

// lists reports whether a thread in a list is one of them.
func (s *selection) lists(t *Summary) bool {
	return t.Moved == "" && t.Created.UnixMicro() <= s.at && (s.verb == BulkCancel || t.Updated.UnixMicro() <= s.at)
}

// has reports whether a thread that was read is one of them.
func (s *selection) has(t *journal.Thread) bool {
	return t.Moved == "" && t.Created <= s.at && (s.verb == BulkCancel || t.Time <= s.at) && s.filter.fits(threads.Summarised(t))
}

// bulkVerbs carries out bulk jobs.
type bulkVerbs struct{ core *core }

var _ bulk.Verbs = bulkVerbs{}

// open returns what a job is for, and a runtime that reaches what its starter does.
func (v bulkVerbs) open(j *bulk.Job) (*Runtime, *selection, *bulkWhat, error) {
	what := new(bulkWhat)
	if err := json.Unmarshal(j.What, what); err != nil {
		return nil, nil, nil, fmt.Errorf("%w: bulk job %s: %w", fault.ErrCorrupt, j.ID, err)
	}
	t := v.core.threads.Tenant(j.Tenant)
	t.Owner = j.Owner
	return v.core.runtime(t), &selection{verb: BulkVerb(j.Verb), filter: what.Filter, at: j.Created}, what, nil
}

// Page implements bulk.Verbs.
func (v bulkVerbs) Page(ctx context.Context, j *bulk.Job, most int) (ids []string, cursor string, err error) {
	r, sel, _, err := v.open(j)
	if err != nil {
		return nil, "", err
	}
	for s, err := range r.List(ctx, sel.options(j.Cursor)) {
		if err != nil {
			return ids, "", err
		}
		if !sel.lists(&s) {
			continue
		}
		if ids = append(ids, s.ID); len(ids) == most {
			return ids, s.Cursor, nil
		}
	}
	return ids, "", ctx.Err()
}

// mostLooks is how often a job looks at a thread that changes while it does.
const mostLooks = 10

// Apply implements bulk.Verbs.
func (v bulkVerbs) Apply(ctx context.Context, j *bulk.Job, id string) (bulk.Outcome, error) {
	r, sel, what, err := v.open(j)
	if err != nil {
		return bulk.Failed, err
	}
	for range mostLooks {
		var got bulk.Outcome
		if got, err = r.applyBulk(ctx, j, sel, what, id); !errors.Is(err, fault.ErrStale) {
			return got, err
		}
	}
	return bulk.Failed, err
}

// applyBulk does what a job is for to a thread that it has just read.
func (r *Runtime) applyBulk(ctx context.Context, j *bulk.Job, sel *selection, what *bulkWhat, id string) (bulk.Outcome, error) {
	note := Note{By: j.By, Reason: j.Reason}
	o, err := r.tenant.Open(ctx, id)
	switch {
	case sel.verb == BulkArchive && errors.Is(err, fault.ErrArchived):
		_, err := r.Archive(ctx, id, note) // if a worker died meanwhile, there may be something left to do
		return bulk.Skipped, err
	case sel.verb == BulkErase && (errors.Is(err, fault.ErrErased) || errors.Is(err, fault.ErrCorrupt) && sel.filter.Status == Damaged):
		return r.eraseBulk(ctx, id, note, what.Dependents) // an erase goes on, or nothing else can be done
	case errors.Is(err, fault.ErrErased), errors.Is(err, fault.ErrNoThread), errors.Is(err, fault.ErrArchived):
		return bulk.Skipped, nil
	case err != nil:
		return bulk.Failed, err
	case !sel.has(o.Thread):
		return bulk.Skipped, nil
	}
	note.IfSeq = o.Thread.Seq
	switch sel.verb {
	case BulkCancel:
		return r.cancelBulk(ctx, o.Thread, sel.at, id, Note{By: j.By, Reason: j.Reason})
	case BulkRetry:
		return r.retryBulk(ctx, o.Thread, id, note)
	case BulkErase:
		return r.eraseBulk(ctx, id, note, what.Dependents)
	case BulkArchive:
		_, err := r.Archive(ctx, id, note)
		return pinned(err)
	case BulkExport:
		return pinned(r.exportBulk(ctx, id, exportsOf(j.ID)+threads.Self(o.Name)+".jsonl.gz"))
	}
	return bulk.Failed, fmt.Errorf("%w: this version has no bulk verb %q", fault.ErrNewer, sel.verb)
}

// cancelBulk cancels the runs that were queued before a time, newest first, so that
// none of them begins because another has ended.
func (r *Runtime) cancelBulk(ctx context.Context, t *journal.Thread, before int64, id string, n Note) (bulk.Outcome, error) {
	got := bulk.Skipped
	for i := len(t.Runs) - 1; i >= 0; i-- {
		if run := t.Runs[i]; run.Created > before || !lifecycle.CanCancel(run) {
			continue
		}
		err := r.Cancel(ctx, id, t.Runs[i].ID, n)
		switch {
		case errors.Is(err, fault.ErrNothingToDo): // it has ended meanwhile
		case err != nil:
			return bulk.Failed, err
		default:
			got = bulk.Applied
		}
	}
	return got, nil
}

// retryBulk retries the run that gives the thread its status.
func (r *Runtime) retryBulk(ctx context.Context, t *journal.Thread, id string, n Note) (bulk.Outcome, error) {
	run := t.Busy()
	if run == nil && len(t.Runs) > 0 {
		run = t.Runs[len(t.Runs)-1]
	}
	if run == nil {
		return bulk.Skipped, nil
	}
	switch Status(run.Status) {
	case Failed, Blocked, Quarantined:
	default:
		return bulk.Skipped, nil
	}
	if err := r.Retry(ctx, id, run.ID, n); err != nil {
		return bulk.Failed, err
	}
	return bulk.Applied, nil
}

func (r *Runtime) eraseBulk(ctx context.Context, id string, n Note, dependents bool) (bulk.Outcome, error) {
	err := r.Erase(ctx, id, EraseOptions{Note: n, Dependents: dependents})
	if errors.Is(err, fault.ErrNoThread) && !errors.Is(err, fault.ErrErased) {
		err = nil
	}
	return pinned(err)
}

// pinned returns the outcome of an error: a thread that others depend on is tried
// again after these.
func pinned(err error) (bulk.Outcome, error) {
	switch {
	case err == nil:
		return bulk.Applied, nil
	case errors.Is(err, fault.ErrPinned):
		return bulk.Later, err
	}
	return bulk.Failed, err
}

// exportsOf returns what the names of the exports of a job begin with.
func exportsOf(job string) string { return "exports/" + job + "/" }

// exportBulk writes the export of a thread to the archive.
func (r *Runtime) exportBulk(ctx context.Context, id, name string) error {
	if r.core.opts.Archive == nil {
		return fmt.Errorf("%w: the worker has no archive; set Options.Archive, or --archive URL", fault.ErrInvalid)
	}
	out, in := io.Pipe()
	written := make(chan error, 1)
	go func() {
		zip := gzip.NewWriter(in)
		err := r.Export(ctx, id, zip, ExportOptions{})
		if err == nil {
			err = zip.Close()
		}
		in.CloseWithError(err) // nil is the end
		written <- err
	}()
	err := r.core.opts.Archive.Put(ctx, name, out)
	out.CloseWithError(io.ErrClosedPipe) // if not all of it was read
	if exportErr := <-written; exportErr != nil && !errors.Is(exportErr, io.ErrClosedPipe) {
		return exportErr
	}
	return err
}
