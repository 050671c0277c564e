// Package bulk carries out jobs that do one thing to many threads, in the
// background, several at a time, one worker at a time for each job. It may import internal/duty and
// vault, what these import, and the public package archive.
//
// A job is a cell, bulk/TENANT/ID. The worker that carries it out is its holder, see
// package duty, and rewrites the cell with each page of threads.
//
// A page is written down before anything is done to its threads. Whoever takes over
// begins with the rest of the page, of which some may be done already. What is done to
// a thread must therefore be harmless the second time.
package bulk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

// Prefix is the prefix of the keys of all jobs.
const Prefix = "bulk/"

// The states of a job.
const (
	Running = "running" // or waiting for a worker
	Stopped = "stopped"
	Done    = "done"
)

// Job is a job as its cell holds it.
type Job struct {
	ID      string          `json:"id"`
	Tenant  string          `json:"tenant,omitempty"`
	Owner   *string         `json:"owner,omitempty"` // the user to whose threads it is limited
	Verb    string          `json:"verb"`
	What    json.RawMessage `json:"what"` // the rest of the request
	Digest  string          `json:"digest,omitempty"`
	By      string          `json:"by,omitempty"`
	Reason  string          `json:"reason,omitempty"`
	Rate    int             `json:"rate"`             // threads a second
	Repeat  bool            `json:"repeat,omitempty"` // list the threads again until there is nothing to do: some may have moved in the list
	State   string          `json:"state"`
	Created int64           `json:"created"`
	Updated int64           `json:"updated"`
	Ended   int64           `json:"ended,omitempty"`

	Cursor string   `json:"cursor,omitempty"` // the list of threads continues after it
	Listed bool     `json:"listed,omitempty"` // the list is at its end
	Lists  int      `json:"lists,omitempty"`  // how often it was
	Page   []string `json:"page,omitempty"`   // the threads to do next
	Later  []Report `json:"later,omitempty"`  // those to try again after all others, with the reason
	Redo   int      `json:"redo,omitempty"`   // how many threads of the page may be done already, if its last holder let it go
	Next   int64    `json:"next,omitempty"`   // when the rate allows the next thread, likewise
	Gained bool     `json:"gained,omitempty"` // something was done since the list began, or since Later was tried

	Done    int      `json:"done"`
	Skipped int      `json:"skipped"`
	Failed  int      `json:"failed"`
	Errors  []Report `json:"errors,omitempty"`

	Holder string `json:"holder,omitempty"` // of this worker; "" if none
	Beat   uint64 `json:"beat"`             // counts the writes
}

// Report says what went wrong with a thread, "" for the list itself.
type Report struct {
	Thread string `json:"thread,omitempty"`
	Error  string `json:"error"`
}

// The bounds of a job's cell: a page, what is tried later, and reports.
const (
	pageSize   = 25
	mostLater  = 500
	mostErrors = 100
	mostText   = 300
)

// newReport returns what went wrong with a thread.
func newReport(thread string, err error) Report {
	return Report{thread, fault.Clip(err.Error(), mostText)}
}

// fail counts threads that failed, and keeps the first reports.
func (j *Job) fail(reports ...Report) {
	j.Failed += len(reports)
	j.Errors = append(j.Errors, reports[:min(len(reports), max(0, mostErrors-len(j.Errors)))]...)
}

// Key is the key of a tenant's job.
func Key(t *threads.Tenant, id string) string { return Prefix + t.Part + "/" + id }

// Start writes a new job, unless it is there: then it returns that one, or
// ErrKeyReused if its digest is another.
func Start(ctx context.Context, t *threads.Tenant, j *Job) (*Job, error) {
	j.State, j.Created = Running, clock.Micros()
	j.Updated = j.Created
	value, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	if len(value) > store.MaxEntry/2 {
		return nil, fmt.Errorf("%w: the filter of a bulk job has %d bytes", fault.ErrInvalid, len(value))
	}
	if _, err := Get(ctx, t, j.ID); errors.Is(err, fault.ErrNoBulk) {
		if err := room(ctx, t, j.Owner); err != nil {
			return nil, err
		}
	}
	held, err := t.All.Ensure(ctx, Key(t, j.ID), value)
	if err != nil {
		return nil, err
	}
	there, err := parse(held)
	if err == nil && there.Digest != j.Digest {
		return nil, fmt.Errorf("%w: bulk job %s does something else", fault.ErrKeyReused, j.ID)
	}
	return there, err
}

