package threads

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/clock"
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
	Bytes   int64          `json:"bytes,omitempty"` // of its entries and their blobs
	Runs    int            `json:"runs,omitempty"`
	Asks    int            `json:"asks,omitempty"`
	From    string         `json:"from,omitempty"`  // of a fork that is being made: the name of the thread that it pins
	Rough   bool           `json:"rough,omitempty"` // not written from the thread itself yet
	Parent  string         `json:"parent,omitempty"`
	Import  bool           `json:"import,omitempty"`
	Back    int64          `json:"back,omitempty"` // when it was restored from the archive
	Leaving bool           `json:"lv,omitempty"`   // the journal may say that it was erased or archived, see leaving.go

	Meta  map[string]string `json:"meta,omitempty"`  // what threads are found by
	Waits *Waits            `json:"waits,omitempty"` // for people, if it has open asks
	Spent map[string]int64  `json:"spent,omitempty"` // when its status last changed

	// Of the index, see index.go.
	Indexed   bool     `json:"ix,omitempty"` // it has the cells that follow from this summary
	StatusSeq uint64   `json:"ss,omitempty"` // numbers of keys
	MetaSeq   uint64   `json:"ms,omitempty"`
	Pending   []string `json:"pe,omitempty"` // cells that may be written before the next summary
	Gone      []string `json:"go,omitempty"` // cells that are to be removed
	Late      []string `json:"la,omitempty"` // cells that writers who were overtaken may still write
	Removed   uint64   `json:"rm,omitempty"` // the highest number of cells that were to be removed

	Moved string `json:"moved,omitempty"` // the store where it continues
}

// Waits is what the open asks of a thread have in common.
type Waits struct {
	Opened  int64    `json:"opened"`        // the first of them
	Expires int64    `json:"expires"`       // the first that does, or neverExpires
	Over    int64    `json:"over,omitzero"` // the last that does, or neverExpires; 0 in summaries of older versions
	Who     []string `json:"who,omitempty"` // who may answer one of them, "" for anyone
}

const (
	neverExpires = math.MaxInt64
	maxWho       = 8
)

func (w *Waits) equal(other *Waits) bool {
	if w == nil || other == nil {
		return w == other
	}
	return w.Opened == other.Opened && w.Expires == other.Expires && w.Over == other.Over && slices.Equal(w.Who, other.Who)
}

// expire leaves out asks that have all expired, also if nobody has recorded it: no
// worker does while the run is paused.
func (s *Summary) expire(now int64) {
	if s.Waits != nil && s.Waits.Over != 0 && s.Waits.Over <= now {
		s.Asks, s.Waits = 0, nil
	}
}

// Times returns when the first ask was opened and when the first expires, each zero
// if there is none.
func (w *Waits) Times() (opened, expires time.Time) {
	if w == nil {
		return opened, expires
	}
	if w.Expires != neverExpires {
		expires = clock.Stamp(w.Expires)
	}
	return clock.Stamp(w.Opened), expires
}

// waitsOf returns what the open asks of a thread have in common, nil if it has none.
func waitsOf(t *journal.Thread) *Waits {
	var w *Waits
	for a := range t.AllOpenAsks() {
		if w == nil {
			w = &Waits{Opened: a.Time, Expires: neverExpires}
		}
		w.Opened = min(w.Opened, a.Time)
		due := cmp.Or(a.Due, neverExpires)
		w.Expires, w.Over = min(w.Expires, due), max(w.Over, due)
		if who := a.Question.Who; len(who) > 0 {
			w.Who = append(w.Who, who...)
		} else {
			w.Who = append(w.Who, "")
		}
	}
	if w != nil {
		slices.Sort(w.Who)
		if w.Who = slices.Compact(w.Who); len(w.Who) > maxWho {
			w.Who = []string{""} // a reader of the thread sees who
		}
	}
	return w
}

