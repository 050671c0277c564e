package bulk

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	public "github.com/perdure/perdure/archive"
	"github.com/perdure/perdure/internal/archive"
	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/lifecycle"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/internal/vault"
	"github.com/perdure/perdure/store"
)

// The verbs: see perdure.BulkVerb.
const (
	verbCancel  = "cancel"
	verbRetry   = "retry"
	verbErase   = "erase"
	verbArchive = "archive"
	verbExport  = "export"
)

// defaultRate and maxRate bound the rate of a job.
const defaultRate, maxRate = 100, 10_000

// Request asks for a job: see perdure.BulkRequest.
type Request struct {
	Verb            string
	Filter          json.RawMessage // as it is stored
	Query           threads.Query   // what the filter selects
	All, Dependents bool
	Rate            int
	Key             string
	By, Reason      string
}

// what is the part of a request that only verbs need to know.
type what struct {
	Filter     json.RawMessage `json:"filter"`
	Dependents bool            `json:"dependents,omitempty"`
	Place      string          `json:"place,omitempty"` // of exports
}

// Verbs is what jobs do to threads.
type Verbs struct {
	Threads *threads.Threads
	Place   public.Place // of archived threads and exports, nil for none
	// Query returns what a stored filter selects.
	Query func(filter json.RawMessage) (threads.Query, error)
	// Reach returns what changes the threads of a tenant.
	Reach func(*threads.Tenant) (*lifecycle.Control, *vault.Vault)
}

// Check returns what is wrong with a request.
func (v *Verbs) Check(q *Request) error {
	verbs := []string{verbCancel, verbRetry, verbErase, verbArchive, verbExport}
	switch {
	case !slices.Contains(verbs, q.Verb):
		return fmt.Errorf("%w: there is no bulk verb %.40q; there are %s", fault.ErrInvalid, q.Verb, strings.Join(verbs, ", "))
	case reflect.ValueOf(q.Query).IsZero() && !q.All:
		return fmt.Errorf("%w: the filter selects all threads; say all if that is meant", fault.ErrInvalid)
	case q.Rate < 0 || q.Rate > maxRate:
		return fmt.Errorf("%w: a rate of %d threads a second; use 1 to %d, or 0 for %d", fault.ErrInvalid, q.Rate, maxRate, defaultRate)
	case q.Dependents && q.Verb != verbErase:
		return fmt.Errorf("%w: Dependents is for the verb %s", fault.ErrInvalid, verbErase)
	}
	if stored, err := v.Query(q.Filter); err != nil || !reflect.DeepEqual(q.Query, stored) {
		return fmt.Errorf("%w: the filter cannot be stored as it is, and would select other threads", fault.ErrInvalid)
	}
	return errors.Join(q.Query.Check(), fault.CheckText("the key", q.Key, 500), lifecycle.Note{By: q.By, Reason: q.Reason}.Check())
}

// Start begins a job for threads of a tenant.
func (v *Verbs) Start(ctx context.Context, t *threads.Tenant, q *Request) (*Job, error) {
	if err := v.Check(q); err != nil {
		return nil, err
	}
	w := what{Filter: q.Filter, Dependents: q.Dependents}
	if q.Verb == verbArchive || q.Verb == verbExport {
		switch _, sealed := store.As[interface{ Seals() bool }](v.Threads.Store); {
		case v.Place == nil:
			return nil, fmt.Errorf("%w: there is no archive to %s to; set Options.Archive, or --archive URL", fault.ErrInvalid, q.Verb)
		case sealed && q.Verb == verbExport:
			return nil, fmt.Errorf("%w: the store is sealed, and exports are not; archive the threads, or export them one by one", fault.ErrInvalid)
		case q.Verb == verbExport:
			w.Place = v.Place.URL()
		}
	}
	all, err := json.Marshal(w)
	if err != nil {
		return nil, err
	}
	j := &Job{ID: threads.NewRunID(), Tenant: t.Name, Owner: t.Owner, Verb: q.Verb, What: all, By: q.By, Reason: q.Reason, Rate: q.Rate, Repeat: q.Verb == verbCancel}
	if j.Rate == 0 {
		j.Rate = defaultRate
	}
	if q.Key != "" {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %q %q %s", q.Verb, j.Rate, q.By, q.Reason, all))
		j.ID, j.Digest = t.IDForKey("bulk", q.Key), hex.EncodeToString(sum[:])
	}
	if j, err = Start(ctx, t, j); err != nil {
		return nil, fmt.Errorf("perdure: starting a bulk job: %w", err)
	}
	return j, nil
}

