package mcptool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/perdure/perdure"
)

// method returns the JSON-RPC method of a request, and its id. The body can be
// read again.
func method(r *http.Request) (name string, id json.RawMessage) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	json.Unmarshal(body, &m)
	return m.Method, m.ID
}

func isCall(r *http.Request) bool {
	name, _ := method(r)
	return r.Method == http.MethodPost && name == "tools/call"
}

// forgetful is a server that restarts and says in its own way that it does not
// know a session any more.
type forgetful struct {
	inner  atomic.Pointer[mcp.StreamableHTTPHandler]
	status int
	body   string
	ran    atomic.Int32 // calls that reached a tool
}

func (f *forgetful) restart() {
	srv := testServer()
	f.inner.Store(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return srv }, nil))
}

func (f *forgetful) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := &answer{ResponseWriter: w, f: f, call: isCall(r)}
	if a.call {
		f.ran.Add(1)
	}
	f.inner.Load().ServeHTTP(a, r)
}

// answer replaces the SDK's 404.
type answer struct {
	http.ResponseWriter
	f      *forgetful
	call   bool
	forgot bool
}

func (a *answer) WriteHeader(status int) {
	if a.forgot = status == http.StatusNotFound; a.forgot {
		status = a.f.status
		if a.call {
			a.f.ran.Add(-1)
		}
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(p []byte) (int, error) {
	if a.forgot {
		io.WriteString(a.ResponseWriter, a.f.body)
		return len(p), nil
	}
	return a.ResponseWriter.Write(p)
}

func (a *answer) Flush() { a.ResponseWriter.(http.Flusher).Flush() }

func TestServerThatForgotTheSessionIsGreetedAgain(t *testing.T) {
	for name, f := range map[string]*forgetful{
		"404":              {status: 404, body: "session not found"},
		"404 in JSON":      {status: 404, body: `{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}`},
		"400":              {status: 400, body: "Bad Request: No valid session ID provided"},
		"400 in JSON":      {status: 400, body: `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: Server not initialized"},"id":null}`},
		"400 of its own":   {status: 400, body: `{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Bad Request"}}`},
		"400 without text": {status: 400},
	} {
		t.Run(name, func(t *testing.T) {
			f.restart()
			s := web(t, Options{}, func(http.Handler) http.Handler { return f })
			for range 3 {
				if out := call(t, s, "echo", `{"text":"on"}`); out.Text != "echo on" {
					t.Errorf("got %+v", out)
				}
				f.restart()
			}
			if _, err := s.List(t.Context()); err != nil {
				t.Errorf("a list after a restart: %v", err)
			}
			// A call that may run once only is made, once.
			f.restart()
			f.ran.Store(0)
			if _, r := run(t, once(s, "pid")); r.Status != perdure.Succeeded || f.ran.Load() != 1 {
				t.Errorf("an at-most-once call: the run is %s (%v) and the tool ran %d times, want once", r.Status, r.Error, f.ran.Load())
			}
		})
	}
}

// A call that a server has taken is never sent again, whatever the server says
// about the session later.
func TestTakenCallIsNotSentAgain(t *testing.T) {
	for _, status := range []int{400, 404} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			var sent atomic.Int32
			var forgot atomic.Bool
			s := web(t, Options{Timeout: 20 * time.Second}, func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					m, _ := method(r)
					switch {
					case m == "tools/call" && sent.Add(1) == 1:
						w.Header().Set("Content-Type", "text/event-stream")
						io.WriteString(w, "id: 1\nretry: 1\ndata:\n\n") // and the stream ends, to be resumed
						forgot.Store(true)
					case forgot.Load() && r.Header.Get(sessionHeader) != "" && m != "tools/call":
						http.Error(w, "session not found", status)
					default:
						next.ServeHTTP(w, r)
					}
				})
			})
			if _, err := s.Call(t.Context(), "echo", nil); !errors.Is(err, ErrLost) {
				t.Errorf("got %v, want ErrLost", err)
			}
			if n := sent.Load(); n != 1 {
				t.Errorf("the call was sent %d times", n)
			}
		})
	}
}

