package server_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store/memstore"
)

// guardServer returns a server whose face /face counts the requests that reach
// it.
func guardServer(t *testing.T, o server.Options) (*server.Server, *int) {
	t.Helper()
	rt := servertest.Must(perdure.New(t.Context(), memstore.New(), perdure.Options{}))(t)
	s, n := server.New(rt, o), new(int)
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
		s.AddFace(method+" /face", api.ScopeNone, func(w http.ResponseWriter, _ *http.Request, _ server.Caller) error {
			*n++
			_, err := io.WriteString(w, "{}")
			return err
		})
	}
	return s, n
}

func guardDo(s *server.Server, method, host string, headers ...string) *http.Response {
	r := httptest.NewRequest(method, "/face", nil)
	r.Host = host
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Result()
}

func TestGuardKnowsTheServersNames(t *testing.T) {
	local, n := guardServer(t, server.Options{})
	named, _ := guardServer(t, server.Options{Hosts: []string{"api.example", "odd.example:8080"}})
	open, _ := guardServer(t, server.Options{Hosts: []string{"*"}})
	for host, want := range map[string][2]int{
		"localhost":           {200, 200},
		"LocalHost:7373":      {200, 200},
		"localhost.":          {200, 200},
		"a.localhost:1":       {200, 200},
		"127.0.0.1:7373":      {200, 200},
		"127.9.9.9":           {200, 200},
		"[::1]:7373":          {200, 200},
		"[::1]":               {200, 200},
		"[::ffff:127.0.0.1]":  {200, 200},
		"api.example":         {403, 200},
		"API.example:443":     {403, 200},
		"odd.example:8080":    {403, 200},
		"odd.example:8081":    {403, 403},
		"evil.example":        {403, 403},
		"evil.example:7373":   {403, 403},
		"api.example.evil":    {403, 403},
		"localhost.evil":      {403, 403},
		"evillocalhost":       {403, 403},
		"127.0.0.1.evil":      {403, 403},
		"0.0.0.0:7373":        {403, 403},
		"[::]:7373":           {403, 403},
		"192.168.1.1":         {403, 403},
		"2130706433":          {403, 403},
		"":                    {403, 403},
		"evil@localhost":      {403, 403},
		"localhost:80@evil:1": {403, 403},
	} {
		before := *n
		for i, s := range []*server.Server{local, named} {
			if got := guardDo(s, "GET", host); got.StatusCode != want[i] {
				t.Errorf("host %q at server %d: %d, want %d", host, i, got.StatusCode, want[i])
			}
		}
		if (*n > before) != (want[0] == 200) {
			t.Errorf("host %q reached the handler %d times", host, *n-before)
		}
		if got := guardDo(open, "GET", host); got.StatusCode != 200 {
			t.Errorf("host %q at the open server: %d", host, got.StatusCode)
		}
	}
}

func TestGuardLetsNoPageFromElsewhereIn(t *testing.T) {
	auth := servertest.People{}
	for name, o := range map[string]server.Options{
		"dev":                 {},
		"dev with a star":     {Origins: []string{"*"}},
		"another is listed":   {Origins: []string{"https://console.example"}},
		"auth, none is given": {Auth: auth},
	} {
		s, n := guardServer(t, o)
		for _, headers := range [][]string{
			{"Origin", "https://evil.example"},
			{"Origin", "http://localhost:3000"}, // another server of this machine
			{"Origin", "http://localhost.evil:7373"},
			{"Origin", "null"},
			{"Origin", "file://"},
			{"Origin", "localhost:7373"},
			{"Origin", "http://localhost:7373", "Origin", "https://evil.example"},
			{"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"},
			{"Origin", "http://localhost:7373", "Sec-Fetch-Site", "cross-site"},
			{"Origin", "http://localhost:3000", "Sec-Fetch-Site", "same-site"},
			{"Sec-Fetch-Site", "cross-site"},
			{"Sec-Fetch-Site", "same-site"},
			{"Origin", "https://console.example.evil"},
			{"Origin", "http://console.example"},
		} {
			for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
				if got := guardDo(s, method, "localhost:7373", append(headers, "Access-Control-Request-Method", "POST")...); got.StatusCode != 403 || got.Header.Get("Access-Control-Allow-Origin") != "" {
					t.Errorf("%s: %s with %v is answered %d, %v", name, method, headers, got.StatusCode, got.Header)
				}
			}
			if *n > 0 {
				t.Fatalf("%s: a request with %v reached the handler", name, headers)
			}
			if got := guardDo(s, "GET", "localhost:7373", headers...); got.Header.Get("Access-Control-Allow-Origin") != "" || got.Header.Get("Access-Control-Allow-Credentials") != "" ||
				got.StatusCode == 200 && got.Header.Get("Cross-Origin-Resource-Policy") != "same-origin" {
				t.Errorf("%s: a page with %v may see the answer: %v", name, headers, got.Header)
			}
			*n = 0
		}
		for _, headers := range [][]string{
			{},
			{"Origin", "http://localhost:7373"},
			{"Origin", "http://localhost:7373", "Sec-Fetch-Site", "same-origin"},
			{"Sec-Fetch-Site", "none"},
		} {
			if got := guardDo(s, "POST", "localhost:7373", headers...); got.StatusCode != 200 {
				t.Errorf("%s: POST with %v is answered %d", name, headers, got.StatusCode)
			}
		}
		// Its name leads here: same origin for the browser, unknown to us.
		if got := guardDo(s, "POST", "evil.example:7373", "Origin", "http://evil.example:7373", "Sec-Fetch-Site", "same-origin"); got.StatusCode != 403 {
			t.Errorf("%s: rebinding is answered %d", name, got.StatusCode)
		}
	}
}

