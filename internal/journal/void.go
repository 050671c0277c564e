package journal

import (
	"cmp"
	"slices"
	"strings"
)

// Gone is a node of a run that was forgotten with a decision, or a node whose ask
// was: see tree.Void.
type Gone struct {
	Path   string // as in entries
	Ask    bool   // only its ask was forgotten
	State  bool   // it changed the state
	Before uint64 // its entries from this sequence on stay; 0 if none do
	Signal string // that it took, "" for none
	Ref    uint64 // the entry of the signal or input that it took
	Value  Value  // of the signal
}

// Forget makes the thread forget what the tree of a run has forgotten: asks are
// closed, waits end, and signals and inputs can be taken again. If a node had
// changed the state, the state is rebuilt from the run's base and the remaining
// changes, unless another run was active meanwhile.
func (t *Thread) Forget(r *Run, gone []Gone, changes []Change) {
	for _, g := range gone {
		for p, w := range r.Waits {
			if (p == g.Path || !g.Ask && within(p, g.Path)) && g.before(w.Seq) {
				delete(r.Waits, p)
			}
		}
		for _, a := range r.asks {
			if within(a.Path, g.Path) && g.before(a.Seq) {
				a.Answer, a.AnswerAt, a.Expired, a.Closed = nil, 0, false, true
			}
		}
		for _, c := range r.Children {
			c.Stale = c.Stale || within(c.Path, g.Path) && g.before(c.Seq)
		}
		switch {
		case g.Signal != "" && !IsChildSignal(g.Signal):
			t.Signals = append(t.Signals, Pending{Seq: g.Ref, Name: g.Signal, Value: g.Value})
			slices.SortFunc(t.Signals, func(a, b Pending) int { return cmp.Compare(a.Seq, b.Seq) })
		case g.Signal == "" && g.Ref != 0:
			t.untake(r, g.Ref)
		}
	}
	other := func(o *Run) bool { return o != r && o.Begun() && (!o.Status.Final() || o.EndSeq > r.Start) }
	if !slices.ContainsFunc(gone, func(g Gone) bool { return g.State }) || r.BaseState == nil || slices.ContainsFunc(t.Runs, other) {
		return
	}
	t.State, t.shared = r.BaseState, true
	t.ownState()
	for _, c := range changes {
		c.Apply(t.State)
	}
}

func (g Gone) before(seq uint64) bool { return g.Before == 0 || seq < g.Before }

// within reports whether a path equals another or is below it.
func within(path, of string) bool {
	return path == of || strings.HasPrefix(path, of+"/")
}

// untake puts steering that a run has taken back into the inbox.
func (t *Thread) untake(r *Run, n uint64) {
	for id, in := range t.byID.all() {
		if in.N == n && in.Taken == r.N {
			own := *in
			own.Taken = 0
			t.byID.set(id, &own)
			t.Inbox = append(t.Inbox, &own)
			slices.SortFunc(t.Inbox, byNumber)
		}
	}
}
