package archive

import (
	"fmt"
	"maps"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/tree"
)

// Recording is a thread folded from all its entries, with the records of its
// runs, including those that have ended.
type Recording struct {
	Thread *journal.Thread
	Runs   map[uint64]*runRecording
}

type runRecording struct {
	entries []journal.Entry // its own, and those that forked or rewound the thread
	bodies  []journal.Body
	Begun   bool
	State   map[string]journal.Item // at its start
	Deps    map[string]journal.Value
	Cancel  int // index of the first entry that cancels it, -1 for none
	end     int // index of the last entry that ends it, -1 for none
}

// Record folds the entries of a thread, from the first.
func Record(entries []journal.Entry) (*Recording, error) {
	r := &Recording{Thread: journal.NewThread(), Runs: map[uint64]*runRecording{}}
	for i, e := range entries {
		if err := r.add(entries[:i], e); err != nil {
			return nil, fmt.Errorf("%w: entry %d: %w", fault.ErrCorrupt, e.Seq, err)
		}
	}
	return r, nil
}

func (r *Recording) add(before []journal.Entry, e journal.Entry) error {
	b, err := e.Read()
	if err != nil && e.Kind.Known() {
		return err
	}
	if e.Kind == journal.Rewound {
		if b.At > uint64(len(before)) {
			return fmt.Errorf("a rewind to %d", b.At)
		}
		past, err := Record(before[:b.At])
		if err != nil {
			return err
		}
		r.Runs = past.Runs
		if err := r.Thread.Rewind(e, past.Thread); err != nil {
			return err
		}
		return r.again(e, b)
	}
	if err := r.Thread.Apply(e); err != nil {
		return err
	}
	switch e.Kind {
	case journal.Queued:
		r.Runs[e.Seq] = &runRecording{Cancel: -1, end: -1}
	case journal.Forked:
		return r.again(e, b)
	}
	run, at := r.Runs[e.Run], r.Thread.Run(e.Run)
	if run == nil || at == nil {
		return nil
	}
	if e.Kind == journal.Claimed && !run.Begun {
		// The fold never changes these maps: it makes new ones.
		run.Begun, run.State, run.Deps = true, at.BaseState, at.BaseDeps
	}
	e.Texts = r.Thread.Texts(e)
	run.add(e, b)
	return nil
}

// again adds the entry of a fork or rewind to the runs that may continue.
func (r *Recording) again(e journal.Entry, b journal.Body) error {
	for n, run := range r.Runs {
		if at := r.Thread.Run(n); at == nil || at.Status == journal.StatusSucceeded || at.Status == journal.StatusCancelled {
			continue
		}
		run.add(e, b)
		if b.Void {
			t, _, err := run.Tree()
			if err != nil {
				return err
			}
			t.Tell(r.Thread, n)
		}
	}
	return nil
}

func (r *runRecording) add(e journal.Entry, b journal.Body) {
	switch {
	case e.Kind == journal.Ended:
		r.end = len(r.entries)
	case e.Kind == journal.Retried:
		r.end = -1
	case e.Kind == journal.Cancel && r.Cancel < 0 && r.end < 0:
		r.Cancel = len(r.entries)
	}
	r.entries, r.bodies = append(r.entries, e), append(r.bodies, b)
}

// length returns how many entries a replay follows. A cancelled run is followed
// up to its cancel, since from there its code leaves past what is recorded.
func (r *runRecording) length() int {
	switch {
	case r.Cancel >= 0:
		return r.Cancel
	case r.end >= 0:
		return r.end
	}
	return len(r.entries)
}

// Tree returns the tree of the run, and the newest dumps of its deps.
func (r *runRecording) Tree() (*tree.Tree, map[string]journal.Value, error) {
	t, dumps := tree.New(), map[string]journal.Value{}
	for i, e := range r.entries[:r.length()] {
		if e.Kind == journal.Forked {
			t.Fork(r.bodies[i])
		} else if e.Kind == journal.Rewound {
			t.Rewind(r.bodies[i])
		} else if err := t.Apply(e); err != nil {
			return nil, nil, err
		}
		maps.Copy(dumps, r.bodies[i].Deps)
	}
	return t, dumps, nil
}