func summaryOf(t *journal.Thread) Summary {
	s := Summary{ID: t.ID, User: t.User, Title: t.Title, Status: StatusOf(t), Created: t.Created, Updated: t.Time, Seq: t.Seq, Asks: t.OpenAsks(), Moved: t.Moved}
	s.Import, s.Meta, s.Waits, s.Spent = t.Import != nil, indexedMeta(t), waitsOf(t), maps.Clone(t.Spent)
	if t.Parent != nil {
		s.Parent = t.Parent.Thread
	}
	if run := t.Busy(); run != nil {
		s.Flow = run.Flow
	} else if n := len(t.Runs); n > 0 {
		s.Flow = t.Runs[n-1].Flow
	}
	s.Bytes, s.Runs = t.Bytes+t.Large-t.Shared, len(t.Runs)
	if run := t.Busy(); run != nil && run.Status == journal.StatusBlocked && strings.HasPrefix(run.Diff, Unreadable) {
		s.Status = StatusDamaged
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

// shows reports whether two summaries differ at most in when the thread changed,
// how large it is and what it has spent.
func (s Summary) shows(other Summary) bool {
	return s.ID == other.ID && s.User == other.User && s.Title == other.Title && s.Flow == other.Flow && s.Status == other.Status &&
		s.Created == other.Created && s.Asks == other.Asks && s.From == other.From && s.Rough == other.Rough && s.Parent == other.Parent &&
		s.Import == other.Import && s.Moved == other.Moved && maps.Equal(s.Meta, other.Meta) && s.Waits.equal(other.Waits)
}

// stays reports whether a summary need not replace another one, since lists would show
// the same. That a thread changed, grew or spent something shows too, except while a
// worker has it, which writes the summary when it lets the thread go.
func (s Summary) stays(before Summary) bool {
	return s.shows(before) && (s.Status == journal.StatusRunning || s.Updated == before.Updated && s.Bytes == before.Bytes && maps.Equal(s.Spent, before.Spent))
}

// Summarise brings a thread's summary up to date. It does not create a missing
// one, since that means that the thread was erased.
func (c *Threads) Summarise(ctx context.Context, o *Opened) error {
	err := c.replaceSummary(ctx, o.Name, func(was Summary, known bool) (Summary, bool) {
		s := summaryOf(o.Thread)
		s.Moved = cmp.Or(s.Moved, was.Moved) // a migration says so, and it stays so
		// A foreseen summary of the same sequence may be wrong.
		same := known && (was.Seq > s.Seq || was.Seq == s.Seq && was.shows(s) && was.Indexed) && !was.Rough && was.Status != StatusDamaged
		return s, !same
	})
	if err != nil {
		c.Log.Debug("writing a summary", "thread", o.Thread.ID, "error", err)
	}
	return err
}

// SummariseRestored writes the summary of a thread that comes back from the archive,
// with the times that it had, and says when: see [Tenant.Restored].
func (c *Threads) SummariseRestored(ctx context.Context, o *Opened) error {
	return c.replaceSummary(ctx, o.Name, func(was Summary, known bool) (Summary, bool) {
		if known && was.Indexed && was.Back != 0 { // another process was first
			return was, false
		}
		s := summaryOf(o.Thread)
		s.Moved, s.Back = was.Moved, clock.Micros()
		return s, !known || was.Seq <= s.Seq
	})
}

// SummariseFork writes the summary of a fork that has just begun, so that lists find
// it. A fork of the end of a thread at rest, without changes, is as that one is, and
// need not be read; its summary remains rough.
func (c *Threads) SummariseFork(ctx context.Context, name, from string, at uint64, changed bool) error {
	other, err := c.ReadSummary(ctx, from)
	if err != nil {
		return err
	}
	if changed || other.Seq != at || !other.Status.Final() || other.Rough {
		o, err := c.Read(ctx, name)
		if err != nil {
			return err
		}
		return c.Summarise(ctx, o)
	}
	return c.replaceSummary(ctx, name, func(s Summary, known bool) (Summary, bool) {
		changes := known && s.Rough && !s.Indexed
		s.User, s.Flow, s.Meta, s.Status = other.User, other.Flow, journal.ForkMeta(other.Meta), other.Status
		return s, changes
	})
}

// replaceSummary replaces the summary of a thread by what change returns for it,
// unless that is false, and brings the index up to date, see index.go. Known is
// false if the summary cannot be read.
func (c *Threads) replaceSummary(ctx context.Context, name string, change func(was Summary, known bool) (Summary, bool)) error {
	var written, removed []string
	for {
		var added, gone, left []string
		announced := false // that the added cells may be written
		_, err := store.Update(ctx, store.Derived(c.Store), JournalKey(name), func(old store.Cell) ([]byte, error) {
			if old.Version == "" { // erased
				added, gone = nil, written
				return nil, ErrNothing
			}
			var was Summary
			known := json.Unmarshal(old.Value, &was) == nil
			s, changes := change(was, known)
			if !changes { // cells that another writer is about to write stay
				added, gone = nil, without(without(written, c.indexKeys(name, was)), was.Pending)
				return nil, ErrNothing
			}
			s.replaces(was)
			added, gone = c.changedKeys(name, was, s)
			added = without(added, written)
			gone = append(without(gone, removed), without(without(written, c.indexKeys(name, s)), gone)...)
			if announced = len(without(added, was.Pending)) == 0; !announced {
				if !known {
					was = s
					was.Indexed, was.Rough = false, true
				}
				was.Pending = append(was.Pending, without(added, was.Pending)...)
				left = was.Gone
				return json.Marshal(was)
			}
			if len(added) > 0 {
				return nil, ErrNothing
			}
			late := append(slices.Clone(was.Late), without(without(was.Pending, written), c.indexKeys(name, s))...)
			s.Late = late[max(0, len(late)-maxLate):]
			s.Gone = append(gone, late[:len(late)-len(s.Late)]...)
			return json.Marshal(s)
		})
		if err != nil && !errors.Is(err, ErrNothing) {
			return err
		}
		if len(added) == 0 {
			return c.unindex(ctx, gone)
		}
		if err := c.index(ctx, added); err != nil {
			return err
		}
		if err := c.unindex(ctx, left); err != nil {
			return err
		}
		written, removed = append(written, added...), append(removed, left...)
	}
}

// maxLate is how many cells of writers that were overtaken a summary tells of.
const maxLate = 64

// without returns the keys that are not among others.
func without(keys, others []string) []string {
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return slices.Contains(others, key) })
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
// thread. Until it is summarised, only lists of all threads find it.
func (c *Threads) EnsureSummary(ctx context.Context, name string, s Summary) error {
	value, err := json.Marshal(s)
	if err == nil {
		err = c.index(ctx, []string{c.allKey(name)})
	}
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

// Changed returns when a thread last changed, as far as its summary tells.
func (s Summary) Changed() int64 { return max(s.Updated, s.Created) }

// Begun reports whether a journal has an entry.
func (c *Threads) Begun(ctx context.Context, journal string) (bool, error) {
	for _, err := range c.Store.Read(ctx, journal, 0) {
		return err == nil, err
	}
	return false, nil
}
