package threads

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/perdure/perdure/internal/due"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/store"
)

// An entry is appended together with the cells that follow from it, in one
// commit where the store can: hints of the work that it makes, and what lists
// show. Where the store cannot, hints come before the entry that they announce,
// and the rest after it.

// Append adds entries behind those that a thread has folded, with hints of work
// for flows and other cells. A cell that is not as it was seen is ErrConflict,
// like an entry that came between.
func (c *Threads) Append(ctx context.Context, name string, t *journal.Thread, data [][]byte, flows []string, cells ...store.Write) error {
	if t.Seq != t.Base {
		return c.append(ctx, name, t, data, flows, cells)
	}
	err := c.CheckMoved(ctx)
	if err == nil {
		err = c.append(ctx, name, t, data, flows, cells)
	}
	if err == nil {
		err = c.CheckMoved(ctx) // again, if the append took long: nobody may have copied it
	}
	return err
}

func (c *Threads) append(ctx context.Context, name string, t *journal.Thread, data [][]byte, flows []string, cells []store.Write) error {
	for unseen := t.Seq == 0; ; unseen = false {
		hints, err := c.hints(ctx, name, t.Seq+1, flows, unseen)
		if err != nil {
			return err
		}
		_, err = store.AppendWith(ctx, c.Store, store.Batch{Journal: JournalKey(name), After: t.Seq - t.Base, Entries: data, Cells: slices.Concat(cells, hints)})
		if err == nil {
			return nil
		}
		if cell := (*store.CellConflict)(nil); errors.As(err, &cell) && ctx.Err() == nil && slices.ContainsFunc(hints, func(w store.Write) bool { return w.Key == cell.Key }) {
			continue // another has announced something too
		}
		return fault.IfDropped(name, err)
	}
}

// hints returns the writes that announce work for flows by an entry that is
// about to get a sequence. Those for which a batch has no room it writes itself.
func (c *Threads) hints(ctx context.Context, name string, seq uint64, flows []string, unseen bool) ([]store.Write, error) {
	const now, most = 1, store.MaxWrites - 4 // now by any clock
	if len(flows) == 0 {
		return nil, nil
	}
	var hints []store.Write
	for i, flow := range slices.Compact(slices.Sorted(slices.Values(flows))) {
		var w store.Write
		var err error
		if i < most {
			w, err = due.Announcement(ctx, c.Store, flow, name, seq, now, unseen)
		} else {
			err = due.Announce(ctx, c.Store, flow, name, seq, now)
		}
		if err != nil {
			return nil, fmt.Errorf("perdure: announcing work: %w", err)
		}
		if w.Key != "" {
			hints = append(hints, w)
		}
	}
	return hints, nil
}

// Foreseen returns the write of the summary that a thread will have behind
// entries, none if lists show the same as before, and whether it can be told. It
// is of use only if it goes with them.
func (c *Threads) Foreseen(ctx context.Context, name string, t *journal.Thread, entries []journal.Entry) (cells []store.Write, ok bool) {
	if !c.batches {
		return nil, false
	}
	s, err := foresee(t, entries)
	if err != nil {
		return nil, false
	}
	if s.shows(summaryOf(t)) {
		return nil, true
	}
	cell, err := c.Store.Get(ctx, JournalKey(name))
	var was Summary
	if err != nil || json.Unmarshal(cell.Value, &was) != nil || was.Seq > s.Seq {
		return nil, false
	}
	value, err := json.Marshal(s)
	return []store.Write{{Key: cell.Key, Value: value, Prev: cell.Version, Optional: true}}, err == nil
}

// foresee returns the summary of a thread behind entries.
func foresee(t *journal.Thread, entries []journal.Entry) (Summary, error) {
	t = t.Clone()
	for _, e := range entries {
		if err := t.Apply(e); err != nil {
			return Summary{}, fmt.Errorf("%w: %w", fault.ErrCorrupt, err)
		}
	}
	return summaryOf(t), nil
}

// firstSummary returns the write of the summary of a thread that begins with
// entries. Where it has to come before them, so that lists are complete, it does
// not say that they are there.
func firstSummary(name string, entries []journal.Entry) (store.Write, error) {
	s, err := foresee(journal.NewThread(), entries)
	if err != nil {
		return store.Write{}, err
	}
	value, err := json.Marshal(s)
	if err != nil {
		return store.Write{}, err
	}
	ahead, err := json.Marshal(Summary{ID: s.ID, User: s.User, Title: s.Title, Flow: s.Flow, Created: s.Created})
	return store.Write{Key: JournalKey(name), Value: value, Ahead: ahead}, err
}
