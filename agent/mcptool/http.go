package mcptool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// mark is what became of a request. It travels in the request's context.
type mark struct {
	sent     atomic.Bool  // some of it may have left this process
	web      atomic.Bool  // it went over HTTP
	status   atomic.Int32 // of HTTP; 0: no whole answer came
	tooLarge atomic.Bool
	after    atomic.Int64 // the time.Duration that the server wants to be left alone
	cancel   context.CancelFunc

	posts atomic.Int32
	told  chan struct{} // closed when the server heard that the request is cancelled
}

type markKey struct{}

// markOf returns the mark of a context, or one that nobody looks at.
func markOf(ctx context.Context) *mark {
	if m, ok := ctx.Value(markKey{}).(*mark); ok {
		return m
	}
	return &mark{}
}

// transport returns a way to the server with a token, and a function that
// closes its idle connections.
func (s *Server) transport(token string) (mcp.Transport, func()) {
	next := http.RoundTripper(nil)
	idle := func() {}
	if s.opts.Client != nil && s.opts.Client.Transport != nil {
		next = s.opts.Client.Transport
	} else {
		own := http.DefaultTransport.(*http.Transport).Clone()
		next, idle = own, own.CloseIdleConnections
	}
	base, _ := url.Parse(s.url)
	client := &http.Client{Transport: &trip{next: next, base: base, token: token, headers: s.opts.Headers, max: s.opts.MaxMessage}}
	if s.opts.Client != nil {
		client.Timeout = s.opts.Client.Timeout
	}
	return &mcp.StreamableClientTransport{
		Endpoint:   s.url,
		HTTPClient: client,
		MaxRetries: 2,
		// A server that speaks without being asked has nothing to say to a tool.
		DisableStandaloneSSE: true,
		MaxEventSize:         s.opts.MaxMessage + 4<<10,
	}, idle
}

// trip sends requests: with the secrets, to the server's own origin only, and
// with bounds on what comes back.
type trip struct {
	next    http.RoundTripper
	base    *url.URL
	token   string
	headers map[string]string
	max     int
}

// RoundTrip sends a request and marks what became of it.
func (t *trip) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != t.base.Scheme || req.URL.Host != t.base.Host {
		return nil, fmt.Errorf("it redirects to another place, %s://%s", req.URL.Scheme, req.URL.Host)
	}
	m := markOf(req.Context())
	m.web.Store(true)
	ctx := httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { m.sent.Store(true) },
	})
	req = req.Clone(ctx)
	// The SDK tells of a cancelled request in the same context.
	if req.Method == http.MethodPost && m.posts.Add(1) == 2 && m.told != nil {
		defer close(m.told)
	}
	for k, v := range t.headers {
		if req.Header.Get(k) == "" {
			req.Header.Set(k, v)
		}
	}
	if t.token != "" {
		req.Header.Set("Authorization", "Bearer "+t.token)
	}
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && n > 0 {
			m.after.Store(int64(min(time.Duration(n)*time.Second, 24*time.Hour)))
		}
		resp.Body = &limited{ReadCloser: resp.Body, left: 64 << 10}
	case kind == "text/event-stream":
		resp.Body = &events{ReadCloser: resp.Body, max: t.max, mark: m}
	default:
		if err := t.whole(req, resp, m); err != nil {
			return nil, err
		}
	}
	m.status.Store(int32(resp.StatusCode))
	return resp, nil
}

// whole reads a body. One that is over the limit becomes an error of the
// request, so that the session survives it; one that is cut off fails the
// request alone.
func (t *trip) whole(req *http.Request, resp *http.Response, m *mark) error {
	data, err := io.ReadAll(io.LimitReader(resp.Body, int64(t.max)+1))
	resp.Body.Close()
	if err != nil {
		return fmt.Errorf("the answer was cut off: %w", err)
	}
	if len(data) > t.max {
		m.tooLarge.Store(true)
		var id struct {
			ID json.RawMessage `json:"id"`
		}
		if req.GetBody != nil {
			if body, err := req.GetBody(); err == nil {
				json.NewDecoder(body).Decode(&id)
				body.Close()
			}
		}
		if id.ID == nil {
			return fmt.Errorf("an answer of more than %d bytes", t.max)
		}
		data = fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"its result is larger than %d bytes"}}`, id.ID, codeTooLarge, t.max)
	}
	resp.Body = io.NopCloser(bytes.NewReader(data))
	resp.ContentLength = int64(len(data))
	resp.Header.Del("Content-Length")
	return nil
}

// limited ends a body early.
type limited struct {
	io.ReadCloser
	left int
}

func (l *limited) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, io.EOF
	}
	n, err := l.ReadCloser.Read(p[:min(len(p), l.left)])
	l.left -= n
	return n, err
}

// events fails a stream when one of its events is over the limit.
type events struct {
	io.ReadCloser
	max  int
	size int // of the event so far
	last byte
	mark *mark
}

var errTooLarge = errors.New("an event over the limit")

func (e *events) Read(p []byte) (int, error) {
	if e.mark.tooLarge.Load() {
		return 0, errTooLarge
	}
	n, err := e.ReadCloser.Read(p)
	for _, b := range p[:n] {
		if b == '\r' {
			continue
		}
		if e.size++; b == '\n' && e.last == '\n' {
			e.size = 0
		}
		e.last = b
	}
	if e.size > e.max {
		e.mark.tooLarge.Store(true)
		if e.mark.cancel != nil {
			e.mark.cancel()
		}
		return 0, errTooLarge
	}
	return n, err
}
