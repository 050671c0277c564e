package link

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure/api"
)

// firstAnswer is the default of [Connector.Patience].
const firstAnswer = 5 * time.Second

// noServerError reports that something takes connections but has never answered as
// a Perdure server does. It counts as an error of dialing, so that it is not retried.
type noServerError struct{ why error }

func (e *noServerError) Error() string {
	if _, bad := errors.AsType[*tls.CertificateVerificationError](e.why); bad {
		return e.why.Error()
	}
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
	hint     func(format string, args ...any)
	fails    atomic.Int32 // in a row, of requests that may be repeated
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
	return &serverTransport{RoundTripper: t, hint: c.Hint, patience: [2]time.Duration{cmp.Or(c.Patience[0], firstAnswer), cmp.Or(c.Patience[1], firstAnswer)}}
}

func (t *serverTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.roundTrip(r)
	// The client repeats what changes nothing more, and says nothing.
	switch down := err == nil && (resp.StatusCode >= 502 && resp.StatusCode <= 504 || resp.StatusCode >= 520); {
	case r.URL.Path == api.HealthGet.Path, r.Context().Err() != nil:
	case err == nil && !down:
		t.fails.Store(0)
	case !t.reached.Load(): // nothing is there
	default:
		switch fails := t.fails.Add(1); {
		case fails == quietly && err != nil:
			t.hint("the connection to %s is lost; trying again, Ctrl-C ends that", r.URL.Host)
		case fails == quietly:
			t.hint("%s answers that it is unavailable now (%d); asking again, Ctrl-C ends that", r.URL.Host, resp.StatusCode)
		}
	}
	return resp, err
}

func (t *serverTransport) roundTrip(r *http.Request) (*http.Response, error) {
	if t.reached.Load() {
		return t.RoundTripper.RoundTrip(r)
	}
	ctx, giveUp := context.WithCancelCause(r.Context())
	var dialed, sent atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		ConnectDone: func(_, _ string, err error) { dialed.Store(dialed.Load() || err == nil) },
		GotConn:     func(httptrace.GotConnInfo) { sent.Store(true) },
	})
	timer := time.AfterFunc(t.patience[0], func() {
		if t.asked.Swap(true) {
			return
		}
		probe, cancel := context.WithTimeout(ctx, t.patience[1])
		defer cancel()
		if !t.probe(probe) {
			why := "it says nothing"
			if sent.Load() && r.Method != http.MethodGet {
				why += ", and may carry out later what it was asked for"
			}
			giveUp(errors.New(why))
		}
	})
	defer timer.Stop()
	resp, err := t.RoundTripper.RoundTrip(r.WithContext(ctx))
	var op *net.OpError
	switch {
	case err == nil:
		t.reached.Store(true)
	case r.Context().Err() != nil, errors.As(err, &op) && op.Op == "dial":
	case ctx.Err() != nil && !dialed.Load() && !sent.Load():
		err = &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("nothing there answers")}
	case ctx.Err() != nil:
		err = &noServerError{context.Cause(ctx)}
	default:
		err = &noServerError{err}
	}
	return resp, err
}

// quietly is how many requests in a row may fail before a person is told: they take
// more than a second.
const quietly = 5

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
