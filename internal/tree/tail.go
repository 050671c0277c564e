package tree

import "slices"

// voidTail forgets the failed tail of a frame: its last child, if that failed,
// and in turn the tail below it. If a group comes last, each branch is judged
// separately. A failure that was followed by another child was handled, even if
// that child has been forgotten.
func voidTail(n *Node) {
	if len(n.children) == 0 {
		return
	}
	last := n.children[0]
	for _, c := range n.children {
		if c.first > last.first {
			last = c
		}
	}
	tail := []*Node{last}
	if last.Group > 0 {
		tail = slices.Collect(func(yield func(*Node) bool) {
			for _, c := range n.children {
				if c.Group == last.Group && !yield(c) {
					return
				}
			}
		})
	}
	for _, c := range tail {
		c.reopen()
	}
	for _, c := range tail {
		switch {
		case c.handled, c.Done && c.Fail == nil:
		case c.Done:
			voidTail(c)
			c.void()
		case c.Verb == None || c.Verb == Step:
			voidTail(c)
		}
		n.prune(c)
	}
}

// reopen undoes the closing of a failed branch's siblings: their waits start
// over.
func (n *Node) reopen() {
	if n.Closer == nil {
		return
	}
	n.Closer = nil
	for _, c := range n.parent.children {
		if c.Group == n.Group {
			forgetWaits(c)
		}
	}
}

// prune removes a scope or branch that has nothing recorded left.
func (n *Node) prune(c *Node) {
	if c.Verb == None && len(c.children) == 0 && c.Closer == nil {
		n.remove(c)
	}
}

// void forgets the outcome of a node. Nodes below it stay, and so does a start
// with an unknown outcome.
func (n *Node) void() {
	n.TimedOut = false
	n.Done, n.Fail, n.Attempts, n.Due, n.Timer, n.Answer, n.AskID, n.Open = false, nil, 0, 0, false, nil, "", 0
	if len(n.children) == 0 && !n.Intent {
		n.parent.remove(n)
	}
}

// forgetWaits forgets the waits below a node that failed or was closed, so that
// a later attempt starts them over: the asks are closed and the timers gone.
func forgetWaits(n *Node) {
	for _, c := range slices.Clone(n.children) {
		forgetWaits(c)
		if c.Done {
			continue
		}
		if c.Open != 0 && !c.Intent && len(c.children) == 0 {
			n.remove(c)
		}
		c.Open, c.AskID, c.Due, c.Timer = 0, "", 0, false
		n.prune(c)
	}
}
