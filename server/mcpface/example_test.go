package mcpface_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http/httptest"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/server/mcpface"
	"github.com/perdure/perdure/store/memstore"
)

// A client of the protocol starts a flow by its tool, and waits for the run.
func ExampleFace() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	greet := perdure.NewFlow("greet", func(_ context.Context, name string) (string, error) { return "Hello, " + name, nil })
	rt, err := perdure.New(ctx, memstore.New(), perdure.Options{}, greet)
	if err != nil {
		log.Fatal(err)
	}
	go rt.Work(ctx)
	face := mcpface.Face(mcpface.Options{})
	site := httptest.NewServer(server.New(rt, server.Options{Faces: []server.Face{face}}))
	defer site.Close()

	session, err := mcp.NewClient(&mcp.Implementation{Name: "example", Version: "1"}, nil).
		Connect(ctx, &mcp.StreamableClientTransport{Endpoint: site.URL + "/mcp"}, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	call := func(tool string, arguments map[string]any, to any) {
		res, err := session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: arguments})
		if err != nil || res.IsError {
			log.Fatal(tool, res, err)
		}
		data, _ := json.Marshal(res.StructuredContent)
		if err := json.Unmarshal(data, to); err != nil {
			log.Fatal(err)
		}
	}
	var handle struct{ Thread, Run string }
	call("flow_greet", map[string]any{"input": "Ada", "idempotency_key": "greet-ada"}, &handle)
	var waited struct {
		Result struct {
			Run struct{ Status, Output string }
		}
	}
	call("runs_wait", map[string]any{"thread": handle.Thread, "run": handle.Run}, &waited)
	fmt.Println(waited.Result.Run.Status, waited.Result.Run.Output)
	// Output: succeeded Hello, Ada
}
