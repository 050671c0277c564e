package perdure

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

// ListOptions selects threads.
type ListOptions struct {
	User     string            `json:"user,omitempty"`
	Flow     string            `json:"flow,omitempty"`     // of the oldest run that has not ended, else of the last run
	Status   Status            `json:"status,omitempty"`   // Idle: threads without a run
	Metadata map[string]string `json:"metadata,omitempty"` // only threads with all of these, of at most 256 bytes each
	Asks     bool              `json:"asks,omitempty"`     // only those with open asks that can be answered here
	AsksOf   []string          `json:"asks_of,omitempty"`  // only those with an open ask that one of these may answer: users, and groups as group:NAME; nil means anyone; must not be empty otherwise
	Expiring bool              `json:"expiring,omitempty"` // only those with open asks, soonest to expire first

	// Only threads last changed, or created, at or after the first time of each
	// pair and before the second. A zero time sets no bound.
	Updated       time.Time `json:"updated,omitzero"`
	UpdatedBefore time.Time `json:"updated_before,omitzero"`
	Created       time.Time `json:"created,omitzero"`
	CreatedBefore time.Time `json:"created_before,omitzero"`

	// Why asks for Summary.Why. List then reads each thread whose run has neither
	// succeeded nor been cancelled, one after the other.
	Why bool `json:"-"`

	After string `json:"-"` // the cursor of the last thread seen, in a list with the same options
	Limit int    `json:"-"` // maximum number; 0 means all
}

func (o *ListOptions) query() threads.Query {
	q := threads.Query{User: o.User, Flow: o.Flow, Asks: o.Asks, Who: o.AsksOf, Expiry: o.Expiring}
	if len(o.Metadata) > 0 {
		q.Meta = o.Metadata
	}
	// To a query 0 is no limit, and no thread is as old as the first microsecond.
	for _, b := range []struct {
		to    *int64
		t     time.Time
		least int64
	}{{&q.Since, o.Updated, 0}, {&q.Before, o.UpdatedBefore, 1}, {&q.CreatedSince, o.Created, 0}, {&q.CreatedBefore, o.CreatedBefore, 1}} {
		if !b.t.IsZero() {
			*b.to = max(b.t.UnixMicro(), b.least)
		}
	}
	if o.Status != "" {
		status := o.Status
		if o.Status == Idle {
			status = ""
		}
		q.Status = &status
	}
	return q
}

// listed are the statuses that a list can select.
var listed = []Status{Queued, Running, Suspended, Paused, Blocked, Quarantined, Succeeded, Failed, Cancelled, Damaged, Idle}

func (o *ListOptions) check() error {
	switch {
	case o.Status != "" && !slices.Contains(listed, o.Status):
		return fmt.Errorf("%w: there is no status %.40q; there are %s", fault.ErrInvalid, o.Status, strings.Trim(fmt.Sprint(listed), "[]"))
	case o.AsksOf != nil && len(o.AsksOf) == 0:
		return fmt.Errorf("%w: asks of nobody; name who, or leave it out for anyone", fault.ErrInvalid)
	}
	return nil
}

// Summary is a thread in a list. Its status may lag slightly; Get is exact.
type Summary struct {
	ID      string    `json:"id"`
	User    string    `json:"user,omitempty"`
	Title   string    `json:"title,omitempty"`
	Flow    string    `json:"flow,omitempty"`
	Status  Status    `json:"status"`
	Asks    int       `json:"asks,omitempty"`   // open ones
	Parent  string    `json:"parent,omitempty"` // of a child: the thread that spawned it
	Import  bool      `json:"import,omitempty"` // it was imported, or forked from a thread that was
	Moved   string    `json:"moved,omitempty"`  // the store where it continues, see [MovedError]; its status and asks are those that it moved with
	Created time.Time `json:"created"`
	Updated time.Time `json:"updated"`
	Cursor  string    `json:"cursor"`

	Metadata map[string]string `json:"metadata,omitempty"` // values of at most 256 bytes
	Spent    map[string]int64  `json:"spent,omitempty"`    // as of the last change of its status

	// When the first of its open asks was opened, and when the first one expires;
	// zero if none does.
	Asked   time.Time `json:"asked,omitzero"`
	Expires time.Time `json:"expires,omitzero"`

	Why *Why `json:"why,omitempty"` // if it was asked for, and the thread can be read
}

