package perdure

import (
	"context"
	"errors"
	"fmt"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/threads"
)

// StartAgain starts a new run on a thread with the flow, the input and the
// budget of an earlier one, the newest for "". It waits its turn. What the
// earlier run did stays done, and is done again under other keys; to go on with
// a run that failed there is Retry. An idempotency key is not taken over, so
// each call starts a run.
func (r *Runtime) StartAgain(ctx context.Context, thread, run string, n Note) (*Run, error) {
	if err := errors.Join(checkText("the reason", n.Reason, 16<<10), checkText("who asks", n.By, 500)); err != nil {
		return nil, err
	}
	o, err := r.tenant.Open(ctx, thread)
	if err != nil {
		return nil, err
	}
	old, err := pick(o.Thread, run)
	if err != nil {
		return nil, err
	}
	if _, ok := r.flows[old.Flow]; !ok {
		return nil, fmt.Errorf("%w: %q; this runtime has %q", fault.ErrNoFlow, old.Flow, r.Flows())
	}
	raw, err := r.threads.Load(ctx, o.Name, old.Input)
	if err != nil {
		return nil, fmt.Errorf("perdure: the input of run %s: %w", old.ID, err)
	}
	// The input is kept anew: in a fork the old one is among its parent's blobs.
	input, err := r.threads.Value(ctx, o.Name, raw)
	if err != nil {
		return nil, err
	}
	b := journal.Body{ID: threads.NewRunID(), Flow: old.Flow, Policy: string(Enqueue), Budget: old.Budget, Trace: old.Trace,
		By: n.By, Reason: n.Reason, Value: input}
	o, _, err = r.tenant.ChangeID(ctx, thread, func(t *journal.Thread) ([]threads.Line, []string, error) {
		return r.queue(ctx, t, &StartRequest{Flow: old.Flow, Thread: thread, IfSeq: n.IfSeq}, b)
	})
	if err != nil {
		return nil, err
	}
	_ = r.threads.Summarise(ctx, o) // a worker brings it up to date when the run stands
	return r.runInfo(ctx, o, o.Thread.RunByID(b.ID))
}
