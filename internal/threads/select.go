package threads

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/store"
)

// Query selects threads. Its zero value selects all.
type Query struct {
	User   string
	Flow   string
	Status *journal.Status
	Meta   map[string]string // all of these
	Asks   bool              // with open asks that can be answered here
	Who    []string          // with an open ask that one of these may answer, if not nil
	Expiry bool              // with Asks: soonest to expire first, instead of first opened first

	// In microseconds, 0 for no limit: of the last change and of the creation,
	// from Since and before Before.
	Since, Before               int64
	CreatedSince, CreatedBefore int64
}

// Check refuses a query that no thread is found by.
func (q *Query) Check() error {
	for k, v := range q.Meta {
		if len(v) > maxIndexed || v == "" {
			return fmt.Errorf("%w: threads are found by metadata of 1 to %d bytes, but %.40q has %d", fault.ErrInvalid, maxIndexed, k, len(v))
		}
	}
	return nil
}

// Selects reports whether a thread is selected.
func (q *Query) Selects(s Summary) bool {
	for k, v := range q.Meta {
		if s.Meta[k] != v {
			return false
		}
	}
	within := func(at, since, before int64) bool { return at >= since && (before == 0 || at < before) }
	return (q.User == "" || s.User == q.User) && (q.Flow == "" || s.Flow == q.Flow) &&
		(q.Status == nil || s.Status == *q.Status) && (!q.waits() || s.Asks > 0 && s.Moved == "" && (q.Who == nil || s.Waits.isFor(q.Who))) &&
		within(s.Changed(), q.Since, q.Before) && within(s.Created, q.CreatedSince, q.CreatedBefore)
}

func (q *Query) waits() bool { return q.Asks || q.Who != nil || q.Expiry }

// isFor reports whether one of these people may answer an ask.
func (w *Waits) isFor(who []string) bool {
	return w == nil || slices.Contains(w.Who, "") || slices.ContainsFunc(who, func(name string) bool { return slices.Contains(w.Who, name) })
}

// The orders of lists. The first byte of a cursor says which one it is of.
const (
	byCreation = "c"
	byChange   = "s"
	byAsk      = "a"
	byExpiry   = "e"
)

// facets returns the facets that presumably have the fewest threads of those that
// hold all that the query selects, and the order of their keys.
func (r *Tenant) facets(q Query) (order string, facets []string) {
	facet := func(texts ...string) []string { return []string{r.All.facet(r.Part, texts...)} }
	succeeded := q.Status != nil && *q.Status == journal.StatusSucceeded
	switch {
	case len(q.Meta) > 0:
		k := slices.Min(slices.Collect(maps.Keys(q.Meta)))
		return byCreation, facet("meta", k, q.Meta[k])
	case q.Expiry:
		return byExpiry, facet("asks by expiry", q.User)
	case q.waits() && (q.Who == nil || q.User != ""):
		return byAsk, facet("asks", q.User)
	case q.User != "":
		return byCreation, facet("user", q.User)
	case q.Who != nil:
		facets = facet("asks of", "")
		for _, who := range q.Who {
			if f := r.All.facet(r.Part, "asks of", who); !slices.Contains(facets, f) {
				facets = append(facets, f)
			}
		}
		return byAsk, facets
	case q.Status != nil && (q.Flow == "" || !succeeded):
		return byChange, facet("status", facetStatus(*q.Status))
	case q.Flow != "":
		return byCreation, facet("flow", q.Flow)
	}
	return byCreation, facet("all")
}