// A hostile server greets properly and answers calls as it likes. The call ends,
// its outcome is honest, and it is sent again only where it cannot have run.
func TestHostileServer(t *testing.T) {
	endless := func(w http.ResponseWriter, r *http.Request, text string) {
		text = strings.Repeat(text, 100)
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, text); err != nil {
				return
			}
			w.(http.Flusher).Flush()
		}
	}
	plain := func(status int, kind, body string) func(http.ResponseWriter, *http.Request, json.RawMessage) {
		return func(w http.ResponseWriter, _ *http.Request, id json.RawMessage) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(status)
			io.WriteString(w, strings.ReplaceAll(body, "ID", string(id)))
		}
	}
	const js, sse = "application/json", "text/event-stream"
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter, *http.Request, json.RawMessage)
		all    bool // to pings too
		want   error
		text   string
		sent   int32
	}{
		"garbage":           {answer: plain(200, js, "\x00\xff}{"), want: ErrLost, sent: 1},
		"garbage events":    {answer: plain(200, sse, "data: \x00\xff}{\n\n"), want: ErrLost, sent: 1},
		"a page":            {answer: plain(200, "text/html", "<html>"), want: ErrLost, sent: 1},
		"nothing":           {answer: plain(200, js, ""), want: ErrLost, sent: 1},
		"another's answer":  {answer: plain(200, js, `{"jsonrpc":"2.0","id":"x","result":{"content":[]}}`), want: ErrLost, sent: 1},
		"400 to the call":   {answer: plain(400, js, `{"jsonrpc":"2.0","id":ID,"error":{"code":-32602,"message":"no"}}`), all: true, want: ErrRefused, sent: 1},
		"400 to calls only": {answer: plain(400, "text/plain", "session not found"), want: ErrRefused, sent: 1},
		"400 to all":        {answer: plain(400, "text/plain", "no"), all: true, want: ErrUnreachable, sent: 2},
		"404 to all":        {answer: plain(404, js, `{"id":null}`), all: true, want: ErrUnreachable, sent: 2},
		"500 to all":        {answer: plain(500, js, `{"id":null}`), all: true, want: ErrLost, sent: 1},
		"a huge refusal":    {answer: plain(400, "text/plain", strings.Repeat("no ", 1<<20)), want: ErrRefused, sent: 1},
		"a refusal that is cut": {answer: func(w http.ResponseWriter, _ *http.Request, _ json.RawMessage) {
			w.Header().Set("Content-Length", "9")
			w.WriteHeader(400)
		}, want: ErrLost, sent: 1},
		"an endless refusal": {answer: func(w http.ResponseWriter, r *http.Request, _ json.RawMessage) {
			w.WriteHeader(400)
			endless(w, r, "no ")
		}, want: ErrRefused, sent: 1},
		"an endless body": {answer: func(w http.ResponseWriter, r *http.Request, _ json.RawMessage) {
			w.Header().Set("Content-Type", js)
			endless(w, r, "[")
		}, text: "larger than", sent: 1},
		"an endless event": {answer: func(w http.ResponseWriter, r *http.Request, _ json.RawMessage) {
			w.Header().Set("Content-Type", sse)
			endless(w, r, "data: x\n")
		}, text: "larger than", sent: 1},
		"endless comments": {answer: func(w http.ResponseWriter, r *http.Request, _ json.RawMessage) {
			w.Header().Set("Content-Type", sse)
			endless(w, r, ":\n\n")
		}, want: ErrLost, sent: 1},
		"an answer and no end": {answer: func(w http.ResponseWriter, r *http.Request, id json.RawMessage) {
			w.Header().Set("Content-Type", sse)
			fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"here\"}]}}\n\n", id)
			endless(w, r, ":\n\n")
		}, text: "here", sent: 1},
	} {
		t.Run(name, func(t *testing.T) {
			var sent atomic.Int32
			s := web(t, Options{MaxMessage: 64 << 10, Timeout: 2 * time.Second}, func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					switch m, id := method(r); {
					case m == "tools/call":
						sent.Add(1)
						c.answer(w, r, id)
					case m == "ping" && c.all:
						c.answer(w, r, id)
					default:
						next.ServeHTTP(w, r)
					}
				})
			})
			out, err := s.Call(t.Context(), "pay", nil)
			if !errors.Is(err, c.want) || !strings.Contains(out.Text, c.text) {
				t.Errorf("got %+v, %v, want %q, %v", out, err, c.text, c.want)
			}
			if err != nil && len(err.Error()) > 10<<10 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			if n := sent.Load(); n != c.sent {
				t.Errorf("the call was sent %d times, want %d", n, c.sent)
			}
		})
	}
}
