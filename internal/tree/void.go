package tree

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/perdure/perdure/internal/journal"
)

// A decision is an ask that was answered or has expired, or a step that names
// the steps that it allows. It is used once one of these steps, or any step if
// it names none, has an outcome in its frame, or any step has one in an
// enclosing frame. An unused decision gates something that has not happened
// yet.

// voidable says which decisions count only if they are used: those up to
// sequence upto, except asks whose ids are in keep.
type voidable struct {
	upto    uint64
	keep    []string
	again   uint64 // the entry that records a decision again, 0 for none
	foreign bool   // everything up to upto was imported
	gone    []journal.Gone

	// starts holds the starts of forgotten at-most-once steps by path, as in
	// entries. Their outcomes stay unknown when the steps are reached again.
	starts map[string]*Node
}

// Void forgets the unused decisions up to a sequence along with everything that
// their frames recorded after them, and from then on any decision whose use is
// forgotten. Asks whose ids are in keep stay. It also forgets open asks that
// have an expiry, so that their time starts over, or all open asks if open is
// set.
func (t *Tree) Void(upto uint64, keep []string, open bool) {
	t.upto, t.keep, t.foreign = upto, keep, open || t.foreign
	t.forgetAsks(t.Root, open)
	t.judge(t.Root)
}

// Tell makes the thread forget what the tree of this run has forgotten since
// the last call.
func (t *Tree) Tell(thread *journal.Thread, run uint64) {
	if r := thread.Run(run); r != nil && len(t.gone) > 0 {
		thread.Forget(r, t.gone, slices.Concat(t.Root.State, Changes(t.Root)))
		t.gone = nil
	}
}

// Unused returns the ids of the answered asks that are unused, in the order of
// their answers.
func (t *Tree) Unused() []string {
	var ids []string
	for _, n := range t.Root.decisions() {
		if n.AskID != "" && !n.used() {
			ids = append(ids, n.AskID)
		}
	}
	return ids
}

// decidedOtherwise handles a decision for which the code and the record
// disagree about what it allows: older versions did not record that, and a
// forged import may leave it out. The code counts. If the decision is then
// unused, it is forgotten.
func (t *Tree) decidedOtherwise(n *Node, allows []string) bool {
	if n == nil || len(allows) == 0 || !n.Done || n.Seq > t.upto || slices.Equal(n.Allows, allows) {
		return false
	}
	if n.Allows = allows; t.kept(n) || n.used() {
		return false
	}
	t.forgetFrom(n)
	t.keepEdits()
	return true
}

// returned returns a diff if something new is reached in a frame that must have
// returned, because a frame around it has continued.
func (f *Frame) returned(verb Verb, name string) string {
	for n := f.Node(); n != nil && n.parent != nil; n = n.parent {
		for c := range n.behind(n) {
			return fmt.Sprintf("in %s:\n- recorded: it has returned, %q comes behind it\n+ %s %q", Names(f.path), c.Name, verb, name)
		}
	}
	return ""
}

// judge forgets unused decisions below a node until none is left, since one may
// have been the only use of another.
func (t *Tree) judge(below *Node) {
	for again := t.upto > 0; again; {
		again = false
		for _, n := range below.decisions() {
			if n.decidedAt() > t.upto || t.kept(n) || n.used() {
				continue
			}
			again = true
			if n.undecided() {
				t.forgetAsk(n)
				continue
			}
			t.forgetFrom(n)
			break // others may have gone with it
		}
	}
	t.keepEdits()
}

// kept reports whether a decision is in keep, or comes before one that is.
func (t *Tree) kept(n *Node) bool {
	if slices.Contains(t.keep, n.AskID) {
		return true
	}
	for c := range n.behind(n) {
		if c.AskID != "" && slices.Contains(t.keep, c.AskID) {
			return true
		}
	}
	return false
}

// decisions returns the decisions at and below the node, oldest first.
func (n *Node) decisions() []*Node {
	var list []*Node
	var walk func(*Node)
	walk = func(n *Node) {
		if n.decidedAt() > 0 {
			list = append(list, n)
		}
		for _, c := range n.children {
			walk(c)
		}
	}
	walk(n)
	slices.SortFunc(list, func(a, b *Node) int { return cmp.Compare(a.decidedAt(), b.decidedAt()) })
	return list
}

// decidedAt returns the sequence of a decision, 0 if the node is not one.
func (n *Node) decidedAt() uint64 {
	switch {
	case n.Verb == Ask && n.Done, n.undecided():
		return n.Answered
	case n.Done && len(n.Allows) > 0:
		return n.Seq
	}
	return 0
}

