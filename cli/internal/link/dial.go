package link

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// firstAnswer is the default of [Connector.Patience].
const firstAnswer = 5 * time.Second

// noServerError reports that something takes connections but has never answered as
// a Perdure server does. It counts as an error of dialing, so that it is not retried.
type noServerError struct{ why error }

func (e *noServerError) Error() string {
	return fmt.Sprintf("what listens there does not answer as a Perdure server does: %v", e.why)
}

// Unwrap makes it an error of dialing too.
func (e *noServerError) Unwrap() []error { return []error{&net.OpError{Op: "dial", Err: e.why}, e.why} }

// serverTransport finds out whether a server is there while it waits for the first
// answer. After that, requests may take as long as they do: some are streams.
type serverTransport struct {
	http.RoundTripper
	patience [2]time.Duration
	probe    func(context.Context) bool // reports whether a Perdure server is there
	asked    atomic.Bool                // probe was called
	reached  atomic.Bool                // it has answered
}

func (c *Connector) newServerTransport() *serverTransport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	dial := t.DialContext
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &silentConn{Conn: conn, ready: make(chan struct{})}, nil
	}
	return &serverTransport{RoundTripper: t, patience: [2]time.Duration{cmp.Or(c.Patience[0], firstAnswer), cmp.Or(c.Patience[1], firstAnswer)}}
}

// RoundTrip sends a request.
func (t *serverTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.reached.Load() {
		return t.RoundTripper.RoundTrip(r)
	}
	ctx, giveUp := context.WithCancelCause(r.Context())
	timer := time.AfterFunc(t.patience[0], func() {
		if t.asked.Swap(true) {
			return
		}
		probe, cancel := context.WithTimeout(ctx, t.patience[1])
		defer cancel()
		if !t.probe(probe) {
			giveUp(errors.New("it says nothing"))
		}
	})
	defer timer.Stop()
	resp, err := t.RoundTripper.RoundTrip(r.WithContext(ctx))
	var op *net.OpError
	switch {
	case err == nil:
		t.reached.Store(true)
	case r.Context().Err() != nil, errors.As(err, &op) && op.Op == "dial":
	case ctx.Err() != nil:
		err = &noServerError{context.Cause(ctx)}
	default:
		err = &noServerError{err}
	}
	return resp, err
}

// silentConn is a connection from which nothing is read before something is written:
// package http would log the greeting of a server with another protocol.
type silentConn struct {
	net.Conn
	once  sync.Once
	ready chan struct{} // closed by the first Write, or Close
}

func (c *silentConn) Read(p []byte) (int, error) {
	<-c.ready
	return c.Conn.Read(p)
}

func (c *silentConn) Write(p []byte) (int, error) {
	c.once.Do(func() { close(c.ready) })
	return c.Conn.Write(p)
}

// Close also ends a Read that waits.
func (c *silentConn) Close() error {
	c.once.Do(func() { close(c.ready) })
	return c.Conn.Close()
}
