package threads

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/tree"
	"github.com/perdure/perdure/store"
)

// A fork's journal continues another thread, its parent, after one of the parent's
// entries: the thread's sequence is Base plus that of the journal. The name of a
// thread says whether it is a fork, see names.go; its first entry says where it
// begins.

// Root is where a fork begins.
type Root struct {
	Parent string // name of the thread that it was forked from, "" for none
	Base   uint64 // the last sequence that it shares with it
}

// RootOf returns where a thread begins: the zero Root for a thread that is not a
// fork, or for a fork whose first entry is not written yet.
func (c *Threads) RootOf(ctx context.Context, name string) (Root, error) {
	if !IsFork(name) {
		return Root{}, nil
	}
	c.mu.Lock()
	known, ok := c.roots[name]
	c.mu.Unlock()
	if ok {
		return known, nil
	}
	for line, err := range c.Store.Read(ctx, JournalKey(name), 0) {
		if err != nil {
			return Root{}, fault.IfDropped(name, err)
		}
		e, err := journal.Peek(line.Seq, line.Data)
		var b journal.Body
		if err == nil {
			b, err = e.Read()
		}
		if err == nil && e.Kind == journal.Erased {
			return Root{}, &fault.ErasedError{Thread: name} // before the fork began
		}
		if err == nil && (e.Kind != journal.Forked || b.From == nil || b.At == 0) {
			err = fmt.Errorf("the first entry of a fork is %q", e.Kind)
		}
		if err != nil {
			return Root{}, fmt.Errorf("%w: thread %s, at its fork point: %w", fault.ErrCorrupt, name, err)
		}
		r := Root{Parent: b.From.Name, Base: b.At}
		c.mu.Lock()
		if len(c.roots) > 10_000 {
			clear(c.roots)
		}
		c.roots[name] = r
		c.mu.Unlock()
		return r, nil
	}
	return Root{}, nil
}

// Place sets the Base of a fork, so that it is known which entries are in its own
// journal.
func (c *Threads) Place(ctx context.Context, o *Opened) error {
	if o.Thread.Base != 0 || !IsFork(o.Name) {
		return nil
	}
	r, err := c.RootOf(ctx, o.Name)
	o.Thread.Base = r.Base
	return err
}

