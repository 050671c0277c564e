package perdure

import (
	"context"
	"time"

	"github.com/perdure/perdure/internal/engine"
)

// Sleep waits for d. It is durable: the time at which it ends is recorded when
// it begins, and meanwhile the run is suspended, unless another branch is busy.
func Sleep(ctx context.Context, name string, d time.Duration) error {
	return engine.Sleep(ctx, name, d)
}

// Receive waits for a signal of the given name, sent by Runtime.Signal. If some
// have already arrived, it takes the oldest one at once. Unless timeout is 0,
// Receive returns ErrTimeout after it.
func Receive[T any](ctx context.Context, name, signal string, timeout time.Duration) (T, error) {
	var zero T
	raw, err := engine.Receive(ctx, name, signal, timeout)
	if err != nil {
		return zero, err
	}
	return engine.RecordedAs[T](ctx, "the signal that was received", name, raw)
}

// Take returns the next input that was started with the policy [Steer] while
// this run was active, and whether there was one. It does not wait. Both results are
// recorded, but the absence of an input only with the next entry of the run: after a
// crash before that entry, Take looks again and may find an input that arrived
// meanwhile. So a step that may run only if there was no input has to be [AtMostOnce],
// or be called in either case.
func Take[T any](ctx context.Context, name string) (T, bool, error) {
	var zero T
	raw, ok, err := engine.Take(ctx, name)
	if err != nil || !ok {
		return zero, false, err
	}
	v, err := engine.RecordedAs[T](ctx, "the input that was taken", name, raw)
	return v, err == nil, err
}

// Wait waits until a run has ended or cannot continue without input: it is
// suspended with an open ask or waits for a signal, it is paused, blocked or
// quarantined, or it waits for a child for which one of these is true. Wait keeps
// waiting while a run only waits for a timer. The run "" is the newest one. The id of
// an input that steered a run stands for that run.
//
// Waiting executes nothing: if no process works on the run's flow, Wait returns
// only when the context ends. A failed run is not an error of Wait: see [Output].
// A run that has not ended, on a thread that has moved to another store, is a
// [MovedError].
func (r *Runtime) Wait(ctx context.Context, thread, run string) (*Run, error) {
	o, found, err := r.core.staff.Wait(ctx, r.tenant, thread, run)
	if err != nil {
		return nil, err
	}
	return r.runInfo(ctx, o, found)
}

// WaitEnd waits until a run has ended, even while the run waits for input.
func (r *Runtime) WaitEnd(ctx context.Context, thread, run string) (*Run, error) {
	o, found, err := r.core.staff.WaitEnd(ctx, r.tenant, thread, run)
	if err != nil {
		return nil, err
	}
	return r.runInfo(ctx, o, found)
}