// mostRunning is how many jobs of a tenant, or of one of its users, may be running or
// wait for a worker.
const mostRunning = 20

// room refuses another running job if its owner, nil for the tenant, has too many. A
// user's jobs do not count for the tenant, so no user can keep the tenant from starting
// one. Jobs that are started at the same moment may exceed the bound.
func room(ctx context.Context, t *threads.Tenant, owner *string) error {
	all, err := List(ctx, t)
	if err != nil {
		return err
	}
	n := 0
	for _, j := range all {
		if j.State == Running && (j.Owner == nil) == (owner == nil) && (owner == nil || *j.Owner == *owner) {
			n++
		}
	}
	if n >= mostRunning {
		return &fault.QuotaError{Quota: "running bulk jobs", Limit: mostRunning, Retry: 10 * time.Second, Help: "wait until one of them is done, or stop one"}
	}
	return nil
}

// Get returns a job.
func Get(ctx context.Context, t *threads.Tenant, id string) (*Job, error) {
	if len(id) > 100 || strings.Contains(id, "/") {
		return nil, fmt.Errorf("%w: %.100q", fault.ErrNoBulk, id)
	}
	cell, err := t.All.Store.Get(ctx, Key(t, id))
	if errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("%w: %q", fault.ErrNoBulk, id)
	}
	if err != nil {
		return nil, err
	}
	j, err := parse(cell.Value)
	if err == nil && !j.reaches(t) {
		return nil, fmt.Errorf("%w: %q", fault.ErrNoBulk, id)
	}
	return j, err
}

// reaches reports whether someone with access to the tenant's threads may know of
// the job.
func (j *Job) reaches(t *threads.Tenant) bool {
	return t.Owner == nil || j.Owner != nil && *j.Owner == *t.Owner
}

// List returns the jobs of a tenant, newest first.
func List(ctx context.Context, t *threads.Tenant) ([]*Job, error) {
	var all []*Job
	for cell, err := range t.All.Store.List(ctx, Prefix+t.Part+"/", "") {
		if err != nil {
			return nil, err
		}
		if j, err := parse(cell.Value); err == nil && j.reaches(t) {
			all = append(all, j)
		}
	}
	slices.SortFunc(all, func(a, b *Job) int { return int(b.Created - a.Created) })
	return all, nil
}

// Set stops a job, or lets it continue. The holder of a job that is stopped notices
// with its next write, writes down what it has done, and lets it go.
func Set(ctx context.Context, t *threads.Tenant, id, state string) (*Job, error) {
	if state == Running {
		j, err := Get(ctx, t, id)
		if err == nil && j.State == Stopped {
			err = room(ctx, t, j.Owner)
		}
		if err != nil {
			return nil, err
		}
	}
	var j *Job
	_, err := store.Update(ctx, t.All.Store, Key(t, id), func(old store.Cell) ([]byte, error) {
		if old.Version == "" {
			return nil, fmt.Errorf("%w: %q", fault.ErrNoBulk, id)
		}
		var err error
		if j, err = parse(old.Value); err != nil {
			return nil, err
		}
		switch {
		case !j.reaches(t):
			return nil, fmt.Errorf("%w: %q", fault.ErrNoBulk, id)
		case j.State == state:
			return nil, threads.ErrNothing
		case j.State == Done:
			return nil, fmt.Errorf("%w: bulk job %s is done", fault.ErrNothingToDo, id)
		}
		j.State, j.Updated = state, clock.Micros() // the holder takes it over, see hold.merge
		j.Beat++
		return json.Marshal(j)
	})
	if errors.Is(err, threads.ErrNothing) {
		err = nil
	}
	return j, err
}

func parse(value []byte) (*Job, error) {
	j := new(Job)
	if err := json.Unmarshal(value, j); err != nil {
		return nil, fmt.Errorf("%w: a bulk job: %w", fault.ErrCorrupt, err)
	}
	return j, nil
}
