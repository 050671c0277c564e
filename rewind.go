package perdure

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
)

// Rewound says what a rewind did.
type Rewound struct {
	Thread string `json:"thread"`
	To     uint64 `json:"to"`  // as the thread was at this sequence it is again
	Seq    uint64 `json:"seq"` // of the entry that says so

	// Outside lists what the thread did behind that point. What it did outside
	// is not undone.
	Outside []Effect `json:"outside,omitempty"`
	More    bool     `json:"more,omitempty"` // there is more than is listed
}

// Rewind takes a thread back to what it was at an earlier sequence: its state,
// deps, runs and signals. The sequence has to be one at which no run had begun
// or waited, and none may have now; for everything else there is Fork. Nothing
// is deleted: the entries stay for audit, sequences and events go on, and what
// was spent stays spent.
func (r *Runtime) Rewind(ctx context.Context, thread string, to uint64, n Note) (*Rewound, error) {
	if err := errors.Join(checkText("the reason", n.Reason, 16<<10), checkText("who asks", n.By, 500)); err != nil {
		return nil, err
	}
	name, err := r.find(ctx, thread)
	if err != nil {
		return nil, err
	}
	past, err := r.readAt(ctx, name, to)
	if err != nil {
		return nil, err
	}
	switch run := past.thread.Busy(); {
	case to == 0 || past.thread.Seq != to:
		return nil, fmt.Errorf("%w: thread %s ends at %d, it cannot go back to %d", fault.ErrInvalid, thread, past.thread.Seq, to)
	case run != nil:
		return nil, fmt.Errorf("%w: at %d of thread %s run %s was %s; go back to where no run was active (the newest such point before is %d), or fork it there", fault.ErrInvalid, to, thread, run.ID, run.Status, r.boundary(ctx, name, to))
	}
	o, entries, err := r.changeThread(ctx, thread, func(t *journal.Thread) ([]line, []string, error) {
		if run := t.Busy(); run != nil {
			return nil, nil, fmt.Errorf("%w; wait for it, cancel it, or fork the thread", &fault.BusyError{Thread: thread, Run: run.ID})
		}
		if t.Seq == to {
			return nil, nil, fmt.Errorf("%w: thread %s is at %d already", fault.ErrNothingToDo, thread, to)
		}
		if err := fault.CheckSeq(t, thread, n.IfSeq); err != nil {
			return nil, nil, err
		}
		// A parent that waits for the end of a run which is taken back is told first.
		if err := r.tell(ctx, &opened{name: name, thread: t}); err != nil && !errors.Is(err, fault.ErrCorrupt) {
			return nil, nil, err
		}
		return []line{{kind: journal.Rewound, body: journal.Body{At: to, Void: true, By: n.By, Reason: n.Reason}}}, nil, nil
	})
	if err != nil {
		return nil, err
	}
	_ = r.summarise(ctx, o) // the next change brings it up to date
	r.snapshot(ctx, o)
	w := &Rewound{Thread: thread, To: to, Seq: entries[0].Seq}
	w.Outside, w.More, err = r.outside(ctx, name, to)
	return w, err
}

// boundary returns the newest sequence before another at which no run was
// active, 0 if there is none.
func (c *core) boundary(ctx context.Context, name string, before uint64) uint64 {
	o := emptyThread(name)
	var newest uint64
	for line, err := range c.entries(ctx, name, 0, max(before, 2)-1) {
		if err != nil {
			break
		}
		e, err := journal.Decode(o.thread.Head, line.Seq, line.Data)
		if err == nil {
			err = c.fold(ctx, o, e)
		}
		if err != nil {
			break
		}
		if o.thread.Busy() == nil {
			newest = line.Seq
		}
	}
	return newest
}

// rewind is a rewind that was folded: its entry, what that says, and what it
// kept of the thread.
type rewind struct {
	entry journal.Entry
	body  journal.Body
	kept  *journal.Thread
}

// past returns a thread as it was at an earlier sequence. Of the rewinds before
// that it follows the ones that count, each by what is known of it, so that
// rewinds of rewinds cost no more than reading does.
func (c *core) past(ctx context.Context, o *opened, to uint64) (*opened, error) {
	past := emptyThread(o.name)
	if len(o.rewinds) != o.thread.Rewinds { // some are behind a snapshot
		return past, c.readMore(ctx, past, to)
	}
	var way []rewind
	at := to
	for i, w := range slices.Backward(o.rewinds) {
		if w.entry.Seq <= at {
			if len(way) == 0 {
				past.rewinds = slices.Clone(o.rewinds[:i+1])
			}
			way, at = append(way, w), w.body.At
		}
	}
	for _, w := range slices.Backward(way) {
		if err := c.readMore(ctx, past, w.body.At); err != nil {
			return past, err
		}
		t := w.kept.Kept()
		if err := t.Rewind(w.entry, past.thread); err != nil {
			return past, err
		}
		past.thread = t
		past.rewound(w.body)
	}
	return past, c.readMore(ctx, past, to)
}
