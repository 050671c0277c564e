package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

func (s *Server) systemRoutes() {
	s.bindRoute(Route{Pattern: "GET /{$}", Scope: api.ScopeNone, Serve: func(w http.ResponseWriter, _ *http.Request, _ *Call) error {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprint(w, "This is a Perdure server.\n\nThe API is at /v1, and /openapi.json describes it.\n")
		return nil
	}})
	handle(s, api.FlowsList, s.listFlows)
	handle(s, api.WorkersList, func(ctx context.Context, c *Call, _ *api.Nothing) (*api.WorkerList, error) {
		workers, err := c.Runtime.Workers(ctx)
		for i := range workers {
			if !c.Who.May(api.ScopeAdmin) { // only admins see where it runs
				workers[i].Host, workers[i].PID = "", 0
			}
		}
		return &api.WorkerList{Workers: some(workers)}, err
	})
	handle(s, api.StatsGet, s.getStats)
	raw(s, api.MeGet, func(w http.ResponseWriter, r *http.Request, c *Call, _ *api.Nothing) error {
		return c.Send(w, api.MeGet.Status, s.caller(c.Who, len(r.Header.Values("Authorization")) == 0 && s.token(r) != ""))
	})
	handle(s, api.HealthGet, func(context.Context, *Call, *api.Nothing) (*api.Health, error) {
		return &api.Health{Status: "ok"}, nil
	})
	handle(s, api.ReadyGet, s.ready)
	raw(s, api.MetricsGet, s.getMetrics)
	document := sync.OnceValues(func() (json.RawMessage, error) { return api.OpenAPI(s.opts.Version) })
	handle(s, api.OpenAPIGet, func(context.Context, *Call, *api.Nothing) (*json.RawMessage, error) {
		data, err := document()
		return &data, err
	})
}

func (s *Server) listFlows(context.Context, *Call, *api.Nothing) (*api.FlowList, error) {
	return &api.FlowList{Flows: s.flows()}, nil
}

// flowInfo describes a flow.
func (s *Server) flowInfo(name string) api.FlowInfo {
	info := api.FlowInfo{Name: name}
	flow, ok := s.rt.Flow(name)
	if !ok {
		return info
	}
	in := flow.Input()
	if in == reflect.TypeFor[agent.Content]() {
		info.Agent = true
		return info
	}
	info.Input = inputSchema(in)
	return info
}

// How long the store may take to answer.
const (
	readyWithin   = 2 * time.Second
	writeEvery    = 10 * time.Second // while it is ready, see probe
	metricsWithin = 5 * time.Second
)

// ready reports whether requests can be served. Details of a failing store are
// only logged, and the result is cached for a moment: anyone may ask.
func (s *Server) ready(ctx context.Context, c *Call, _ *api.Nothing) (*api.Health, error) {
	if s.stopped() {
		return nil, api.ErrStopping
	}
	s.probed.Lock()
	defer s.probed.Unlock()
	if time.Since(s.probed.at) > time.Second {
		s.probed.err = s.probe(ctx, c)
		s.probed.at = time.Now()
	}
	if s.probed.err != nil {
		return nil, s.probed.err
	}
	return &api.Health{Status: "ok"}, nil
}

// probed is the result of the last probe of the store.
type probed struct {
	sync.Mutex
	at    time.Time
	wrote time.Time // when it was last written to
	err   error
}

// readyCell is written to find out whether the store takes writes.
const readyCell = "server/ready"

// probe reads something small from the store, and now and then writes something
// small: a store on a full disk can still be read. It outlives the request, whose
// caller may leave early.
func (s *Server) probe(ctx context.Context, c *Call) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyWithin)
	defer cancel()
	err := error(nil)
	for _, err = range c.Runtime.List(ctx, perdure.ListOptions{Limit: 1}) {
		break
	}
	if errors.Is(err, perdure.ErrCorrupt) {
		err = nil // damage elsewhere: the store answers
	}
	if err == nil && (s.probed.err != nil || time.Since(s.probed.wrote) > writeEvery) {
		_, err = store.Update(ctx, threads.Behind(s.rt).All.Store, readyCell, func(store.Cell) ([]byte, error) { return []byte("ok"), nil })
		s.probed.wrote = time.Now()
	}
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		if own, ok := store.As[interface{ Unready() string }](threads.Behind(s.rt).All.Store); ok && own.Unready() != "" {
			return notReadyFor(own.Unready())
		}
		return nil
	}
	if s.probed.err == nil && !threads.Behind(s.rt).All.Logged(err) {
		s.opts.Logger.Error("the store is not ready", "error", err)
	}
	if errors.Is(err, store.ErrFull) {
		return store.ErrFull
	}
	if public, ok := store.As[interface{ Detail() string }](threads.Behind(s.rt).All.Store); ok && public.Detail() != "" {
		return notReadyFor(public.Detail())
	}
	for _, known := range notReady {
		if errors.Is(err, known.err) {
			return notReadyFor(known.says)
		}
	}
	return fmt.Errorf("%w: the store does not respond", store.ErrUnavailable)
}

// notReadyFor returns the answer of a server that is not ready, in words that anyone may
// read.
func notReadyFor(detail string) error {
	p := *api.ProblemOf(store.ErrUnavailable)
	p.Detail = detail
	return &p
}

// notReady says what waiting does not help with, in words that anyone may read.
var notReady = []struct {
	err  error
	says string
}{
	{store.ErrWeak, "the engine of the store now keeps less than when this server opened it, so nothing is written: restore its settings, which the log names"},
	{store.ErrCorrupt, "the store is damaged, or has lost what it held: the log says where; restore it from a backup"},
}

func (s *Server) getStats(ctx context.Context, c *Call, _ *api.Nothing) (*api.Stats, error) {
	n, err := s.counts.ofCaller(ctx, c)
	if err != nil {
		return nil, err
	}
	streams := int(s.events.open.Load())
	if c.Who.User != "" { // a user does not see what others do
		streams = 0
	}
	var warnings []store.Warning
	if s.seesAll(c) && c.Who.May(api.ScopeAdmin) {
		warnings, _ = s.warnings(ctx)
	}
	return &api.Stats{Threads: n.threads, Statuses: n.statuses, Asks: n.asks, Workers: n.workers,
		Streams: streams, Uptime: int64(time.Since(s.started) / time.Second), Version: s.opts.Version,
		Durability: store.DurabilityOf(threads.Behind(s.rt).All.Store).String(), Warnings: warnings}, nil
}

// warnings returns what the store warns of, and whether it could be asked.
func (s *Server) warnings(ctx context.Context) ([]store.Warning, bool) {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	found, err := store.Warnings(ctx, threads.Behind(s.rt).All.Store)
	if err != nil && !threads.Behind(s.rt).All.Logged(err) {
		s.opts.Logger.Warn("the store cannot be asked for warnings", "error", err)
	}
	return found, err == nil
}

// seesAll reports whether a caller may know what concerns all tenants.
func (s *Server) seesAll(c *Call) bool { return s.opts.Auth == nil || c.Who.Tenant == "" }

// getMetrics shows what [Server.Collector] collects, and what the process uses.
func (s *Server) getMetrics(w http.ResponseWriter, r *http.Request, c *Call, _ *api.Nothing) error {
	if !s.seesAll(c) {
		return fmt.Errorf("%w: metrics cover the whole server and all tenants, and need an admin of the default tenant", api.ErrScope)
	}
	w.Header().Set("Content-Type", metricsType)
	return expose(w, scrape{r.Context(), s, c})
}
