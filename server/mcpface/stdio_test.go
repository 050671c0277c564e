package mcpface_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/server/mcpface"
)

// hello begins a session, with the id 0.
const hello = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
`

// say writes lines to a server on the standard input, and returns all answers.
func say(t *testing.T, url string, o client.Options, lines string) string {
	t.Helper()
	var out bytes.Buffer
	c := servertest.Must(client.New(url, o))(t)
	servertest.Check(t, mcpface.ServeIO(t.Context(), c, strings.NewReader(hello+lines), &out, mcpface.Options{}))
	return out.String()
}

// A token that the server does not accept is refused when a session begins and when
// tools are listed. Of others the scopes decide which tools there are.
func TestInvalidTokenListsNoTools(t *testing.T) {
	s := newSite(t, true, echo)
	const list = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}` + "\n"
	of := map[api.Scope]string{api.ScopeRead: `"threads_get"`, api.ScopeRun: `"runs_start"`, api.ScopeAnswer: `"asks_answer"`}
	for scope := range of {
		good := s.secret(api.CreateToken{Subject: "x", Scopes: []api.Scope{scope}})
		got := say(t, s.URL, client.Options{Token: good}, list)
		for other, tool := range of {
			if strings.Contains(got, tool) != (scope == other) {
				t.Errorf("%s: %s: %s", scope, tool, got)
			}
		}
	}
	got := say(t, s.URL, client.Options{Token: "perdure_wrong"}, list)
	if strings.Contains(got, "result") || strings.Count(got, "unauthorized (401)") == 0 || strings.Count(got, "\n") != 2 {
		t.Errorf("%s", got)
	}
}

// A gateway without a server behind it is a server that is away.
func TestGatewayWithoutServer(t *testing.T) {
	for _, status := range []int{302, 429, 502, 503, 504, 521} {
		gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "https://login.example/")
			http.Error(w, "<h1>no upstream</h1>", status)
		}))
		defer gateway.Close()
		got := say(t, gateway.URL, client.Options{Attempts: -1}, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"threads_list"}}`+"\n")
		if !strings.Contains(got, "urn:perdure:problem:unavailable") || !strings.Contains(got, fmt.Sprint("answers ", status)) {
			t.Errorf("%d: %s", status, got)
		}
	}
}

// A server that is frozen is unavailable, and one that only takes long is waited for.
func TestSilentServer(t *testing.T) {
	mcpface.SetSilence(t, time.Second)
	s := newSite(t, false, echo)
	to := httputil.NewSingleHostReverseProxy(servertest.Must(url.Parse(s.URL))(t))
	var frozen atomic.Bool
	over, asked := make(chan struct{}), make(chan struct{}, 100)
	gate := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case frozen.Load():
			<-over
		case r.URL.Path == "/v1/threads":
			<-asked // it has been silent so long that it was asked whether it is there
		}
		to.ServeHTTP(w, r)
		if r.URL.Path == api.HealthGet.Path {
			asked <- struct{}{}
		}
	}))
	defer gate.Close()
	defer close(over)
	const list = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"threads_list"}}` + "\n"
	if got := say(t, gate.URL, client.Options{}, list); !strings.Contains(got, `"threads"`) {
		t.Errorf("a slow server: %s", got)
	}
	mcpface.SetSilence(t, 250*time.Millisecond)
	var dark atomic.Bool
	wire := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		if dark.Load() {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}}
	for _, away := range []struct {
		flag *atomic.Bool
		says string
	}{{&dark, "nothing answers at the address of the server; it, or the network, may be down; nothing was sent"}, {&frozen, "says nothing"}} {
		c := servertest.Must(client.New(gate.URL, client.Options{HTTP: &http.Client{Transport: wire}}))(t)
		in, write := io.Pipe()
		read, out := io.Pipe()
		done := make(chan error, 1)
		go func() { done <- mcpface.ServeIO(t.Context(), c, in, out, mcpface.Options{}) }()
		answers := bufio.NewReader(read)
		servertest.Must(io.WriteString(write, hello))(t)
		servertest.Must(answers.ReadString('\n'))(t)
		away.flag.Store(true)
		servertest.Must(io.WriteString(write, list))(t)
		if got := servertest.Must(answers.ReadString('\n'))(t); !strings.Contains(got, "unavailable (503)") || !strings.Contains(got, away.says) {
			t.Errorf("a server that %s: %s", away.says, got)
		}
		servertest.Check(t, write.Close())
		servertest.Check(t, <-done)
		dark.Store(false)
	}
}

// A server that comes after the session has begun is not unknown before, and its flows
// are announced when it is there.
func TestServerComesLate(t *testing.T) {
	s := newSite(t, false, echo)
	var open atomic.Bool
	to := httputil.NewSingleHostReverseProxy(servertest.Must(url.Parse(s.URL))(t))
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !open.Load() {
			http.Error(w, "no upstream", http.StatusBadGateway)
			return
		}
		to.ServeHTTP(w, r)
	}))
	defer gateway.Close()
	c := servertest.Must(client.New(gateway.URL, client.Options{Attempts: -1}))(t)
	in, write := io.Pipe()
	read, out := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- mcpface.ServeIO(t.Context(), c, in, out, mcpface.Options{}) }()
	answers := bufio.NewReader(read)
	line := func(want string) {
		t.Helper()
		if got := servertest.Must(answers.ReadString('\n'))(t); !strings.Contains(got, want) {
			t.Fatalf("no %s in %s", want, got)
		}
	}
	const call = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"flow_echo","arguments":{"input":"x"}}}` + "\n"
	servertest.Must(io.WriteString(write, hello))(t)
	line(`"id":0`)
	servertest.Must(io.WriteString(write, call))(t)
	line("urn:perdure:problem:unavailable")
	open.Store(true)
	line("notifications/tools/list_changed")
	servertest.Must(io.WriteString(write, call))(t)
	line("call events_follow or runs_wait")
	servertest.Check(t, write.Close())
	servertest.Check(t, <-done)
}

// A call that is cancelled gets no answer, and is not waited for.
func TestCancelledLineIsNotAnswered(t *testing.T) {
	s := newSite(t, false, asker)
	s.Begin("t1", "asker", "x")
	run := servertest.Must(s.Runtime.Wait(t.Context(), "t1", ""))(t)
	for _, id := range []string{"7", `"seven"`} {
		c := servertest.Must(client.New(s.URL, client.Options{}))(t)
		in, write := io.Pipe()
		read, out := io.Pipe()
		done := make(chan error, 1)
		go func() {
			done <- mcpface.ServeIO(t.Context(), c, in, out, mcpface.Options{})
			out.Close()
		}()
		answers := bufio.NewReader(read)
		servertest.Must(io.WriteString(write, hello))(t)
		servertest.Must(answers.ReadString('\n'))(t)
		servertest.Must(io.WriteString(write, `{"jsonrpc":"2.0","id":`+id+`,"method":"tools/call","params":{"name":"runs_wait","arguments":{"thread":"t1","run":"`+run.ID+`","end":true,"seconds":45}}}
{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+id+`}}
{"jsonrpc":"2.0","id":8,"method":"ping"}
`))(t)
		servertest.Check(t, write.Close())
		rest := servertest.Must(io.ReadAll(answers))(t)
		if got := string(rest); !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":8,"result"`) || strings.Count(got, "\n") != 1 {
			t.Errorf("%s: %s", id, got)
		}
		servertest.Check(t, <-done)
	}
}
