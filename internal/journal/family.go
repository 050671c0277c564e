package journal

import (
	"fmt"
	"maps"
	"strings"
)

// Child is a thread that a run has spawned.
type Child struct {
	ID     string           `json:",omitzero"` // of the thread
	Path   string           `json:",omitzero"` // of the Spawn
	Seq    uint64           `json:",omitzero"`
	Flow   string           `json:",omitzero"`
	Input  Value            `json:",omitzero"`
	Budget map[string]int64 `json:",omitzero"`

	Joined  bool             `json:",omitzero"` // its end is known to the run
	End     uint64           `json:",omitzero"` // the entry that reported it
	Failed  bool             `json:",omitzero"` // it did not succeed
	Retries int              `json:",omitzero"` // of the run when its end was reported
	Stale   bool             `json:",omitzero"` // it no longer belongs to this run: the next Spawn at Path starts another
	Other   bool             `json:",omitzero"` // it is a child of the thread that this one was forked from
	Spent   map[string]int64 `json:",omitzero"` // by it, as reported so far
	Lost    bool             `json:",omitzero"` // its reported end is a cancellation, and no Join received it
	Doomed  bool             `json:",omitzero"` // its branch was closed: it is cancelled, and the next Spawn at Path starts another
}

// childMark begins the names of the signals that report the ends of children.
// Names given by users never begin with it.
const childMark = "#child-"

// ChildSignal returns the name of the signal that reports the end of a child.
func ChildSignal(id string) string { return childMark + id }

// IsChildSignal reports whether a signal reports the end of a child.
func IsChildSignal(name string) bool { return strings.HasPrefix(name, childMark) }

// ChildOf returns the id of the child whose end a signal reports.
func ChildOf(signal string) string { return strings.TrimPrefix(signal, childMark) }

// ParentEnded is the name of the cancel entry that a child gets when its parent
// ends.
const ParentEnded = "#parent"

// Child returns the child whose end a signal reports, nil if there is none.
func (r *Run) Child(signal string) *Child {
	if !IsChildSignal(signal) {
		return nil
	}
	for _, c := range r.Children {
		if ChildSignal(c.ID) == signal {
			return c
		}
	}
	return nil
}

// ChildAt returns the newest child that was spawned at a path, nil if there is
// none, and the number of children spawned there.
func (r *Run) ChildAt(path string) (newest *Child, n int) {
	for _, c := range r.Children {
		if c.Path == path {
			newest = c
			n++
		}
	}
	return newest, n
}

// OpenChildren returns the children whose end the run does not know.
func (r *Run) OpenChildren() []*Child {
	var open []*Child
	for _, c := range r.Children {
		if !c.Joined && !c.Stale {
			open = append(open, c)
		}
	}
	return open
}

// joined records that the run knows the end of a child.
func (r *Run) joined(e Entry, b *Body) {
	if c := r.Child(b.Name); c != nil {
		c.Joined, c.End, c.Failed, c.Retries = true, e.Seq, b.Fail != nil, r.Retries
		c.Lost = e.Path == "" && b.Status == string(StatusCancelled)
		for unit, n := range b.Spend {
			if c.Spent == nil {
				c.Spent = map[string]int64{}
			}
			c.Spent[unit] = Sum(c.Spent[unit], n)
		}
	}
}

// ScheduleMeta is the key of the metadata that names the schedule that has started a
// thread.
const ScheduleMeta = "perdure.schedule"

// ForkMeta returns the metadata of a fork of a thread with some: no schedule started it.
func ForkMeta(meta map[string]string) map[string]string {
	if meta[ScheduleMeta] != "" {
		meta = maps.Clone(meta)
		delete(meta, ScheduleMeta)
	}
	return meta
}

