package perdure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/store"
)

// summary is what the cell of a thread says. It is a hint: membership is
// complete, the rest may lag behind the journal.
type summary struct {
	ID      string `json:"id"`
	User    string `json:"user,omitempty"`
	Title   string `json:"title,omitempty"`
	Flow    string `json:"flow,omitempty"`
	Status  Status `json:"status,omitempty"`
	Created int64  `json:"created"`
	Updated int64  `json:"updated,omitempty"`
	Seq     uint64 `json:"seq,omitempty"`
	Asks    int    `json:"asks,omitempty"`
	From    string `json:"from,omitempty"`  // of a fork that is being made: the name of the thread that it pins
	Rough   bool   `json:"rough,omitempty"` // nobody has read the fork yet
	Parent  string `json:"parent,omitempty"`
	Import  bool   `json:"import,omitempty"`
}

// summaryOf returns the summary of a thread.
func summaryOf(t *journal.Thread) summary {
	s := summary{ID: t.ID, User: t.User, Title: t.Title, Status: threadStatus(t), Created: t.Created, Updated: t.Time, Seq: t.Seq}
	s.Import = t.Import != nil
	if t.Parent != nil {
		s.Parent = t.Parent.Thread
	}
	if run := t.Busy(); run != nil {
		s.Flow = run.Flow
	} else if n := len(t.Runs); n > 0 {
		s.Flow = t.Runs[n-1].Flow
	}
	for _, a := range t.Asks {
		if a.Open() {
			s.Asks++
		}
	}
	if run := t.Busy(); run != nil && run.Status == journal.StatusBlocked && strings.HasPrefix(run.Diff, unreadable) {
		s.Status = Damaged
	}
	return s
}

// summarise brings a thread's summary up to date, as far as it can. Where there
// is none it makes none: the thread was erased.
func (c *core) summarise(ctx context.Context, o *opened) error {
	s := summaryOf(o.thread)
	_, err := store.Update(ctx, store.Derived(c.store), journalOf(o.name), func(old store.Cell) ([]byte, error) {
		var was summary
		if old.Version == "" {
			return nil, errNothing
		}
		if json.Unmarshal(old.Value, &was) == nil && was.Seq >= s.Seq && !was.Rough && was.Status != Damaged {
			return nil, errNothing
		}
		return json.Marshal(s)
	})
	if errors.Is(err, errNothing) {
		return nil
	}
	if err != nil {
		c.log.Debug("writing a summary", "thread", s.ID, "error", err)
	}
	return err
}

// ensureSummary makes the summary of a thread that is about to begin, unless it
// is there. One that is damaged is made rough: who lists it reads the thread.
func (c *core) ensureSummary(ctx context.Context, name string, s summary) error {
	value, err := json.Marshal(s)
	if err == nil {
		_, err = c.ensure(ctx, journalOf(name), value)
	}
	if !errors.Is(err, store.ErrCorrupt) {
		return err
	}
	s.Rough = true
	_, err = store.Update(ctx, store.Derived(c.store), journalOf(name), func(old store.Cell) ([]byte, error) {
		if len(old.Value) > 0 {
			return nil, errNothing
		}
		return json.Marshal(s)
	})
	if errors.Is(err, errNothing) {
		return nil
	}
	return err
}

// ListOptions choose threads.
type ListOptions struct {
	User    string
	Flow    string
	Status  Status
	Updated time.Time // only those that changed then or later
	Asks    bool      // only those with open asks
	After   string    // cursor: the one of the last thread seen
	Limit   int       // at most so many; 0 is all
}

// Summary is a thread in a list. Its status may lag a moment behind; Get is
// exact.
type Summary struct {
	ID      string    `json:"id"`
	User    string    `json:"user,omitempty"`
	Title   string    `json:"title,omitempty"`
	Flow    string    `json:"flow,omitempty"`
	Status  Status    `json:"status"`
	Asks    int       `json:"asks,omitempty"`   // open ones
	Parent  string    `json:"parent,omitempty"` // of a child: the thread that spawned it
	Import  bool      `json:"import,omitempty"` // it came with a file, or was forked from one that did
	Created time.Time `json:"created"`
	Updated time.Time `json:"updated"`
	Cursor  string    `json:"cursor"`
}

