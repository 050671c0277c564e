package perdure

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/bulk"
	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

// BulkVerb is what a bulk job does to each thread.
type BulkVerb string

// The verbs.
const (
	BulkCancel  BulkVerb = "cancel"  // cancels all runs that have not ended
	BulkRetry   BulkVerb = "retry"   // retries the run that is failed, blocked or quarantined
	BulkErase   BulkVerb = "erase"   // erases the thread
	BulkArchive BulkVerb = "archive" // moves the thread to Options.Archive, see [Runtime.Archive]
	BulkExport  BulkVerb = "export"  // writes an export of the thread to Options.Archive, compressed, below exports/ and the id of the job
)

// BulkVerbs are the verbs that jobs can have.
var BulkVerbs = []BulkVerb{BulkCancel, BulkRetry, BulkErase, BulkArchive, BulkExport}

// BulkRequest asks for a bulk job.
type BulkRequest struct {
	Verb       BulkVerb
	Filter     ListOptions // which threads, without After and Limit
	All        bool        // has to be set if the filter selects all threads
	Dependents bool        // erase: forks and children are erased too, also those that the filter does not select
	Rate       int         // threads a second; 0 means 100
	Key        string      // the same key gives the same job
	By, Reason string      // as with the verb on one thread
}

// The states of a bulk job.
const (
	BulkRunning = "running" // or waiting for a worker
	BulkStopped = "stopped"
	BulkDone    = "done"
)

// Bulk is a bulk job.
type Bulk struct {
	ID         string      `json:"id"`
	Verb       BulkVerb    `json:"verb"`
	Filter     ListOptions `json:"filter"`
	Dependents bool        `json:"dependents,omitempty"`
	Rate       int         `json:"rate"`
	By         string      `json:"by,omitempty"`
	Reason     string      `json:"reason,omitempty"`
	State      string      `json:"state"` // running, stopped or done
	Created    time.Time   `json:"created"`
	Updated    time.Time   `json:"updated"`
	Ended      time.Time   `json:"ended,omitzero"`
	Done       int         `json:"done"`    // threads to which it was done
	Skipped    int         `json:"skipped"` // that changed after the job had listed them, or had nothing to do
	Failed     int         `json:"failed"`
	Errors     []BulkError `json:"errors,omitempty"` // the first 100
	Where      string      `json:"where,omitempty"`  // export: where the files are, one for each thread
}

// BulkError says why a job could not do its work on a thread, or, without a thread,
// why some threads may be missing from its list.
type BulkError struct {
	Thread string `json:"thread,omitempty"`
	Error  string `json:"error"`
}

// BulkPlan is what a bulk job would find now.
type BulkPlan struct {
	Threads int       `json:"threads"` // how many
	First   []Summary `json:"first"`   // the first ones

	// Archived is how many threads in the archive an erase would also be for, by what the
	// store knows about them. They stay: jobs are for threads in the store.
	Archived int `json:"archived,omitempty"`
}

// defaultRate and maxRate bound [BulkRequest.Rate], and planned is how many threads
// a plan shows.
const defaultRate, maxRate, planned = 100, 10_000, 10

// bulkWhat is the part of a request that the job's own package need not know.
type bulkWhat struct {
	Filter     ListOptions `json:"filter"`
	Dependents bool        `json:"dependents,omitempty"`
	Place      string      `json:"place,omitempty"` // of exports
}

func (q *BulkRequest) check() error {
	all := q.Filter
	all.After, all.Limit, all.Why = "", 0, false
	if len(all.Metadata) == 0 {
		all.Metadata = nil
	}
	query := all.query()
	switch {
	case !slices.Contains(BulkVerbs, q.Verb):
		return fmt.Errorf("%w: there is no bulk verb %.40q; there are %q", fault.ErrInvalid, q.Verb, BulkVerbs)
	case q.Filter.After != "" || q.Filter.Limit != 0:
		return fmt.Errorf("%w: the filter of a bulk job has neither After nor Limit", fault.ErrInvalid)
	case reflect.ValueOf(all).IsZero() && !q.All:
		return fmt.Errorf("%w: the filter selects all threads; say all if that is meant", fault.ErrInvalid)
	case q.Rate < 0 || q.Rate > maxRate:
		return fmt.Errorf("%w: a rate of %d threads a second; use 1 to %d, or 0 for %d", fault.ErrInvalid, q.Rate, maxRate, defaultRate)
	case q.Dependents && q.Verb != BulkErase:
		return fmt.Errorf("%w: Dependents is for the verb %s", fault.ErrInvalid, BulkErase)
	}
	return errors.Join(q.Filter.check(), query.Check(), checkStored(q.Filter), fault.CheckText("the key", q.Key, 500), (Note{By: q.By, Reason: q.Reason}).check())
}

// checkStored refuses a filter that would select other threads once it was stored.
func checkStored(o ListOptions) error {
	text, err := json.Marshal(o)
	var stored ListOptions
	if err == nil {
		err = json.Unmarshal(text, &stored)
	}
	if err != nil {
		return fmt.Errorf("%w: the filter cannot be stored: %w", fault.ErrInvalid, err)
	}
	given, kept := o.query(), stored.query()
	if len(given.Meta) == 0 {
		given.Meta = nil
	}
	if !reflect.DeepEqual(given, kept) {
		return fmt.Errorf("%w: the filter cannot be stored as it is, and would select other threads", fault.ErrInvalid)
	}
	return nil
}

