package perdure

import (
	"context"
	"fmt"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/lifecycle"
)

// StartAgain starts a new run on a thread with the flow, the input and the
// budget of an earlier one, the newest for "". It waits its turn. What the
// earlier run did stays done, and is done again under other keys; to go on with
// a run that failed there is Retry. An idempotency key is not taken over, so
// each call starts a run.
func (r *Runtime) StartAgain(ctx context.Context, thread, run string, n Note) (*Run, error) {
	if err := n.check(); err != nil {
		return nil, err
	}
	o, id, err := r.life.StartAgain(ctx, thread, run, lifecycle.Note(n), func(flow string) error {
		if _, ok := r.flows[flow]; !ok {
			return fmt.Errorf("%w: %q; this runtime has %q", fault.ErrNoFlow, flow, r.Flows())
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return r.runInfo(ctx, o, o.Thread.RunByID(id))
}
