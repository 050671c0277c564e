package server_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
	_ "github.com/perdure/perdure/store/pgstore"     // postgres: URLs
	_ "github.com/perdure/perdure/store/sqlitestore" // sqlite: URLs
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
	const steps, size = 330, 60 << 10
	readers := 48
	if testing.Short() {
		readers = 12
	}
	st := memstore.New()
	tokens := authTokens(t, st)
	s := servertest.NewOn(t, st, server.Options{Auth: tokens, Stall: time.Hour}, largeFlow(func(int) int { return size }))
	s.Token = authSecret(t, tokens, "", "ann", api.ScopeRead, api.ScopeRun)
	s.Start("a", "large", steps)
	var page api.EventPage
	s.Do("GET", "/v1/threads/a/events?limit=1000&after=60", "").Want(200, &page)
	if len(page.Events) < 100 || page.Next != page.Events[len(page.Events)-1].Seq {
		t.Fatalf("the page has %d events, next is %d", len(page.Events), page.Next)
	}
	http.DefaultClient.CloseIdleConnections()
	page = api.EventPage{}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range readers {
		stalled(s, "/v1/threads/a/events?limit=1000&after=60", s.Token)
	}
	if used := s.Server.Used(); used.Requests != readers {
		t.Fatalf("%+v is under way", used)
	}
	// Handlers allocate until their connections are full; what they hold then
	// stays, since nobody reads.
	eventually(t, fmt.Sprintf("%d stalled pages of 8 MiB hold more than an eighth of it", readers), func() bool {
		runtime.GC()
		runtime.ReadMemStats(&after)
		return int64(after.HeapAlloc)-int64(before.HeapAlloc) <= int64(readers)*(8<<20)/8
	})
}

// TestLimitsAreByTokenTenantAndServer takes all that each may have.
func TestLimitsAreByTokenTenantAndServer(t *testing.T) {
	st := memstore.New()
	tokens := authTokens(t, st)
	s := servertest.NewOn(t, st, server.Options{Auth: tokens, Stall: time.Hour, MaxBody: 64 << 20,
		Limits:       server.Limits{Streams: 5, Requests: 6, Bytes: 33 << 20},
		TenantLimits: server.Limits{Streams: 3, Requests: 5, Bytes: 23 << 20},
		TokenLimits:  server.Limits{Streams: 2, Requests: 4, Bytes: 15 << 20}}, testFlows()...)
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

// TestOneUserTakesLittleMemory asks many times at once for a thread that is
// large, and sends many bodies, as one user. The heap stays within a multiple of
// the user's limit, and another user is served meanwhile.
func TestOneUserTakesLittleMemory(t *testing.T) {
	const limit, runs, size, callers = 8 << 20, 12, 1 << 20, 40
	looks := 50 // each collects garbage
	if testing.Short() {
		looks = 15
	}
	st := memstore.New()
	tokens := authTokens(t, st)
	s := servertest.NewOn(t, st, server.Options{Auth: tokens, Stall: time.Hour, UserLimits: server.Limits{Bytes: limit}},
		perdure.NewFlow("large", func(ctx context.Context, n int) (string, error) { return strings.Repeat("x", n), nil }))
	secret := func(user string) string {
		token := servertest.Must(tokens.Create(t.Context(), "acme", "", api.CreateToken{User: user, Scopes: []api.Scope{api.ScopeRead, api.ScopeRun}}))(t)
		return token.Secret
	}
	bob, ann := secret("bob"), secret("ann")
	run := func(user, thread string) {
		rt := s.Runtime.Tenant("acme").User(user)
		servertest.Must(rt.Start(t.Context(), perdure.StartRequest{Flow: "large", Thread: thread, User: user, Input: size}))(t)
		servertest.Must(rt.Wait(t.Context(), thread, ""))(t)
	}
	run("ann", "small")
	for range runs {
		run("bob", "large")
	}
	s.Token = bob
	// It is larger than the limit, and can be had all the same.
	if got := s.Do("GET", "/v1/threads/large", "").Want(200); len(got.Body) < runs*size {
		t.Fatalf("the answer has %d bytes", len(got.Body))
	}
	s.Token = ann
	heap := func() int64 {
		var now runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&now)
		return int64(now.HeapAlloc)
	}
	for what, request := range map[string]string{
		"reads":  "GET /v1/threads/large HTTP/1.1\r\n",
		"bodies": fmt.Sprintf("POST /v1/threads HTTP/1.1\r\nContent-Length: %d\r\n", 2*size),
	} {
		http.DefaultClient.CloseIdleConnections()
		before := heap()
		body := bytes.Repeat([]byte(" "), 2*size-1) // all but the last byte
		done := make(chan bool)
		for range callers {
			conn := slowDial(t, s.URL)
			go func() {
				fmt.Fprintf(conn, "%sHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", request, bob)
				if what == "bodies" {
					_, _ = conn.Write(body) // it may be refused before its end
				}
				<-done
				conn.Close()
			}()
		}
		eventually(t, "the requests do not begin", func() bool { return s.Server.Used().Bytes > limit/2 })
		for range looks {
			s.Do("GET", "/v1/threads/small", "").Want(200)
			if grown := heap() - before; grown > 8*limit {
				t.Fatalf("%s: the heap has grown by %d MiB beside a limit of %d", what, grown>>20, limit>>20)
			}
		}
		close(done)
		eventually(t, what+" stay", func() bool { return s.Server.Used() == server.Limits{} })
	}
}

