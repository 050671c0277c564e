package server_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/server"
)

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
	url := servertest.Listen(t, patient.HTTPServer())
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
	url := servertest.Listen(t, server.New(s.Runtime, server.Options{Connections: 8}).HTTPServer())
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
