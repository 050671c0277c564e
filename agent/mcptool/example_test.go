package mcptool_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/agent/mcptool"
)

// shop is an MCP server, as another team may run it.
func shop() *httptest.Server {
	type order struct {
		ID string `json:"id" jsonschema:"number of the order"`
	}
	s := mcp.NewServer(&mcp.Implementation{Name: "shop", Version: "1"}, nil)
	say := func(format string) mcp.ToolHandlerFor[order, any] {
		return func(_ context.Context, _ *mcp.CallToolRequest, o order) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf(format, o.ID)}}}, nil, nil
		}
	}
	mcp.AddTool(s, &mcp.Tool{Name: "status", Description: "says where an order is", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}}, say("order %s is on its way"))
	mcp.AddTool(s, &mcp.Tool{Name: "cancel", Description: "cancels an order"}, say("order %s is cancelled"))
	return httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil))
}

// The tools of a server are listed when the program starts.
func Example() {
	web := shop()
	defer web.Close()

	server := mcptool.HTTP("shop", web.URL).
		With("cancel", agent.AtMostOnce(time.Minute))
	defer server.Close()

	tools, err := server.Tools(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, t := range tools { // for agent.New
		fmt.Printf("%s %s\n", t.Name(), t.Description())
	}

	// A flow can call a tool by itself, in a step.
	out, err := server.Call(context.Background(), "status", json.RawMessage(`{"id":"A-1"}`))
	fmt.Println(out.Text, err)
	// Output:
	// shop_cancel cancels an order
	// shop_status says where an order is
	// order A-1 is on its way <nil>
}

// A tool that is declared is there without the server, and the same after each
// restart.
func ExampleServer_Declare() {
	server := mcptool.Command("files", "mcp-files", "/srv/shared")
	read := server.Declare(mcptool.Info{
		Name:        "read_file",
		Description: "reads a file",
		Schema:      json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}`),
		ReadOnly:    true,
	})
	fmt.Println(read.Name())
	// Output: files_read_file
}
