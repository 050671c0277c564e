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
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// mark records what became of a request. The request's context carries it.
type mark struct {
	sent     atomic.Bool  // some of it may have left this process
	web      atomic.Bool  // it went over HTTP
	status   atomic.Int32 // of HTTP; 0: no whole answer came
	gone     atomic.Bool  // the server refused it because it no longer knows the session
	tooLarge atomic.Bool
	after    atomic.Int64 // the time.Duration after which the server wants a retry
	cancel   context.CancelFunc

	requests atomic.Int32
	once     sync.Once
	told     chan struct{} // closed when the server knows that the request is cancelled
}

type markKey struct{}

// markOf returns the mark of a context, or a new one that nobody reads.
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
		// Tools need nothing that a server sends unasked.
		DisableStandaloneSSE: true,
		MaxEventSize:         s.opts.MaxMessage + 4<<10,
	}, idle
}

// trip sends requests with the secrets, only to the server's own origin, and with
// limits on the answers.
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
	// In the same context, the SDK fetches the rest of an answer and reports that
	// the request is cancelled. The outcome of that says nothing about the request:
	// the server may have run it and forgotten the session since.
	outcome := m
	if m.told != nil {
		if m.requests.Add(1) > 1 {
			outcome = &mark{}
			if req.Method == http.MethodPost {
				defer m.once.Do(func() { close(m.told) })
			}
		}
	}
	ctx := httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { outcome.sent.Store(true) },
	})
	req = req.Clone(ctx)
	t.addSecrets(req)
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && n > 0 {
			outcome.after.Store(int64(min(time.Duration(n)*time.Second, 24*time.Hour)))
		}
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, maxRefusal), resp.Body}
		gone, err := t.forgotten(req, resp)
		if err != nil {
			return nil, err
		}
		outcome.gone.Store(gone)
	case kind == "text/event-stream":
		resp.Body = &events{ReadCloser: resp.Body, max: t.max, mark: m}
	default:
		if err := t.whole(req, resp, m); err != nil {
			return nil, err
		}
	}
	outcome.status.Store(int32(resp.StatusCode))
	return resp, nil
}

// addSecrets adds the headers and the token to a request.
func (t *trip) addSecrets(req *http.Request) {
	for k, v := range t.headers {
		if req.Header.Get(k) == "" {
			req.Header.Set(k, v)
		}
	}
	if t.token != "" {
		req.Header.Set("Authorization", "Bearer "+t.token)
	}
}

const (
	sessionHeader = "Mcp-Session-Id"
	maxRefusal    = 64 << 10 // bytes that are read of a refusal
)

// forgotten reports whether the server no longer knows the session, and turns its
// answer into a plain 404, which the protocol wants and the SDK knows. Servers also
// answer 404 with a text in JSON, and 400. A 400 alone is no proof, since it may be
// about the request: the session is gone if the server refuses a ping in it too. An
// error with the request's own id is an answer to it, so the server knew the
// session.
func (t *trip) forgotten(req *http.Request, resp *http.Response) (bool, error) {
	if req.Method != http.MethodPost || req.Header.Get(sessionHeader) == "" {
		return false, nil
	}
	refused, err := refuses(resp, idOf(req))
	if err != nil {
		return false, fmt.Errorf("the answer was cut off: %w", err)
	}
	if refused && (resp.StatusCode == http.StatusNotFound || t.refusesPing(req)) {
		resp.StatusCode, resp.Body = http.StatusNotFound, http.NoBody
		return true, nil
	}
	return false, nil
}

// refuses reports whether an answer refuses a request before the server looked at
// the message with that id in it.
func refuses(resp *http.Response, id json.RawMessage) (bool, error) {
	if resp.StatusCode != http.StatusBadRequest && resp.StatusCode != http.StatusNotFound {
		return false, nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(body))
	var answer struct {
		ID json.RawMessage `json:"id"`
	}
	answered := json.Unmarshal(body, &answer) == nil && id != nil && bytes.Equal(answer.ID, id)
	return !answered, err
}

// refusesPing reports whether the server refuses a ping in the session of a
// request.
func (t *trip) refusesPing(req *http.Request) bool {
	const ping = `{"jsonrpc":"2.0","id":"ping","method":"ping"}`
	probe, err := http.NewRequestWithContext(req.Context(), http.MethodPost, t.base.String(), strings.NewReader(ping))
	if err != nil {
		return false
	}
	probe.Header.Set("Mcp-Method", "ping")
	for _, k := range []string{"Accept", "Content-Type", "Mcp-Protocol-Version", sessionHeader} {
		probe.Header[k] = req.Header[k]
	}
	t.addSecrets(probe)
	resp, err := t.next.RoundTrip(probe)
	if err != nil {
		return false
	}
	refused, err := refuses(resp, json.RawMessage(`"ping"`))
	resp.Body.Close()
	return refused && err == nil
}

// idOf returns the id of the JSON-RPC request that an HTTP request carries.
func idOf(req *http.Request) json.RawMessage {
	var m struct {
		ID json.RawMessage `json:"id"`
	}
	if req.GetBody != nil {
		if body, err := req.GetBody(); err == nil {
			json.NewDecoder(body).Decode(&m)
			body.Close()
		}
	}
	return m.ID
}

// whole reads a body. One over the limit becomes an error of the request, so that
// the session survives it; one that is cut off fails only the request.
func (t *trip) whole(req *http.Request, resp *http.Response, m *mark) error {
	data, err := io.ReadAll(io.LimitReader(resp.Body, int64(t.max)+1))
	resp.Body.Close()
	if err != nil {
		return fmt.Errorf("the answer was cut off: %w", err)
	}
	if len(data) > t.max {
		m.tooLarge.Store(true)
		id := idOf(req)
		if id == nil {
			return fmt.Errorf("an answer of more than %d bytes", t.max)
		}
		data = fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"its result is larger than %d bytes"}}`, id, codeTooLarge, t.max)
	}
	resp.Body = io.NopCloser(bytes.NewReader(data))
	resp.ContentLength = int64(len(data))
	resp.Header.Del("Content-Length")
	return nil
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
