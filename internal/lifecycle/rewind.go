package lifecycle

import (
	"context"
	"errors"
	"fmt"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/threads"
)

// Rewound says what a rewind did: see perdure.Rewound.
type Rewound struct {
	Thread  string   `json:"thread"`
	To      uint64   `json:"to"`
	Seq     uint64   `json:"seq"`
	Outside []Effect `json:"outside,omitempty"`
	More    bool     `json:"more,omitempty"`
}

// Rewind takes a thread back to what it was at an earlier sequence.
func (r *Control) Rewind(ctx context.Context, thread string, to uint64, n Note) (*Rewound, error) {
	name, err := r.tenant.Find(ctx, thread)
	if err != nil {
		return nil, err
	}
	past, err := r.threads.ReadAt(ctx, name, to)
	if err != nil {
		return nil, err
	}
	switch run := past.Thread.Busy(); {
	case to == 0 || past.Thread.Seq != to:
		return nil, fmt.Errorf("%w: thread %s ends at %d, it cannot go back to %d", fault.ErrInvalid, thread, past.Thread.Seq, to)
	case run != nil:
		return nil, fmt.Errorf("%w: at %d of thread %s run %s was %s; go back to where no run was active (the newest such point before is %d), or fork it there", fault.ErrInvalid, to, thread, run.ID, run.Status, r.threads.Boundary(ctx, name, to))
	}
	o, entries, err := r.tenant.ChangeID(ctx, thread, func(t *journal.Thread) ([]threads.Line, []string, error) {
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
		if err := r.TellParent(ctx, &threads.Opened{Name: name, Thread: t}); err != nil && !errors.Is(err, fault.ErrCorrupt) {
			return nil, nil, err
		}
		return []threads.Line{{Kind: journal.Rewound, Body: journal.Body{At: to, Void: true, By: n.By, Reason: n.Reason}}}, nil, nil
	})
	if err != nil {
		return nil, err
	}
	r.threads.Snapshot(ctx, o)
	w := &Rewound{Thread: thread, To: to, Seq: entries[0].Seq}
	w.Outside, w.More, err = r.outside(ctx, name, to)
	return w, err
}
