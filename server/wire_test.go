package server_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store/memstore"
)

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
}

func (l *oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l *oneConn) Close() error   { return nil }
func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }

// An answer that takes its time is not one that nobody reads, whatever the
// protocol; the next request on the connection has its own time.
func TestWaitingReadersAreNotStalledOnes(t *testing.T) {
	for _, two := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			rt := servertest.Must(perdure.New(t.Context(), memstore.New(), perdure.Options{}, whoFlow()))(t)
			servertest.Must(rt.Start(t.Context(), perdure.StartRequest{Flow: "buy", Thread: "t", Input: "x"}))(t)
			s := server.New(rt, server.Options{Stall: time.Second, Heartbeat: 10 * time.Second})
			h := s.HTTPServer()
			near, far := net.Pipe()
			l := &oneConn{make(chan net.Conn, 1), make(chan struct{})}
			l.conn <- far
			go h.Serve(l)
			tr := &http.Transport{Protocols: new(http.Protocols), DialContext: func(context.Context, string, string) (net.Conn, error) { return near, nil }}
			tr.Protocols.SetHTTP1(!two)
			tr.Protocols.SetUnencryptedHTTP2(two)
			defer func() {
				s.Close()
				tr.CloseIdleConnections()
				close(l.done)
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