// List yields the tenant's threads, most recently created first. These options, each
// without Metadata, have an order of their own:
//
//   - Asks and AsksOf: by when the first open ask of a thread was opened, oldest first
//   - Expiring: by when the first open ask expires
//   - Status without User: by the last change, to the minute, newest first
//
// A thread that changes meanwhile may be yielded twice. It may be missed if it is no longer
// selected then, or if it has come to an earlier place, such as the first one with Status.
//
// List costs as much as the threads that it yields and those that it has to skip: it
// finds threads by the first of the options Metadata, Expiring, Asks or AsksOf, User,
// Status and Flow that is set, and checks each of them against the others. A damaged
// summary is rebuilt from its journal. Damage that remains is reported last, as
// ErrCorrupt; options that make no sense are ErrInvalid. On a store without
// [store.Batcher] a status may lag behind the journal for a moment.
func (r *Runtime) List(ctx context.Context, o ListOptions) iter.Seq2[Summary, error] {
	return func(yield func(Summary, error) bool) {
		if err := o.check(); err != nil {
			yield(Summary{}, err)
			return
		}
		n := 0
		for s, err := range r.tenant.Select(ctx, o.query(), o.After) {
			if err != nil {
				yield(Summary{}, fmt.Errorf("perdure: listing threads: %w", err))
				return
			}
			item := summaryInfo(&s.Summary, s.Cursor)
			if o.Why {
				why, err := r.core.explainer.Listed(ctx, r.tenant, &s.Summary)
				if err != nil {
					yield(Summary{}, fmt.Errorf("perdure: listing threads: %w", err))
					return
				}
				item.Why = (*Why)(why)
			}
			if !yield(item, nil) {
				return
			}
			if n++; o.Limit > 0 && n >= o.Limit {
				return
			}
		}
	}
}

func summaryInfo(s *threads.Summary, cursor string) Summary {
	info := Summary{ID: s.ID, User: s.User, Title: s.Title, Flow: s.Flow, Status: s.Status, Asks: s.Asks, Parent: s.Parent, Import: s.Import, Moved: s.Moved,
		Metadata: s.Meta, Spent: s.Spent, Created: clock.Stamp(s.Created), Updated: clock.Stamp(s.Changed()), Cursor: cursor}
	info.Asked, info.Expires = s.Waits.Times()
	return info
}

// Counts holds the number of threads.
type Counts struct {
	Threads  int            `json:"threads"`
	Statuses map[Status]int `json:"statuses"` // Idle: without a run
	Asks     int            `json:"asks"`     // open ones that can be answered here
}

// Count counts the tenant's threads without reading those at rest. A thread whose
// status changes meanwhile may count twice or not at all, and a thread whose restore from
// the archive was cut off may count until it is restored. Counting a million threads takes
// about a second.
func (r *Runtime) Count(ctx context.Context) (*Counts, error) {
	statuses, asks, err := r.tenant.Count(ctx)
	if err != nil {
		return nil, fmt.Errorf("perdure: counting threads: %w", err)
	}
	c := &Counts{Statuses: map[Status]int{}, Asks: asks}
	for status, n := range statuses {
		c.Statuses[cmp.Or(status, Idle)] += n
		c.Threads += n
	}
	return c, nil
}

// Watch yields immediately, and then whenever the list of the tenant's threads may have
// changed, until the context ends. A yield only means that it is time to look: it may
// combine several changes, or come without one.
func (r *Runtime) Watch(ctx context.Context) iter.Seq[struct{}] {
	return func(yield func(struct{}) bool) {
		for range store.Watch(ctx, r.core.threads.Store, threads.JournalKey(r.tenant.Part)+".") {
			if !yield(struct{}{}) {
				return
			}
		}
	}
}
