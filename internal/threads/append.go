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

// An entry is appended together with the cells derived from it: hints of the
// work it creates, and the summary that lists show. A store that supports
// batches commits them together. In any other, hints are written before the
// entry they announce, and the rest after it.

// Append adds entries to the journal after the last one that o has folded, with
// hints of work for flows and other cells. It returns ErrConflict if another
// entry was appended first or a cell has changed.
func (c *Threads) Append(ctx context.Context, o *Opened, data [][]byte, flows []string, cells ...store.Write) error {
	return c.append(ctx, o, data, flows, false, cells)
}

// append is Append. If the work is claimed by the same entries, no worker is woken:
// others look for it when its holder dies.
func (c *Threads) append(ctx context.Context, o *Opened, data [][]byte, flows []string, claimed bool, cells []store.Write) error {
	if o.Thread.Seq != o.Thread.Base {
		return c.write(ctx, o, data, flows, claimed, cells)
	}
	err := c.CheckMoved(ctx)
	if err == nil {
		err = c.write(ctx, o, data, flows, claimed, cells)
	}
	if err == nil {
		err = c.CheckKept(ctx)
	}
	return err
}

func (c *Threads) write(ctx context.Context, o *Opened, data [][]byte, flows []string, claimed bool, cells []store.Write) error {
	name, t := o.Name, o.Thread
	for unseen := t.Seq == 0; ; unseen = false {
		hints, err := c.hints(ctx, name, t.Seq+1, flows, unseen)
		if err != nil {
			return err
		}
		if claimed && len(hints) == 1 {
			hints[0].Quiet = true
		}
		cells, err := c.fit(ctx, name, cells, store.MaxWrites-len(hints))
		if err != nil {
			return err
		}
		b := store.Batch{Journal: JournalKey(name), After: t.Seq - t.Base, Entries: data, Cells: slices.Concat(cells, hints)}
		made := make([]store.Version, len(b.Cells))
		for i := range b.Cells {
			b.Cells[i].Made = &made[i]
		}
		_, err = store.AppendWith(ctx, c.Store, b)
		if err == nil {
			o.wrote(b.Cells)
			return nil
		}
		o.made = nil // another writer may have come to the cells
		if cell := (*store.CellConflict)(nil); errors.As(err, &cell) && ctx.Err() == nil && slices.ContainsFunc(hints, func(w store.Write) bool { return w.Key == cell.Key }) {
			continue // another writer has changed the hint
		}
		return fault.IfDropped(name, err)
	}
}

// fit returns cells without those of the index for which a batch has no room. It
// writes those that would be added, and has the summary tell of those that would be
// removed: the index may have more cells than it should, but not fewer.
func (c *Threads) fit(ctx context.Context, name string, cells []store.Write, room int) ([]store.Write, error) {
	if len(cells) <= room {
		return cells, nil
	}
	cells = slices.Clone(cells)
	var left []string
	for i := len(cells) - 1; i >= 0 && len(cells) > room; i-- {
		w := cells[i]
		if !IsIndex(w.Key) {
			continue
		}
		if w.Remove {
			left = append(left, w.Key)
		} else if err := c.index(ctx, []string{w.Key}); err != nil {
			return nil, err
		}
		cells = slices.Delete(cells, i, i+1)
	}
	if i := slices.IndexFunc(cells, func(w store.Write) bool { return w.Key == JournalKey(name) }); i >= 0 && len(left) > 0 {
		var s Summary
		if err := json.Unmarshal(cells[i].Value, &s); err != nil {
			return nil, err
		}
		s.Gone = append(s.Gone, left...)
		value, err := json.Marshal(s)
		if err != nil {
			return nil, err
		}
		cells[i].Value = value
	}
	return cells, nil
}

// hints returns the writes that announce work for flows, which the entry about
// to be appended at seq creates. It performs the writes for which a batch has no
// room.
func (c *Threads) hints(ctx context.Context, name string, seq uint64, flows []string, unseen bool) ([]store.Write, error) {
	const now, most = 1, store.MaxWrites - 4 // a time that has passed on every clock
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

// mostAdded is how many cells of the index a batch adds, beside a summary and hints.
const mostAdded = store.MaxWrites - 4

// Foreseen returns the write of the summary that a thread will have after
// entries; none if lists would show the same as before. It reports false if the
// summary cannot be told in advance. The write is valid only in the same batch as
// the entries.
func (c *Threads) Foreseen(ctx context.Context, o *Opened, entries []journal.Entry) (cells []store.Write, ok bool) {
	if !c.batches {
		return nil, false
	}
	s, err := foresee(o.Thread, entries)
	if err != nil {
		return nil, false
	}
	if s.stays(summaryOf(o.Thread)) {
		return nil, true
	}
	cell, err := o.Cells(c.Store).Get(ctx, JournalKey(o.Name))
	var was Summary
	if err != nil || json.Unmarshal(cell.Value, &was) != nil || was.Seq > s.Seq {
		return nil, false
	}
	if !was.Indexed || len(was.Pending) > 0 {
		return nil, false
	}
	s.replaces(was)
	value, err := json.Marshal(s)
	if err != nil {
		return nil, false
	}
	optional := o.made == nil // what is remembered may be outdated for long
	cells = []store.Write{{Key: cell.Key, Value: value, Prev: cell.Version, Optional: optional}}
	added, gone := c.changedKeys(o.Name, was, s)
	if len(added) > mostAdded { // they have to be announced
		return nil, false
	}
	for _, key := range added {
		cells = append(cells, store.Write{Key: key, Value: indexMark, Optional: optional})
	}
	for _, key := range gone {
		if cell, err := o.Cells(c.Store).Get(ctx, key); err == nil {
			cells = append(cells, store.Write{Key: key, Prev: cell.Version, Remove: true, Optional: optional})
		}
	}
	return cells, true
}

// foresee returns the summary that a thread will have after entries.
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
// entries. A store without batches writes the summary first, so that lists are
// complete, and in a form that does not say that the entries exist.
func (c *Threads) firstSummary(name string, entries []journal.Entry) ([]store.Write, error) {
	s, err := foresee(journal.NewThread(), entries)
	if err != nil {
		return nil, err
	}
	s.replaces(Summary{})
	value, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	ahead, err := json.Marshal(Summary{ID: s.ID, User: s.User, Title: s.Title, Flow: s.Flow, Created: s.Created})
	if err != nil {
		return nil, err
	}
	cells := []store.Write{{Key: JournalKey(name), Value: value, Ahead: ahead}}
	if c.bare {
		return cells, nil
	}
	if !c.batches { // as EnsureSummary does
		return []store.Write{{Key: c.allKey(name), Value: indexMark}, cells[0]}, nil
	}
	for _, key := range c.indexKeys(name, s) { // they hold the name, so there is none of them yet
		cells = append(cells, store.Write{Key: key, Value: indexMark})
	}
	return cells, nil
}
