package mcptool

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/perdure/perdure/agent"
)

// The test binary is also the server that it starts: childVar says which.
const (
	childVar = "MCPTOOL_CHILD"
	fileVar  = "MCPTOOL_FILE" // a file that the server writes what it does to
)

func TestMain(m *testing.M) {
	switch mode := os.Getenv(childVar); mode {
	case "":
		os.Exit(m.Run())
	case "die":
		fmt.Fprintln(os.Stderr, "no database at db.example, password is "+os.Getenv("SECRET"))
		os.Exit(3)
	case "mute":
		time.Sleep(2 * time.Minute) // longer than a test, and not for ever
	case "deaf":
		// It greets, and then reads nothing more.
		raw("initialize-only")
		time.Sleep(2 * time.Minute)
	case "late":
		// The first start fails.
		if _, err := os.Stat(os.Getenv(fileVar)); err != nil {
			note("failed")
			os.Exit(1)
		}
		serve()
	case "junk":
		fmt.Println("starting up …")
		fmt.Println(`["a","list"]`)
		serve()
	case "server":
		serve()
	default:
		raw(mode)
	}
}

func serve() {
	if err := testServer().Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		os.Exit(1)
	}
}

// note appends a line to the file that the test watches.
func note(line string) {
	f, err := os.OpenFile(os.Getenv(fileVar), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	fmt.Fprintln(f, line)
	f.Close()
}

// notes waits, for a bounded time, until the file has a line that begins so,
// and returns the rest of the line.
func notes(t *testing.T, file, prefix string) string {
	t.Helper()
	for range 2000 {
		data, _ := os.ReadFile(file)
		for line := range strings.Lines(string(data)) {
			if rest, ok := strings.CutPrefix(line, prefix); ok && strings.HasSuffix(rest, "\n") {
				return strings.TrimSpace(rest)
			}
		}
		time.Sleep(5 * time.Millisecond) // another process writes it
	}
	t.Fatalf("the server never noted %q", prefix)
	return ""
}

type args struct {
	Text string `json:"text,omitempty"`
	N    int    `json:"n,omitempty"`
}

func testServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	yes, no := true, false
	add := func(name string, a *mcp.ToolAnnotations, fn func(ctx context.Context, r *mcp.CallToolRequest, in args) (*mcp.CallToolResult, error)) {
		mcp.AddTool(s, &mcp.Tool{Name: name, Description: "does " + name, Annotations: a}, func(ctx context.Context, r *mcp.CallToolRequest, in args) (*mcp.CallToolResult, any, error) {
			res, err := fn(ctx, r, in)
			return res, nil, err
		})
	}
	text := func(s string) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}, nil
	}
	add("echo", &mcp.ToolAnnotations{ReadOnlyHint: true}, func(_ context.Context, _ *mcp.CallToolRequest, in args) (*mcp.CallToolResult, error) {
		return text("echo " + in.Text)
	})
	add("add.note", &mcp.ToolAnnotations{DestructiveHint: &no}, func(context.Context, *mcp.CallToolRequest, args) (*mcp.CallToolResult, error) {
		return text("added")
	})
	add("delete_all", &mcp.ToolAnnotations{DestructiveHint: &yes}, func(context.Context, *mcp.CallToolRequest, args) (*mcp.CallToolResult, error) {
		return text("deleted")
	})
	add("fail", nil, func(context.Context, *mcp.CallToolRequest, args) (*mcp.CallToolResult, error) {
		return nil, fmt.Errorf("there is no such order")
	})
	add("pid", nil, func(context.Context, *mcp.CallToolRequest, args) (*mcp.CallToolResult, error) {
		return text(strconv.Itoa(os.Getpid()))
	})
	add("env", nil, func(context.Context, *mcp.CallToolRequest, args) (*mcp.CallToolResult, error) {
		return text(strings.Join(os.Environ(), "\n"))
	})
	add("big", nil, func(_ context.Context, _ *mcp.CallToolRequest, in args) (*mcp.CallToolResult, error) {
		return text(strings.Repeat("x", in.N))
	})
	add("mixed", nil, func(context.Context, *mcp.CallToolRequest, args) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{
			&mcp.TextContent{Text: "look"},
			&mcp.ImageContent{MIMEType: "image/png", Data: []byte("PNG")},
			&mcp.AudioContent{MIMEType: "audio/wav", Data: []byte("WAV")},
			&mcp.ResourceLink{Name: "manual", URI: "file:///manual.pdf", MIMEType: "application/pdf", Description: "how it works"},
			&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "file:///a.txt", Text: "inside"}},
			&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "file:///b.bin", MIMEType: "application/octet-stream", Blob: []byte{1, 2}}},
		}, StructuredContent: map[string]any{"n": 7}}, nil
	})
	add("structured", nil, func(context.Context, *mcp.CallToolRequest, args) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: `{"n": 7}`}}, StructuredContent: map[string]any{"n": 7}}, nil
	})
	add("progress", nil, func(ctx context.Context, r *mcp.CallToolRequest, _ args) (*mcp.CallToolResult, error) {
		for i := range 3 {
			err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
				ProgressToken: r.Params.GetProgressToken(), Progress: float64(i + 1), Total: 3, Message: "part " + strconv.Itoa(i+1)})
			if err != nil {
				return nil, err
			}
		}
		return text("done")
	})
	add("slow", nil, func(ctx context.Context, r *mcp.CallToolRequest, _ args) (*mcp.CallToolResult, error) {
		note(fmt.Sprintf("slow runs as %d with %v", os.Getpid(), r.Params.Meta[MetaKey]))
		<-ctx.Done()
		note("slow was cancelled")
		return nil, ctx.Err()
	})
	add("crash", nil, func(context.Context, *mcp.CallToolRequest, args) (*mcp.CallToolResult, error) {
		note("crash runs")
		fmt.Fprintln(os.Stderr, "panic: everything is lost")
		os.Exit(7)
		return nil, nil
	})
	add("key", nil, func(_ context.Context, r *mcp.CallToolRequest, _ args) (*mcp.CallToolResult, error) {
		return text(fmt.Sprint(r.Params.Meta[MetaKey]))
	})
	add("spawn", nil, func(context.Context, *mcp.CallToolRequest, args) (*mcp.CallToolResult, error) {
		cmd := exec.Command(os.Args[0])
		cmd.Env = []string{childVar + "=mute"}
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		return text(strconv.Itoa(cmd.Process.Pid))
	})
	return s
}