// undecided reports whether the node is a start with an unknown outcome about
// which a person has decided.
func (n *Node) undecided() bool { return n.Intent && n.Answer != nil && !n.Done }

// used reports whether a decision has had an effect.
func (n *Node) used() bool {
	if n.undecided() {
		return false
	}
	for c := range n.behind(n) {
		if len(n.Allows) == 0 && c.came() || slices.Contains(n.Allows, c.Name) && c.Done {
			return true
		}
	}
	for up := n.parent; up != nil; up = up.parent {
		for c := range up.behind(n) {
			if c.came() {
				return true
			}
		}
	}
	return false
}

// behind yields the nodes of the same frame that were recorded after the
// decision, except other branches of its group, newest first.
func (n *Node) behind(decision *Node) func(func(*Node) bool) {
	return func(yield func(*Node) bool) {
		if n.parent == nil {
			return
		}
		for _, c := range slices.Backward(n.parent.children) {
			if c.first <= decision.first {
				return
			}
			if c != n && (c.Group == 0 || c.Group != n.Group) && !yield(c) {
				return
			}
		}
	}
}

// came reports whether a leaf step at or below the node, or a child of the run,
// has an outcome.
func (n *Node) came() bool {
	if n.Done && !n.Composite() && (n.Verb == Step || n.Verb == Cleanup || n.Verb == Join) {
		return true
	}
	return slices.ContainsFunc(n.children, (*Node).came)
}

// forgetFrom forgets a decision and what came after it, which can only be waits
// and steps that prepare what it allows. Composite steps around it are open
// again: they had nothing else to return.
func (t *Tree) forgetFrom(decision *Node) {
	for n := decision; n.parent != nil; n = n.parent {
		for _, c := range slices.Collect(n.behind(decision)) {
			t.forget(c)
		}
		if n != decision {
			n.Done, n.Fail, n.Seq, n.State = false, nil, 0, nil
			n.reopen()
		}
	}
	up := decision.parent
	t.forget(decision)
	for n := up; n.parent != nil && len(n.children) == 0 && !n.Intent && n.Attempts == 0; {
		empty := n
		n = n.parent
		n.remove(empty)
	}
}

// forget removes a node and everything below it.
func (t *Tree) forget(n *Node) {
	n.parent.remove(n)
	var walk func(*Node)
	walk = func(n *Node) {
		for _, c := range n.children {
			walk(c)
		}
		t.note(n)
		if n.Intent && !n.Done {
			if t.starts == nil {
				t.starts = map[string]*Node{}
			}
			t.starts[n.raw()] = &Node{Verb: Step, Intent: true, Started: n.Started, Limit: n.Limit}
		}
		n.Done = false // so that keepEdits moves its edits
	}
	walk(n)
}

// forgetAsk forgets the ask about the outcome of a step, so that it is asked
// again.
func (t *Tree) forgetAsk(n *Node) {
	t.gone = append(t.gone, journal.Gone{Path: n.raw(), Ask: true})
	n.Open, n.AskID, n.Answer, n.Answered, n.Expired, n.Due = 0, "", nil, 0, false, 0
}

// forgetAsks forgets open asks that have an expiry, or all of them.
func (t *Tree) forgetAsks(n *Node, all bool) {
	for _, c := range slices.Clone(n.children) {
		t.forgetAsks(c, all)
		switch {
		case c.Open == 0 || c.AskID == "" || c.Due == 0 && !all:
		case c.Verb == Ask:
			t.forget(c)
		default:
			t.forgetAsk(c)
		}
		n.prune(c)
	}
}

// Started is called when a step is reached. If the step was forgotten and had a
// start with an unknown outcome, Started restores that start.
func (t *Tree) Started(path string) {
	if t.starts[path] != nil {
		t.node(path, notYet)
	}
}

func (t *Tree) note(n *Node) {
	g := journal.Gone{Path: n.raw(), Before: t.again, State: n.Done && len(n.State) > 0}
	if n.Done && n.Fail == nil && (n.Verb == Receive || n.Verb == Take) {
		g.Signal, g.Ref, g.Value = n.Signal, n.Ref, n.Value
		if g.Ref == 0 && n.Verb == Receive {
			g.Ref = n.Seq // it arrived while the run waited for it
		}
	}
	t.gone = append(t.gone, g)
}

// raw returns the path of the node, as in entries.
func (n *Node) raw() string {
	if n.parent == nil {
		return ""
	}
	return Below(n.parent.raw(), n.Name, n.Group)
}
