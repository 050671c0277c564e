package threads

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/perdure/perdure/internal/blob"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/tree"
	"github.com/perdure/perdure/store"
)

func snapshotKey(name string) string { return "snapshot/" + name }

// The first byte of the cell says what follows.
const (
	snapshotHere = 'h'
	snapshotBlob = 'b'
)

// MinSnapshot is how many entries a thread has at least behind its last
// snapshot when the next one is taken. They have at least four times the bytes of
// the last snapshot, so that all of them together have at most about a quarter of
// those of the journal.
const MinSnapshot = 64

// Restored returns a thread as of its snapshot, nil if there is none that is
// good or if it is beyond a sequence that is not 0. A fork that has none begins
// with one of what it shares.
func (c *Threads) Restored(ctx context.Context, name string, upto uint64) *Opened {
	for source := name; ; {
		t, at := c.kept(source, upto)
		unproved := t != nil
		if t == nil {
			t, at = c.cached(ctx, source, upto)
		}
		if t != nil {
			if source != name {
				t.Base, at = 0, snapshotAt{t.Seq, t.Bytes, at.size} // that of the other
			}
			o := reopened(name, t, at)
			o.unproved = unproved
			return o
		}
		root, err := c.RootOf(ctx, source)
		if err != nil || root.Parent == "" {
			return nil
		}
		source = root.Parent
		if upto == 0 || upto > root.Base {
			upto = root.Base
		}
	}
}

// kept returns a clone of the fold that is kept in memory, if it is not beyond a
// sequence that is not 0. Whether it fits the journal, who reads on finds out.
func (c *Threads) kept(name string, upto uint64) (*journal.Thread, snapshotAt) {
	f := c.folds.get(name)
	if f.thread == nil || upto != 0 && f.thread.Seq > upto {
		return nil, snapshotAt{}
	}
	return f.thread.Clone(), f.snapshot
}

// cached returns the thread of a snapshot that fits the journal and is not
// beyond a sequence that is not 0, nil if there is none.
func (c *Threads) cached(ctx context.Context, name string, upto uint64) (*journal.Thread, snapshotAt) {
	cell, err := c.Store.Get(ctx, snapshotKey(name))
	if err != nil || len(cell.Value) == 0 {
		return nil, snapshotAt{}
	}
	data := cell.Value[1:]
	if cell.Value[0] == snapshotBlob {
		var at snapshotRef
		if json.Unmarshal(data, &at) != nil {
			return nil, snapshotAt{}
		}
		if scaleOf(ctx).Fold(ctx, at.Ref.Size) != nil {
			return nil, snapshotAt{} // reading the journal says why
		}
		if data, err = blob.Bytes(ctx, c.Store, fmt.Sprintf("%s/%d/", snapshotKey(name), at.Seq), at.Ref); err != nil {
			return nil, snapshotAt{}
		}
	}
	t, err := journal.Restore(data)
	if err != nil || t.Seq == 0 || upto != 0 && t.Seq > upto {
		return nil, snapshotAt{}
	}
	if !c.ends(ctx, name, t) {
		return nil, snapshotAt{}
	}
	return t, snapshotAt{t.Seq, t.Bytes, len(data)}
}

// ends reports whether the journal has the entry that a thread ends with.
func (c *Threads) ends(ctx context.Context, name string, t *journal.Thread) bool {
	for line, err := range c.Entries(ctx, name, t.Seq-1, t.Seq) {
		if err != nil {
			return false
		}
		e, err := journal.Peek(line.Seq, line.Data)
		return err == nil && e.Seq == t.Seq && e.Hash == t.Head
	}
	return false
}

// reopened returns a thread with the trees of the runs that have not begun.
func reopened(name string, t *journal.Thread, at snapshotAt) *Opened {
	o := &Opened{Name: name, Thread: t, Trees: map[uint64]*tree.Tree{}, snapshot: at, Resumed: true}
	for _, r := range t.OpenRuns() {
		if !r.Begun() {
			o.Trees[r.N] = tree.New() // nothing is recorded before it begins
		}
	}
	for _, r := range t.Inbox {
		o.Trees[r.N] = tree.New()
	}
	return o
}

// Snapshot takes a snapshot of a thread, if it is time for one. It is a cache:
// what goes wrong leaves the old one or none.
func (c *Threads) Snapshot(ctx context.Context, o *Opened) {
	t := o.Thread
	if t.Active() != nil || t.Erased || t.Foreign != "" || t.Seq < o.snapshot.seq+MinSnapshot || t.Bytes < o.snapshot.bytes+4*int64(o.snapshot.size) {
		return
	}
	data, err := t.Snapshot()
	if err != nil {
		return
	}
	value := append([]byte{snapshotHere}, data...)
	place := fmt.Sprintf("%s/%d/", snapshotKey(o.Name), t.Seq)
	if len(data) > blob.Inline {
		ref, err := blob.Put(ctx, c.Store, place, bytes.NewReader(data))
		if err != nil {
			return
		}
		raw, err := json.Marshal(snapshotRef{t.Seq, ref})
		if err != nil {
			return
		}
		value = append([]byte{snapshotBlob}, raw...)
	}
	_, err = store.Update(ctx, c.Store, snapshotKey(o.Name), func(store.Cell) ([]byte, error) { return value, nil })
	if err != nil {
		c.Log.Debug("writing a snapshot", "thread", t.ID, "error", err)
		return
	}
	o.snapshot = snapshotAt{t.Seq, t.Bytes, len(data)}
	c.folds.wrote(o.Name, o.snapshot)
	if gone, err := c.IsDropped(ctx, o.Name); err == nil && gone { // it was erased meanwhile
		_ = c.forgetSnapshot(ctx, o.Name)
		return
	}
	for cell, err := range c.Store.List(ctx, snapshotKey(o.Name)+"/", "") {
		if err == nil && !strings.HasPrefix(cell.Key, place) {
			_ = c.Store.Delete(ctx, cell.Key, cell.Version) // of an older one; who reads it reads the journal instead
		}
	}
}

func (c *Threads) forgetSnapshot(ctx context.Context, name string) error {
	c.folds.forget(name)
	c.active.forget(name)
	return errors.Join(c.Remove(ctx, snapshotKey(name), ""), store.DeletePrefix(ctx, c.Store, snapshotKey(name)+"/"))
}

// snapshotAt is the newest snapshot that is known of a thread: its sequence, 0 for
// none, how many bytes the journal had there, and how many it has itself.
type snapshotAt struct {
	seq   uint64
	bytes int64
	size  int
}

type snapshotRef struct {
	Seq uint64
	Ref blob.Ref
}

// A snapshot is a cache of a folded journal, taken where no run is active, so
// that reading a thread reads the entries of its newest run. It is a cell, or a
// cell that leads to a blob. It is never the truth: one that is missing,
// damaged or does not fit the journal is passed over, and written again.