func TestGuardTellsListedPagesWhatTheyMay(t *testing.T) {
	for _, c := range []struct {
		origins []string
		creds   string
	}{{[]string{"https://Console.example/"}, "true"}, {[]string{"*"}, ""}} {
		s, n := guardServer(t, server.Options{Auth: servertest.People{}, Origins: c.origins})
		const origin = "https://console.example"
		got := guardDo(s, "OPTIONS", "localhost", "Origin", origin, "Access-Control-Request-Method", "DELETE", "Sec-Fetch-Site", "cross-site")
		h := got.Header
		if got.StatusCode != 204 || h.Get("Access-Control-Allow-Origin") != origin || h.Get("Access-Control-Allow-Credentials") != c.creds ||
			!strings.Contains(h.Get("Access-Control-Allow-Methods"), "DELETE") || !strings.Contains(h.Get("Access-Control-Allow-Headers"), "Last-Event-ID") || h.Get("Access-Control-Max-Age") == "" || *n != 0 {
			t.Errorf("the preflight is answered %d %v", got.StatusCode, h)
		}
		got = guardDo(s, "POST", "localhost", "Origin", origin, "Sec-Fetch-Site", "cross-site")
		h = got.Header
		if got.StatusCode != 200 || h.Get("Access-Control-Allow-Origin") != origin || h.Get("Access-Control-Allow-Credentials") != c.creds ||
			!strings.Contains(h.Get("Access-Control-Expose-Headers"), "ETag") || h.Get("Vary") != "Origin" || *n != 1 {
			t.Errorf("the request is answered %d %v", got.StatusCode, h)
		}
		// Also what is refused is told to the page.
		r := httptest.NewRequest("GET", "http://localhost/v1/flows", nil)
		r.Header.Set("Origin", origin)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != 401 || w.Header().Get("Access-Control-Allow-Origin") != origin {
			t.Errorf("without a token: %d %v", w.Code, w.Header())
		}
	}
}

func TestGuardSetsHeadersOnAllAnswers(t *testing.T) {
	s, _ := guardServer(t, server.Options{Auth: servertest.People{}})
	for _, path := range []string{"/face", "/healthz", "/v1/flows", "/none", "/v1//flows"} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost"+path, nil))
		h := w.Header()
		if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Cache-Control") != "no-store" || h.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: %d %v", path, w.Code, h)
		}
	}
}

