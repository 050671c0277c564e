package perdure

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/perdure/perdure/internal/exact"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/host"
	"github.com/perdure/perdure/internal/journal"
)

// Place says where in the world of threads code runs.
type Place struct {
	Tenant string `json:"tenant,omitempty"`
	User   string `json:"user,omitempty"` // the thread's owner
	Thread string `json:"thread"`
	Run    string `json:"run"`
	Flow   string `json:"flow"` // that the run executes
	Path   string `json:"path"` // of the frame
}

// Here returns the place of a context. It can be called anywhere in a run.
func Here(ctx context.Context) (Place, error) {
	f, err := inside(ctx)
	if err != nil {
		return Place{}, err
	}
	f.pass.mu.Lock()
	defer f.pass.mu.Unlock()
	t := f.pass.thread
	return Place{Tenant: t.Tenant, User: t.User, Thread: t.ID, Run: f.pass.run.ID, Flow: f.pass.run.Flow, Path: f.path()}, nil
}

func init() {
	host.FromContext = func(ctx context.Context) (*host.Host, error) {
		f, err := inside(ctx)
		if err != nil {
			return nil, err
		}
		return f.pass.rt.runtime(f.pass.rt.threads.Tenant(f.pass.thread.Tenant)).host(), nil
	}
	host.FromRuntime = func(r any) *host.Host {
		if r, ok := r.(*Runtime); ok && r != nil {
			return r.host()
		}
		return nil
	}
	host.Leaf = func(ctx context.Context, what string) error {
		return change(ctx, what, func(*frame) error { return nil })
	}
	host.Misfit = func(ctx context.Context, where string, raw json.RawMessage, reader string, err error) error {
		f, outside := inside(ctx)
		if outside != nil {
			return outside
		}
		return f.pass.misfit(f, where, raw, reader, err)
	}
	host.FindAsk = func(ctx context.Context, r any, id string) (*host.Ask, error) {
		rt, ok := r.(*Runtime)
		if !ok || rt == nil {
			return nil, fmt.Errorf("%w: no runtime", fault.ErrInvalid)
		}
		return rt.findAsk(ctx, id)
	}
	host.Recorded = func(message string, codes []string) error {
		return &fault.Recorded{Fail: journal.Failure{Msg: message, Codes: codes}}
	}
	host.Encode = func(v any) (json.RawMessage, error) { return exact.Encode(v, reflect.TypeOf(v)) }
}

func (r *Runtime) host() *host.Host {
	return &host.Host{Store: r.threads.Store, Tenant: r.tenant.Name, User: r.tenant.Owner, Hash: r.threads.Hash, Log: r.threads.Log}
}
