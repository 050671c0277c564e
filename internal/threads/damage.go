package threads

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/store"
)

// Cells derived from journals are rebuilt by the first reader that finds them
// damaged: the summary of a thread, and the cell that maps its id to its name.

// StatusDamaged is the status of a thread in which damage was found.
const StatusDamaged journal.Status = "damaged"

// damaged returns an error that says how far a thread can be read and what to do.
func (c *Threads) damaged(ctx context.Context, o *Opened, err error) error {
	id := o.Thread.ID
	if s, readErr := c.ReadSummary(ctx, o.Name); readErr == nil && s.ID != "" {
		id = s.ID // known even if the first entry is lost or the damage is in the part that a fork shares
	}
	if o.Thread.Seq == 0 {
		return fmt.Errorf("%w: thread %s: none of it is intact; restore it from a backup or an export: %w", fault.ErrCorrupt, cmp.Or(id, o.Name), err)
	}
	return fmt.Errorf("%w: thread %s is intact up to entry %d, where it can be forked: %w", fault.ErrCorrupt, id, o.Thread.Seq, err)
}

// MarkDamaged makes lists show that a thread is damaged. It is a hint: whoever
// writes the next summary has read the thread, and overwrites it.
func (c *Threads) MarkDamaged(ctx context.Context, o *Opened) error {
	return c.replaceSummary(ctx, o.Name, func(s Summary, known bool) (Summary, bool) {
		if !known {
			s = summaryOf(o.Thread)
		}
		changes := s.ID != "" && (s.Status != StatusDamaged || !s.Indexed)
		s.Status = StatusDamaged
		return s, changes
	})
}

// IsDamage reports whether an error says that stored bytes are damaged.
func IsDamage(err error) bool {
	return errors.Is(err, fault.ErrCorrupt) || errors.Is(err, store.ErrCorrupt)
}

// Unreadable begins the diff of a run that a damaged value blocks.
const Unreadable = "a recorded value cannot be read: "

// mendAway returns the lead to the archived thread with an id, "" if there is none.
func (r *Tenant) mendAway(ctx context.Context, id string) (string, error) {
	prefix := ArchivedKey(r.Part) + "."
	for cell, err := range r.All.Store.List(ctx, prefix, "") {
		if err != nil {
			return "", err
		}
		if a, err := DecodeArchived(cell); err == nil && a.ID == id && a.Live() == "" && a.State != Erasing {
			return AwayLead(strings.TrimPrefix(cell.Key, ArchivedKey(""))), nil
		}
	}
	return "", nil
}

// MendID rewrites the damaged cell that maps an id to its thread, and returns what it
// holds then: the thread's name or, for one in the archive, an AwayLead. It fails
// unless exactly one listed thread has the id, or one in the archive.
func (r *Tenant) MendID(ctx context.Context, id string, damage error) (string, error) {
	found := ""
	for s, err := range (&Tenant{All: r.All, Name: r.Name, Part: r.Part}).Select(ctx, Query{}, "") {
		if err != nil && !IsDamage(err) {
			return "", err
		}
		if err != nil || s.ID != id {
			continue
		}
		switch o, err := r.All.Read(ctx, s.name); {
		case IsGone(err):
			continue
		case err != nil && !errors.Is(err, fault.ErrCorrupt):
			return "", err
		case o.Thread.Seq > 0 && o.Thread.ID != id:
			continue
		}
		if found != "" {
			return "", fmt.Errorf("%w: two threads have the id %q, and the cell that says which one counts is damaged: %w", fault.ErrCorrupt, id, damage)
		}
		found = s.name
	}
	if found == "" {
		var err error
		if found, err = r.mendAway(ctx, id); err != nil {
			return "", err
		}
	}
	if found == "" {
		return "", fmt.Errorf("%w: the cell that maps the id %q to its thread is damaged, and no listed thread has that id: %w", fault.ErrCorrupt, id, damage)
	}
	_, err := store.Update(ctx, store.Derived(r.All.Store), r.IDKey(id), func(old store.Cell) ([]byte, error) {
		if len(old.Value) > 0 {
			found = string(old.Value) // another process has rewritten it
			return nil, ErrNothing
		}
		return []byte(found), nil
	})
	if err != nil && !errors.Is(err, ErrNothing) {
		return "", fmt.Errorf("%w: the cell that maps the id %q to its thread: %w", fault.ErrCorrupt, id, err)
	}
	r.All.Log.Warn("the damaged cell that maps an id to its thread was rewritten", "thread", found, "error", damage)
	return found, nil
}
