package perdure

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/perdure/perdure/internal/blob"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/host"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/store"
)

// A fork's journal begins behind an entry of another thread's, its parent:
// the thread's sequence is base + the journal's. Whether a thread is a fork is
// told by its name, see names.go; where it begins, by its first entry.

// root is where a fork begins.
type root struct {
	parent string // name of the thread that it was forked from, "" for none
	base   uint64 // the last sequence that it shares with it
}

// rootOf returns where a thread begins. A fork whose first entry is not there
// yet begins nowhere.
func (c *core) rootOf(ctx context.Context, name string) (root, error) {
	if !isFork(name) {
		return root{}, nil
	}
	c.mu.Lock()
	known, ok := c.roots[name]
	c.mu.Unlock()
	if ok {
		return known, nil
	}
	for line, err := range c.store.Read(ctx, journalOf(name), 0) {
		if err != nil {
			return root{}, fault.IfDropped(name, err)
		}
		e, err := journal.Peek(line.Seq, line.Data)
		var b journal.Body
		if err == nil {
			b, err = e.Read()
		}
		if err == nil && e.Kind == journal.Erased {
			return root{}, &fault.ErasedError{Thread: name} // before it began
		}
		if err == nil && (e.Kind != journal.Forked || b.From == nil || b.At == 0) {
			err = fmt.Errorf("the first entry of a fork is %q", e.Kind)
		}
		if err != nil {
			return root{}, fmt.Errorf("%w: thread %s, where it was forked: %w", fault.ErrCorrupt, name, err)
		}
		r := root{parent: b.From.Name, base: b.At}
		c.mu.Lock()
		if len(c.roots) > 10_000 {
			clear(c.roots)
		}
		c.roots[name] = r
		c.mu.Unlock()
		return r, nil
	}
	return root{}, nil
}

// place makes a thread know which of its entries are in its own journal.
func (c *core) place(ctx context.Context, o *opened) error {
	if o.thread.Base != 0 || !isFork(o.name) {
		return nil
	}
	r, err := c.rootOf(ctx, o.name)
	o.thread.Base = r.base
	return err
}

// entries reads a thread after a sequence, up to another if that is not 0: what
// it shares with its parent, and then its own journal. It asks for no entry
// after the last one that is wanted, since that one may be damaged.
func (c *core) entries(ctx context.Context, name string, after, upto uint64) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		if upto != 0 && after >= upto {
			return
		}
		r, err := c.rootOf(ctx, name)
		if err != nil {
			yield(store.Entry{}, err)
			return
		}
		if isFork(name) && r.parent == "" {
			return // what is written from now on cannot be told without its parent
		}
		if after < r.base {
			shared := r.base
			if upto != 0 {
				shared = min(shared, upto)
			}
			for line, err := range c.entries(ctx, r.parent, after, shared) {
				if errors.Is(err, fault.ErrErased) { // it is not this thread that was
					err = fmt.Errorf("%w: thread %s, what it was forked from: %v", fault.ErrCorrupt, name, err)
				}
				if !yield(line, err) || err != nil {
					return
				}
				after = line.Seq
			}
			if after < shared {
				yield(store.Entry{}, fmt.Errorf("%w: thread %s was forked behind entry %d of %s, which ends at %d", fault.ErrCorrupt, name, r.base, r.parent, after))
				return
			}
			if after == upto {
				return
			}
		}
		for line, err := range c.readAhead(ctx, journalOf(name), after-r.base) {
			line.Seq += r.base
			if !yield(line, fault.IfDropped(name, err)) || err != nil || line.Seq == upto {
				return
			}
		}
	}
}

// entryAt returns the sequence and hash of the entry at a sequence, of the last
// one if that is 0 or beyond it; 0 if there is none. It reads no more than it
// must, and so notices damage of that entry, but not of those before it.
func (c *core) entryAt(ctx context.Context, name string, at uint64) (uint64, journal.Hash, error) {
	from := at
	if at == 0 {
		from = c.reached(ctx, name)
	}
	last, err := c.lastUpTo(ctx, name, max(from, 2)-2, at)
	if err == nil && last.Seq == 0 && from > 2 { // beyond the end: where is that?
		last, err = c.lastUpTo(ctx, name, 0, 0)
	}
	switch {
	case errors.Is(err, store.ErrDropped):
		err = fmt.Errorf("%w: %w", fault.ErrErased, err)
	case err == nil && last.Kind == journal.Erased:
		err = fmt.Errorf("%w: entry %d says so", fault.ErrErased, last.Seq)
	case errors.Is(err, fault.ErrCorrupt):
		// Where the thread is good up to is worth reading it.
		if _, readErr := c.readAt(ctx, name, at); errors.Is(readErr, fault.ErrCorrupt) {
			err = readErr
		}
	}
	return last.Seq, last.Hash, err
}

