package mcpface_test

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"testing/fstest"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/server/mcpface"
	"github.com/perdure/perdure/store/memstore"
)

// pages is a small documentation.
var pages = fstest.MapFS{
	"guide.md":      {Data: []byte("# The guide\n\nHow to fork a thread.\n")},
	"adr/0001-x.md": {Data: []byte("# A decision\n\nIt was made.\n")},
	"secret.txt":    {Data: []byte("no page")},
}

// asker asks for an approval of what it is given.
var asker = perdure.NewFlow("asker", func(ctx context.Context, in string) (string, error) {
	return perdure.Ask[string](ctx, "approve", perdure.Question{Kind: "approval", Prompt: in})
})

// order is the input of a flow with a schema.
type order struct {
	Item  string `json:"item"`
	Count int    `json:"count"`
}

// buy returns what it is given.
var buy = perdure.NewFlow("buy", func(ctx context.Context, in order) (order, error) {
	return perdure.Step(ctx, "pay", func(context.Context) (order, error) { return in, nil })
})

// site is a server with the face.
type site struct {
	*servertest.Site
	tokens *server.Tokens
}

// newSite returns a site; with tokens it knows those of its store.
func newSite(t *testing.T, tokens bool, flows ...perdure.Flow) *site {
	t.Helper()
	s := &site{}
	o := server.Options{Version: "test", Faces: []server.Face{mcpface.Face(mcpface.Options{Docs: pages})}}
	m := memstore.New()
	if tokens {
		rt, err := perdure.New(t.Context(), m, perdure.Options{})
		if err != nil {
			t.Fatal(err)
		}
		s.tokens = server.NewTokens(rt)
		o.Auth = s.tokens
	}
	s.Site = servertest.NewOn(t, m, o, flows...)
	return s
}

// bearer adds a token to requests.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if b != "" {
		r.Header.Set("Authorization", "Bearer "+string(b))
	}
	return http.DefaultTransport.RoundTrip(r)
}

// connect connects Go's client.
func (s *site) connect(token string) *coder {
	s.T.Helper()
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := c.Connect(s.T.Context(), &mcp.StreamableClientTransport{Endpoint: s.URL + "/mcp", HTTPClient: &http.Client{Transport: bearer(token)}}, nil)
	if err != nil {
		s.T.Fatal(err)
	}
	s.T.Cleanup(func() { session.Close() })
	return &coder{TB: s.T, ClientSession: session}
}

// coder is a client of the protocol.
type coder struct {
	testing.TB
	*mcp.ClientSession
	listed  map[string]*mcp.Tool
	schemas map[string]*jsonschema.Resolved // of results
}

// check fails unless what a tool returns fits its schema.
func (a *coder) check(name string, data []byte) {
	a.Helper()
	if a.listed == nil {
		a.listed, a.schemas = a.tools(), map[string]*jsonschema.Resolved{}
	}
	if a.schemas[name] == nil {
		raw, err := json.Marshal(a.listed[name].OutputSchema)
		schema := new(jsonschema.Schema)
		if err == nil {
			err = json.Unmarshal(raw, schema)
		}
		if err == nil {
			a.schemas[name], err = schema.Resolve(nil)
		}
		if err != nil {
			a.Fatalf("the schema of %s: %v", name, err)
		}
	}
	var v any
	err := json.Unmarshal(data, &v)
	if err == nil {
		err = a.schemas[name].Validate(v)
	}
	if err != nil {
		a.Errorf("%s: %.2000s does not fit its schema: %v", name, data, err)
	}
}

// tools returns the tools that are listed, by name.
func (a *coder) tools() map[string]*mcp.Tool {
	a.Helper()
	all := map[string]*mcp.Tool{}
	for t, err := range a.Tools(a.Context(), nil) {
		if err != nil {
			a.Fatal(err)
		}
		all[t.Name] = t
	}
	return all
}

// try calls a tool.
func (a *coder) try(name string, args any) *mcp.CallToolResult {
	a.Helper()
	res, err := a.CallTool(a.Context(), &mcp.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		a.Fatalf("%s: %v", name, err)
	}
	return res
}

// call calls a tool that has to succeed, and decodes what it returns.
func (a *coder) call(name string, args, to any) *mcp.CallToolResult {
	a.Helper()
	res := a.try(name, args)
	if res.IsError {
		a.Fatalf("%s: %s", name, text(res))
	}
	data, err := json.Marshal(res.StructuredContent)
	if err == nil && to != nil {
		err = json.Unmarshal(data, to)
	}
	if err != nil {
		a.Fatalf("%s: %s: %v", name, data, err)
	}
	a.check(name, data)
	return res
}

// fails calls a tool that has to fail with a kind of problem.
func (a *coder) fails(kind, name string, args any) {
	a.Helper()
	if res := a.try(name, args); !res.IsError || res.Meta["perdure/problem"] != "urn:perdure:problem:"+kind {
		a.Errorf("%s: %v %v %s, want the problem %s", name, res.IsError, res.Meta, text(res), kind)
	}
}

// text returns the texts of an answer.
func text(res *mcp.CallToolResult) (all string) {
	for _, c := range res.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			all += t.Text + "\n"
		}
	}
	return all
}

// args are arguments.
type args map[string]any

// of is what the tools of operations return.
type of[T any] struct {
	Source string `json:"source"`
	Result T      `json:"result"`
	Part   string `json:"part"`
	Bytes  int    `json:"bytes"`
	Next   string `json:"next"`
	Rest   string `json:"rest"`
}