// Peek yields the entries that Entries does, each checked by itself.
func (c *Threads) Peek(ctx context.Context, name string, after, upto uint64) iter.Seq2[journal.Entry, error] {
	return func(yield func(journal.Entry, error) bool) {
		for line, err := range c.Entries(ctx, name, after, upto) {
			var e journal.Entry
			if err == nil {
				if e, err = journal.Peek(line.Seq, line.Data); err != nil {
					err = fmt.Errorf("%w: entry %d: %w", fault.ErrCorrupt, line.Seq, err)
				}
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// Entries yields the entries of a thread after the given sequence, up to upto if
// that is not 0: those that it shares with its parent, then those of its own
// journal. Damage after upto is not reported.
func (c *Threads) Entries(ctx context.Context, name string, after, upto uint64) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		if upto != 0 && after >= upto {
			return
		}
		r, err := c.RootOf(ctx, name)
		if err != nil {
			yield(store.Entry{}, err)
			return
		}
		if IsFork(name) && r.Parent == "" {
			return // the fork's first entry is not written yet
		}
		if after < r.Base {
			shared := r.Base
			if upto != 0 {
				shared = min(shared, upto)
			}
			for line, err := range c.Entries(ctx, r.Parent, after, shared) {
				if errors.Is(err, fault.ErrErased) { // the parent was, not this thread
					err = fmt.Errorf("%w: thread %s, in the thread it was forked from: %v", fault.ErrCorrupt, name, err)
				}
				if !yield(line, err) || err != nil {
					return
				}
				after = line.Seq
			}
			if after < shared {
				yield(store.Entry{}, fmt.Errorf("%w: thread %s was forked after entry %d of %s, which ends at %d", fault.ErrCorrupt, name, r.Base, r.Parent, after))
				return
			}
			if after == upto {
				return
			}
		}
		for line, err := range c.readAhead(ctx, JournalKey(name), after-r.Base) {
			line.Seq += r.Base
			if !yield(line, fault.IfDropped(name, err)) || err != nil || line.Seq == upto {
				return
			}
		}
	}
}

// EntryAt returns the sequence and hash of the entry at a sequence. If that is 0
// or beyond the end, it returns those of the last entry, 0 if there is none. It
// reads as little as possible: it notices damage of that entry, but not of earlier
// ones.
func (c *Threads) EntryAt(ctx context.Context, name string, at uint64) (uint64, journal.Hash, error) {
	from := at
	if at == 0 {
		from = c.reached(ctx, name)
	}
	last, err := c.lastUpTo(ctx, name, max(from, 2)-2, at)
	if err == nil && last.Seq == 0 && from > 2 { // beyond the end: find it
		last, err = c.lastUpTo(ctx, name, 0, 0)
	}
	switch {
	case errors.Is(err, store.ErrDropped):
		err = fmt.Errorf("%w: %w", fault.ErrErased, err)
	case err == nil && last.Kind == journal.Erased:
		err = fmt.Errorf("%w: see entry %d", fault.ErrErased, last.Seq)
	case err == nil && last.Kind == journal.Moved:
		err = fmt.Errorf("%w: see entry %d", fault.ErrMoved, last.Seq)
	case errors.Is(err, fault.ErrCorrupt):
		// Read the thread: the error should say how far it is intact.
		if _, readErr := c.ReadAt(ctx, name, at); errors.Is(readErr, fault.ErrCorrupt) {
			err = readErr
		}
	}
	return last.Seq, last.Hash, err
}

// lastUpTo returns the last entry after a sequence, up to another if that is not
// 0, and verifies the hash chain between them.
func (c *Threads) lastUpTo(ctx context.Context, name string, after, upto uint64) (last journal.Entry, err error) {
	for line, err := range c.Entries(ctx, name, after, upto) {
		if err != nil {
			if bad := (*store.CorruptError)(nil); errors.As(err, &bad) {
				err = fmt.Errorf("%w: entry after %d: %w", fault.ErrCorrupt, max(last.Seq, after), err)
			}
			return last, err
		}
		e, err := journal.Peek(line.Seq, line.Data)
		if err == nil && (last.Seq > 0 || after == 0) {
			e, err = journal.Decode(last.Hash, line.Seq, line.Data)
		}
		switch {
		case errors.Is(err, journal.ErrNewer):
			return last, fmt.Errorf("%w: entry %d: %w", fault.ErrNewer, line.Seq, err)
		case err != nil:
			return last, fmt.Errorf("%w: entry %d: %w", fault.ErrCorrupt, line.Seq, err)
		}
		last = e
	}
	return last, nil
}

// reached returns a sequence that the thread has reached, as far as its root and
// its summary tell.
func (c *Threads) reached(ctx context.Context, name string) uint64 {
	at, _ := c.RootOf(ctx, name)
	s, _ := c.ReadSummary(ctx, name)
	return max(at.Base, s.Seq)
}

// ForkMark is the mark in the names of forks.
const ForkMark = "f"

// IsFork reports whether a name belongs to a fork.
func IsFork(name string) bool { return markOf(name) == ForkMark }

// ImportMark returns the mark in the names of imports. It holds the number of
// entries in the imported file: entries after those were written here.
func ImportMark(entries uint64) string {
	return "i" + Base32.EncodeToString(binary.BigEndian.AppendUint64(nil, entries))
}

// InsideImport reports whether everything in a thread up to a sequence was
// imported. It trusts only names: imported entries may be forged.
func (c *Threads) InsideImport(ctx context.Context, name string, at uint64) (bool, error) {
	roots, err := c.Roots(ctx, name)
	if err != nil {
		return false, err
	}
	name = Self(name)
	for _, r := range roots {
		name, at = r.Parent, min(at, r.Base)
	}
	text, ok := strings.CutPrefix(markOf(name), "i")
	raw, err := Base32.DecodeString(text)
	return ok && err == nil && len(raw) == 8 && at <= binary.BigEndian.Uint64(raw), nil
}

// markOf returns the mark of a name, between its random part and its owner.
func markOf(name string) string {
	_, incarnation, _ := strings.Cut(name, ".")
	if len(incarnation) <= incarnationSize {
		return ""
	}
	return incarnation[incarnationSize-ownerSize : len(incarnation)-ownerSize]
}

// Boundary returns the newest sequence before another at which every run had
// ended, 0 if there is none.
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

// rewind is a folded rewind, and what it kept of the thread.
type rewind struct {
	entry journal.Entry
	body  journal.Body
	kept  *journal.Thread
}

// past returns a thread as it was at an earlier sequence. It applies the rewinds
// on the way there from what o knows of them, skipping those that later rewinds
// undid, so that rewinds of rewinds cost no more than reading.
func (c *Threads) past(ctx context.Context, o *Opened, to uint64) (*Opened, error) {
	past := Empty(o.Name)
	if len(o.rewinds) != o.Thread.Rewinds { // some were folded before the snapshot
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

// Point is a thread at a sequence.
type Point struct {
	Thread string // its id
	Seq    uint64
}

// EventRef identifies an entry.
type EventRef struct {
	Seq        uint64
	Kind, Path string
}

// Between returns the last sequence that two points share, or 0, and the entries after it
// on the way to each.
func (r *Tenant) Between(ctx context.Context, a, b Point) (common uint64, toA, toB []EventRef, err error) {
	if common, err = r.common(ctx, a, b); err != nil {
		return 0, nil, nil, err
	}
	if toA, err = r.refs(ctx, a, common); err == nil {
		toB, err = r.refs(ctx, b, common)
	}
	return common, toA, toB, err
}

// common returns the last sequence that two points share, or 0.
func (r *Tenant) common(ctx context.Context, a, b Point) (uint64, error) {
	reach := map[string]uint64{} // by name, how far a's past goes in it
	for i, p := range []Point{a, b} {
		name, err := r.Find(ctx, p.Thread)
		for seq := p.Seq; name != "" && err == nil; {
			if upto, shared := reach[name]; i == 1 && shared {
				return min(upto, seq), nil
			} else if i == 0 {
				reach[name] = seq
			}
			var at Root
			if at, err = r.All.RootOf(ctx, name); err == nil {
				name, seq = at.Parent, min(seq, at.Base)
			}
		}
		if err != nil {
			return 0, err
		}
	}
	return 0, nil
}

// refs lists the entries after a sequence, up to a point.
func (r *Tenant) refs(ctx context.Context, p Point, after uint64) ([]EventRef, error) {
	if p.Seq <= after {
		return nil, nil
	}
	name, err := r.Find(ctx, p.Thread)
	if err != nil {
		return nil, err
	}
	var list []EventRef
	for e, err := range r.All.Peek(ctx, name, after, p.Seq) {
		if err != nil {
			return nil, err
		}
		list = append(list, EventRef{Seq: e.Seq, Kind: string(e.Kind), Path: tree.Names(e.Path)})
	}
	return list, nil
}