// Select yields the summaries of the tenant's threads that q selects and that have
// begun, newest first, after a cursor unless that is "". Damaged summaries are
// rebuilt; damage that remains is reported last.
func (r *Tenant) Select(ctx context.Context, q Query, cursor string) iter.Seq2[listed, error] {
	return func(yield func(listed, error) bool) {
		if r.Owner != nil {
			if q.User != "" && q.User != *r.Owner || *r.Owner == "" {
				return
			}
			q.User = *r.Owner
		}
		order, spans := r.spans(q)
		after, ok := strings.CutPrefix(cursor, order)
		err := q.Check()
		if err == nil && cursor != "" && !ok {
			err = fmt.Errorf("%w: the cursor %.80q is not one of a list with these options", fault.ErrInvalid, cursor)
		}
		if err == nil {
			err = r.All.completeIndex(ctx)
		}
		if err != nil {
			yield(listed{}, err)
			return
		}
		var damage error
		moved := map[string]bool{} // the threads that were found at a place that they have left
		last := ""                 // the thread that was yielded last
		for cells, err := range r.All.indexCells(ctx, spans, after) {
			if err != nil {
				yield(listed{}, err)
				return
			}
			for i, got := range r.summaries(ctx, &q, cells) {
				if threadDamage := got.err; IsDamage(threadDamage) {
					damage = threadDamage
					continue
				}
				if got.err != nil {
					yield(listed{}, got.err)
					return
				}
				got.s.expire(clock.Micros())
				got.s.Cursor = order + cells[i][facetLen(cells[i]):]
				if !got.there || moved[got.s.name] || got.moved && got.s.name == last || !q.Selects(got.s.Summary) {
					continue
				}
				if last = got.s.name; got.moved {
					moved[last] = true
				}
				if !yield(got.s, nil) {
					return
				}
			}
		}
		if damage != nil {
			yield(listed{}, fmt.Errorf("%w: %w", fault.ErrCorrupt, damage))
		}
	}
}

type selected struct {
	s     listed
	there bool
	moved bool // the cell does not follow from the summary, but another one does
	err   error
}

// summaries returns what cells of the index lead to, each at the place of its key.
func (r *Tenant) summaries(ctx context.Context, q *Query, keys []string) []selected {
	found := make([]selected, len(keys))
	cells := r.adjacent(ctx, keys)
	at := make(map[string]int, len(keys))
	for i, key := range keys {
		at[key] = i
	}
	_ = r.All.each(keys, func(key string) error {
		found[at[key]] = r.summaryAt(ctx, q, key, cells)
		return nil
	})
	return found
}

// adjacent returns the summaries that consecutive cells of the facet of all threads
// lead to, as far as one list of the store finds them: they are adjacent too.
func (r *Tenant) adjacent(ctx context.Context, keys []string) map[string]store.Cell {
	if len(keys) < 2 || !strings.HasPrefix(keys[0], r.All.facet(r.Part, "all")) {
		return nil
	}
	first, _ := parseIndexKey(keys[0])
	last, _ := parseIndexKey(keys[len(keys)-1])
	newest, oldest := JournalKey(first), JournalKey(last)
	cells := map[string]store.Cell{}
	for cell, err := range r.All.Store.List(ctx, JournalKey(r.Part)+".", oldest[:len(oldest)-1]) {
		if err != nil || cell.Key > newest || len(cells) > 2*len(keys) {
			break // what is missing is read by its key
		}
		cells[strings.TrimPrefix(cell.Key, JournalKey(""))] = cell
	}
	return cells
}

// summaryAt returns the summary of the thread that a cell of the index leads to,
// unless the cell does not follow from it or the thread has not begun, or the query
// does not select it.
func (r *Tenant) summaryAt(ctx context.Context, q *Query, key string, known map[string]store.Cell) (got selected) {
	c := r.All
	name, number := parseIndexKey(key)
	got.s.name = name
	cell, ok := known[name]
	if !ok {
		cell, got.err = c.Store.Get(ctx, JournalKey(name))
	}
	damage := got.err
	if !errors.Is(damage, store.ErrCorrupt) {
		damage = nil
	}
	s := &got.s.Summary
	switch {
	case errors.Is(got.err, store.ErrNotFound): // about to begin, or erased
		if _, got.err = c.Begun(ctx, JournalKey(name)); errors.Is(got.err, store.ErrDropped) {
			got.err = c.unindex(ctx, []string{key})
		}
		return got
	case got.err != nil && damage == nil:
		return got
	}
	complete := damage == nil && json.Unmarshal(cell.Value, s) == nil && s.Indexed && !s.Rough && s.Seq > 0
	if complete && number == 0 && !q.Selects(*s) { // the cell never goes, so it need not be looked at
		return got
	}
	if !complete || s.Leaving {
		left, err := c.HasLeft(ctx, name)
		if left {
			_, err = c.Begun(ctx, JournalKey(name))
		}
		if errors.Is(err, store.ErrDropped) { // written after the thread was erased
			err = c.RemoveSummary(ctx, name)
		}
		if got.err = err; left || err != nil {
			return got
		}
	}
	if !complete { // its writer died, or is of an older version
		begun, err := c.Begun(ctx, JournalKey(name))
		switch {
		case errors.Is(err, store.ErrDropped):
			// A start wrote it after the thread was erased, and died.
			got.err = c.RemoveSummary(ctx, name)
			return got
		case err != nil && !errors.Is(err, store.ErrCorrupt), err == nil && !begun: // its first entry was never written
			got.err = err
			return got
		}
		if *s, got.err = c.reindex(ctx, name, *s); got.err != nil {
			return got
		}
		if s.ID == "" {
			got.err = damage
			return got
		}
		if damage != nil {
			c.Log.Warn("a damaged thread summary was rebuilt", "thread", s.ID, "error", damage)
		}
	}
	keys := c.indexKeys(name, *s)
	got.there = !s.Indexed || slices.Contains(keys, key)
	if !got.there {
		got.moved = r.hasMoved(*q, key, keys, complete)
		got.there = got.moved
		if c.outdated(name, *s, key, number) { // whoever was to remove it has died, or is about to
			got.err = c.unindex(ctx, []string{key})
		}
	}
	if got.there && Self(name) != name {
		back, err := c.isBack(ctx, name)
		got.there, got.err = back, err
	}
	return got
}

