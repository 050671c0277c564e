package threads

import (
	"context"
	"slices"

	"github.com/perdure/perdure/internal/journal"
)

// Boundary returns the newest sequence before another at which no run was
// active, 0 if there is none.
func (c *Threads) Boundary(ctx context.Context, name string, before uint64) uint64 {
	o := Empty(name)
	var newest uint64
	for line, err := range c.Entries(ctx, name, 0, max(before, 2)-1) {
		if err != nil {
			break
		}
		e, err := journal.Decode(o.Thread.Head, line.Seq, line.Data)
		if err == nil {
			err = c.Fold(ctx, o, e)
		}
		if err != nil {
			break
		}
		if o.Thread.Busy() == nil {
			newest = line.Seq
		}
	}
	return newest
}

// rewind is a rewind that was folded: its entry, what that says, and what it
// kept of the thread.
type rewind struct {
	entry journal.Entry
	body  journal.Body
	kept  *journal.Thread
}

// past returns a thread as it was at an earlier sequence. Of the rewinds before
// that it follows the ones that count, each by what is known of it, so that
// rewinds of rewinds cost no more than reading does.
func (c *Threads) past(ctx context.Context, o *Opened, to uint64) (*Opened, error) {
	past := Empty(o.Name)
	if len(o.rewinds) != o.Thread.Rewinds { // some are behind a snapshot
		return past, c.ReadMore(ctx, past, to)
	}
	var way []rewind
	at := to
	for i, w := range slices.Backward(o.rewinds) {
		if w.entry.Seq <= at {
			if len(way) == 0 {
				past.rewinds = slices.Clone(o.rewinds[:i+1])
			}
			way, at = append(way, w), w.body.At
		}
	}
	for _, w := range slices.Backward(way) {
		if err := c.ReadMore(ctx, past, w.body.At); err != nil {
			return past, err
		}
		t := w.kept.Kept()
		if err := t.Rewind(w.entry, past.Thread); err != nil {
			return past, err
		}
		past.Thread = t
		past.rewound(w.body)
	}
	return past, c.ReadMore(ctx, past, to)
}
