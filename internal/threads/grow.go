package threads

import (
	"slices"

	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/tree"
)

// Grow applies an entry, which the thread has folded, to the trees of runs that
// may still be executed.
func (o *Opened) Grow(e journal.Entry) error {
	if e.Kind == journal.Queued {
		o.Trees[e.Seq] = tree.New()
		return nil
	}
	if e.Kind == journal.Forked {
		b, err := e.Read()
		o.Lacks = o.Lacks || o.lacksTree()
		for n, t := range o.Trees {
			if r := o.Thread.Run(n); r != nil && r.Begun() {
				t.Fork(b)
				t.Tell(o.Thread, n)
			} // a run that has not begun finds the changes in the thread's state
		}
		return err
	}
	t := o.Trees[e.Run]
	if t == nil {
		o.Lacks = o.Lacks || o.Resumed && (e.Kind == journal.Retried || e.Kind == journal.Planned)
		return nil
	}
	if r := o.Thread.Run(e.Run); r != nil && (r.Status == journal.StatusSucceeded || r.Status == journal.StatusCancelled) {
		delete(o.Trees, e.Run)
		return nil
	}
	e.Texts = o.Thread.Texts(e)
	err := t.Apply(e)
	t.Tell(o.Thread, e.Run)
	return err
}

// lacksTree reports whether the tree of a run that has begun was left out.
func (o *Opened) lacksTree() bool {
	return slices.ContainsFunc(o.Thread.OpenRuns(), func(r *journal.Run) bool { return o.Trees[r.N] == nil })
}

// rewound applies a rewind to the trees, which are those of the thread it returns
// to.
func (o *Opened) rewound(b journal.Body) {
	for n, t := range o.Trees {
		t.Rewind(b)
		t.Tell(o.Thread, n)
	}
}