func TestGuardSurvivesPanics(t *testing.T) {
	var log bytes.Buffer
	var mu sync.Mutex
	site := servertest.New(t, server.Options{Logger: slog.New(slog.NewTextHandler(&guardLog{&mu, &log}, nil))})
	site.Server.AddFace("GET /early", api.ScopeNone, func(w http.ResponseWriter, _ *http.Request, _ server.Caller) error {
		w.Header().Set("Content-Length", "1000")
		panic("an oops inside")
	})
	site.Server.AddFace("GET /late", api.ScopeNone, func(w http.ResponseWriter, _ *http.Request, _ server.Caller) error {
		fmt.Fprintln(w, "half")
		http.NewResponseController(w).Flush()
		panic(errors.New("an oops inside"))
	})
	site.Server.AddFace("GET /abort", api.ScopeNone, func(http.ResponseWriter, *http.Request, server.Caller) error {
		panic(http.ErrAbortHandler)
	})
	early := site.Do("GET", "/early", "").Problem(500, "internal")
	if bytes.Contains(early.Body, []byte("oops")) {
		t.Errorf("the caller is told what is inside: %s", early.Body)
	}
	for _, path := range []string{"/late", "/abort"} {
		resp, err := http.Get(site.URL + path)
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			resp.Body.Close()
		}
		if err == nil {
			t.Errorf("%s seems to be whole", path)
		}
	}
	site.Do("GET", "/healthz", "").Want(200)
	mu.Lock()
	defer mu.Unlock()
	if n := strings.Count(log.String(), "an oops inside"); n != 2 || !strings.Contains(log.String(), "http_test.go") {
		t.Errorf("the log tells of %d panics:\n%s", n, log.String())
	}
}

type guardLog struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l *guardLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func TestCheckListen(t *testing.T) {
	for addr, alone := range map[string]bool{
		"127.0.0.1:7373": true, "localhost:0": true, "LOCALHOST:1": true, "[::1]:7373": true, "127.8.8.8:1": true,
		":7373": false, "0.0.0.0:7373": false, "[::]:7373": false, "192.168.0.1:80": false, "example.com:80": false, "a.localhost:80": false,
	} {
		if err := server.CheckListen(addr, false, false); (err == nil) != alone {
			t.Errorf("%s: %v", addr, err)
		}
		if err := errors.Join(server.CheckListen(addr, true, false), server.CheckListen(addr, false, true)); err != nil {
			t.Errorf("%s, as it is meant: %v", addr, err)
		}
	}
	if err := server.CheckListen("7373", true, true); err == nil {
		t.Error("7373 is taken for an address")
	}
}

// gateDial connects, and gives up when the server does not answer at all.
func gateDial(t *testing.T, url string) net.Conn {
	t.Helper()
	conn := slowDial(t, url)
	servertest.Check(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	return conn
}

// TestEveryRoutePassesTheGate walks all routes that the server has, and what it
// answers for want of one: each refuses foreign hosts and pages, and waits for
// no body of someone whom it does not know.
func TestEveryRoutePassesTheGate(t *testing.T) {
	m := newMatrix(t)
	patient := server.New(m.Runtime, server.Options{Auth: m.tokens, Body: time.Hour, Faces: allFaces()})
	url := listen(t, patient.HTTPServer())
	ask := func(method, path, host, rest string) (*http.Response, error) {
		conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: %s\r\n%s", method, path, host, rest)
		in := bufio.NewReader(conn)
		resp, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			return nil, err
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			return nil, err
		}
		if resp.Close {
			n, err := io.Copy(io.Discard, in)
			if timeout, ok := err.(net.Error); n > 0 || ok && timeout.Timeout() {
				return nil, fmt.Errorf("%d bytes after the answer, then %w", n, err)
			}
		}
		return resp, nil
	}
	routes := append(patient.Patterns(), "GET /none", "POST /", "DELETE /healthz", "GET /v1//threads", "OPTIONS /v1/threads")
	if len(routes) < 60 {
		t.Fatalf("only %d routes are known", len(routes))
	}
	var all sync.WaitGroup // a body that is not read gets a moment each time
	for _, route := range routes {
		all.Go(func() {
			method, path, _ := strings.Cut(route, " ")
			path = m.ids.Replace(path)
			probe := method == "GET" && (path == "/healthz" || path == "/readyz")
			if got, err := ask(method, path, "evil.example", "\r\n"); err != nil || got.StatusCode != 403 && !probe {
				t.Errorf("%s for a foreign host is answered %v, %v", route, got, err)
			}
			got, err := ask(method, path, "localhost", "Origin: https://evil.example\r\n\r\n")
			if err != nil || method != "GET" && got.StatusCode != 403 || got.Header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%s for a foreign page is answered %v, %v", route, got, err)
			}
			for _, length := range []string{"Content-Length: 1000", "Content-Length: 10000000", "Transfer-Encoding: chunked"} {
				got, err := ask(method, path, "localhost", length+"\r\n\r\n1")
				if err != nil || got.Header.Get("X-Content-Type-Options") != "nosniff" || got.Header.Get("Cache-Control") != "no-store" || !got.Close {
					t.Errorf("%s with a slow body is answered %v, %v", route, got, err)
				}
			}
		})
	}
	all.Wait()
}

