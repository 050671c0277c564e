package perdure

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/exact"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/host"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/threads"
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
	p, err := engine.Here(ctx)
	return Place(p), err
}

func init() {
	host.FromContext = func(ctx context.Context) (*host.Host, error) {
		t, err := engine.TenantOf(ctx)
		if err != nil {
			return nil, err
		}
		return hostOf(t), nil
	}
	host.FromRuntime = func(r any) *host.Host {
		if r, ok := r.(*Runtime); ok && r != nil {
			return hostOf(r.tenant)
		}
		return nil
	}
	host.Leaf = func(ctx context.Context, what string) error {
		return engine.CheckLeaf(ctx, what)
	}
	host.Misfit = func(ctx context.Context, where string, raw json.RawMessage, reader string, err error) error {
		return engine.Misfit(ctx, where, raw, reader, err)
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

func hostOf(t *threads.Tenant) *host.Host {
	return &host.Host{Store: t.All.Store, Tenant: t.Name, User: t.Owner, Hash: t.All.Hash, Log: t.All.Log}
}
