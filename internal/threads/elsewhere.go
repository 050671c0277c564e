package threads

import (
	"context"
	"errors"
	"fmt"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/store"
)

// A snapshot does not repeat long values of the journal; it records their places.
// They are read on demand, each value of a list together with those before it.

const (
	maxAhead    = 256  // links to read at once
	maxAheadSeq = 1024 // entries to read for them
)

// LoadLink is Load for a link of a list. It also reads values before that link,
// and keeps what it has read in their links.
func (c *Threads) LoadLink(ctx context.Context, name string, l *journal.Link) ([]byte, error) {
	if !l.Value.Elsewhere() {
		return c.Load(ctx, name, l.Value)
	}
	if raw := l.Kept().JSON; raw != nil {
		return raw, nil
	}
	var links []*journal.Link
	var places []journal.Place
	last := l.Value.At.Seq()
	for before := l; before != nil && len(links) < maxAhead; before = before.Prev {
		at := before.Value.At
		if !before.Value.Elsewhere() || before.Kept().JSON != nil {
			continue
		}
		if at.Seq() > last || at.Seq()+maxAheadSeq <= last {
			break
		}
		links, places = append(links, before), append(places, at)
	}
	values, err := c.valuesAt(ctx, name, places)
	if err != nil {
		return nil, err
	}
	for i, link := range links {
		link.Keep(journal.Read{JSON: values[i].JSON, Value: link.Kept().Value})
	}
	return values[0].JSON, nil
}

// elsewhere reads the value at a place in the journal.
func (c *Threads) elsewhere(ctx context.Context, name string, at journal.Place) (journal.Value, error) {
	values, err := c.valuesAt(ctx, name, []journal.Place{at})
	if err != nil {
		return journal.Value{}, err
	}
	return values[0], nil
}

// valuesAt reads the values at places in the journal, which are given newest
// first. It verifies the hash chain of all entries between them.
func (c *Threads) valuesAt(ctx context.Context, name string, places []journal.Place) ([]journal.Value, error) {
	values := make([]journal.Value, len(places))
	next := len(places) - 1
	first, last := places[next].Seq(), places[0].Seq()
	var prev journal.Hash
	for line, err := range c.Entries(ctx, name, max(first, 2)-2, last) {
		if err != nil {
			return nil, c.unreadable(ctx, name, err)
		}
		var e journal.Entry
		if line.Seq == first-1 {
			e, err = journal.Peek(line.Seq, line.Data)
		} else {
			e, err = journal.Decode(prev, line.Seq, line.Data)
		}
		if err != nil {
			return nil, c.unreadable(ctx, name, fmt.Errorf("%w: entry %d: %w", store.ErrCorrupt, line.Seq, err))
		}
		prev = e.Hash
		if next < 0 || places[next].Seq() != line.Seq {
			continue
		}
		body, err := e.Read()
		for ; next >= 0 && places[next].Seq() == line.Seq; next-- {
			if err == nil {
				values[next], err = body.ValueAt(places[next])
			}
			if err == nil && values[next].JSON == nil {
				err = fmt.Errorf("entry %d holds a blob there", line.Seq)
			}
			if err != nil {
				return nil, c.misplaced(ctx, name, err)
			}
			if err := scaleOf(ctx).Value(ctx, int64(len(values[next].JSON))); err != nil {
				return nil, err
			}
		}
	}
	if next >= 0 {
		return nil, c.misplaced(ctx, name, fmt.Errorf("there is no entry %d", places[next].Seq()))
	}
	return values, nil
}

// unreadable returns the error for a value whose entry cannot be read, and marks
// the thread if it is damaged.
func (c *Threads) unreadable(ctx context.Context, name string, err error) error {
	if errors.Is(err, store.ErrCorrupt) {
		c.MarkDamaged(ctx, Empty(name))
		err = fmt.Errorf("%w: a value in the journal: %w", fault.ErrCorrupt, err)
	}
	return err
}

// misplaced drops the snapshots from which the thread may have been restored,
// since one of them gives the wrong place for a value.
func (c *Threads) misplaced(ctx context.Context, name string, err error) error {
	for source := name; source != ""; {
		_ = c.forgetSnapshot(ctx, source)
		root, rootErr := c.RootOf(ctx, source)
		if rootErr != nil {
			break
		}
		source = root.Parent
	}
	return fmt.Errorf("%w: thread %s: a snapshot was wrong and has been dropped; try again: %w", fault.ErrCorrupt, name, err)
}
