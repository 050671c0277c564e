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

// A snapshot is a cache of a folded journal, taken where no run is active, so that
// a reader needs only the entries after it. It is a cell, or a cell that refers to
// a blob. It is never authoritative: one that is missing, damaged or does not fit
// the journal is ignored, and written again.

func snapshotKey(name string) string { return "snapshot/" + name }

// The first byte of the cell says what follows.
const (
	snapshotHere = 'h'
	snapshotBlob = 'b'
)

// MinSnapshot is the least number of entries between two snapshots of a thread.
// These entries also have at least four times the bytes of the first of the two,
// so that all snapshots together have at most about a quarter of the bytes of the
// journal.
const MinSnapshot = 64

// Restored returns a thread from its kept fold or its snapshot, nil if neither can
// be used. If upto is not 0, neither may be beyond it. A fork without one starts
// from one of the part that it shares with its parent.
func (c *Threads) Restored(ctx context.Context, name string, upto uint64) *Opened {
	for source := name; ; {
		t, at := c.kept(source, upto)
		unproved := t != nil
		if t == nil {
			t, at = c.cached(ctx, source, upto)
		}
		if t != nil {
			if source != name {
				t.Base, at = 0, snapshotAt{t.Seq, t.Bytes, at.size} // the Base was the parent's
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

// kept returns a clone of the fold kept in memory, nil if there is none or it is
// beyond a sequence that is not 0. ReadMore checks that it fits the journal.
func (c *Threads) kept(name string, upto uint64) (*journal.Thread, snapshotAt) {
	f := c.folds.get(name)
	if f.thread == nil || upto != 0 && f.thread.Seq > upto {
		return nil, snapshotAt{}
	}
	return f.thread.Clone(), f.snapshot
}

// cached returns the thread of the snapshot in the store, nil if there is none, it
// does not fit the journal, or it is beyond a sequence that is not 0.
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
			return nil, snapshotAt{} // reading the journal reports the error
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
	for e, err := range c.Peek(ctx, name, t.Seq-1, t.Seq) {
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

// Snapshot writes a snapshot of a thread if one is due. After an error the old one
// remains, or none.
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
	if gone, err := c.IsDropped(ctx, o.Name); err == nil && gone { // erased meanwhile
		_ = c.forgetSnapshot(ctx, o.Name)
		return
	}
	for cell, err := range c.Store.List(ctx, snapshotKey(o.Name)+"/", "") {
		if err == nil && !strings.HasPrefix(cell.Key, place) {
			_ = c.Store.Delete(ctx, cell.Key, cell.Version) // of an older snapshot; its readers fall back to the journal
		}
	}
}

func (c *Threads) forgetSnapshot(ctx context.Context, name string) error {
	c.folds.forget(name)
	c.active.forget(name)
	return errors.Join(c.Remove(ctx, snapshotKey(name), ""), store.DeletePrefix(ctx, c.Store, snapshotKey(name)+"/"))
}

// snapshotAt describes the newest known snapshot of a thread: its sequence, 0 for
// none, the bytes of the journal up to there, and its own.
type snapshotAt struct {
	seq   uint64
	bytes int64
	size  int
}

type snapshotRef struct {
	Seq uint64
	Ref blob.Ref
}
