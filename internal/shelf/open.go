package shelf

import (
	"context"

	"github.com/perdure/perdure/internal/host"
)

// Of returns the shelf of the tenant of a *perdure.Runtime.
func Of(runtime any, kind Kind) *Shelf { return New(host.FromRuntime(runtime), kind) }

// Here returns the shelf of the tenant of the run that a context belongs to.
func Here(ctx context.Context, kind Kind) (*Shelf, error) {
	h, err := host.FromContext(ctx)
	if err != nil {
		return nil, err
	}
	return New(h, kind), nil
}

// InRun reports whether a context belongs to a run.
func InRun(ctx context.Context) bool {
	_, err := host.FromContext(ctx)
	return err == nil
}

// User returns the user whose threads the runtime is limited to, nil for all.
func (s *Shelf) User() *string { return s.host.User }
