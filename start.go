package perdure

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/perdure/perdure/internal/exact"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/lifecycle"
	"github.com/perdure/perdure/internal/threads"
)

// Policy says what becomes of an input that finds its thread busy. A suspended
// run is busy too.
type Policy = lifecycle.Policy

// The policies.
const (
	Enqueue   Policy = "enqueue"   // it waits its turn; the default
	Reject    Policy = "reject"    // ErrBusy, which names the run
	Interrupt Policy = "interrupt" // it cancels the active runs and waits for their end
	Steer     Policy = "steer"     // the active run gets it from Take; if it does not, it waits its turn
	Beside    Policy = "beside"    // it starts beside suspended runs
)

// StartRequest asks for a run.
type StartRequest struct {
	Flow     string            // the name of a flow that this runtime has
	Input    any               // what the flow takes, or anything with the same JSON
	Thread   string            // its id, made on first use; "": a new thread with a generated one
	Title    string            // of a new thread
	User     string            // who owns a new thread
	Metadata map[string]string // of a new thread
	Key      string            // idempotency key: the same key gives the same run
	Policy   Policy            // what becomes of it if the thread is busy; "" is Enqueue
	Budget   map[string]int64  // by unit, see Spend
	Trace    string            // trace context, kept in the journal for the Observer
	By       string            // who asked for it
	IfSeq    uint64            // start it only if this is still the thread's last sequence, else StaleError; 0: in any case
}

// Start queues a run and returns at once. A worker executes it, here or
// elsewhere: see Work. If the thread has a run that has not ended, the request's
// Policy decides.
//
// With a Key it can be repeated: the run, and the thread where none is named,
// follow from it. The same key with another flow or input is ErrKeyReused. What
// has been started is found again whatever IfSeq says.
func (r *Runtime) Start(ctx context.Context, q StartRequest) (*Run, error) {
	in, err := r.checkStart(q)
	if err != nil {
		return nil, err
	}
	o, run, err := r.life.Start(ctx, lifecycle.StartRequest(q), in)
	if err != nil {
		return nil, err
	}
	return r.runInfo(ctx, o, o.Thread.RunByID(run))
}

// checkStart returns the JSON of a request's input.
func (r *Runtime) checkStart(q StartRequest) (json.RawMessage, error) {
	if _, ok := r.flows[q.Flow]; !ok {
		return nil, fmt.Errorf("%w: %q; this runtime has %q", fault.ErrNoFlow, q.Flow, r.Flows())
	}
	switch cmp.Or(q.Policy, Enqueue) {
	case Enqueue, Reject, Interrupt, Steer, Beside:
	default:
		return nil, fmt.Errorf("%w: policy %q; there are %q, %q, %q, %q and %q", fault.ErrInvalid, q.Policy, Enqueue, Reject, Interrupt, Steer, Beside)
	}
	if q.Thread != "" {
		if err := threads.CheckID(q.Thread); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(fault.CheckText("the title", q.Title, 1000), fault.CheckText("the user", q.User, 500), fault.CheckText("the key", q.Key, 500),
		fault.CheckText("the trace", q.Trace, 1000), fault.CheckText("who asks", q.By, 500), fault.CheckMetadata(q.Metadata)); err != nil {
		return nil, err
	}
	for unit, n := range q.Budget {
		if err := fault.CheckText("the unit of a budget", unit, 200); err != nil || unit == "" || n < 0 {
			return nil, fmt.Errorf("%w: a budget of %d %.40q", fault.ErrInvalid, n, unit)
		}
	}
	return r.checkInput(q.Flow, q.Input)
}

// checkInput returns the JSON of an input, if the flow takes it. What a flow
// takes that this runtime does not have, its worker finds out.
func (c *core) checkInput(flow string, input any) (json.RawMessage, error) {
	in, err := exact.Encode(input, reflect.TypeOf(input))
	if err != nil {
		return nil, fmt.Errorf("the input of flow %s: %w", flow, err)
	}
	f, ok := c.flows[flow]
	if !ok {
		return in, nil
	}
	if f.in != reflect.TypeFor[any]() { // an any takes everything but what fitsExactly finds
		if err := json.Unmarshal(in, reflect.New(f.in).Interface()); err != nil {
			return nil, fmt.Errorf("%w: flow %s takes %s: %w", fault.ErrInvalid, flow, f.in, err)
		}
	}
	if err := exact.FitsExactly(in, f.in); err != nil {
		return nil, fmt.Errorf("the input of flow %s: %w", flow, err)
	}
	return in, nil
}
