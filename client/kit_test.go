package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/inproc"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store/memstore"
)

// site is a server with a worker in this process, and a client of it.
type site struct {
	*client.Client
	t    testing.TB
	rt   *perdure.Runtime
	wire *wire
}

// wire is the network between a client and a server. Its zero value has no
// server.
type wire struct {
	mu     sync.Mutex
	dial   func(context.Context, string, string) (net.Conn, error)
	stop   func()
	keep   func() int // of the next connection: how many bytes the client gets; nil: all
	dials  int
	served http.Handler
}

// served returns the network to a handler.
func served(t testing.TB, h http.Handler) *wire {
	t.Helper()
	w := &wire{}
	w.serve(h)
	t.Cleanup(w.close)
	return w
}

// serve lets a handler answer, in place of the one before.
func (w *wire) serve(h http.Handler) {
	w.close()
	c, stop := inproc.Serve(h)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dial, w.stop, w.served = c.Transport.(*http.Transport).DialContext, stop, h
}

// close ends the server, and all connections to it.
func (w *wire) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stop != nil {
		w.stop()
	}
	w.dial, w.stop = nil, nil
}

func (w *wire) connect(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	dial, keep := w.dial, w.keep
	w.dials++
	w.mu.Unlock()
	if dial == nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	conn, err := dial(ctx, network, address)
	if err == nil && keep != nil {
		conn = &shortConn{conn, keep()}
	}
	return conn, err
}

// shortConn is cut after some bytes.
type shortConn struct {
	net.Conn
	left int
}

func (c *shortConn) Read(b []byte) (int, error) {
	if c.left <= 0 {
		c.Close()
		return 0, &net.OpError{Op: "read", Net: "pipe", Err: syscall.ECONNRESET}
	}
	n, err := c.Conn.Read(b[:min(len(b), c.left)])
	c.left -= n
	return n, err
}

// client returns a client over the wire.
func (w *wire) client(t testing.TB, o client.Options) *client.Client {
	t.Helper()
	transport := &http.Transport{DialContext: w.connect}
	o.HTTP = &http.Client{Transport: transport}
	t.Cleanup(transport.CloseIdleConnections)
	return servertest.Must(client.New("http://perdure.localhost", o))(t)
}

// newSite starts a runtime with a worker and a server on a store in memory.
func newSite(t testing.TB, o client.Options, flows ...perdure.Flow) *site {
	t.Helper()
	s := &site{t: t, rt: servertest.Start(t, memstore.New(), server.Options{}, true, flows...).Runtime, wire: &wire{}}
	s.open()
	t.Cleanup(s.wire.close)
	s.Client = s.wire.client(t, o)
	return s
}

// open serves the runtime by a new server.
func (s *site) open() {
	s.wire.serve(server.New(s.rt, server.Options{}))
}

// restart serves the runtime by another server, after all connections broke.
func (s *site) restart() {
	s.wire.close()
	s.open()
}

// start starts a run and fails if it cannot.
func (s *site) start(q perdure.StartRequest) *perdure.Run {
	s.t.Helper()
	return servertest.Must(s.Start(s.t.Context(), q))(s.t)
}

// end waits for the end of a thread's newest run, not forever.
func (s *site) end(thread string) *perdure.Run {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Hour)
	defer cancel()
	return servertest.Must(s.WaitEnd(ctx, thread, ""))(s.t)
}

// journal returns the events of a thread as the runtime tells them.
func (s *site) journal(thread string) []perdure.Event {
	s.t.Helper()
	return servertest.All(s.t, s.rt.Events(s.t.Context(), thread, perdure.EventOptions{Replay: true}))
}

// The flows.
var (
	echo = perdure.NewFlow("echo", func(ctx context.Context, in string) (string, error) {
		return perdure.Step(ctx, "say", func(context.Context) (string, error) { return in, nil })
	})
	failing   = perdure.NewFlow("failing", func(context.Context, string) (string, error) { return "", errNoLuck })
	errNoLuck = perdure.Coded("no-luck", errors.New("no luck"))
	asking    = perdure.NewFlow("asking", func(ctx context.Context, n int) (string, error) {
		words, g := make([]string, n), perdure.NewGroup(ctx)
		for i := range n {
			g.Go(fmt.Sprintf("b%d", i), func(ctx context.Context) error {
				a, err := perdure.Ask[perdure.Answer](ctx, "ok", perdure.Question{Prompt: "Now?", Kind: "approval", Decisions: []string{"approve", "reject"}})
				words[i] = a.Decision
				return err
			})
		}
		err := g.Wait()
		return strings.Join(words, " "), err
	})
	counting = perdure.NewFlow("counting", func(ctx context.Context, n int) (int, error) {
		for i := range n {
			if _, err := perdure.Step(ctx, fmt.Sprintf("s%d", i), func(ctx context.Context) (int, error) {
				perdure.Delta(ctx, i)
				time.Sleep(time.Second)
				return i, nil
			}); err != nil {
				return 0, err
			}
		}
		return n, nil
	})
	hearing = perdure.NewFlow("hearing", func(ctx context.Context, _ string) (string, error) {
		return perdure.Receive[string](ctx, "hear", "word", 0)
	})
)

func jsonOf(t testing.TB, v any) string {
	t.Helper()
	return string(servertest.Must(json.Marshal(v))(t))
}

type iterEvents = iter.Seq2[perdure.Event, error]

func second[T any](_ T, err error) error { return err }

// same compares what the runtime says with what the client says, as JSON.
func same[T any](t testing.TB, want, got T) {
	t.Helper()
	if d := cmp.Diff(jsonOf(t, want), jsonOf(t, got)); d != "" {
		t.Error(d)
	}
}
