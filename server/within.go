package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/perdure/perdure/api"
)

// Transport returns a transport with which a face makes requests to the API to answer
// r, whatever address the client uses. They stay in this process, are made in the
// caller's name, and are checked, limited and counted like all others. In return r
// gives up its own share of the limits, so a face calls Transport after it has read the
// body.
func (c *Call) Transport(r *http.Request) http.RoundTripper {
	c.load.handOver()
	return &within{c: c, r: r}
}

// Flows describes the flows that can be started here. It returns the same slice each
// time, which must not be modified.
func (c *Call) Flows() []api.FlowInfo { return c.s.flows() }

// describeFlows returns a function that describes the flows of the server once.
func (s *Server) describeFlows() func() []api.FlowInfo {
	return sync.OnceValue(func() []api.FlowInfo {
		flows := []api.FlowInfo{}
		for _, name := range s.rt.Flows() {
			flows = append(flows, s.flowInfo(name))
		}
		return flows
	})
}

// handOver returns what a request holds of the limits, for others that are made on
// its behalf.
func (l *load) handOver() {
	if l == nil {
		return
	}
	l.letGo()
	l.s.ledger.mu.Lock()
	defer l.s.ledger.mu.Unlock()
	l.rest()
	l.add(Limits{Requests: -l.held.Requests})
}

// outerKey is the key of the Call on whose behalf a request is made in this process.
// Nobody outside can set it.
type outerKey struct{}

// outerCall returns the Call on whose behalf a request is made, nil for a request from
// outside.
func outerCall(ctx context.Context) *Call {
	c, _ := ctx.Value(outerKey{}).(*Call)
	return c
}

// within is a transport to the server itself.
type within struct {
	c *Call
	r *http.Request
}

// RoundTrip serves a request, and returns when the response has begun.
func (t *within) RoundTrip(given *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(context.WithValue(given.Context(), outerKey{}, t.c))
	r := given.Clone(ctx)
	r.Host, r.RequestURI, r.RemoteAddr = "localhost", r.URL.RequestURI(), t.r.RemoteAddr
	for _, name := range []string{"Authorization", "Cookie"} { // whose limits it counts against
		if values := t.r.Header.Values(name); len(values) > 0 {
			r.Header[name] = values
		}
	}
	if r.Body == nil {
		r.Body = http.NoBody
	}
	body, w := io.Pipe()
	a := &innerAnswer{header: http.Header{}, body: w, begun: make(chan struct{})}
	go func() {
		defer cancel()
		defer r.Body.Close()
		defer func() {
			err := io.EOF
			if v := recover(); v != nil {
				if err = errors.New("server: the answer was cut off"); v != http.ErrAbortHandler {
					t.c.s.opts.Logger.Error("a request within the server panicked", "panic", fmt.Sprint(v))
				}
			}
			a.WriteHeader(http.StatusOK)
			w.CloseWithError(err)
		}()
		t.c.s.handler.ServeHTTP(a, r)
	}()
	select {
	case <-a.begun:
	case <-given.Context().Done():
		body.Close()
		return nil, given.Context().Err()
	}
	return &http.Response{
		Status: fmt.Sprintf("%d %s", a.status, http.StatusText(a.status)), StatusCode: a.status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: a.sent, ContentLength: -1, Request: given,
		Body: &innerBody{body, cancel},
	}, nil
}

// innerAnswer is the response to a request within the server.
type innerAnswer struct {
	header http.Header
	sent   http.Header // as it was when the response began
	status int
	body   *io.PipeWriter
	begun  chan struct{}
}

func (a *innerAnswer) Header() http.Header { return a.header }

// WriteHeader begins the response.
func (a *innerAnswer) WriteHeader(status int) {
	if a.status == 0 && status >= 200 {
		a.status, a.sent = status, a.header.Clone()
		close(a.begun)
	}
}

func (a *innerAnswer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

// Flush begins the response: what is written is not kept back.
func (a *innerAnswer) Flush() { a.WriteHeader(http.StatusOK) }

// innerBody is the body of a response, which ends its request when it is closed.
type innerBody struct {
	*io.PipeReader
	cancel context.CancelFunc
}

func (b *innerBody) Close() error {
	b.cancel()
	return b.PipeReader.Close()
}
