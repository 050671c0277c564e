package journal

import (
	"cmp"
	"iter"
	"maps"
	"slices"
)

// A thread owns the runs that have not ended, and those that have ended since the
// last call of Rest. The others are past: a thread and its clones share them and
// their asks. Only a retry, a fork or a rewind changes a run that is past, and it
// copies the run first.

// Clone returns a copy of t that can be folded on independently. It copies the runs
// that t owns, and the list of the others.
func (t *Thread) Clone() *Thread {
	c := *t
	c.Meta, c.Spent = maps.Clone(t.Meta), maps.Clone(t.Spent)
	c.Runs, c.Signals = slices.Clone(t.Runs), slices.Clone(t.Signals)
	c.asks, c.byID, c.heard = t.asks.clone(), t.byID.clone(), t.heard.clone()
	c.open, c.ended = slices.Clone(t.open), slices.Clone(t.ended)
	if !t.shared {
		c.State, c.Deps = maps.Clone(t.State), maps.Clone(t.Deps)
	}
	c.Inbox = make([]*Run, len(t.Inbox))
	for i, r := range t.Inbox {
		c.Inbox[i] = c.replace(r)
	}
	for _, own := range [][]*Run{c.open, c.ended} {
		for i, r := range own {
			own[i] = c.replace(r)
		}
	}
	return &c
}

// Rest makes all ended runs past, so that clones share them. It drops what only a
// retry of them needs.
func (t *Thread) Rest() {
	for _, r := range t.ended {
		r.BaseState, r.BaseDeps, r.Dumps = nil, nil, nil
	}
	t.ended = nil
	t.asks.rest()
	t.byID.rest()
	t.heard.rest()
}

// OpenRuns returns the runs that have not ended, without the inbox, in the order in
// which they were queued.
func (t *Thread) OpenRuns() []*Run { return t.open }

// OpenAsks returns the number of asks that can be answered.
func (t *Thread) OpenAsks() (n int) {
	for range t.AllOpenAsks() {
		n++
	}
	return n
}

// AllOpenAsks yields the asks that can be answered, in no order.
func (t *Thread) AllOpenAsks() iter.Seq[*Ask] {
	return func(yield func(*Ask) bool) {
		for _, r := range t.open {
			for _, a := range r.asks {
				if a.Open() && !yield(a) {
					return
				}
			}
		}
	}
}

// Weight returns the approximate number of bytes that the thread takes in memory.
func (t *Thread) Weight() int64 { return t.weight + t.held.Load() }

// weigh adds the weight of what a thread keeps of an entry, except state and deps.
func (t *Thread) weigh(e Entry, b *Body) {
	const fixed = 512
	switch e.Kind {
	case Claimed, Nudge, Timer, Suspended, Released:
	case Step:
		if b.Fail != nil {
			t.weight += fixed + int64(len(e.Body))
		}
	case Queued:
		t.weight += 2*fixed + int64(len(e.Body))
	case Ended:
		t.weight += int64(len(e.Body))
	default:
		t.weight += fixed + int64(len(e.Body))
	}
}

// weight returns how many bytes an item takes beyond those of its predecessor.
func (i Item) weight(old Item) int64 {
	const fixed = 128
	w := len(i.Base.JSON) - len(old.Base.JSON)
	for l := i.Tail; l != nil && l != old.Tail; l = l.Prev {
		w += fixed + len(l.Value.JSON)
	}
	return int64(w)
}

// replace replaces a run and its asks by copies, except in t.open, t.ended and the
// inbox, which are up to the caller.
func (t *Thread) replace(r *Run) *Run {
	c := r.clone()
	if i, ok := slices.BinarySearchFunc(t.Runs, r.N, func(r *Run, n uint64) int { return cmp.Compare(r.N, n) }); ok {
		t.Runs[i] = c
	}
	if t.byID.get(r.ID) == r {
		t.byID.set(r.ID, c)
	}
	for i, a := range r.asks {
		own := *a
		own.Run, own.Progress = c, slices.Clip(a.Progress)
		c.asks[i] = &own
		if t.asks.get(a.ID) == a {
			t.asks.set(a.ID, &own)
		}
	}
	return c
}

// clone returns a copy of a run and of those parts of it that entries change in
// place.
func (r *Run) clone() *Run {
	c := *r
	c.Misfits, c.Reached, c.Waits, c.Failing = maps.Clone(r.Misfits), maps.Clone(r.Reached), maps.Clone(r.Waits), maps.Clone(r.Failing)
	c.Intents, c.Starts, c.Spent, c.Dumps = maps.Clone(r.Intents), maps.Clone(r.Starts), maps.Clone(r.Spent), maps.Clone(r.Dumps)
	c.Errors, c.Children, c.asks = slices.Clip(r.Errors), slices.Clone(r.Children), slices.Clone(r.asks)
	for i, child := range c.Children {
		own := *child
		own.Spent = maps.Clone(child.Spent)
		c.Children[i] = &own
	}
	return &c
}

// own returns a run that t may change: r itself, or a copy that replaces it if it is
// past.
func (t *Thread) own(r *Run) *Run {
	if !r.Status.Final() || slices.Contains(t.ended, r) {
		return r
	}
	r = t.replace(r)
	t.ended = append(t.ended, r)
	return r
}

// ownAll makes t own all runs.
func (t *Thread) ownAll() {
	own := map[*Run]bool{}
	for _, r := range t.ended {
		own[r] = true
	}
	for _, r := range slices.Clone(t.Runs) {
		if r.Status.Final() && !own[r] {
			t.ended = append(t.ended, t.replace(r))
		}
	}
}

// insert adds a run to those that have not ended.
func (t *Thread) insert(r *Run) {
	at, _ := slices.BinarySearchFunc(t.open, r, byNumber)
	t.open = slices.Insert(t.open, at, r)
}

// without returns a list without a run.
func without(list []*Run, r *Run) []*Run {
	if i := slices.Index(list, r); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}
