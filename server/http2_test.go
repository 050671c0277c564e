package server_test

import (
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store/memstore"
)

// h2Pipe is a listener with one connection.
type h2Pipe struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *h2Pipe) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *h2Pipe) Close() error { l.once.Do(func() { close(l.done) }); return nil }

func (l *h2Pipe) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

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
	near, far := net.Pipe()
	l := &h2Pipe{conns: make(chan net.Conn, 1), done: make(chan struct{})}
	l.conns <- far
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
		s := servertest.NewPiped(t, memstore.New(), server.Options{}, true, servertest.Large(func(int) int { return 30 << 10 }))
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
		s := servertest.NewPiped(t, memstore.New(), server.Options{}, true, servertest.Large(func(int) int { return 30 << 10 }))
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