// TestStalledReaderHoldsUpNobody lets readers that never read stand beside a
// run with megabytes of events.
func TestStalledReaderHoldsUpNobody(t *testing.T) {
	for name, url := range stores {
		t.Run(name, func(t *testing.T) {
			s := servertest.Must(store.Open(t.Context(), url(t)))(t)
			t.Cleanup(func() { s.Close() })
			stalledReader(t, s)
		})
	}
}

// stores has functions that return the URLs of new stores, by their name.
var stores = map[string]func(*testing.T) string{
	"sqlite":   func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "s.db") },
	"postgres": func(t *testing.T) string { return pgtest.Schema(pgtest.URL(t), t.TempDir()) },
}

func stalledReader(t *testing.T, store store.Store) {
	const steps, size = 96, 256 << 10
	s := servertest.NewOn(t, store, server.Options{Stall: 3 * time.Second}, largeFlow(func(int) int { return size }))
	s.Start("a", "large", 1)
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const readers = 5
	for range readers {
		conn := slowDial(t, s.URL)
		fmt.Fprintf(conn, "GET /v1/threads/a/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
	}
	reads := s.Open("/v1/threads/a/events")
	reads.Until("ended")
	read := make(chan bool)
	go func() {
		defer close(read)
		for b, ok := reads.Event(); ok && b.Kind != "ended"; b, ok = reads.Event() {
		}
	}()
	run := s.Start("a", "large", steps)
	if run.Status != perdure.Succeeded {
		t.Fatalf("the run is %s: %s", run.Status, run.Error)
	}
	<-read // who reads is not held up either
	for i := 0; ; i++ {
		stats := servertest.Decode[api.Stats](s.Do("GET", "/v1/stats", ""), 200)
		if stats.Streams == 1 {
			break
		}
		if i > 3000 {
			t.Fatalf("%d streams are open, and one is read", stats.Streams)
		}
		time.Sleep(10 * time.Millisecond)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 12<<20 {
		t.Errorf("the heap has grown by %d bytes beside events of %d", grown, steps*size)
	}
}

// slowDial connects with small buffers.
func slowDial(t *testing.T, url string) net.Conn {
	t.Helper()
	conn := servertest.Must(net.Dial("tcp", strings.TrimPrefix(url, "http://")))(t)
	t.Cleanup(func() { conn.Close() })
	_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	return conn
}

// slowServe serves an API with the limits of HTTPServer, some of them shorter.
func slowServe(t *testing.T, change func(*http.Server)) string {
	t.Helper()
	s := servertest.New(t, server.Options{}, testFlows()...)
	h := server.New(s.Runtime, server.Options{}).HTTPServer()
	if h.ReadHeaderTimeout == 0 || h.IdleTimeout == 0 || h.MaxHeaderBytes == 0 || h.WriteTimeout != 0 {
		t.Errorf("the limits are %v, %v, %v, %v", h.ReadHeaderTimeout, h.IdleTimeout, h.MaxHeaderBytes, h.WriteTimeout)
	}
	change(h)
	return listen(t, h)
}

func TestSlowHeaderIsCutOff(t *testing.T) {
	url := slowServe(t, func(h *http.Server) { h.ReadHeaderTimeout = 50 * time.Millisecond })
	conn := slowDial(t, url)
	fmt.Fprint(conn, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
	if _, err := io.ReadAll(conn); err != nil {
		t.Logf("it ends with %v", err)
	}
}

func TestSlowBodyIsCutOff(t *testing.T) {
	s := servertest.New(t, server.Options{Body: 50 * time.Millisecond}, testFlows()...)
	conn := slowDial(t, s.URL)
	fmt.Fprint(conn, "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return // without a word is as good
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("the answer is %s", resp.Status)
	}
	if _, err := io.ReadAll(conn); err != nil {
		t.Logf("it ends with %v", err)
	}
	// A body that is there in time gives its stream all the time.
	st := s.Open("/v1/events")
	if b, ok := st.Event(); !ok || b.Kind != api.KindOpen {
		t.Errorf("a stream begins with %v", b)
	}
}

func TestLargeHeadersAreRefused(t *testing.T) {
	url := slowServe(t, func(*http.Server) {})
	r, _ := http.NewRequestWithContext(t.Context(), "GET", url+"/healthz", nil)
	r.Header.Set("X-Large", strings.Repeat("x", 64<<10))
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return // cut off while it is sent
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("the answer is %s", resp.Status)
	}
}

// Who asks for much and reads nothing does not keep it in memory for ever.
func TestAnswersThatNobodyReadsEnd(t *testing.T) {
	s := servertest.New(t, server.Options{Stall: 50 * time.Millisecond})
	over, much := make(chan error, 1), make([]byte, 1<<20)
	s.Server.AddFace("GET /much", api.ScopeNone, func(w http.ResponseWriter, _ *http.Request, _ server.Caller) error {
		var err error
		for range 256 {
			if _, err = w.Write(much); err != nil {
				break
			}
		}
		over <- err
		return nil
	})
	conn := slowDial(t, s.URL)
	fmt.Fprint(conn, "GET /much HTTP/1.1\r\nHost: localhost\r\n\r\n")
	select {
	case err := <-over:
		if err == nil {
			t.Error("all of it was written though nothing was read")
		}
	case <-time.After(30 * time.Second):
		t.Error("the handler writes on")
	}
}