func (j *Job) what() (*what, error) {
	w := new(what)
	if err := json.Unmarshal(j.What, w); err != nil {
		return nil, fmt.Errorf("%w: bulk job %s: %w", fault.ErrCorrupt, j.ID, err)
	}
	return w, nil
}

// Selected returns the filter of a job, whether dependents go too, and where its exports
// are, "" if it has none.
func (j *Job) Selected() (filter json.RawMessage, dependents bool, where string, err error) {
	w, err := j.what()
	if err != nil {
		return nil, false, "", err
	}
	if w.Place != "" {
		where = w.Place + "/" + exportsOf(j.ID)
	}
	return w.Filter, w.Dependents, where, nil
}

// Selection is the threads that a job is for.
type Selection struct {
	verb  string
	query threads.Query
	at    int64 // when the job began
}

// Selects returns the threads that a job would be for if it began now.
func (q *Request) Selects() *Selection { return &Selection{q.Verb, q.Query, clock.Micros()} }

// Query returns the query of a list of them. The list may have some that Lists refuses:
// those that have moved, or whose summary lags.
func (s *Selection) Query() threads.Query {
	q := s.query
	for _, before := range []*int64{&q.CreatedBefore, &q.Before} {
		if (*before == 0 || *before > s.at) && (before != &q.Before || s.verb != verbCancel) {
			*before = s.at + 1
		}
	}
	return q
}

// Lists reports whether a thread in a list is one of them.
func (s *Selection) Lists(t *threads.Summary) bool {
	return t.Moved == "" && t.Created <= s.at && (s.verb == verbCancel || t.Changed() <= s.at)
}

// has reports whether a thread that was read is one of them.
func (s *Selection) has(t *journal.Thread) bool {
	return t.Moved == "" && t.Created <= s.at && (s.verb == verbCancel || t.Time <= s.at) && s.query.Selects(threads.Summarised(t))
}

// open returns what a job is for, and the threads that its starter reaches.
func (v *Verbs) open(j *Job) (*threads.Tenant, *Selection, *what, error) {
	w, err := j.what()
	if err != nil {
		return nil, nil, nil, err
	}
	q, err := v.Query(w.Filter)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("%w: bulk job %s: %w", fault.ErrCorrupt, j.ID, err)
	}
	t := v.Threads.Tenant(j.Tenant)
	t.Owner = j.Owner
	return t, &Selection{verb: j.Verb, query: q, at: j.Created}, w, nil
}

