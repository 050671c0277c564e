package perdure

import (
	"context"
	"time"

	"github.com/perdure/perdure/internal/engine"
)

// Sleep waits for d. It is durable: the time at which it ends is recorded when
// it begins, and the run is suspended meanwhile unless another branch is busy.
func Sleep(ctx context.Context, name string, d time.Duration) error {
	return engine.Sleep(ctx, name, d)
}

// Receive waits for a signal of that name, sent by Runtime.Signal. A signal
// that arrived before is taken at once, the oldest first. After timeout, unless
// that is 0, it returns ErrTimeout.
func Receive[T any](ctx context.Context, name, signal string, timeout time.Duration) (T, error) {
	var zero T
	raw, err := engine.Receive(ctx, name, signal, timeout)
	if err != nil {
		return zero, err
	}
	return engine.RecordedAs[T](ctx, "the signal that was received", name, raw)
}

// Take returns the next input that was started with the policy [Steer] while
// this run was active, and whether there was one. It does not wait. Both are
// recorded; that there was none, with the next entry of the run: after a crash
// before that one Take asks again and may find an input that came meanwhile.
// So a step that may only run if there was none is [AtMostOnce], or is called
// in either case.
func Take[T any](ctx context.Context, name string) (T, bool, error) {
	var zero T
	raw, ok, err := engine.Take(ctx, name)
	if err != nil || !ok {
		return zero, false, err
	}
	v, err := engine.RecordedAs[T](ctx, "the input that was taken", name, raw)
	return v, err == nil, err
}