// TestConnectionsAreBounded holds many connections that ask for nothing.
func TestConnectionsAreBounded(t *testing.T) {
	s := servertest.New(t, server.Options{})
	url := listen(t, server.New(s.Runtime, server.Options{Connections: 8}).HTTPServer())
	busy := gateDial(t, url)
	fmt.Fprint(busy, "GET /v1/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
	servertest.Must(http.ReadResponse(bufio.NewReader(busy), nil))(t)
	var silent []net.Conn
	for range 50 {
		silent = append(silent, gateDial(t, url))
	}
	conn := gateDial(t, url)
	fmt.Fprint(conn, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
	if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != 200 {
		t.Fatalf("a request beside silent connections: %v, %v", resp, err)
	}
	for _, c := range silent[:43] { // 1 follows, 1 has asked, 6 are left
		if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil {
			t.Fatal("the server says something unasked")
		} else if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
			t.Fatal("a silent connection stays although there are too many")
		}
	}
	if _, err := busy.Write([]byte("x")); err != nil {
		t.Errorf("the connection with a request was closed: %v", err)
	}
}

// wire sends bytes to a server with its limits and returns the first answer, its
// status 0 if there is none. Through ends what is sent.
func wire(t *testing.T, s *servertest.Site, text string, through bool) *servertest.Reply {
	t.Helper()
	conn := slowDial(t, s.URL)
	servertest.Must(io.WriteString(conn, text))(t)
	if through { // who says no more may be gone, so what they asked for is given up
		conn.(*net.TCPConn).CloseWrite()
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return new(servertest.Reply)
	}
	return servertest.ReplyOf(t, resp)
}

// Requests as no library sends them.
func TestRequestsOnTheWire(t *testing.T) {
	s := newFuzzed(t)
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	io.WriteString(z, `{"id":"zipped"}`)
	z.Close()
	const create, body = "POST /v1/threads HTTP/1.1\r\nHost: localhost\r\n", `{"id":"wire"}`
	for name, c := range map[string]struct {
		text   string
		status int // 0: any, also none
	}{
		"a target of another host":         {"GET http://evil.example/v1/threads HTTP/1.1\r\nHost: localhost\r\n\r\n", 403},
		"a target of this host":            {"GET http://localhost/v1/threads HTTP/1.1\r\nHost: evil.example\r\n\r\n", 200},
		"two hosts":                        {"GET /v1/threads HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", 400},
		"no host":                          {"GET /v1/threads HTTP/1.0\r\n\r\n", 403},
		"hosts of proxies":                 {"GET /v1/threads HTTP/1.1\r\nHost: evil.example\r\nX-Forwarded-Host: localhost\r\nForwarded: host=localhost\r\n\r\n", 403},
		"another method":                   {"GET /v1/threads/t1 HTTP/1.1\r\nHost: localhost\r\nX-HTTP-Method-Override: DELETE\r\n\r\n", 200},
		"another method in the query":      {"GET /v1/threads/t1?_method=DELETE HTTP/1.1\r\nHost: localhost\r\n\r\n", 400},
		"all of the server":                {"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", 200},
		"a tunnel":                         {"CONNECT localhost:1 HTTP/1.1\r\nHost: localhost\r\n\r\n", 404},
		"a way up":                         {"GET /v1/threads/../me HTTP/1.1\r\nHost: localhost\r\n\r\n", 404},
		"a way up in disguise":             {"GET /v1/threads/%2e%2e HTTP/1.1\r\nHost: localhost\r\n\r\n", 404},
		"a slash in disguise":              {"GET /v1/threads%2Ft1 HTTP/1.1\r\nHost: localhost\r\n\r\n", 404},
		"a NUL":                            {"GET /v1/threads/t1%00 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400},
		"lines in an id":                   {"GET /v1/threads/a%0d%0aX:%20y HTTP/1.1\r\nHost: localhost\r\n\r\n", 400},
		"a body that ends early":           {create + "Content-Length: 100\r\n\r\n" + body, 400},
		"two lengths":                      {create + "Content-Length: 13\r\nContent-Length: 5\r\n\r\n" + body, 400},
		"a length and chunks":              {create + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 201},
		"chunks that end early":            {create + "Transfer-Encoding: chunked\r\n\r\nd\r\n" + body, 400},
		"chunks that are none":             {create + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400},
		"an unknown coding":                {create + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501},
		"a token behind the body":          {create + "Transfer-Encoding: chunked\r\nTrailer: Perdure-Tenant\r\n\r\n2\r\n{}\r\n0\r\nPerdure-Tenant: evil\r\n\r\n", 201},
		"a body that is packed":            {create + "Content-Encoding: gzip\r\nContent-Length: " + strconv.Itoa(zipped.Len()) + "\r\n\r\n" + zipped.String(), 415},
		"a body of another type":           {create + "Content-Type: text/plain\r\nContent-Length: 13\r\n\r\n" + body, 415},
		"a body of two types":              {create + "Content-Type: application/json\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\r\n" + body, 415},
		"a form":                           {create + "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 13\r\n\r\n" + body, 415},
		"a folded header":                  {"GET /v1/me HTTP/1.1\r\nHost: localhost\r\nPerdure-As: a\r\n b\r\n\r\n", 0},
		"a query of very many":             {"GET /v1/threads?" + strings.Repeat("a&", 15000) + " HTTP/1.1\r\nHost: localhost\r\n\r\n", 400},
		"a stream whose reader is through": {"GET /v1/threads/t1/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n", 0},
	} {
		got := wire(t, s.Site, c.text, strings.Contains(name, " early") || strings.Contains(name, "through"))
		if c.status != 0 && got.Status != c.status {
			t.Errorf("%s: %d, want %d: %s", name, got.Status, c.status, got.Body)
		}
		if got.Status >= 400 && got.Status < 500 && !json.Valid(got.Body) && !strings.HasPrefix(string(got.Body), "400 Bad Request") {
			t.Errorf("%s: %s", name, got.Body)
		}
	}
	s.Do("GET", "/v1/threads/zipped", "").Want(404)
	if other, err := s.Runtime.Tenant("evil").Get(t.Context(), "t1"); err == nil {
		t.Errorf("a trailer is who asks: %v", other)
	}
}

// oneConn is a listener with one connection.
type oneConn struct {
	conn chan net.Conn
	done chan struct{}
	once sync.Once
}

// pipe returns a listener, and the other end of its only connection.
func pipe() (*oneConn, net.Conn) {
	near, far := net.Pipe()
	l := &oneConn{conn: make(chan net.Conn, 1), done: make(chan struct{})}
	l.conn <- far
	return l, near
}

func (l *oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l *oneConn) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// An answer that takes its time is not one that nobody reads, whatever the
// protocol; the next request on the connection has its own time.
func TestWaitingReadersAreNotStalledOnes(t *testing.T) {
	for _, two := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			rt := servertest.Must(perdure.New(t.Context(), memstore.New(), perdure.Options{}, whoFlow()))(t)
			servertest.Must(rt.Start(t.Context(), perdure.StartRequest{Flow: "buy", Thread: "t", Input: "x"}))(t)
			s := server.New(rt, server.Options{Stall: time.Second, Heartbeat: 10 * time.Second})
			h := s.HTTPServer()
			l, near := pipe()
			go h.Serve(l)
			tr := &http.Transport{Protocols: new(http.Protocols), DialContext: func(context.Context, string, string) (net.Conn, error) { return near, nil }}
			tr.Protocols.SetHTTP1(!two)
			tr.Protocols.SetUnencryptedHTTP2(two)
			defer func() {
				s.Close()
				tr.CloseIdleConnections()
				h.Close()
			}()
			client := &http.Client{Transport: tr}
			for _, path := range []string{"/v1/threads/t", "/v1/threads/t/runs/newest/wait?seconds=30", "/healthz", "/v1/threads/t/events"} {
				time.Sleep(5 * time.Second)
				r, _ := http.NewRequestWithContext(t.Context(), "GET", "http://localhost"+path, nil)
				if strings.HasSuffix(path, "events") {
					r.Header.Set("Accept", "text/event-stream")
				}
				resp, err := client.Do(r)
				if err != nil || resp.StatusCode != 200 {
					t.Fatalf("%s: %v, %v", path, resp, err)
				}
				lines := bufio.NewScanner(resp.Body)
				for beats := 0; beats < 3 && lines.Scan(); {
					if lines.Text() == ":" {
						beats++
					}
				}
				if lines.Err() != nil {
					t.Errorf("%s: %v", path, lines.Err())
				}
				resp.Body.Close()
			}
		})
	}
}

