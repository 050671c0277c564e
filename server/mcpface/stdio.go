package mcpface

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/client"
)

// ServeIO speaks the protocol with the process at the other end of in and out until in
// ends, which is not an error, or ctx does. Tools call the API by a client.
func ServeIO(ctx context.Context, c *client.Client, in io.Reader, out io.Writer, o Options) error {
	s := &local{options: o.complete(), client: c}
	s.scopes(ctx)
	s.server = newServer(o.Version, true)
	for _, t := range allowed(s.options.fixed(), s.may) {
		register(s.server, t, s.options.Logger)
	}
	s.refresh(ctx)
	s.server.AddReceivingMiddleware(s.upToDate, refuse(s.options.fixed(), s.may))
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

	mu    sync.Mutex
	flows map[string]string // tools of flows, and what they were made from
}

// scopes finds out what the client may do. One that may not even ask, or whose server
// does not answer, is offered everything: the server decides then.
func (s *local) scopes(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	has := func(api.Scope) bool { return true }
	if me, err := client.Do(ctx, s.client, api.MeGet, api.Nothing{}); err == nil {
		has = func(scope api.Scope) bool {
			return scope == api.ScopeNone || slices.Contains(me.Scopes, scope) || slices.Contains(me.Scopes, api.ScopeAdmin)
		}
	}
	s.may = s.options.may(has)
}

// refresh adds the tools of new flows and removes those of flows that are gone. If it
// cannot be told which there are, they stay.
func (s *local) refresh(ctx context.Context) {
	if !s.may(api.ScopeRun) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	list, err := client.Do(ctx, s.client, api.FlowsList, api.Nothing{})
	if err != nil {
		return
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
}

// upToDate looks for new flows before tools are listed: the server at the other end
// may be another one by now. A token that it does not accept is told of at once, and
// not by the first call.
func (s *local) upToDate(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, q mcp.Request) (mcp.Result, error) {
		if method == "initialize" || method == "tools/list" {
			if err := s.admitted(ctx); err != nil {
				return nil, err
			}
		}
		if method == "tools/list" {
			s.refresh(ctx)
		}
		return next(ctx, method, q)
	}
}

// admitted returns an error of the protocol if the server does not accept the token.
func (s *local) admitted(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	_, err := client.Do(ctx, s.client, api.MeGet, api.Nothing{})
	if !errors.Is(err, api.ErrUnauthorized) {
		return nil
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: fmt.Sprintf("unauthorized (401): %v; %s", err, advice["unauthorized"])}
}
