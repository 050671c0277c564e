package threads

import (
	"container/list"
	"sync"

	"github.com/perdure/perdure/internal/journal"
)

// Folds of threads are kept in memory where no run is active, as snapshots are in
// the store, and are used like them: only if the journal has the entry they end
// with, and for threads that are long enough to be worth it. A kept fold never
// changes: whoever uses it works on a clone.

const (
	maxFolds = 64 << 20     // bytes of all kept folds, about
	maxFold  = maxFolds / 4 // of one
)

// folds are those of a process, the one used last first.
type folds struct {
	mu    sync.Mutex
	named map[string]*list.Element
	used  list.List
	bytes int64
}

// fold is a thread at rest.
type fold struct {
	name     string
	thread   *journal.Thread
	snapshot snapshotAt
	bytes    int64
}

// get returns the fold of a thread, the zero one if none is kept.
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

// wrote notes that a snapshot was written.
func (f *folds) wrote(name string, at snapshotAt) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.named[name]; e != nil {
		e.Value.(*fold).snapshot = at
	}
}

// put keeps a fold unless a newer one of the thread is there.
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
	for f.bytes += n.bytes; f.bytes > maxFolds; {
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

// Keep keeps the fold of a thread in memory, if no run is active and it follows
// from the journal alone. The thread stays the caller's.
func (c *Threads) Keep(o *Opened) {
	t := o.Thread
	if t.Seq < MinSnapshot || t.Active() != nil || t.Erased || t.Foreign != "" || o.Lacks {
		return
	}
	if t.Weight() > maxFold { // a snapshot is lighter, and nearer than a fold of before
		c.folds.forget(o.Name)
		return
	}
	if old := c.folds.get(o.Name); old.thread != nil && old.thread.Seq == t.Seq && old.thread.Head == t.Head {
		return
	}
	t = t.Clone()
	t.Rest()
	c.folds.put(&fold{o.Name, t, o.snapshot, t.Weight()})
}

// KeepExecuted is Keep for a thread of which a run was executed. Code may have
// voided decisions that a fork or a rewind took over, which no entry tells.
func (c *Threads) KeepExecuted(o *Opened) {
	if t := o.Thread; t.Fork == nil && t.Import == nil && t.Rewinds == 0 {
		c.Keep(o)
	}
}
