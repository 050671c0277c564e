package mcpface

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/server"
)

// Options configure a face. The zero value is ready to use.
type Options struct {
	// Docs holds pages of documentation, files that end with .md. Without it there
	// are no tools to read them.
	Docs fs.FS
	// Logger receives errors that callers are not told. The default discards them.
	Logger *slog.Logger
	// Version is that of the program, for clients.
	Version string
	// ReadOnly leaves out all tools that change something.
	ReadOnly bool
}

// maxAnswer bounds what a tool reads of the API, of which it returns parts.
const maxAnswer = 16 << 20

// Face returns the route of the protocol: POST /mcp, the transport called streamable
// HTTP, without sessions. It accepts a token with any scopes; these decide which tools
// it may use.
func Face(o Options) server.Face {
	f := &face{options: o.complete(), servers: map[audience]*mcp.Server{}}
	f.handler = mcp.NewStreamableHTTPHandler(func(r *http.Request) *mcp.Server {
		s, _ := r.Context().Value(serverKey{}).(*mcp.Server)
		return s
	}, &mcp.StreamableHTTPOptions{
		Stateless: true, JSONResponse: true, PropagateRequestCancellation: true,
		DisableLocalhostProtection: true, // the server has checked the host, and knows by which names it is called
		MaxRequestBodyBytes:        -1,   // the server has read the body within its limits
	})
	return server.Face{{Pattern: "POST /mcp", Scope: api.ScopeAny, Serve: f.serve}}
}

func (o Options) complete() Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// fixed returns the tools that do not depend on flows.
func (o *Options) fixed() []*tool { return append(slices.Clone(fixed()), docsTools(o.Docs)...) }

// may returns whether a scope is allowed to someone who has some.
func (o *Options) may(has func(api.Scope) bool) func(api.Scope) bool {
	return func(s api.Scope) bool {
		return has(s) && (!o.ReadOnly || s == api.ScopeRead || s == api.ScopeAny || s == api.ScopeNone)
	}
}

// serverKey is the key of the server of a request.
type serverKey struct{}

// face serves the protocol over HTTP. Callers who may do the same share a server.
type face struct {
	options Options
	handler http.Handler

	mu      sync.Mutex
	servers map[audience]*mcp.Server
}

// audience is who shares a server.
type audience struct {
	flows  *api.FlowInfo // the first of them, nil for none
	scopes string
}

// serve serves a request.
func (f *face) serve(w http.ResponseWriter, r *http.Request, c *server.Call) error {
	data, err := c.Body(w, r)
	if err != nil {
		return err
	}
	if media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); media != "application/json" {
		return fmt.Errorf("%w: it has to be application/json", api.ErrMedia)
	}
	_, id, wrong := parse(data)
	if wrong != nil {
		return fmt.Errorf("%w: %s", api.ErrBody, wrong.Message)
	}
	inner, err := client.New("http://localhost", client.Options{HTTP: &http.Client{Transport: c.Transport(r)}, Attempts: -1, MaxAnswer: maxAnswer})
	if err != nil {
		return err
	}
	ctx := context.WithValue(r.Context(), serverKey{}, f.server(c))
	ctx = context.WithValue(ctx, callerKey{}, &caller{client: inner, gone: r.Context()})
	r = r.WithContext(ctx)
	r.Body = io.NopCloser(bytes.NewReader(data))
	to := &refusing{ResponseWriter: w}
	f.handler.ServeHTTP(to, r)
	if unknown := to.unknown(); unknown != nil && string(id) != string(nullID) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Del("Content-Length")
		_, err := w.Write(refusal(id, unknown))
		return err
	}
	return to.problem()
}

// refusing holds back a refusal by the transport, which is plain text, so that it can
// be told as a problem.
type refusing struct {
	http.ResponseWriter
	status int // of the refusal, 0 if there is none
	text   bytes.Buffer
}

func (w *refusing) WriteHeader(status int) {
	if status >= 400 && strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
		w.status = status
		return
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *refusing) Write(p []byte) (int, error) {
	if w.status != 0 {
		return w.text.Write(p)
	}
	if bytes.Contains(p, []byte(`"error":{"code":0,`)) {
		if m, err := jsonrpc.DecodeMessage(p); err == nil {
			if data, err := jsonrpc.EncodeMessage(withCode(m)); err == nil {
				_, err = w.ResponseWriter.Write(data)
				return len(p), err
			}
		}
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (w *refusing) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// unknown returns the refusal of a method that does not exist or lacks its parameters, nil
// if there is none. It is the answer to a call, and not to a request.
func (w *refusing) unknown() *jsonrpc.Error {
	text := strings.TrimSpace(w.text.String())
	switch {
	case strings.HasPrefix(text, "JSON RPC not handled"):
		return &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: text}
	case strings.HasPrefix(text, "invalid request: "):
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: text}
	}
	return nil
}

// problem returns the refusal, nil if there is none.
func (w *refusing) problem() error {
	kind, text := api.ErrBody, strings.TrimSpace(w.text.String())
	switch {
	case w.status == 0:
		return nil
	case w.status == http.StatusUnsupportedMediaType:
		kind = api.ErrMedia
	case w.status >= 500:
		return fmt.Errorf("mcpface: %s", text)
	}
	return fmt.Errorf("%w: %s", kind, text)
}

// server returns the server with the tools that a caller may use.
func (f *face) server(c *server.Call) *mcp.Server {
	may := f.options.may(c.Who.May)
	var a audience
	var scopes []string
	for _, s := range api.Scopes {
		if may(s) {
			scopes = append(scopes, string(s))
		}
	}
	a.scopes = strings.Join(scopes, " ")
	var flows []api.FlowInfo
	if may(api.ScopeRead) && may(api.ScopeRun) { // to list flows is to read
		flows = c.Flows()
	}
	if len(flows) > 0 {
		a.flows = &flows[0]
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.servers[a]; s != nil {
		return s
	}
	all := f.options.fixed()
	for _, flow := range flows {
		all = append(all, flowTool(flow))
	}
	s := newServer(c.Version(), false)
	for _, t := range allowed(all, may) {
		register(s, t, f.options.Logger)
	}
	s.AddReceivingMiddleware(refuse(all, may))
	f.servers[a] = s
	return s
}