// hasMoved reports whether a thread has left the place of a cell that led to it for one
// that is not earlier in the same list, which may have read the cells there before: it
// takes the thread where it was. At an earlier place it has perhaps yielded the thread,
// but not if the summary was incomplete.
func (r *Tenant) hasMoved(q Query, key string, now []string, complete bool) bool {
	place := func(key string) string {
		place := key[facetLen(key):]
		return place[:max(0, strings.LastIndexByte(place, '.'))] // without the number
	}
	_, facets := r.facets(q)
	return slices.ContainsFunc(now, func(k string) bool {
		return slices.Contains(facets, k[:facetLen(k)]) && (place(k) >= place(key) || !complete)
	})
}

// isBack reports whether a thread that has the name of a restored one is restored: its
// summary is written before that is decided.
func (c *Threads) isBack(ctx context.Context, name string) (bool, error) {
	a, _, err := c.ReadArchived(ctx, name)
	if IsDamage(err) {
		return true, nil
	}
	return a == nil || a.State != Restoring || a.Name != name, err
}

// reindex writes the summary of a thread anew, with its cells in the index, and
// returns it. A thread that cannot be read is indexed as damaged.
func (c *Threads) reindex(ctx context.Context, name string, was Summary) (Summary, error) {
	o, err := c.Read(ctx, name)
	switch {
	case err == nil && o.Thread.Seq > 0:
		if err = c.index(ctx, []string{c.allKey(name)}); err == nil {
			err = c.Summarise(ctx, o)
		}
	case errors.Is(err, fault.ErrCorrupt):
		if err = c.MarkDamaged(ctx, o); was.ID == "" {
			was = summaryOf(o.Thread)
		}
		was.Status = StatusDamaged
	case IsGone(err):
		err = nil
	}
	if s, readErr := c.ReadSummary(ctx, name); readErr == nil && s.ID != "" && s.Indexed {
		return s, nil
	}
	return was, err
}

// completeIndex adds the threads of a store that an older version made to the index.
func (c *Threads) completeIndex(ctx context.Context) error {
	c.mu.Lock()
	complete := c.indexed
	c.mu.Unlock()
	if complete || c.bare {
		return nil
	}
	_, err := c.Store.Get(ctx, IndexCell)
	if errors.Is(err, store.ErrNotFound) {
		if err = c.indexAll(ctx); err == nil {
			_, err = c.Ensure(ctx, IndexCell, indexMark)
		}
	}
	if err == nil {
		c.mu.Lock()
		c.indexed = true
		c.mu.Unlock()
	}
	return err
}

func (c *Threads) indexAll(ctx context.Context) error {
	prefix := JournalKey("")
	for cell, err := range c.Store.List(ctx, prefix, "") {
		if errors.Is(err, store.ErrCorrupt) {
			return nil // whoever rebuilds them indexes them
		}
		var s Summary
		if err == nil && (json.Unmarshal(cell.Value, &s) != nil || s.Indexed) {
			continue
		}
		if err == nil {
			_, err = c.reindex(ctx, strings.TrimPrefix(cell.Key, prefix), s)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