// raw is a server that is not made with the SDK, for what the SDK does not do.
func raw(mode string) {
	in := bufio.NewReader(os.Stdin)
	first := true
	for range 10000 {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params struct {
				Cursor string `json:"cursor"`
			} `json:"params"`
		}
		json.Unmarshal(line, &m)
		if m.ID == nil {
			if mode == "initialize-only" {
				return
			}
			continue
		}
		reply := func(result string) {
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m.ID, result)
		}
		if first && m.Method != "initialize" {
			switch mode {
			case "strict":
				os.Exit(1)
			case "patient":
				time.Sleep(2 * time.Minute)
			}
		}
		first = false
		switch m.Method {
		case "server/discover":
			if mode == "modern" {
				reply(`{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"serverInfo":{"name":"raw","version":"1"}}`)
				continue
			}
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`+"\n", m.ID)
		case "initialize":
			if mode == "modern" {
				fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`+"\n", m.ID)
				continue
			}
			reply(`{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"raw","version":"1"}}`)
		case "tools/list":
			n, _ := strconv.Atoi(m.Params.Cursor)
			switch mode {
			case "endless":
				reply(fmt.Sprintf(`{"tools":[{"name":"t%d","inputSchema":{"type":"object"}}],"nextCursor":"%d"}`, n, n+1))
			case "circle":
				reply(fmt.Sprintf(`{"tools":[],"nextCursor":"%d"}`, (n+1)%3))
			case "pages":
				next := fmt.Sprintf(`,"nextCursor":"%d"`, n+1)
				if n == 4 {
					next = ""
				}
				reply(fmt.Sprintf(`{"tools":[{"name":"t%d","inputSchema":{"type":"object"}}]%s}`, n, next))
			case "strict", "patient", "modern":
				reply(`{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}`)
			default:
				reply(`{"tools":[` + mode + `]}`)
			}
		case "tools/call":
			switch mode {
			case "utf8":
				reply("{\"content\":[{\"type\":\"text\",\"text\":\"a\xff\xfeb\"}]}")
			case "idlast":
				fmt.Printf(`{"result":{"content":[{"type":"text","text":"%s"}]},"jsonrpc":"2.0","id":%s}`+"\n", strings.Repeat("x", 1<<20), m.ID)
			case "forever":
				for range 1 << 20 {
					if _, err := os.Stdout.WriteString(strings.Repeat("x", 1<<10)); err != nil {
						return
					}
				}
			case "sampling/createMessage", "elicitation/create", "roots/list":
				// It asks back, and tells what it got.
				fmt.Printf(`{"jsonrpc":"2.0","id":"back","method":%q,"params":{"message":"your password?","requestedSchema":{"type":"object","properties":{}},"messages":[],"maxTokens":1}}`+"\n", mode)
				got, _ := in.ReadString('\n')
				text, _ := json.Marshal(got)
				reply(`{"content":[{"type":"text","text":` + string(text) + `}]}`)
			case "input":
				reply(`{"resultType":"input_required","content":[],"inputRequests":{}}`)
			case "kind":
				reply(`{"content":[{"type":"hologram"}]}`)
			case "number":
				reply(`{"content":[],"structuredContent":{"id":9007199254740993}}`)
			default:
				fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"out of order"}}`+"\n", m.ID)
			}
		default:
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`+"\n", m.ID)
		}
	}
}

// program returns a server that is this binary, in a mode.
func program(t *testing.T, mode string, o Options) *Server {
	t.Helper()
	env := map[string]string{childVar: mode}
	for k, v := range o.Env {
		env[k] = v
	}
	o.Env = env
	s := Command("test", os.Args[0]).Set(o)
	t.Cleanup(func() { s.Close() })
	return s
}

// web returns a server over HTTP in this process.
func web(t *testing.T, o Options, wrap func(http.Handler) http.Handler) *Server {
	t.Helper()
	srv := testServer()
	var h http.Handler = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return srv }, nil)
	if wrap != nil {
		h = wrap(h)
	}
	ts := httptest.NewServer(h)
	s := HTTP("test", ts.URL).Set(o)
	t.Cleanup(func() {
		s.Close()
		ts.CloseClientConnections()
		ts.Close()
	})
	return s
}

func call(t *testing.T, s *Server, tool, args string) agent.Output {
	t.Helper()
	out, err := s.Call(t.Context(), tool, json.RawMessage(args))
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	return out
}

// settled waits, for a bounded time, until no more goroutines run than before.
func settled(t *testing.T, before int) {
	t.Helper()
	for range 1000 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(10 * time.Millisecond) // goroutines of the SDK and of net/http end by themselves
	}
	buf := make([]byte, 1<<20)
	t.Errorf("%d goroutines ran before, %d run now:\n%s", before, runtime.NumGoroutine(), buf[:runtime.Stack(buf, true)])
}
