package threads

import "context"

// Growth is what a call is about to add to its tenant.
type Growth struct {
	Thread bool  // a thread
	Run    bool  // a run
	Bytes  int64 // of files that are copied to a thread
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

// Warden returns the guard of a tenant, for what is added by no request, and a function
// to call with what came of it.
type Warden func(tenant string) (g Guard, settle func(error))

// SetWarden lets guards decide what is added by no request.
func (c *Threads) SetWarden(w Warden) { c.warden.Store(&w) }

// Guarded returns a context in which the guard of a tenant decides what is added, if there
// is one, and a function to call with what came of it.
func (c *Threads) Guarded(ctx context.Context, tenant string) (context.Context, func(error)) {
	w := c.warden.Load()
	if w == nil {
		return ctx, func(error) {}
	}
	g, settle := (*w)(tenant)
	return WithGuard(ctx, g), settle
}
