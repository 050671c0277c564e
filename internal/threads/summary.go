package threads

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"strings"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/store"
)

// Summary is the content of a thread's summary cell. Every thread that has begun
// has one, but it may lag behind the journal.
type Summary struct {
	ID      string         `json:"id"`
	User    string         `json:"user,omitempty"`
	Title   string         `json:"title,omitempty"`
	Flow    string         `json:"flow,omitempty"`
	Status  journal.Status `json:"status,omitempty"`
	Created int64          `json:"created"`
	Updated int64          `json:"updated,omitempty"`
	Seq     uint64         `json:"seq,omitempty"`
	Asks    int            `json:"asks,omitempty"`
	From    string         `json:"from,omitempty"`  // of a fork that is being made: the name of the thread that it pins
	Rough   bool           `json:"rough,omitempty"` // not written from the thread itself yet
	Parent  string         `json:"parent,omitempty"`
	Import  bool           `json:"import,omitempty"`
	Moved   string         `json:"moved,omitempty"` // the store where it continues
}

func summaryOf(t *journal.Thread) Summary {
	s := Summary{ID: t.ID, User: t.User, Title: t.Title, Status: StatusOf(t), Created: t.Created, Updated: t.Time, Seq: t.Seq, Asks: t.OpenAsks(), Moved: t.Moved}
	s.Import = t.Import != nil
	if t.Parent != nil {
		s.Parent = t.Parent.Thread
	}
	if run := t.Busy(); run != nil {
		s.Flow = run.Flow
	} else if n := len(t.Runs); n > 0 {
		s.Flow = t.Runs[n-1].Flow
	}
	if run := t.Busy(); run != nil && run.Status == journal.StatusBlocked && strings.HasPrefix(run.Diff, Unreadable) {
		s.Status = statusDamaged
	}
	return s
}

// ReadSummary returns the summary of a thread, the zero value if there is none or
// it cannot be decoded.
func (c *Threads) ReadSummary(ctx context.Context, name string) (s Summary, err error) {
	cell, err := c.Store.Get(ctx, JournalKey(name))
	if errors.Is(err, store.ErrNotFound) {
		return s, nil
	}
	if err == nil && json.Unmarshal(cell.Value, &s) != nil {
		s = Summary{}
	}
	return s, err
}

// shows reports whether two summaries differ at most in when the thread changed.
func (s Summary) shows(other Summary) bool {
	s.Updated, s.Seq = other.Updated, other.Seq
	return s == other
}

// Summarise brings a thread's summary up to date. It does not create a missing
// one, since that means that the thread was erased.
func (c *Threads) Summarise(ctx context.Context, o *Opened) error {
	s := summaryOf(o.Thread)
	_, err := store.Update(ctx, store.Derived(c.Store), JournalKey(o.Name), func(old store.Cell) ([]byte, error) {
		var was Summary
		if old.Version == "" {
			return nil, ErrNothing
		}
		known := json.Unmarshal(old.Value, &was) == nil
		s.Moved = cmp.Or(s.Moved, was.Moved) // a migration says so, and it stays so
		// A foreseen summary of the same sequence may be wrong.
		if known && (was.Seq > s.Seq || was.Seq == s.Seq && was.shows(s)) && !was.Rough && was.Status != statusDamaged {
			return nil, ErrNothing
		}
		return json.Marshal(s)
	})
	if errors.Is(err, ErrNothing) {
		return nil
	}
	if err != nil {
		c.Log.Debug("writing a summary", "thread", s.ID, "error", err)
	}
	return err
}

// MarkMoved makes the summaries of a store that has moved to another one say so.
func MarkMoved(ctx context.Context, s store.Store, to string) error {
	prefix := JournalKey("")
	for after, more := "", true; more; {
		more = false
		var keys []string
		for cell, err := range s.List(ctx, prefix, after) {
			if err != nil {
				return err
			}
			if keys = append(keys, cell.Key); len(keys) == movedPage {
				more, after = true, cell.Key
				break
			}
		}
		for _, key := range keys {
			_, err := store.Update(ctx, s, key, func(old store.Cell) ([]byte, error) {
				var was Summary
				if json.Unmarshal(old.Value, &was) != nil || was.Moved == to {
					return nil, ErrNothing // missing or damaged, or marked
				}
				was.Moved = to
				return json.Marshal(was)
			})
			if err != nil && !errors.Is(err, ErrNothing) {
				return err
			}
		}
	}
	return nil
}

