package threads

import "context"

// Growth is what a call is about to add to its tenant.
type Growth struct {
	Thread bool // a thread
	Run    bool // a run
}

// Guard decides whether a caller may add to its tenant. An error from it, which
// matches fault.ErrQuota, ends the caller's operation before anything is added. It
// may be called more than once for the same addition.
type Guard interface {
	Admit(ctx context.Context, g Growth) error
}

type guardKey struct{}

// WithGuard returns a context in which a guard decides what is added.
func WithGuard(ctx context.Context, g Guard) context.Context {
	return context.WithValue(ctx, guardKey{}, g)
}

// Guarded reports whether a context has a guard.
func Guarded(ctx context.Context) bool { return ctx.Value(guardKey{}) != nil }

// Admit asks the guard of a context. Without one everything is admitted.
func Admit(ctx context.Context, g Growth) error {
	if guard, ok := ctx.Value(guardKey{}).(Guard); ok {
		return guard.Admit(ctx, g)
	}
	return nil
}
