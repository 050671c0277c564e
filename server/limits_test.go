package server_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store/memstore"
)

// stalled asks for something and reads no more than the head of the answer.
func stalled(s *servertest.Site, path, token string) net.Conn {
	s.T.Helper()
	conn := slowDial(s.T.(*testing.T), s.URL)
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", path, token)
	resp, err := http.ReadResponse(bufio.NewReaderSize(conn, 16), nil)
	if err != nil || resp.StatusCode != 200 {
		s.T.Fatalf("%s is answered %v, %v", path, resp, err)
	}
	return conn
}

// eventually waits until something is so.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for range 6000 {
		if is() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal(what)
}

// TestStalledPagesOfEventsTakeLittleMemory asks for large pages many times and
// reads none of them.
func TestStalledPagesOfEventsTakeLittleMemory(t *testing.T) {
	const steps, size, readers = 900, 60 << 10, 48
	st := memstore.New()
	tokens := authTokens(t, st)
	s := servertest.NewOn(t, st, server.Options{Auth: tokens, Stall: time.Hour}, servertest.Large(func(int) int { return size }))
	s.Token = authSecret(t, tokens, "", "ann", api.ScopeRead, api.ScopeRun)
	s.Start("a", "large", steps)
	var page api.EventPage
	s.Do("GET", "/v1/threads/a/events?limit=1000&after=600", "").Want(200, &page)
	if len(page.Events) < 100 || page.Next != page.Events[len(page.Events)-1].Seq {
		t.Fatalf("the page has %d events, next is %d", len(page.Events), page.Next)
	}
	http.DefaultClient.CloseIdleConnections()
	page = api.EventPage{}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range readers {
		stalled(s, "/v1/threads/a/events?limit=1000&after=600", s.Token)
	}
	if used := s.Server.Used(); used.Requests != readers {
		t.Fatalf("%+v is under way", used)
	}
	// Handlers allocate until their connections are full; what they hold then
	// stays, since nobody reads.
	eventually(t, fmt.Sprintf("%d stalled pages of 8 MiB hold more than an eighth of it", readers), func() bool {
		runtime.GC()
		runtime.ReadMemStats(&after)
		return int64(after.HeapAlloc)-int64(before.HeapAlloc) <= readers*(8<<20)/8
	})
}

// TestLimitsAreByTokenTenantAndServer takes all that each may have.
func TestLimitsAreByTokenTenantAndServer(t *testing.T) {
	st := memstore.New()
	tokens := authTokens(t, st)
	s := servertest.NewOn(t, st, server.Options{Auth: tokens, Stall: time.Hour, MaxBody: 64 << 20,
		Limits:       server.Limits{Streams: 5, Requests: 6, Bytes: 33 << 20},
		TenantLimits: server.Limits{Streams: 3, Requests: 5, Bytes: 23 << 20},
		TokenLimits:  server.Limits{Streams: 2, Requests: 4, Bytes: 15 << 20}}, servertest.Flows()...)
	token := func(tenant, subject string) string {
		return authSecret(t, tokens, tenant, subject, api.ScopeRead, api.ScopeRun)
	}
	ann, ben, cat, eve := token("acme", "ann"), token("acme", "ben"), token("other", "cat"), token("third", "eve")
	want := func(who, path string, status int, kind string) {
		t.Helper()
		s.Token = who
		got := s.Do("GET", path, "", "Accept", map[bool]string{true: api.TypeEvents, false: api.TypeJSON}[path == "/v1/events"]).Problem(status, kind)
		if got.Header.Get("Retry-After") == "" {
			t.Errorf("%s is answered without Retry-After: %v", path, got.Header)
		}
	}
	var open []net.Conn
	for _, who := range []string{ann, ann, ben, cat, cat} {
		open = append(open, stalled(s, "/v1/events", who))
	}
	want(ann, "/v1/events", 429, "too-many")
	want(ben, "/v1/events", 429, "too-many")   // the tenant has 3
	want(eve, "/v1/events", 503, "overloaded") // the server has 5
	for _, c := range open {
		c.Close()
	}
	eventually(t, "streams stay", func() bool { return s.Server.Used() == server.Limits{} })

	open = nil
	state, _ := json.Marshal(map[string]any{"id": "large", "state": map[string]string{"k": strings.Repeat("x", 6<<20)}})
	for _, who := range []string{ann, cat, eve} {
		s.Token = who
		s.Do("POST", "/v1/threads", string(state)).Want(201)
	}
	for _, who := range []string{ann, ann, ben, cat, cat} {
		open = append(open, stalled(s, "/v1/threads/large/state", who))
	}
	want(ann, "/v1/threads/large/state", 429, "too-many")
	want(ben, "/v1/threads/large/state", 429, "too-many")
	want(eve, "/v1/threads/large/state", 503, "overloaded")
	if used := s.Server.Used(); used.Requests != 5 || used.Bytes < 30<<20 {
		t.Errorf("%+v is under way", used)
	}
	s.Token = ann
	s.Do("PATCH", "/v1/threads/large", `{"title":"x"}`).Want(200) // what is small is no burden, and what is done is told
	for _, c := range open {
		c.Close()
	}
	eventually(t, "requests stay", func() bool { return s.Server.Used() == server.Limits{} })

	open = nil
	for range 4 { // each is under way for as long as its body takes
		conn := slowDial(t, s.URL)
		fmt.Fprintf(conn, "POST /v1/threads HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: 1000\r\n\r\n{", ann)
		open = append(open, conn)
	}
	eventually(t, "requests do not begin", func() bool { return s.Server.Used().Requests == 4 })
	want(ann, "/v1/flows", 429, "too-many")
	s.Token = ben
	s.Do("GET", "/v1/flows", "").Want(200)
	s.Do("GET", "/healthz", "").Want(200)
	for _, c := range open {
		c.Close()
	}
	eventually(t, "requests stay", func() bool { return s.Server.Used() == server.Limits{} })
}
