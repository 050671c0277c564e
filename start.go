package perdure

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/perdure/perdure/internal/exact"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/lifecycle"
)

// Policy says what happens to an input when its thread is busy. A thread with a
// suspended run is busy too.
type Policy = lifecycle.Policy

// The policies.
const (
	Enqueue   Policy = "enqueue"   // waits its turn; the default
	Reject    Policy = "reject"    // returns ErrBusy, which names the run
	Interrupt Policy = "interrupt" // cancels the active runs and waits for their end
	Steer     Policy = "steer"     // goes to the active run, through Take; if the run does not take it, waits its turn
	Beside    Policy = "beside"    // starts beside suspended runs
)

// StartRequest asks for a run.
type StartRequest struct {
	Flow     string            // the name of a flow that this runtime has
	Input    any               // what the flow takes, or anything with the same JSON
	Thread   string            // id of the thread, created on first use; "" creates a thread with a generated id
	Title    string            // of a new thread
	User     string            // owner of a new thread
	Metadata map[string]string // of a new thread
	Key      string            // idempotency key: on the same thread, or without a Thread, the same key gives the same run
	Policy   Policy            // what to do if the thread is busy; "" means Enqueue
	Budget   map[string]int64  // by unit, see Spend
	Trace    string            // trace context, a W3C traceparent, kept in the journal for the Observer; "" lets a Tracer take it from the context
	By       string            // who requests it
	IfSeq    uint64            // start only if this is still the thread's last sequence, else StaleError; 0 starts in any case
	Attach   []string          // ids of uploads that the input refers to, see Upload
}

// Start queues a run and returns immediately. A worker executes it, here or
// elsewhere: see Work. If a worker of this runtime has room, it claims the run in the
// commit that queues it; the run is still returned as queued. If the thread has a run
// that has not ended, the request's Policy decides.
//
// With a Key, Start can be repeated: the run, and the thread if none is named, are
// derived from the key. On another thread the same key starts another run. On the
// same thread, the same key with another flow or input is ErrKeyReused. A run that was
// already started is returned regardless of IfSeq.
func (r *Runtime) Start(ctx context.Context, q StartRequest) (*Run, error) {
	if err := fault.CheckMetadata(q.Metadata); err != nil {
		return nil, err
	}
	return r.start(ctx, q)
}

// start is Start with metadata that may be the runtime's own.
func (r *Runtime) start(ctx context.Context, q StartRequest) (*Run, error) {
	in, err := r.checkStart(q)
	if err != nil {
		return nil, err
	}
	q.Trace = r.core.engine.TraceContext(ctx, q.Trace)
	o, run, err := r.life.Start(ctx, lifecycle.StartRequest(q), in)
	if err != nil {
		return nil, err
	}
	return r.runInfo(ctx, o, o.Thread.RunByID(run))
}

// checkStart returns the JSON of a request's input.
func (r *Runtime) checkStart(q StartRequest) (json.RawMessage, error) {
	if _, ok := r.core.flows[q.Flow]; !ok {
		return nil, fmt.Errorf("%w: %q; this runtime has %q", fault.ErrNoFlow, q.Flow, r.Flows())
	}
	if err := (*lifecycle.StartRequest)(&q).Check(); err != nil {
		return nil, err
	}
	return r.core.checkInput(q.Flow, q.Input)
}

// checkInput returns the JSON of an input if the flow accepts it. If this runtime
// does not have the flow, its worker finds out.
func (c *core) checkInput(flow string, input any) (json.RawMessage, error) {
	in, err := exact.Encode(input, reflect.TypeOf(input))
	if err != nil {
		return nil, fmt.Errorf("the input of flow %s: %w", flow, err)
	}
	f, ok := c.flows[flow]
	if !ok {
		return in, nil
	}
	if f.in != reflect.TypeFor[any]() { // an any accepts everything but what fitsExactly finds
		if err := json.Unmarshal(in, reflect.New(f.in).Interface()); err != nil {
			return nil, fmt.Errorf("%w: flow %s takes %w", fault.ErrInvalid, flow, exact.Misfit(err, f.in))
		}
	}
	if err := exact.FitsExactly(in, f.in); err != nil {
		return nil, fmt.Errorf("the input of flow %s: %w", flow, err)
	}
	return in, nil
}

// StartAgain starts a new run on a thread with the flow, the input and the budget
// of an earlier one; "" means the newest. The new run waits its turn. What the earlier
// run did is not undone, and is done again under other keys; to continue a failed run,
// use Retry. An idempotency key is not reused, so each call starts a run.
func (r *Runtime) StartAgain(ctx context.Context, thread, run string, n Note) (*Run, error) {
	o, id, err := r.life.StartAgain(ctx, thread, run, lifecycle.Note(n), func(flow string) error {
		if _, ok := r.core.flows[flow]; !ok {
			return fmt.Errorf("%w: %q; this runtime has %q", fault.ErrNoFlow, flow, r.Flows())
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return r.runInfo(ctx, o, o.Thread.RunByID(id))
}

// CreateRequest asks for a thread.
type CreateRequest struct {
	Thread   string            // its id; "" generates one
	Title    string            // of the thread
	User     string            // its owner
	Metadata map[string]string // of the thread
	State    map[string]any    // its initial state, by key; keys that begin with "agent." belong to package agent
	Key      string            // idempotency key: the same key gives the same thread
	By       string            // who requests it
}

// Create creates a thread without a run; Start adds the first one. If a thread
// with that id exists, Create returns ErrExists. The Status of a thread without
// runs is "".
//
// With a Key, Create can be repeated: the id, if none is given, is derived from
// the key, and the existing thread is returned as it is now. The same key with
// another request is ErrKeyReused.
func (r *Runtime) Create(ctx context.Context, q CreateRequest) (*Thread, error) {
	o, err := r.life.Create(ctx, lifecycle.CreateRequest(q))
	if err != nil {
		return nil, err
	}
	return r.presentInfo(ctx, o, RunPage{})
}
