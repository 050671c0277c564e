package threads

import (
	"container/list"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
)

// Folds of threads without an active run are kept in memory, as snapshots are in
// the store, and are used like them: only if the journal has the entry they end
// with, and only for threads long enough to be worth it. A kept fold never
// changes: its users work on clones.
//
// Folds with active runs are kept separately, without the trees of those runs.
// They serve callers that only append to a thread or execute another run of it.

const (
	maxFolds  = 64 << 20     // approximate bytes of all kept folds
	maxFold   = maxFolds / 4 // of a single one
	maxActive = maxFold      // of all with active runs
)

// folds is a cache of folded threads that evicts the least recently used.
type folds struct {
	most int64 // limit of bytes

	mu    sync.Mutex
	named map[string]*list.Element
	used  list.List
	bytes int64
}

// fold is a kept thread.
type fold struct {
	name     string
	thread   *journal.Thread
	snapshot snapshotAt
	bytes    int64
}

// get returns the fold of a thread, the zero value if none is kept.
func (f *folds) get(name string) fold {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.named[name]
	if e == nil {
		return fold{}
	}
	f.used.MoveToFront(e)
	return *e.Value.(*fold)
}

// wrote records that a snapshot was written.
func (f *folds) wrote(name string, at snapshotAt) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.named[name]; e != nil {
		e.Value.(*fold).snapshot = at
	}
}

// put keeps a fold unless a newer one of the thread is kept.
func (f *folds) put(n *fold) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.named[n.name]; e != nil {
		old := e.Value.(*fold)
		if old.thread.Seq > n.thread.Seq {
			return
		}
		if old.snapshot.seq > n.snapshot.seq {
			n.snapshot = old.snapshot
		}
		f.remove(e)
	}
	if f.named == nil {
		f.named = map[string]*list.Element{}
	}
	f.named[n.name] = f.used.PushFront(n)
	for f.bytes += n.bytes; f.bytes > f.most; {
		f.remove(f.used.Back())
	}
}

// forget drops the fold of a thread.
func (f *folds) forget(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.named[name]; e != nil {
		f.remove(e)
	}
}

func (f *folds) remove(e *list.Element) {
	n := f.used.Remove(e).(*fold)
	delete(f.named, n.name)
	f.bytes -= n.bytes
}

// Keep keeps a clone of the thread's fold in memory if the fold follows from the
// journal alone.
func (c *Threads) Keep(o *Opened) {
	t, folds := o.Thread, &c.folds
	if t.Seq < MinSnapshot || t.Erased || t.Foreign != "" || o.Lacks {
		return
	}
	if t.Active() != nil {
		if folds = &c.active; t.Fork != nil || t.Import != nil || t.Rewinds != 0 || planned(t) {
			return
		}
	}
	if t.Weight() > maxFold { // a snapshot is lighter, and newer than the fold kept before
		folds.forget(o.Name)
		return
	}
	if old := folds.get(o.Name); old.thread != nil && old.thread.Seq == t.Seq && old.thread.Head == t.Head {
		return
	}
	t = t.Clone()
	t.Rest()
	folds.put(&fold{o.Name, t, o.snapshot, t.Weight()})
}

// planned reports whether a run that has not ended has a plan. Only its tree says
// how far it has come.
func planned(t *journal.Thread) bool {
	return slices.ContainsFunc(t.OpenRuns(), func(r *journal.Run) bool { return len(r.Plan) > 0 })
}

// ReadForest is Read, except that the trees of runs that have begun may be
// missing.
func (c *Threads) ReadForest(ctx context.Context, name string) (*Opened, error) {
	o := c.keptActive(name)
	if o == nil {
		return c.Read(ctx, name)
	}
	err := c.ReadMore(ctx, o, 0)
	if o.Lacks || errors.Is(err, fault.ErrCorrupt) {
		c.active.forget(name)
		return c.Read(ctx, name)
	}
	if err == nil {
		c.Keep(o)
	}
	return o, err
}

// KeepExecuted is Keep for a thread after one of its runs was executed. It skips
// forks, imports and rewound threads: the code may have voided decisions taken
// over from the past, which no entry records.
func (c *Threads) KeepExecuted(o *Opened) {
	if t := o.Thread; t.Fork == nil && t.Import == nil && t.Rewinds == 0 {
		c.Keep(o)
	}
}

// Nearest returns the newest kept fold or snapshot of a thread, Empty if there is
// none. It is for callers that read on from there and do not need the trees of
// runs that have begun.
func (c *Threads) Nearest(ctx context.Context, name string) *Opened {
	o := c.keptActive(name)
	if o == nil {
		o = c.Restored(ctx, name, 0)
	}
	if o == nil {
		o = Empty(name)
	}
	return o
}

// keptActive returns a thread from its fold with active runs, nil if there is none
// or the fold without active runs is as new.
func (c *Threads) keptActive(name string) *Opened {
	f := c.active.get(name)
	if rest := c.folds.get(name); f.thread == nil || rest.thread != nil && rest.thread.Seq >= f.thread.Seq {
		return nil
	}
	o := reopened(name, f.thread.Clone(), f.snapshot)
	o.unproved = true
	return o
}
