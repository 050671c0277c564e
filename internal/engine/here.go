package engine

import (
	"context"
	"encoding/json"

	"github.com/perdure/perdure/internal/threads"
)

// place says where in the world of threads code runs: see perdure.Place.
type place struct {
	Tenant, User, Thread, Run, Flow, Path string
}

// Here returns the place of a context.
func Here(ctx context.Context) (place, error) {
	f, err := inside(ctx)
	if err != nil {
		return place{}, err
	}
	f.pass.mu.Lock()
	defer f.pass.mu.Unlock()
	t := f.pass.thread
	return place{Tenant: t.Tenant, User: t.User, Thread: t.ID, Run: f.pass.run.ID, Flow: f.pass.run.Flow, Path: f.path()}, nil
}

// TenantOf returns the threads of the tenant that a context's run belongs to.
func TenantOf(ctx context.Context) (*threads.Tenant, error) {
	f, err := inside(ctx)
	if err != nil {
		return nil, err
	}
	return f.pass.engine.threads.Tenant(f.pass.thread.Tenant), nil
}

// CheckLeaf returns an error unless a context is that of a leaf step, which may
// call no verbs from now on.
func CheckLeaf(ctx context.Context, what string) error {
	return change(ctx, what, func(*frame) error { return nil })
}

// Misfit blocks the run that a context belongs to, because the code cannot read a
// recorded value, and returns the error with which the run ends its pass.
func Misfit(ctx context.Context, where string, raw json.RawMessage, reader string, err error) error {
	f, outside := inside(ctx)
	if outside != nil {
		return outside
	}
	return f.pass.misfit(f, where, raw, reader, err)
}
