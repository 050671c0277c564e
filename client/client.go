package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
)

// Options configure a client. The zero value is ready to use.
type Options struct {
	Token string       // bearer token; "" means none
	HTTP  *http.Client // nil: a client without a time limit
	// Attempts is how often in a row a lost connection is retried before its
	// error is returned; 0 means 10, and a negative number means never. It applies
	// to reads and to requests that are safe to repeat: those with an idempotency
	// key, and answers. A server that was never reached is not retried.
	Attempts int
	// StreamAttempts is Attempts for event streams once they were open, and for
	// waits until runs are over; 0 means Attempts.
	StreamAttempts int
	// Delay is the wait before the first retry. It doubles up to 30 times its
	// value; 0 means 100 ms, or what an event stream asks for.
	Delay time.Duration
	// Silence is how long an event stream may be silent before its connection is
	// considered lost; 0 means a minute. Servers send something every 15 s.
	Silence time.Duration
	// MaxAnswer is the size in bytes of the largest response that is read as a
	// whole; 0 means 256 MiB.
	MaxAnswer int64
}

// Client calls the API of a server. It is safe for concurrent use.
type Client struct {
	base    *url.URL
	opts    Options
	http    *http.Client
	reached atomic.Bool // the server has answered before
}

// New returns a client for the server at an address such as
// http://127.0.0.1:7373. It does not connect yet.
func New(address string, o Options) (*Client, error) {
	base, err := url.Parse(address)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fmt.Errorf("client: %q is not an address such as http://127.0.0.1:7373", address)
	}
	if base.RawQuery != "" || base.Fragment != "" || base.User != nil {
		return nil, fmt.Errorf("client: the address %s has more than a host and a path", base.Redacted())
	}
	if strings.ContainsFunc(o.Token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return nil, errors.New("client: the token has a space or another character that no token has")
	}
	base.Path, base.RawPath = strings.TrimSuffix(base.Path, "/"), ""
	o.Attempts = cmp.Or(o.Attempts, 10)
	o.StreamAttempts = cmp.Or(o.StreamAttempts, o.Attempts)
	o.Delay = min(max(o.Delay, 0), time.Hour)
	if o.Silence <= 0 {
		o.Silence = time.Minute
	}
	if o.MaxAnswer <= 0 {
		o.MaxAnswer = 256 << 20
	}
	c := &Client{base: base, opts: o, http: &http.Client{}}
	if o.HTTP != nil {
		*c.http = *o.HTTP
	}
	c.http.CheckRedirect = redirect(c.http.CheckRedirect)
	return c, nil
}

// redirect follows redirects of reads only, and only within the server: a token
// must not reach another server, and a write that became a read, or went to two
// servers, would be worse than an error.
func redirect(own func(*http.Request, []*http.Request) error) func(*http.Request, []*http.Request) error {
	return func(r *http.Request, via []*http.Request) error {
		first := via[0]
		reads := first.Method == http.MethodGet || first.Method == http.MethodHead
		if !reads || r.URL.Host != first.URL.Host || r.URL.Scheme != first.URL.Scheme || len(via) >= 10 {
			return http.ErrUseLastResponse
		}
		if own != nil {
			return own(r, via)
		}
		return nil
	}
}

// Do calls an operation. An error that the server reports is an *api.Problem,
// which matches the error of package perdure that it stands for.
func Do[In, Out any](ctx context.Context, c *Client, op api.Op[In, Out], in In) (*Out, error) {
	return do[Out](ctx, c, &request{op: &op.Info, in: reflect.ValueOf(in)})
}

// again calls an operation that changes nothing more when it is repeated.
func again[In, Out any](ctx context.Context, c *Client, op api.Op[In, Out], in In) (*Out, error) {
	return do[Out](ctx, c, &request{op: &op.Info, in: reflect.ValueOf(in), repeat: true})
}

func do[Out any](ctx context.Context, c *Client, q *request) (*Out, error) {
	out := new(Out)
	if err := c.call(ctx, q, out); err != nil {
		return nil, err
	}
	return out, nil
}

// Call is [Do] for an operation whose types the caller does not know: in is a value of
// op.In, and the result is the JSON of the response, or nil if it has none. Repeat says
// that the call is safe to repeat, so that it may be sent again when a connection is
// lost.
func Call(ctx context.Context, c *Client, op *api.Info, in any, repeat bool) (json.RawMessage, error) {
	var out json.RawMessage
	err := c.call(ctx, &request{op: op, in: reflect.ValueOf(in), repeat: repeat}, &out)
	return out, err
}

// Open calls an operation whose body or response is not JSON. The caller must
// close the response body.
func Open[In, Out any](ctx context.Context, c *Client, op api.Op[In, Out], in In, body io.Reader) (io.ReadCloser, error) {
	q := &request{op: &op.Info, in: reflect.ValueOf(in), body: body}
	if len(op.Gives) > 0 {
		q.accept = op.Gives[0]
	}
	resp, err := c.send(ctx, q)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// call sends a request and decodes its response, if it has a body, into out. A
// truncated response counts as none.
func (c *Client) call(ctx context.Context, q *request, out any) error {
	for attempt := 0; ; attempt++ {
		resp, err := c.send(ctx, q)
		if err != nil {
			return err
		}
		if q.op.Out == nil {
			return resp.Body.Close()
		}
		data, err := io.ReadAll(io.LimitReader(resp.Body, c.opts.MaxAnswer+1))
		resp.Body.Close()
		media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && q.safe && attempt < c.attempts(q):
			if err := c.pause(ctx, attempt, 0); err != nil {
				return err
			}
			continue
		case err != nil && q.op.Method != http.MethodGet:
			return fmt.Errorf("client: the answer of %s was cut off: %w; %s", q.op.Name, err, unsure)
		case err != nil:
			return fmt.Errorf("client: the answer of %s was cut off: %w", q.op.Name, err)
		case media != api.TypeJSON:
			return fmt.Errorf("client: %s: %w", q.op.Name, c.foreign(resp))
		case int64(len(data)) > c.opts.MaxAnswer:
			return fmt.Errorf("client: the answer of %s: %w: it is over %d bytes", q.op.Name, perdure.ErrTooLarge, c.opts.MaxAnswer)
		}
		if err := json.Unmarshal(data, out); err != nil {
			return fmt.Errorf("client: the answer of %s: %w", q.op.Name, err)
		}
		return nil
	}
}

// Flows returns the sorted names of the flows that the server can start.
func (c *Client) Flows(ctx context.Context) ([]string, error) {
	list, err := Do(ctx, c, api.FlowsList, api.Nothing{})
	if err != nil {
		return nil, err
	}
	names := make([]string, len(list.Flows))
	for i, f := range list.Flows {
		names[i] = f.Name
	}
	return names, nil
}

// Count counts the tenant's threads; the numbers may be some seconds old.
func (c *Client) Count(ctx context.Context) (*perdure.Counts, error) {
	stats, err := Do(ctx, c, api.StatsGet, api.Nothing{})
	if err != nil {
		return nil, err
	}
	counts := &perdure.Counts{Threads: stats.Threads, Statuses: map[perdure.Status]int{}, Asks: stats.Asks}
	for status, n := range stats.Statuses {
		counts.Statuses[perdure.Status(status)] = n
	}
	return counts, nil
}

// Workers returns the live workers.
func (c *Client) Workers(ctx context.Context) ([]perdure.WorkerInfo, error) {
	list, err := Do(ctx, c, api.WorkersList, api.Nothing{})
	if err != nil {
		return nil, err
	}
	return list.Workers, nil
}
