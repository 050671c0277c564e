package tree

import (
	"slices"

	"github.com/perdure/perdure/internal/journal"
)

// Fork turns the tree into that of a fork, given the fork's first entry. Joins
// that wait for children of the other thread are forgotten, and so are unused
// decisions if the entry says so. The fork's changes to the state are attached
// to the newest outcome, so that code after it sees them and code before it
// does not.
func (t *Tree) Fork(b journal.Body) {
	forgetJoins(t.Root)
	if b.Void {
		t.Void(b.At, b.Keep, b.From.Imported())
	}
	if len(b.State) > 0 {
		t.edits = append(t.edits, edit{t.anchor(b.State), b.State})
	}
}

// Rewind turns the tree into that of a thread after a rewind.
func (t *Tree) Rewind(b journal.Body) {
	if b.Void {
		t.Void(b.At, nil, false)
	}
}

// edit is a fork's changes to the state, and the node whose outcome they are
// attached to.
type edit struct {
	at      *Node
	changes []journal.Change
}

// anchor attaches changes to the newest outcome, or to the root if there is
// none, and returns its node.
func (t *Tree) anchor(changes []journal.Change) *Node {
	n := t.Root
	for _, o := range slices.Backward(t.outcomes) {
		if o.node.Done && o.node.Seq == o.seq {
			n = o.node
			break
		}
	}
	n.State = append(n.State[:len(n.State):len(n.State)], changes...)
	for up := n; up != nil && !up.changes; up = up.parent {
		up.changes = true
	}
	return n
}

// keepEdits moves forks' changes whose outcome became void to the newest
// outcome that remains.
func (t *Tree) keepEdits() {
	for i, e := range t.edits {
		if e.at != t.Root && !e.at.Done {
			e.at.State = nil
			t.edits[i].at = t.anchor(e.changes)
		}
	}
}

// forgetJoins forgets the joins that are still waiting.
func forgetJoins(n *Node) {
	for _, c := range slices.Clone(n.children) {
		forgetJoins(c)
		if c.Verb == Join && c.Open != 0 {
			n.remove(c)
		}
		n.prune(c)
	}
}
