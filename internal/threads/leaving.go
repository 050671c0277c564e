package threads

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/store"
)

// The last entry of a thread decides that it is erased or archived, and its summary goes
// after that. Whoever dies in between would leave a thread in lists that nobody can read.
// So the summary first says that the thread may be leaving, and a list then asks the
// journal. A cell, which goes last, leads workers to what is left to do.

// LeavingKey is the key of the cell of a thread that may be leaving the store.
func LeavingKey(name string) string { return "leaving/" + name }

// LeavingID returns the key of the cell that leads from the id to a thread that may be
// leaving, "" if that is not known.
func LeavingID(cell store.Cell) string { return strings.TrimPrefix(string(cell.Value), "-") }

// MarkLeaving says that a thread is about to be erased or archived. IDCell is the key of
// the cell that leads to it, if that is known.
func (c *Threads) MarkLeaving(ctx context.Context, name, idCell string) error {
	if _, err := c.Ensure(ctx, LeavingKey(name), []byte(cmp.Or(idCell, "-"))); err != nil {
		return err
	}
	return c.setLeaving(ctx, name, true)
}

// StaysAfterAll undoes MarkLeaving.
func (c *Threads) StaysAfterAll(ctx context.Context, name string) error {
	if err := c.setLeaving(ctx, name, false); err != nil {
		return err
	}
	return c.Remove(ctx, LeavingKey(name), "")
}

func (c *Threads) setLeaving(ctx context.Context, name string, leaving bool) error {
	_, err := store.Update(ctx, store.Derived(c.Store), JournalKey(name), func(old store.Cell) ([]byte, error) {
		var s Summary
		if json.Unmarshal(old.Value, &s) != nil || s.Leaving == leaving { // missing or damaged: lists ask the journal
			return nil, ErrNothing
		}
		s.Leaving = leaving
		return json.Marshal(s)
	})
	if errors.Is(err, ErrNothing) {
		return nil
	}
	return err
}

// HasLeft reports whether the journal of a thread says that it was erased or archived.
func (c *Threads) HasLeft(ctx context.Context, name string) (bool, error) {
	gone, err := c.IsErased(ctx, name)
	if errors.Is(err, fault.ErrCorrupt) {
		err = nil
	}
	return gone, err
}

// Leaving returns the cells of threads that may be leaving the store by their names, of
// all tenants if the part of one is "".
func (c *Threads) Leaving(ctx context.Context, part string) (map[string]store.Cell, error) {
	if part != "" {
		part += "."
	}
	found := map[string]store.Cell{}
	for cell, err := range c.Store.List(ctx, LeavingKey(part), "") {
		if errors.Is(err, store.ErrCorrupt) {
			break // the sweep finds them by their gates
		}
		if err != nil {
			return nil, err
		}
		found[strings.TrimPrefix(cell.Key, LeavingKey(""))] = cell
	}
	return found, nil
}

// discountLeft takes threads that have left, and whose cells in the index are still there,
// out of what was counted by these.
func (r *Tenant) discountLeft(ctx context.Context, statuses map[journal.Status]int) error {
	names, err := r.All.Leaving(ctx, r.Part)
	for name := range names {
		s, readErr := r.All.ReadSummary(ctx, name)
		if err = errors.Join(err, readErr); err != nil || s.ID == "" || facetStatus(s.Status) == string(journal.StatusQueued) {
			continue
		}
		if _, counted := r.All.Store.Get(ctx, r.All.indexKeys(name, s)[0]); counted != nil {
			continue
		}
		gone, readErr := r.All.HasLeft(ctx, name)
		if err = errors.Join(err, readErr); gone && statuses[s.Status] > 0 {
			statuses[s.Status]--
		}
	}
	return err
}
