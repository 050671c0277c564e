package journal

import (
	"cmp"
	"maps"
	"slices"
)

// A thread knows which of its runs are its own: those that have not ended, and
// those that have ended since it was made. The others are past, and threads that
// were cloned from each other share them and their asks. Only a retry, a fork or
// a rewind changes a run that is past, and copies it before.

// Clone returns a thread that is folded on independently of t. It reads from t
// and costs what the runs of its own cost, besides a copy of the list of runs.
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

// Rest makes all ended runs past, so that clones share them. What only a retry
// needs of them is dropped.
func (t *Thread) Rest() {
	for _, r := range t.ended {
		r.BaseState, r.BaseDeps, r.Dumps = nil, nil, nil
	}
	t.ended = nil
	t.asks.rest()
	t.byID.rest()
	t.heard.rest()
}

// OpenRuns returns the runs that have not ended, in the order in which they were
// queued, without the inbox.
func (t *Thread) OpenRuns() []*Run { return t.open }

// OpenAsks returns how many asks can be answered.
func (t *Thread) OpenAsks() (n int) {
	for _, r := range t.open {
		for _, a := range r.asks {
			if a.Open() {
				n++
			}
		}
	}
	return n
}

// Weight is about how many bytes of memory the thread takes.
func (t *Thread) Weight() int64 { return t.weight + t.held.Load() }

// weigh adds what a thread keeps of an entry besides the state and deps.
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

// weight is how many bytes an item takes besides those of the item that it was.
func (i Item) weight(old Item) int64 {
	const fixed = 128
	w := len(i.Base.JSON) - len(old.Base.JSON)
	for l := i.Tail; l != nil && l != old.Tail; l = l.Prev {
		w += fixed + len(l.Value.JSON)
	}
	return int64(w)
}

// replace puts a copy of a run and of its asks in its place. Those who hold the
// lists of own runs do that themselves.
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

// clone returns a copy of a run, and of what entries change in place.
func (r *Run) clone() *Run {
	c := *r
	c.Misfits, c.Reached, c.Waits, c.Failing = maps.Clone(r.Misfits), maps.Clone(r.Reached), maps.Clone(r.Waits), maps.Clone(r.Failing)
	c.Intents, c.Spent, c.Dumps = maps.Clone(r.Intents), maps.Clone(r.Spent), maps.Clone(r.Dumps)
	c.Errors, c.Children, c.asks = slices.Clip(r.Errors), slices.Clone(r.Children), slices.Clone(r.asks)
	for i, child := range c.Children {
		own := *child
		own.Spent = maps.Clone(child.Spent)
		c.Children[i] = &own
	}
	return &c
}

// own returns a run that may be changed: itself, or a copy of one that is past.
func (t *Thread) own(r *Run) *Run {
	if !r.Status.Final() || slices.Contains(t.ended, r) {
		return r
	}
	r = t.replace(r)
	t.ended = append(t.ended, r)
	return r
}

// ownAll makes all runs own ones.
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

// insert adds a run that has not ended.
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