// movedPage is how many summaries MarkMoved reads at a time.
const movedPage = 256

// EnsureSummary creates the summary of a thread that is about to begin, unless it
// exists. It replaces a damaged one by a rough one, so that the next list reads the
// thread.
func (c *Threads) EnsureSummary(ctx context.Context, name string, s Summary) error {
	value, err := json.Marshal(s)
	if err == nil {
		_, err = c.Ensure(ctx, JournalKey(name), value)
	}
	if !errors.Is(err, store.ErrCorrupt) {
		return err
	}
	s.Rough = true
	_, err = store.Update(ctx, store.Derived(c.Store), JournalKey(name), func(old store.Cell) ([]byte, error) {
		if len(old.Value) > 0 {
			return nil, ErrNothing
		}
		return json.Marshal(s)
	})
	if errors.Is(err, ErrNothing) {
		return nil
	}
	return err
}

// listed is a summary in a list.
type listed struct {
	Summary
	name   string
	Cursor string // the list continues after it
}

// Summaries yields the summaries of the tenant's threads that have begun, oldest
// first, after a cursor unless that is "".
func (r *Tenant) Summaries(ctx context.Context, cursor string) iter.Seq2[listed, error] {
	return func(yield func(listed, error) bool) {
		prefix := JournalKey(r.Part) + "."
		after := ""
		if cursor != "" {
			after = prefix + cursor
		}
		for cell, err := range r.All.Store.List(ctx, prefix, after) {
			if errors.Is(err, store.ErrCorrupt) {
				var mended []listed
				mended, err = r.mendSummaries(ctx, prefix, after, err)
				for _, s := range mended {
					s.Cursor = max(s.Cursor, cursor)
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
			s := listed{name: strings.TrimPrefix(cell.Key, JournalKey("")), Cursor: strings.TrimPrefix(cell.Key, prefix)}
			cursor = s.Cursor
			if err := json.Unmarshal(cell.Value, &s.Summary); err != nil {
				s.ID = "?"
			}
			if s.Seq == 0 {
				begun, err := r.All.Begun(ctx, cell.Key)
				switch {
				case errors.Is(err, store.ErrDropped):
					// A start wrote it after the thread was erased, and died.
					_ = r.All.Store.Delete(ctx, cell.Key, cell.Version)
					continue
				case errors.Is(err, store.ErrCorrupt):
					s.Status = statusDamaged
				case err != nil:
					yield(listed{}, err)
					return
				case !begun:
					continue // its first entry was never written
				}
			}
			if s.Rough {
				s.Summary = r.All.refined(ctx, s.name, s.Summary)
			}
			if s.Seq == 0 { // written ahead of the first entry
				s.Status = cmp.Or(s.Status, journal.StatusQueued)
			}
			if !yield(s, nil) {
				return
			}
		}
	}
}

// Changed returns when a thread last changed, as far as its summary tells.
func (s Summary) Changed() int64 { return max(s.Updated, s.Created) }

// refined replaces a rough summary by one written from the thread.
func (c *Threads) refined(ctx context.Context, name string, s Summary) Summary {
	o, err := c.Read(ctx, name)
	if errors.Is(err, fault.ErrCorrupt) {
		if s.ID == "" {
			s = summaryOf(o.Thread)
		}
		s.Status = statusDamaged
	}
	if err != nil || o.Thread.Seq == 0 {
		return s
	}
	_ = c.Summarise(ctx, o) // if it fails, the next list reads the thread again
	return summaryOf(o.Thread)
}

// Begun reports whether a journal has an entry.
func (c *Threads) Begun(ctx context.Context, journal string) (bool, error) {
	for _, err := range c.Store.Read(ctx, journal, 0) {
		return err == nil, err
	}
	return false, nil
}