// h2Frame returns a frame.
func h2Frame(kind, flags byte, stream uint32, payload []byte) []byte {
	b := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	return append(binary.BigEndian.AppendUint32(b, stream), payload...)
}

// h2Get returns the frames that ask for a stream of events.
func h2Get(stream uint32, path string) []byte {
	text := func(b []byte, s string) []byte { return append(append(b, byte(len(s))), s...) }
	h := []byte{0x82, 0x86}                              // GET, http
	h = text(append(h, 0x04), path)                      // :path
	h = text(append(h, 0x01), "localhost")               // :authority
	h = text(append(h, 0x0f, 0x04), "text/event-stream") // accept
	return h2Frame(1, 0x5, stream, h)
}

// h2Dial begins a connection whose windows are as large as they can be.
func h2Dial(t *testing.T, s *server.Server, window uint32) (conn net.Conn, out chan<- []byte, closed <-chan struct{}) {
	t.Helper()
	l, near := pipe()
	h := s.HTTPServer()
	over := make(chan struct{})
	h.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			close(over)
		}
	}
	served := make(chan error, 1)
	go func() { served <- h.Serve(l) }()
	t.Cleanup(func() {
		near.Close()
		h.Close()
		<-served
	})
	hello := []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	hello = append(hello, h2Frame(4, 0, 0, binary.BigEndian.AppendUint32([]byte{0, 4}, window))...)
	hello = append(hello, h2Frame(8, 0, 0, binary.BigEndian.AppendUint32(nil, 1<<31-1-65535))...)
	frames := make(chan []byte, 100)
	frames <- hello
	go func() {
		for b := range frames {
			_, _ = near.Write(b)
		}
	}()
	t.Cleanup(func() { close(frames) })
	return near, frames, over
}

