package shelf

import (
	"context"

	"log/slog"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

// Host is a store as one tenant's threads see it.
type Host struct {
	Store  store.Store
	Tenant string
	User   *string                      // whose threads the runtime is limited to; nil: all
	Hash   func(texts ...string) []byte // keyed, so that names of cells tell nothing
	Log    *slog.Logger
}

// hostOf returns the host of a tenant's threads.
func hostOf(t *threads.Tenant) *Host {
	return &Host{Store: t.All.Store, Tenant: t.Name, User: t.Owner, Hash: t.All.Hash, Log: t.All.Log}
}

// Of returns the shelf of the tenant of a *perdure.Runtime.
func Of(runtime any, kind Kind) *Shelf { return New(hostOf(threads.Behind(runtime)), kind) }

// Here returns the shelf of the tenant of the run that a context belongs to.
func Here(ctx context.Context, kind Kind) (*Shelf, error) {
	t, err := engine.TenantOf(ctx)
	if err != nil {
		return nil, err
	}
	return New(hostOf(t), kind), nil
}

// InRun reports whether a context belongs to a run.
func InRun(ctx context.Context) bool {
	_, err := engine.TenantOf(ctx)
	return err == nil
}

// User returns the user whose threads the runtime is limited to, nil for all.
func (s *Shelf) User() *string { return s.host.User }
