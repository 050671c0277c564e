package perdure

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

// ListOptions selects threads.
type ListOptions struct {
	User    string    `json:"user,omitempty"`
	Flow    string    `json:"flow,omitempty"`
	Status  Status    `json:"status,omitempty"`
	Updated time.Time `json:"updated,omitzero"` // only those that changed then or later
	Asks    bool      `json:"asks,omitempty"`   // only those with open asks that can be answered here
	After   string    `json:"-"`                // the cursor of the last thread seen
	Limit   int       `json:"-"`                // maximum number; 0 means all
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
}

// List yields the tenant's threads in the order of their creation. A damaged
// summary is rebuilt from its journal, and its thread is yielded once, after all
// others. Damage that remains is reported last, as ErrCorrupt. On a store without
// [store.Batcher] a status may lag behind the journal for a moment.
func (r *Runtime) List(ctx context.Context, o ListOptions) iter.Seq2[Summary, error] {
	return func(yield func(Summary, error) bool) {
		n := 0
		for s, err := range r.tenant.Summaries(ctx, o.After) {
			if err != nil {
				yield(Summary{}, fmt.Errorf("perdure: listing threads: %w", err))
				return
			}
			if !o.fits(s.Summary) || r.tenant.Owner != nil && s.User != *r.tenant.Owner {
				continue
			}
			item := Summary{ID: s.ID, User: s.User, Title: s.Title, Flow: s.Flow, Status: Status(s.Status), Asks: s.Asks, Parent: s.Parent, Import: s.Import, Moved: s.Moved,
				Created: clock.Stamp(s.Created), Updated: clock.Stamp(s.Changed()), Cursor: s.Cursor}
			if !yield(item, nil) {
				return
			}
			if n++; o.Limit > 0 && n >= o.Limit {
				return
			}
		}
	}
}

// fits reports whether a thread is selected.
func (o *ListOptions) fits(s threads.Summary) bool {
	switch {
	case o.User != "" && s.User != o.User, o.Flow != "" && s.Flow != o.Flow, o.Status != "" && Status(s.Status) != o.Status, o.Asks && (s.Asks == 0 || s.Moved != ""):
		return false
	}
	return o.Updated.IsZero() || !clock.Stamp(s.Changed()).Before(o.Updated.Truncate(time.Microsecond))
}

// Watch yields immediately, and whenever the list of the tenant's threads may have
// changed, until the context ends. It only says that it is time to look: it may
// combine several changes, or yield without one.
func (r *Runtime) Watch(ctx context.Context) iter.Seq[struct{}] {
	return func(yield func(struct{}) bool) {
		for range store.Watch(ctx, r.core.threads.Store, threads.JournalKey(r.tenant.Part)+".") {
			if !yield(struct{}{}) {
				return
			}
		}
	}
}