// List yields the tenant's threads in the order of their creation. A summary
// that is damaged is written anew from its journal, and its thread comes behind
// all others once. Damage that remains is ErrCorrupt, the last thing yielded.
func (r *Runtime) List(ctx context.Context, o ListOptions) iter.Seq2[Summary, error] {
	return func(yield func(Summary, error) bool) {
		n := 0
		for s, err := range r.summaries(ctx, o.After) {
			if err != nil {
				yield(Summary{}, fmt.Errorf("perdure: listing threads: %w", err))
				return
			}
			if !o.fits(s.summary) || r.owner != nil && s.User != *r.owner {
				continue
			}
			item := Summary{ID: s.ID, User: s.User, Title: s.Title, Flow: s.Flow, Status: s.Status, Asks: s.Asks, Parent: s.Parent, Import: s.Import,
				Created: stamp(s.Created), Updated: stamp(s.changed()), Cursor: s.cursor}
			if !yield(item, nil) {
				return
			}
			if n++; o.Limit > 0 && n >= o.Limit {
				return
			}
		}
	}
}

// listed is a summary on its way to a list.
type listed struct {
	summary
	name   string
	cursor string // behind which the list goes on
}

// summaries yields those of the tenant's threads that have begun, as List does.
func (r *Runtime) summaries(ctx context.Context, cursor string) iter.Seq2[listed, error] {
	return func(yield func(listed, error) bool) {
		prefix := journalOf(r.part) + "."
		after := ""
		if cursor != "" {
			after = prefix + cursor
		}
		for cell, err := range r.store.List(ctx, prefix, after) {
			if errors.Is(err, store.ErrCorrupt) {
				var mended []listed
				mended, err = r.mendSummaries(ctx, prefix, after, err)
				for _, s := range mended {
					s.cursor = max(s.cursor, cursor)
					if !yield(s, nil) {
						return
					}
				}
				if err == nil {
					return
				}
			}
			if err != nil {
				yield(listed{}, err)
				return
			}
			s := listed{name: strings.TrimPrefix(cell.Key, journalOf("")), cursor: strings.TrimPrefix(cell.Key, prefix)}
			cursor = s.cursor
			if err := json.Unmarshal(cell.Value, &s.summary); err != nil {
				s.ID = "?"
			}
			if s.Seq == 0 {
				begun, err := r.begun(ctx, cell.Key)
				switch {
				case errors.Is(err, store.ErrDropped):
					// Of a start that came too late for its thread and died.
					_ = r.store.Delete(ctx, cell.Key, cell.Version)
					continue
				case errors.Is(err, store.ErrCorrupt):
					s.Status = Damaged
				case err != nil:
					yield(listed{}, err)
					return
				case !begun:
					continue // its first entry was never written
				}
			}
			if s.Rough {
				s.summary = r.refined(ctx, s.name, s.summary)
			}
			if s.Seq == 0 { // a start has begun it
				s.Status = or(s.Status, Queued)
			}
			if !yield(s, nil) {
				return
			}
		}
	}
}

// changed is when a thread changed last, as far as its summary tells.
func (s summary) changed() int64 { return max(s.Updated, s.Created) }

// fits reports whether a thread is one of those that are asked for.
func (o *ListOptions) fits(s summary) bool {
	switch {
	case o.User != "" && s.User != o.User, o.Flow != "" && s.Flow != o.Flow, o.Status != "" && s.Status != o.Status, o.Asks && s.Asks == 0:
		return false
	}
	return o.Updated.IsZero() || !stamp(s.changed()).Before(o.Updated.Truncate(time.Microsecond))
}

// Watch yields at once, and whenever a thread of the tenant may have been made,
// changed in what List tells of it, or erased, until the context ends. It says
// only that it is time to look: several changes may be one, and it may be for
// nothing.
func (r *Runtime) Watch(ctx context.Context) iter.Seq[struct{}] {
	return func(yield func(struct{}) bool) {
		for range store.Watch(ctx, r.store, journalOf(r.part)+".") {
			if !yield(struct{}{}) {
				return
			}
		}
	}
}

// refined returns the summary of a fork that nobody has read yet.
func (c *core) refined(ctx context.Context, name string, s summary) summary {
	o, err := c.read(ctx, name)
	if errors.Is(err, fault.ErrCorrupt) {
		if s.ID == "" {
			s = summaryOf(o.thread)
		}
		s.Status = Damaged
	}
	if err != nil || o.thread.Seq == 0 {
		return s
	}
	_ = c.summarise(ctx, o) // the next one who lists it reads it again
	return summaryOf(o.thread)
}

// begun reports whether a journal has an entry.
func (c *core) begun(ctx context.Context, journal string) (bool, error) {
	for _, err := range c.store.Read(ctx, journal, 0) {
		return err == nil, err
	}
	return false, nil
}
