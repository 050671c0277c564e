package server_test

import (
	"bufio"
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
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store/sqlitestore"
)

// TestStalledReaderHoldsUpNobody lets readers that never read stand beside a
// run with megabytes of events.
func TestStalledReaderHoldsUpNobody(t *testing.T) {
	const steps, size = 96, 256 << 10
	store := servertest.Must(sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "s.db"), sqlitestore.Options{}))(t)
	s := servertest.NewOn(t, store, server.Options{Stall: 3 * time.Second}, servertest.Large(func(int) int { return size }))
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
		var stats api.Stats
		s.Do("GET", "/v1/stats", "").Want(200, &stats)
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
	s := servertest.New(t, server.Options{}, servertest.Flows()...)
	h := server.New(s.Runtime, server.Options{}).HTTPServer()
	if h.ReadHeaderTimeout == 0 || h.IdleTimeout == 0 || h.MaxHeaderBytes == 0 || h.WriteTimeout != 0 {
		t.Errorf("the limits are %v, %v, %v, %v", h.ReadHeaderTimeout, h.IdleTimeout, h.MaxHeaderBytes, h.WriteTimeout)
	}
	change(h)
	return servertest.Listen(t, h)
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
	s := servertest.New(t, server.Options{Body: 50 * time.Millisecond}, servertest.Flows()...)
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
