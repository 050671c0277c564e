package perdure

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/perdure/perdure/internal/bulk"
	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/threads"
)

// BulkVerb is what a bulk job does to each thread.
type BulkVerb string

// The verbs.
const (
	BulkCancel  BulkVerb = "cancel"  // cancels all runs that have not ended
	BulkRetry   BulkVerb = "retry"   // retries the run that is failed, blocked or quarantined
	BulkErase   BulkVerb = "erase"   // erases the thread
	BulkArchive BulkVerb = "archive" // moves the thread to Options.Archive, see [Runtime.Archive]
	BulkExport  BulkVerb = "export"  // writes a compressed export of the thread to Options.Archive, below exports/JOB-ID
)

// BulkVerbs are the verbs that jobs can have.
var BulkVerbs = []BulkVerb{BulkCancel, BulkRetry, BulkErase, BulkArchive, BulkExport}

// BulkRequest asks for a bulk job.
type BulkRequest struct {
	Verb       BulkVerb
	Filter     ListOptions // which threads, without After and Limit
	All        bool        // has to be set if the filter selects all threads
	Dependents bool        // erase: forks and children are erased too, even if the filter does not select them
	Rate       int         // threads per second; 0 means 100
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
	Done       int         `json:"done"`    // threads that the verb was applied to
	Skipped    int         `json:"skipped"` // threads that changed after the job listed them, or for which there was nothing to do
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

	// Archived is, for an erase, how many archived threads match the filter, as far as the
	// store knows. The job does not erase them: jobs work on threads in the store.
	Archived int `json:"archived,omitempty"`
}

// planned is how many threads a plan shows.
const planned = 10

// inner returns the request as workers take it.
func (q *BulkRequest) inner() (*bulk.Request, error) {
	if q.Filter.After != "" || q.Filter.Limit != 0 {
		return nil, fmt.Errorf("%w: the filter of a bulk job has neither After nor Limit", fault.ErrInvalid)
	}
	if err := q.Filter.check(); err != nil {
		return nil, err
	}
	filter, err := json.Marshal(q.Filter)
	if err != nil {
		return nil, fmt.Errorf("%w: the filter cannot be stored: %w", fault.ErrInvalid, err)
	}
	return &bulk.Request{Verb: string(q.Verb), Filter: filter, Query: q.Filter.query(), All: q.All, Dependents: q.Dependents, Rate: q.Rate, Key: q.Key, By: q.By, Reason: q.Reason}, nil
}

// bulkVerbs returns what carries out bulk jobs.
func (c *core) bulkVerbs() *bulk.Verbs {
	return &bulk.Verbs{Threads: c.threads, Place: c.opts.Archive, Reach: c.reach, Query: func(filter json.RawMessage) (threads.Query, error) {
		var o ListOptions
		err := json.Unmarshal(filter, &o)
		return o.query(), err
	}}
}

// PlanBulk returns what a bulk job would find if it began now. It changes nothing.
func (r *Runtime) PlanBulk(ctx context.Context, q BulkRequest) (*BulkPlan, error) {
	in, err := q.inner()
	if err == nil {
		err = r.core.bulkVerbs().Check(in)
	}
	if err != nil {
		return nil, err
	}
	p := &BulkPlan{First: []Summary{}}
	sel := in.Selects()
	for s, err := range r.tenant.Select(ctx, sel.Query(), "") {
		if err != nil {
			return p, fmt.Errorf("perdure: listing threads: %w", err)
		}
		if !sel.Lists(&s.Summary) {
			continue
		}
		if p.Threads++; p.Threads <= planned {
			p.First = append(p.First, summaryInfo(&s.Summary, s.Cursor))
		}
	}
	if q.Verb == BulkErase {
		for a, err := range r.vault().List(ctx, "") {
			if err != nil {
				return p, err
			}
			if in.Query.Selects(threads.Summary{ID: a.ID, User: a.User, Flow: a.Flow, Status: a.Status, Meta: a.Meta, Created: a.Created, Updated: a.Updated}) {
				p.Archived++
			}
		}
	}
	return p, ctx.Err()
}

// StartBulk begins a job that does one thing to all threads that a filter selects,
// and returns at once. Workers carry it out in the background, one worker at a time,
// at a bounded rate; if that worker dies, another continues. A worker carries out eight
// jobs at a time; if there are more, tenants, users and jobs take turns. A thread that
// fails is counted and reported, and does not stop the others.
//
// A job leaves threads alone that were created or changed after it began, according to
// the clocks of the processes that wrote them. Only a cancel also applies to threads that
// changed, but not to runs that were started later. Before a job does anything to a
// thread, it checks that the thread still matches.
//
// What was done stays done if the job is stopped. If a worker dies, the threads of
// its last page that turn out to need nothing count as done. A job can be looked up for
// 30 days after it ends. A tenant may have 20 jobs that are running or waiting for a
// worker, and so may each of its users; beyond that StartBulk returns ErrQuota.
func (r *Runtime) StartBulk(ctx context.Context, q BulkRequest) (*Bulk, error) {
	in, err := q.inner()
	if err != nil {
		return nil, err
	}
	j, err := r.core.bulkVerbs().Start(ctx, r.tenant, in)
	if err != nil {
		return nil, err
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

// StopBulk stops a bulk job: the worker that carries it out stops within a second or
// two, and then records what it has done. ResumeBulk continues the job. If the job is
// done, StopBulk returns ErrNothingToDo.
func (r *Runtime) StopBulk(ctx context.Context, id string) (*Bulk, error) {
	return r.setBulk(ctx, id, BulkStopped)
}

// ResumeBulk continues a job that was stopped. Like StartBulk, it may return ErrQuota.
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
	filter, dependents, where, err := j.Selected()
	if err != nil {
		return nil, err
	}
	b := &Bulk{ID: j.ID, Verb: BulkVerb(j.Verb), Dependents: dependents, Rate: j.Rate, By: j.By, Reason: j.Reason, State: j.State, Created: clock.Stamp(j.Created),
		Updated: clock.Stamp(j.Updated), Ended: clock.Stamp(j.Ended), Done: j.Done, Skipped: j.Skipped, Failed: j.Failed, Where: where,
		Errors: each(j.Errors, func(e bulk.Report) BulkError { return BulkError(e) })}
	if err := json.Unmarshal(filter, &b.Filter); err != nil {
		return nil, fmt.Errorf("%w: bulk job %s: %w", fault.ErrCorrupt, j.ID, err)
	}
	return b, nil
}
