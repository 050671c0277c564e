package server_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent/memory"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/server"
)

// fuzzed is a server with something of everything, which requests name by words
// in capitals since ids are random.
type fuzzed struct {
	*servertest.Site
	closed *server.Server // of the same runtime, where nobody has a token
	ids    *strings.Replacer
}

func newFuzzed(t testing.TB) *fuzzed {
	t.Helper()
	f := &fuzzed{Site: servertest.New(t, server.Options{Version: "test", Faces: allFaces()}, perdure.NewFlow("asker", func(ctx context.Context, in string) (string, error) {
		return perdure.Ask[string](ctx, "approve", perdure.Question{Kind: "approval", Prompt: in})
	}))}
	f.closed = server.New(f.Runtime, server.Options{Auth: servertest.People{}, Faces: allFaces()})
	f.seed(t)
	return f
}

// seed makes what is there, and makes it again where a request has erased it.
func (f *fuzzed) seed(t testing.TB) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	run, err := f.Runtime.Start(ctx, perdure.StartRequest{Flow: "asker", Thread: "t1", Input: "x", User: "ann", Policy: perdure.Beside})
	if err == nil {
		run, err = f.Runtime.Wait(ctx, "t1", run.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	ask := "none"
	if len(run.Asks) > 0 {
		ask = run.Asks[0].ID
	}
	servertest.Must(memory.Of(f.Runtime).Put(ctx, memory.Namespace{"shared"}, "key", "x", memory.PutOptions{}))(t)
	f.ids = strings.NewReplacer("RUN", run.ID, "ASK", ask)
}

// fuzzOpen are the addresses that need no token.
var fuzzOpen = map[string]bool{"/healthz": true, "/readyz": true, "/openapi.json": true, "/version": true, "/health": true, "/v1/session": true}

// fuzzAnswer is a recorder that ends a request when a stream begins.
type fuzzAnswer struct {
	*httptest.ResponseRecorder
	cancel func()
}

func (a *fuzzAnswer) Flush() {
	if strings.HasPrefix(a.Header().Get("Content-Type"), api.TypeEvents) {
		a.cancel()
	}
	a.ResponseRecorder.Flush()
}

// request sends a request, and fails unless the answer is one that the API can
// give.
func (f *fuzzed) request(t *testing.T, method, target, head, body string) {
	t.Helper()
	target, body = f.ids.Replace(target), f.ids.Replace(body)
	text := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n%s\r\n%s", method, target, len(body), f.ids.Replace(head), body)
	read := func() (*http.Request, error) { return http.ReadRequest(bufio.NewReader(strings.NewReader(text))) }
	r, err := read()
	if err != nil {
		t.Skip("package http lets nothing of this in")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	w := &fuzzAnswer{httptest.NewRecorder(), cancel}
	defer func() {
		if v := recover(); v != nil {
			t.Fatalf("%q: %v", text, v)
		}
	}()
	if r, err := read(); err == nil {
		w := httptest.NewRecorder()
		f.closed.ServeHTTP(w, r.WithContext(ctx))
		if w.Code < 400 && !fuzzOpen[r.URL.Path] {
			t.Fatalf("%q is answered %d without a token: %s", text, w.Code, w.Body)
		}
	}
	r = r.WithContext(ctx)
	f.Server.ServeHTTP(w, r)
	reply := servertest.ReplyOf(t, w.Result())
	got := reply.Body
	if ctx.Err() != nil {
		return
	}
	if w.Code >= 400 && r.URL.Path == "/run_sse" && bytes.HasPrefix(got, []byte(`data: {"error":"`)) {
		return // where events are asked for
	}
	if w.Code >= 300 {
		var p api.Problem
		reply.Want(w.Code, &p)
		if w.Code < 400 || w.Code >= 500 || p.Status != w.Code || api.TypeProblem != w.Header().Get("Content-Type") {
			t.Fatalf("%q is answered %d: %s", text, w.Code, got)
		}
	}
	for name, values := range w.Header() {
		if strings.ContainsAny(strings.Join(values, ""), "\r\n\x00") {
			t.Fatalf("%q is answered with a header %s of several lines: %q", text, name, values)
		}
	}
	servertest.CheckSchema(t, r, reply)
	if thread, err := f.Runtime.Get(ctx, "t1"); err != nil || len(thread.Runs) == 0 || len(thread.Runs[len(thread.Runs)-1].Asks) == 0 {
		f.seed(t)
	}
}

// FuzzRequest sends any request to a server.
func FuzzRequest(f *testing.F) {
	s := newFuzzed(f)
	ids := strings.NewReplacer("{thread}", "t1", "{run}", "RUN", "{ask}", "ASK", "{token}", "0123456789abcdef", "{rule}", "x",
		"{hash}", strings.Repeat("0", 64), "{name}", "signal", "{place...}", "shared/key", "{app}", "asker", "{user}", "ann", "{session}", "t1")
	m := &matrix{ask: "ASK", run: &perdure.Run{ID: "RUN"}}
	add := func(op *api.Info, body string) {
		head := ""
		if op.Takes != "" {
			head = "Content-Type: " + op.Takes + "\r\n"
		}
		f.Add(op.Method, ids.Replace(op.Path), head, body)
		f.Add("HEAD", ids.Replace(op.Path), head, "")
		f.Add("OPTIONS", ids.Replace(op.Path), head, "")
		f.Add(op.Method, ids.Replace(op.Path)+"?limit=1&after=1&run=RUN&until=wait", head+"If-Match: 1\r\nAccept: text/event-stream\r\nLast-Event-ID: 1.done\r\n", body)
		f.Add(op.Method, strings.TrimSuffix(ids.Replace(op.Path), "/key"), head, body)
		f.Add(op.Method, ids.Replace(op.Path)+"/", head, body)
	}
	for _, op := range api.All() {
		add(op, m.body(op))
	}
	for _, op := range s.Server.Faces() {
		add(op, m.faceBody())
	}
	f.Add("PUT", "/v1/memory", "", `{"value":1}`)
	f.Add("PUT", "/v1/memory//a//", "", `{"value":1}`)
	f.Add("PUT", "/v1/memory/a/%00/%2F", "If-None-Match: *\r\n", `{"value":1}`)
	f.Add("CONNECT", "localhost:80", "", "")
	f.Add("GET", "http://localhost/v1/threads", "", "")
	f.Add("GET", "http://elsewhere.example/v1/threads", "", "")
	f.Add("GET", "/v1/threads/%2e%2e/events", "Perdure-Tenant: x\r\n", "")
	f.Add("POST", "/v1/threads", "Perdure-As: ann\r\nIdempotency-Key: k\r\n", `{"id":"\u2028 ü","state":{"a":null,"agent.messages":5,"agent.todos":5}}`)
	f.Add("POST", "/v1/threads/t1/fork", "", `{"as":"t2","state":{"agent.messages":[{"message":5}],"agent.todos":"x","agent.file:a":1,"agent.file-info:a":1}}`)
	f.Add("POST", "/run_sse", "Last-Event-ID: 18446744073709551615\r\n", `{"appName":"asker","userId":"ann","sessionId":"t1","newMessage":{"parts":[{"text":"x"}]},}`)
	f.Add("POST", "/run", "", `{"appName":"asker","userId":"ann","sessionId":"t1","newMessage":{"parts":[{"functionResponse":{"id":"ASK","response":{"confirmed":true}}}]}}`)
	f.Fuzz(func(t *testing.T, method, target, head, body string) { s.request(t, method, target, head, body) })
}