// page returns the ids of at most so many threads that a job is for, after its cursor,
// and the new cursor, "" at the end of the list.
func (v *Verbs) page(ctx context.Context, j *Job, most int) (ids []string, cursor string, err error) {
	t, sel, _, err := v.open(j)
	if err != nil {
		return nil, "", err
	}
	for s, err := range t.Select(ctx, sel.Query(), j.Cursor) {
		if err != nil {
			return ids, "", fmt.Errorf("perdure: listing threads: %w", err)
		}
		if !sel.Lists(&s.Summary) {
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

// apply does what the job is for to a thread, if the thread is still among those that
// it is for.
func (v *Verbs) apply(ctx context.Context, j *Job, id string) (Outcome, error) {
	t, sel, w, err := v.open(j)
	if err != nil {
		return Failed, err
	}
	for range mostLooks {
		var got Outcome
		if got, err = v.applyTo(ctx, j, t, sel, w, id); !errors.Is(err, fault.ErrStale) {
			return got, err
		}
	}
	return Failed, err
}

// applyTo does what a job is for to a thread that it has just read.
func (v *Verbs) applyTo(ctx context.Context, j *Job, t *threads.Tenant, sel *Selection, w *what, id string) (Outcome, error) {
	life, away := v.Reach(t)
	note := lifecycle.Note{By: j.By, Reason: j.Reason}
	o, err := t.Open(ctx, id)
	damaged := sel.query.Status != nil && *sel.query.Status == threads.StatusDamaged
	switch {
	case sel.verb == verbArchive && errors.Is(err, fault.ErrArchived):
		_, err := away.Archive(ctx, id, note) // if a worker died meanwhile, there may be something left to do
		return Skipped, err
	case sel.verb == verbErase && (errors.Is(err, fault.ErrErased) || errors.Is(err, fault.ErrCorrupt) && damaged):
		return eraseThread(ctx, life, id, note, w.Dependents) // an erase goes on, or nothing else can be done
	case threads.IsAway(err):
		return Skipped, nil
	case err != nil:
		return Failed, err
	case !sel.has(o.Thread):
		return Skipped, nil
	}
	if sel.verb == verbCancel {
		return cancelRuns(ctx, life, o.Thread, sel.at, id, note)
	}
	note.IfSeq = o.Thread.Seq
	switch sel.verb {
	case verbRetry:
		return retryRun(ctx, life, o.Thread, id, note)
	case verbErase:
		return eraseThread(ctx, life, id, note, w.Dependents)
	case verbArchive:
		_, err := away.Archive(ctx, id, note)
		return pinned(err)
	case verbExport:
		return pinned(v.exportTo(ctx, t, id, exportsOf(j.ID)+threads.Self(o.Name)+".jsonl.gz"))
	}
	return Failed, fmt.Errorf("%w: this version has no bulk verb %q", fault.ErrNewer, sel.verb)
}

// cancelRuns cancels the runs that were queued before a time, newest first, so that
// none of them begins because another has ended.
func cancelRuns(ctx context.Context, life *lifecycle.Control, t *journal.Thread, before int64, id string, n lifecycle.Note) (Outcome, error) {
	got := Skipped
	for _, run := range slices.Backward(t.Runs) {
		if run.Created > before || !lifecycle.CanCancel(run) {
			continue
		}
		switch err := life.Cancel(ctx, id, run.ID, n); {
		case errors.Is(err, fault.ErrNothingToDo): // it has ended meanwhile
		case err != nil:
			return Failed, err
		default:
			got = Applied
		}
	}
	return got, nil
}

// retryRun retries the run that gives the thread its status.
func retryRun(ctx context.Context, life *lifecycle.Control, t *journal.Thread, id string, n lifecycle.Note) (Outcome, error) {
	run := t.Busy()
	if run == nil && len(t.Runs) > 0 {
		run = t.Runs[len(t.Runs)-1]
	}
	stuck := []journal.Status{journal.StatusFailed, journal.StatusBlocked, journal.StatusQuarantined}
	if run == nil || !slices.Contains(stuck, run.Status) {
		return Skipped, nil
	}
	if err := life.Retry(ctx, id, run.ID, n); err != nil {
		return Failed, err
	}
	return Applied, nil
}

func eraseThread(ctx context.Context, life *lifecycle.Control, id string, n lifecycle.Note, dependents bool) (Outcome, error) {
	err := life.Erase(ctx, id, n, dependents)
	if errors.Is(err, fault.ErrNoThread) && !errors.Is(err, fault.ErrErased) {
		err = nil
	}
	return pinned(err)
}

// pinned returns the outcome of an error: a thread that others depend on is tried
// again after these.
func pinned(err error) (Outcome, error) {
	switch {
	case err == nil:
		return Applied, nil
	case errors.Is(err, fault.ErrPinned):
		return Later, err
	}
	return Failed, err
}

// exportsOf returns what the names of the exports of a job begin with.
func exportsOf(job string) string { return "exports/" + job + "/" }

// exportTo writes the export of a thread to the archive.
func (v *Verbs) exportTo(ctx context.Context, t *threads.Tenant, id, name string) error {
	if v.Place == nil {
		return fmt.Errorf("%w: the worker has no archive; set Options.Archive, or --archive URL", fault.ErrInvalid)
	}
	if _, place := v.Reach(t); place != nil {
		if err := place.Begin(ctx); err != nil {
			return err
		}
	}
	out, in := io.Pipe()
	written := make(chan error, 1)
	go func() {
		zip := gzip.NewWriter(in)
		err := archive.New(t, nil).Export(ctx, id, zip, false)
		if err == nil {
			err = zip.Close()
		}
		in.CloseWithError(err) // nil is the end
		written <- err
	}()
	err := v.Place.Put(ctx, name, out)
	out.CloseWithError(io.ErrClosedPipe) // if not all of it was read
	if exportErr := <-written; exportErr != nil && !errors.Is(exportErr, io.ErrClosedPipe) {
		return exportErr
	}
	return err
}
