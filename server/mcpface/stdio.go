package mcpface

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/client"
)

// ServeIO speaks the protocol with the process at the other end of in and out until in
// ends, which is not an error, or ctx ends. Tools call the API through c.
func ServeIO(ctx context.Context, c *client.Client, in io.Reader, out io.Writer, o Options) error {
	s := &local{options: o.complete(), client: c, silence: silence}
	s.scopes(ctx)
	s.server = newServer(o.Version, true)
	for _, t := range allowed(s.options.fixed(), s.may) {
		register(s.server, t, s.options.Logger)
	}
	waiting, stop := context.WithCancel(ctx)
	var back sync.WaitGroup
	defer back.Wait()
	defer stop()
	if unreached(s.first) || unreached(s.refresh(ctx)) {
		back.Go(func() { s.awaitFlows(waiting) })
	}
	s.server.AddReceivingMiddleware(s.attend, s.upToDate, refuse(s.options.fixed(), s.may))
	err := s.server.Run(context.WithValue(ctx, callerKey{}, &caller{client: c, gone: ctx}),
		lineTransport{in, out})
	if errors.Is(err, io.EOF) || errors.Is(err, mcp.ErrConnectionClosed) {
		return nil
	}
	return err
}

// askTime is how long a server may take to say what it has before that is left out.
const askTime = 10 * time.Second

// local is a server of one client.
type local struct {
	options Options
	client  *client.Client
	server  *mcp.Server
	may     func(api.Scope) bool
	first   error // of the first request
	silence time.Duration

	mu    sync.Mutex
	flows map[string]string // tools of flows, and what they were made from
}

// scopes finds out what the client may do. One whose server does not answer is offered
// everything: the server decides then.
func (s *local) scopes(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	has := func(api.Scope) bool { return true }
	me, err := client.Do(ctx, s.client, api.MeGet, api.Nothing{})
	if s.first = err; err == nil {
		has = func(scope api.Scope) bool {
			return scope == api.ScopeNone || scope == api.ScopeAny || slices.Contains(me.Scopes, scope) || slices.Contains(me.Scopes, api.ScopeAdmin)
		}
	}
	s.may = s.options.may(has)
}

// refresh adds the tools of new flows and removes those of flows that are gone. If it
// cannot be told which there are, they stay. Clients are told of changes.
func (s *local) refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	list, err := client.Do(ctx, s.client, api.FlowsList, api.Nothing{})
	if err != nil || !s.may(api.ScopeRun) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := map[string]string{}
	for _, flow := range list.Flows {
		name := flowToolName(flow.Name)
		data, _ := json.Marshal(flow)
		if now[name] = string(data); s.flows[name] != now[name] {
			register(s.server, flowTool(flow), s.options.Logger)
		}
	}
	for name := range s.flows {
		if now[name] == "" {
			s.server.RemoveTools(name)
		}
	}
	s.flows = now
	return nil
}

// has reports whether there is a tool of a flow.
func (s *local) has(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.flows[name] != ""
}

// awaitFlows adds the tools of flows when the server is there.
func (s *local) awaitFlows(ctx context.Context) {
	for wait := time.Second / 4; ; wait = min(2*wait, askTime) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		if !unreached(s.refresh(ctx)) {
			return
		}
	}
}

// upToDate looks for new flows before tools are listed, and when a tool of an unknown
// one is called: the server at the other end may be another one by now. A token that it
// does not accept is told of at once, and not by the first call.
func (s *local) upToDate(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, q mcp.Request) (mcp.Result, error) {
		switch method {
		case "initialize":
			if err := refused(s.first); err != nil {
				return nil, err
			}
		case "tools/list":
			if err := refused(s.refresh(ctx)); err != nil {
				return nil, err
			}
		case "tools/call":
			call, ok := q.GetParams().(*mcp.CallToolParamsRaw)
			if !ok || call == nil || !strings.HasPrefix(call.Name, flowPrefix) || s.has(call.Name) {
				break
			}
			if err := s.refresh(ctx); unreached(err) {
				return failure(ctx, err), nil
			}
		}
		return next(ctx, method, q)
	}
}

// errSilent: the server does not even say that it is there.
var errSilent = errors.New("the server takes connections and says nothing; it, or the machine it is on, may be frozen")

// errNobody: nothing takes connections, and nothing refuses them.
var errNobody = errors.New("nothing answers at the address of the server; it, or the network, may be down")

// silence is how long a server may say nothing before it is asked whether it is there, and
// then until it says so.
var silence = 5 * time.Second

// attend gives up a call when the server no longer says that it is there. A call that
// takes long is waited for.
func (s *local) attend(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, q mcp.Request) (mcp.Result, error) {
		if method != "tools/call" {
			return next(ctx, method, q)
		}
		ctx, giveUp := context.WithCancelCause(ctx)
		defer giveUp(nil)
		var sent atomic.Bool
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent.Store(true) }})
		go func() {
			for s.isThere(ctx) {
			}
			if sent.Load() {
				giveUp(errSilent)
			} else {
				giveUp(errNobody)
			}
		}()
		return next(ctx, method, q)
	}
}

// isThere asks the server after some time, and reports whether it answers in any way.
func (s *local) isThere(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(s.silence):
	}
	ctx, cancel := context.WithTimeout(ctx, s.silence)
	defer cancel()
	_, err := client.Do(ctx, s.client, api.HealthGet, api.Nothing{})
	return err == nil || ctx.Err() == nil
}

// unreached reports whether an error says nothing about the request: the server, or its
// store, is away for now.
func unreached(err error) bool {
	p, known := errors.AsType[*api.Problem](err)
	return known && p.Status == http.StatusServiceUnavailable || !known && isAway(err)
}

// refused returns an error of the protocol if the server did not accept the token.
func refused(err error) error {
	if !errors.Is(err, api.ErrUnauthorized) {
		return nil
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: fmt.Sprintf("unauthorized (401): %v; %s", err, advice["unauthorized"])}
}