// PlanBulk returns what a bulk job would find if it began now. It changes nothing.
func (r *Runtime) PlanBulk(ctx context.Context, q BulkRequest) (*BulkPlan, error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	p := &BulkPlan{First: []Summary{}}
	sel := selection{verb: q.Verb, filter: q.Filter, at: clock.Micros()}
	for s, err := range r.List(ctx, sel.options("")) {
		if err != nil {
			return p, err
		}
		if !sel.lists(&s) {
			continue
		}
		if p.Threads++; len(p.First) < planned {
			p.First = append(p.First, s)
		}
	}
	if q.Verb == BulkErase {
		for a, err := range r.vault().List(ctx, "") {
			if err != nil {
				return p, err
			}
			if q.Filter.fits(threads.Summary{ID: a.ID, User: a.User, Flow: a.Flow, Status: a.Status, Meta: a.Meta, Created: a.Created, Updated: a.Updated}) {
				p.Archived++
			}
		}
	}
	return p, ctx.Err()
}

// StartBulk begins a job that does one thing to all threads that a filter selects,
// and returns at once. Workers carry it out in the background, one worker at a time,
// at a bounded rate; if one dies, another continues. A worker carries out eight jobs
// at a time; if there are more, tenants, users and jobs take turns. A thread that fails
// is counted and reported, and does not stop the others.
//
// A job is for threads that exist when it begins and do not change afterwards:
// threads that were created, or have changed, since then are left alone, by the
// clocks of those who wrote them. Only a cancel is for threads that change too; it
// leaves runs alone that were started later. Whether a thread still matches is
// checked exactly before anything is done to it.
//
// What was done stays done if the job is stopped. If a worker dies, the threads of
// its last page that turn out to need nothing count as done. A job is known for 30
// days after its end. A tenant, and each user of it, may have 20 jobs that are running
// or wait for a worker; another one is ErrQuota.
func (r *Runtime) StartBulk(ctx context.Context, q BulkRequest) (*Bulk, error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	w := bulkWhat{Filter: q.Filter, Dependents: q.Dependents}
	if q.Verb == BulkArchive || q.Verb == BulkExport {
		place := r.core.opts.Archive
		switch _, sealed := store.As[interface{ Seals() bool }](r.core.threads.Store); {
		case place == nil:
			return nil, fmt.Errorf("%w: there is no archive to %s to; set Options.Archive, or --archive URL", fault.ErrInvalid, q.Verb)
		case sealed && q.Verb == BulkExport:
			return nil, fmt.Errorf("%w: the store is sealed, and exports are not; archive the threads, or export them one by one", fault.ErrInvalid)
		case q.Verb == BulkExport:
			w.Place = place.URL()
		}
	}
	what, err := json.Marshal(w)
	if err != nil {
		return nil, err
	}
	j := &bulk.Job{ID: threads.NewRunID(), Tenant: r.tenant.Name, Owner: r.tenant.Owner, Verb: string(q.Verb), What: what, By: q.By, Reason: q.Reason,
		Rate: q.Rate, Repeat: q.Verb == BulkCancel}
	if j.Rate == 0 {
		j.Rate = defaultRate
	}
	if q.Key != "" {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %q %q %s", q.Verb, j.Rate, q.By, q.Reason, what))
		j.ID, j.Digest = r.tenant.IDForKey("bulk", q.Key), hex.EncodeToString(sum[:])
	}
	if j, err = bulk.Start(ctx, r.tenant, j); err != nil {
		return nil, fmt.Errorf("perdure: starting a bulk job: %w", err)
	}
	return bulkInfo(j)
}

// Bulk returns a bulk job. An unknown one is ErrNoBulk.
func (r *Runtime) Bulk(ctx context.Context, id string) (*Bulk, error) {
	j, err := bulk.Get(ctx, r.tenant, id)
	if err != nil {
		return nil, err
	}
	return bulkInfo(j)
}

// Bulks returns the tenant's bulk jobs, newest first.
func (r *Runtime) Bulks(ctx context.Context) ([]*Bulk, error) {
	jobs, err := bulk.List(ctx, r.tenant)
	if err != nil {
		return nil, err
	}
	all := make([]*Bulk, len(jobs))
	for i, j := range jobs {
		if all[i], err = bulkInfo(j); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// StopBulk stops a bulk job: the worker that carries it out does so within a second or
// two, and then writes down all that it has done. ResumeBulk continues it. If the job is done, it
// returns ErrNothingToDo.
func (r *Runtime) StopBulk(ctx context.Context, id string) (*Bulk, error) {
	return r.setBulk(ctx, id, BulkStopped)
}

// ResumeBulk continues a job that was stopped. ErrQuota is as with StartBulk.
func (r *Runtime) ResumeBulk(ctx context.Context, id string) (*Bulk, error) {
	return r.setBulk(ctx, id, BulkRunning)
}

func (r *Runtime) setBulk(ctx context.Context, id, state string) (*Bulk, error) {
	j, err := bulk.Set(ctx, r.tenant, id, state)
	if err != nil {
		return nil, err
	}
	return bulkInfo(j)
}

func bulkInfo(j *bulk.Job) (*Bulk, error) {
	var what bulkWhat
	if err := json.Unmarshal(j.What, &what); err != nil {
		return nil, fmt.Errorf("%w: bulk job %s: %w", fault.ErrCorrupt, j.ID, err)
	}
	b := &Bulk{ID: j.ID, Verb: BulkVerb(j.Verb), Filter: what.Filter, Dependents: what.Dependents, Rate: j.Rate, By: j.By, Reason: j.Reason, State: j.State,
		Created: clock.Stamp(j.Created), Updated: clock.Stamp(j.Updated), Ended: clock.Stamp(j.Ended), Done: j.Done, Skipped: j.Skipped, Failed: j.Failed}
	if what.Place != "" {
		b.Where = what.Place + "/" + exportsOf(j.ID)
	}
	for _, e := range j.Errors {
		b.Errors = append(b.Errors, BulkError(e))
	}
	return b, nil
}