// lastUpTo returns the last entry behind a sequence, up to another if that is
// not 0. Each has to follow from the one before.
func (c *core) lastUpTo(ctx context.Context, name string, after, upto uint64) (last journal.Entry, err error) {
	for line, err := range c.entries(ctx, name, after, upto) {
		if err != nil {
			if bad := (*store.CorruptError)(nil); errors.As(err, &bad) {
				err = fmt.Errorf("%w: entry behind %d: %w", fault.ErrCorrupt, max(last.Seq, after), err)
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

// reached returns a sequence that a thread has, near its end if its summary is
// not old.
func (c *core) reached(ctx context.Context, name string) uint64 {
	at, _ := c.rootOf(ctx, name)
	var s summary
	if cell, err := c.store.Get(ctx, journalOf(name)); err == nil {
		_ = json.Unmarshal(cell.Value, &s)
	}
	return max(at.base, s.Seq)
}

// append adds entries behind those that a thread has folded.
func (c *core) append(ctx context.Context, name string, t *journal.Thread, data [][]byte) error {
	_, err := store.AppendOnce(ctx, c.store, journalOf(name), t.Seq-t.Base, data...)
	return fault.IfDropped(name, err)
}

// load returns the JSON of a value, nil if there is none. A value that a fork
// shares with its parent is among the parent's blobs.
func (c *core) load(ctx context.Context, name string, v journal.Value) ([]byte, error) {
	if v.Blob == nil {
		return v.JSON, nil
	}
	if err := host.ScaleOf(ctx).Value(ctx, v.Blob.Size); err != nil {
		return nil, err
	}
	raw, err := c.loadBlob(ctx, name, *v.Blob)
	if damagedBlob(err) {
		c.tellDamage(ctx, emptyThread(name))
		err = fmt.Errorf("%w: a value of %d bytes: %w", fault.ErrCorrupt, v.Blob.Size, err)
	}
	return raw, err
}

func (c *core) loadBlob(ctx context.Context, name string, ref blob.Ref) ([]byte, error) {
	for {
		raw, err := blob.Bytes(ctx, c.store, blobsOf(name), ref)
		if !errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrCorrupt) || !isFork(name) {
			return raw, err
		}
		r, rootErr := c.rootOf(ctx, name)
		if rootErr != nil || r.parent == "" {
			return nil, errors.Join(err, rootErr)
		}
		name = r.parent
	}
}

// forkMark stands in the names of forks.
const forkMark = "f"

// isFork reports whether a name is that of a fork.
func isFork(name string) bool { return markOf(name) == forkMark }

// importMark stands in the names of imports, with how many entries the file
// has: what comes behind them was written here.
func importMark(entries uint64) string {
	return "i" + base32Lower.EncodeToString(binary.BigEndian.AppendUint64(nil, entries))
}

// insideImport reports whether all that a thread has up to a sequence was
// brought by an import. It looks at names alone: what entries say may be made up.
func (c *core) insideImport(ctx context.Context, name string, at uint64) (bool, error) {
	for isFork(name) {
		r, err := c.rootOf(ctx, name)
		if err != nil || r.parent == "" {
			return false, err
		}
		name, at = r.parent, min(at, r.base)
	}
	text, ok := strings.CutPrefix(markOf(name), "i")
	raw, err := base32Lower.DecodeString(text)
	return ok && err == nil && len(raw) == 8 && at <= binary.BigEndian.Uint64(raw), nil
}

// markOf returns what a name has between its random part and its owner.
func markOf(name string) string {
	_, incarnation, _ := strings.Cut(name, ".")
	if len(incarnation) <= incarnationSize {
		return ""
	}
	return incarnation[incarnationSize-ownerSize : len(incarnation)-ownerSize]
}
