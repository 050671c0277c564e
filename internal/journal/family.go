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
	End     uint64           `json:",omitzero"` // the entry that told it
	Failed  bool             `json:",omitzero"` // it did not succeed
	Retries int              `json:",omitzero"` // of the run when its end was told
	Stale   bool             `json:",omitzero"` // it is not this run's any more: the next Spawn there makes another
	Other   bool             `json:",omitzero"` // it is a child of the thread that this one was forked from
	Spent   map[string]int64 `json:",omitzero"` // by it, as told so far
	Lost    bool             `json:",omitzero"` // the end that was told is a cancel, and no Join was given it
	Doomed  bool             `json:",omitzero"` // its branch was closed: it is cancelled, and the next Spawn there makes another
}

// childMark begins the names of the signals that tell the ends of children. No
// name that a user gives begins with it.
const childMark = "#child-"

// ChildSignal returns the name of the signal that tells the end of a child.
func ChildSignal(id string) string { return childMark + id }

// IsChildSignal reports whether a signal tells the end of a child.
func IsChildSignal(name string) bool { return strings.HasPrefix(name, childMark) }

// ChildOf returns the id of the child whose end a signal tells.
func ChildOf(signal string) string { return strings.TrimPrefix(signal, childMark) }

// ParentEnded is the name of a cancel that the end of a parent gave its child.
const ParentEnded = "#parent"

// Child returns the child whose end is told by a signal, nil if there is none.
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
// none, and how many were.
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

// joined notes that the run knows the end of a child.
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

// fork makes the thread a fork of what it was so far: what was active is
// paused, nobody holds it, and its unfinished children are the other's.
func (t *Thread) fork(e Entry, b *Body) {
	from := *b.From
	from.At = b.At
	t.Fork, t.Parent, t.Worker = &from, nil, ""
	if from.Imported() {
		t.Import, t.Imported = &from, e.Time
	}
	t.ID, t.Tenant, t.Created = b.Thread, b.Tenant, e.Time
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
	t.estrange()
	for _, r := range t.Runs {
		if r.Status.Final() {
			continue
		}
		if r.N == b.Ref && !b.Value.IsZero() {
			r.Input = b.Value
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
	if len(b.State) > 0 {
		t.own()
	}
	for _, c := range b.State {
		c.Apply(t.State)
	}
}

// estrange notes that the children so far are another thread's.
func (t *Thread) estrange() {
	for _, r := range t.Runs {
		for _, c := range r.Children {
			c.Other = true
		}
	}
}

// pause stops a run in a fork, whatever its worker was at in the thread that
// it comes from.
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

// Kept returns what a rewind keeps of the thread as it is now: where it stands,
// whose it is, what people call it, and what it has spent.
func (t *Thread) Kept() *Thread {
	k := &Thread{Seq: t.Seq, Time: t.Time, ID: t.ID, Tenant: t.Tenant, User: t.User, Title: t.Title, Meta: maps.Clone(t.Meta),
		Created: t.Created, Base: t.Base, Fork: t.Fork, Import: t.Import, Imported: t.Imported, Parent: t.Parent, Epoch: t.Epoch, Spent: maps.Clone(t.Spent), Rewinds: t.Rewinds}
	for _, r := range t.Runs {
		if r.Status == StatusFailed || r.Retries > 0 { // it may have spent more in a retry that is taken back
			kept := &Run{N: r.N, Status: r.Status, Retries: r.Retries, Spent: maps.Clone(r.Spent)}
			for _, c := range r.Children {
				kept.Children = append(kept.Children, &Child{ID: c.ID, Spent: maps.Clone(c.Spent)})
			}
			k.Runs = append(k.Runs, kept)
		}
	}
	return k
}

// Rewind folds the entry that takes the thread back to what it was at an
// earlier sequence. What was spent stays spent, and what people call the thread
// stays as it is.
func (t *Thread) Rewind(e Entry, past *Thread) error {
	body, err := e.Read()
	if err != nil {
		return fmt.Errorf("its body: %w", err)
	}
	if body.At != past.Seq || e.Seq != t.Seq+1 {
		return fmt.Errorf("a rewind to %d meets the thread at %d", body.At, past.Seq)
	}
	now := t.Kept()
	if now.Fork != nil && (past.Fork == nil || *past.Fork != *now.Fork) {
		past.estrange() // it was not forked yet
	}
	*t = *past
	t.ID, t.Tenant, t.User, t.Title, t.Meta, t.Created = now.ID, now.Tenant, now.User, now.Title, now.Meta, now.Created
	t.Import, t.Imported = now.Import, now.Imported
	t.Base, t.Fork, t.Parent, t.Epoch, t.Worker = now.Base, now.Fork, now.Parent, now.Epoch, ""
	t.Spent, t.Time, t.Rewinds = now.Spent, now.Time, now.Rewinds+1
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