// TestConnectionThatTakesNothingIsClosed never reads from a connection of
// HTTP/2, whose streams could have as much as they like.
func TestConnectionThatTakesNothingIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPiped(t, memstore.New(), server.Options{}, true, largeFlow(func(int) int { return 30 << 10 }))
		s.Start("a", "large", 100)
		_, out, closed := h2Dial(t, s.Server, 1<<31-1)
		out <- h2Get(1, "/v1/threads/a/events")
		select {
		case <-closed:
		case <-time.After(5 * time.Minute):
			t.Error("the connection stays for ever")
		}
	})
}

// TestStalledStreamHoldsUpNoOther lets a stream of a connection of HTTP/2 have no
// window: others on the connection go on, and it is ended.
func TestStalledStreamHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPiped(t, memstore.New(), server.Options{}, true, largeFlow(func(int) int { return 30 << 10 }))
		s.Start("a", "large", 10)
		conn, out, closed := h2Dial(t, s.Server, 1000)
		out <- h2Get(1, "/v1/threads/a/events")
		out <- h2Get(3, "/v1/threads/a/events")
		got, reset := 0, false
		cut := time.AfterFunc(10*time.Minute, func() { conn.Close() })
		defer cut.Stop()
		for got < 300<<10 || !reset {
			head := make([]byte, 9)
			if _, err := io.ReadFull(conn, head); err != nil {
				t.Fatalf("behind %d bytes: %v", got, err)
			}
			payload := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
			servertest.Must(io.ReadFull(conn, payload))(t)
			stream := binary.BigEndian.Uint32(head[5:])
			switch {
			case head[3] == 0 && stream == 3:
				got += len(payload)
				if len(payload) > 0 {
					out <- h2Frame(8, 0, 3, binary.BigEndian.AppendUint32(nil, uint32(len(payload))))
				}
			case head[3] == 4 && head[4] == 0:
				out <- h2Frame(4, 1, 0, nil)
			case head[3] == 3 && stream == 1:
				reset = true
			case head[3] == 6 && head[4] == 0:
				out <- h2Frame(6, 1, 0, payload)
			}
		}
		select {
		case <-closed:
			t.Error("the connection is closed")
		default:
		}
	})
}