// fork makes the thread a fork of what it was so far: active runs are paused, no
// worker holds it, and unfinished children belong to the original thread.
func (t *Thread) fork(e Entry, b *Body) {
	from := *b.From
	from.At = b.At
	t.Fork, t.Parent, t.Worker = &from, nil, ""
	if from.Name != "" { // otherwise the entries were imported, and are its own
		t.Shared = t.Bytes + t.Large
	}
	if from.Imported() {
		t.Import, t.Imported = &from, e.Time
	}
	t.ID, t.Tenant, t.Created = b.Thread, b.Tenant, e.Time
	t.Meta = ForkMeta(t.Meta)
	if b.Title != nil {
		t.Title = *b.Title
	}
	var signals []Pending
	for _, s := range t.Signals {
		if !IsChildSignal(s.Name) {
			signals = append(signals, s)
		}
	}
	t.Signals = signals
	t.ownAll()
	t.estrange()
	for _, r := range t.open {
		if r.N == b.Ref && !b.Value.IsZero() {
			r.Input = b.Value.placed(placeOf(e.Seq, 0))
		}
		r.pause(e.Time)
		for _, c := range r.Children {
			c.Stale = c.Stale || !c.Joined
		}
		for path, w := range r.Waits {
			if IsChildSignal(w.Signal) {
				delete(r.Waits, path)
				r.Wake = true
			}
		}
	}
	t.change(e, b)
}

// estrange marks all children as belonging to another thread.
func (t *Thread) estrange() {
	for _, r := range t.Runs {
		for _, c := range r.Children {
			c.Other = true
		}
	}
}

// pause stops a run in a fork, whatever its worker is doing in the original
// thread.
func (r *Run) pause(now int64) {
	r.PausedAt, r.Held, r.Silent, r.Resting, r.Deaths = now, true, false, false, 0
	switch r.Status {
	case StatusRunning:
		r.Wake = true
		fallthrough
	case StatusSuspended, StatusQueued:
		r.Status = StatusPaused
	}
}

// Kept returns the part of the thread that survives a rewind: its position,
// owner, title, metadata and what it has spent.
func (t *Thread) Kept() *Thread {
	k := &Thread{Seq: t.Seq, Time: t.Time, Bytes: t.Bytes, Large: t.Large, Shared: t.Shared, ID: t.ID, Tenant: t.Tenant, User: t.User, Title: t.Title, Meta: maps.Clone(t.Meta),
		Created: t.Created, Base: t.Base, Fork: t.Fork, Import: t.Import, Imported: t.Imported, Parent: t.Parent, Epoch: t.Epoch, Spent: maps.Clone(t.Spent), Rewinds: t.Rewinds}
	for _, r := range t.Runs {
		if r.Status == StatusFailed || r.Retries > 0 { // a retry that the rewind takes back may have spent more
			kept := &Run{N: r.N, Status: r.Status, Retries: r.Retries, Spent: maps.Clone(r.Spent)}
			for _, c := range r.Children {
				kept.Children = append(kept.Children, &Child{ID: c.ID, Spent: maps.Clone(c.Spent)})
			}
			k.Runs = append(k.Runs, kept)
		}
	}
	return k
}

// Rewind folds the entry that takes the thread back to past, an earlier
// sequence. What was spent stays spent, and the title and metadata stay.
func (t *Thread) Rewind(e Entry, past *Thread) error {
	body, err := e.Read()
	if err != nil {
		return fmt.Errorf("its body: %w", err)
	}
	if body.At != past.Seq || e.Seq != t.Seq+1 {
		return fmt.Errorf("a rewind to %d meets the thread at %d", body.At, past.Seq)
	}
	now := t.Kept()
	past.ownAll()
	if now.Fork != nil && (past.Fork == nil || *past.Fork != *now.Fork) {
		past.estrange() // the past is from before the fork
	}
	*t = *past
	t.ID, t.Tenant, t.User, t.Title, t.Meta, t.Created = now.ID, now.Tenant, now.User, now.Title, now.Meta, now.Created
	t.Import, t.Imported = now.Import, now.Imported
	t.Base, t.Fork, t.Parent, t.Epoch, t.Worker = now.Base, now.Fork, now.Parent, now.Epoch, ""
	t.Spent, t.Time, t.Bytes, t.Rewinds = now.Spent, now.Time, now.Bytes, now.Rewinds+1
	t.Large, t.Shared = now.Large, now.Shared
	for _, was := range now.Runs {
		if r := t.Run(was.N); r != nil {
			r.Spent = was.Spent
			for _, c := range was.Children {
				if own := r.Child(ChildSignal(c.ID)); own != nil {
					own.Spent = c.Spent
				}
			}
		}
	}
	t.advance(e)
	return nil
}
