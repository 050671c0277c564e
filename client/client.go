package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/perdure/perdure/api"
)

// Options of a client. The zero value is good.
type Options struct {
	Token string       // bearer token; "": none
	HTTP  *http.Client // nil is one without a time limit
	// Attempts is how often in a row a lost connection is tried again before
	// its error is returned; 0 is 10, and less than 0 is never. It is about
	// reading, and about what has an idempotency key.
	Attempts int
	// Delay is the wait before the first of them, which doubles up to 30 times
	// of it; 0 is 100 ms.
	Delay time.Duration
}

// Client is a server's API. It is safe for concurrent use.
type Client struct {
	base *url.URL
	opts Options
}

// New returns a client of the server at an address such as
// http://127.0.0.1:7373. It does not connect yet.
func New(address string, o Options) (*Client, error) {
	base, err := url.Parse(address)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fmt.Errorf("client: %q is no address such as http://127.0.0.1:7373", address)
	}
	if base.RawQuery != "" || base.Fragment != "" || base.User != nil {
		return nil, fmt.Errorf("client: the address %s has more than a host and a path", base.Redacted())
	}
	base.Path = strings.TrimSuffix(base.Path, "/")
	if o.HTTP == nil {
		o.HTTP = &http.Client{}
	}
	if o.Attempts == 0 {
		o.Attempts = 10
	}
	if o.Delay == 0 {
		o.Delay = 100 * time.Millisecond
	}
	return &Client{base, o}, nil
}

// Do calls an operation. An error that the server tells is an *api.Problem,
// which matches the error of package perdure that it stands for.
func Do[In, Out any](ctx context.Context, c *Client, op api.Op[In, Out], in In) (*Out, error) {
	resp, err := c.send(ctx, &op.Info, reflect.ValueOf(in), nil, api.TypeJSON)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	out := new(Out)
	if op.Out == nil {
		return out, nil
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return nil, fmt.Errorf("client: the answer of %s: %w", op.Name, err)
	}
	return out, nil
}

// Open calls an operation whose body or answer is not JSON. The answer's body
// has to be closed.
func Open[In, Out any](ctx context.Context, c *Client, op api.Op[In, Out], in In, body io.Reader) (io.ReadCloser, error) {
	accept := api.TypeJSON
	if len(op.Gives) > 0 {
		accept = op.Gives[0]
	}
	resp, err := c.send(ctx, &op.Info, reflect.ValueOf(in), body, accept)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// send sends a request and returns an answer that is no problem. A connection
// that is lost before the answer begins is tried again if that can do no harm.
func (c *Client) send(ctx context.Context, op *api.Info, in reflect.Value, body io.Reader, accept string) (*http.Response, error) {
	path, header, err := address(op, in)
	if err != nil {
		return nil, err
	}
	target := *c.base
	target.RawPath, target.Path = "", ""
	full := target.String() + c.base.Path + path
	var data []byte
	if op.HasBody() {
		if data, err = json.Marshal(in.Interface()); err != nil {
			return nil, fmt.Errorf("client: the input of %s: %w", op.Name, err)
		}
	}
	for attempt := 0; ; attempt++ {
		if data != nil {
			body = bytes.NewReader(data)
		}
		r, err := http.NewRequestWithContext(ctx, op.Method, full, body)
		if err != nil {
			return nil, fmt.Errorf("client: %w", err)
		}
		r.Header = header.Clone()
		r.Header.Set("Accept", accept)
		switch {
		case data != nil:
			r.Header.Set("Content-Type", api.TypeJSON)
		case op.Takes != "":
			r.Header.Set("Content-Type", op.Takes)
		}
		if c.opts.Token != "" {
			r.Header.Set("Authorization", "Bearer "+c.opts.Token)
		}
		resp, err := c.opts.HTTP.Do(r)
		if err == nil && (resp.StatusCode != http.StatusServiceUnavailable || attempt >= c.opts.Attempts) {
			return resp, problem(resp)
		}
		harmless := op.Method == http.MethodGet || header.Get("Idempotency-Key") != "" || resp != nil
		if err == nil {
			resp.Body.Close()
			err = fmt.Errorf("client: the server is not available")
		}
		if !harmless || op.Takes != "" || attempt >= c.opts.Attempts || ctx.Err() != nil {
			return nil, fmt.Errorf("client: %s: %w", op.Name, err)
		}
		if err := c.pause(ctx, attempt); err != nil {
			return nil, err
		}
	}
}

// pause waits before an attempt.
func (c *Client) pause(ctx context.Context, attempt int) error {
	wait := time.NewTimer(min(c.opts.Delay<<min(attempt, 10), 30*c.opts.Delay))
	defer wait.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-wait.C:
		return nil
	}
}

// problem returns the error that an answer tells, nil if it is a success.
func problem(resp *http.Response) error {
	if resp.StatusCode < 300 {
		return nil
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return fmt.Errorf("client: the answer %s: %w", resp.Status, err)
	}
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	p := new(api.Problem)
	if media != api.TypeProblem || json.Unmarshal(data, p) != nil {
		return fmt.Errorf("client: the server at %s answers %s, which is not Perdure's API", resp.Request.URL.Host, resp.Status)
	}
	return p
}

// address returns the path and query of a request, and its headers.
func address(op *api.Info, in reflect.Value) (string, http.Header, error) {
	path, query, header := op.Path, url.Values{}, http.Header{}
	for _, f := range op.Fields() {
		if f.Where == api.InBody {
			continue
		}
		texts := f.Texts(in)
		switch f.Where {
		case api.InPath:
			for i := range texts {
				if texts[i] == "" || texts[i] == "." || texts[i] == ".." {
					return "", nil, api.Invalid("%s: the %s %q", op.Name, strings.TrimSuffix(f.Key, "..."), texts[i])
				}
				texts[i] = url.PathEscape(texts[i])
			}
			if len(texts) == 0 {
				return "", nil, api.Invalid("%s: no %s is given", op.Name, strings.TrimSuffix(f.Key, "..."))
			}
			path = strings.Replace(path, "{"+f.Key+"}", strings.Join(texts, "/"), 1)
		case api.InQuery:
			if len(texts) > 0 {
				query[f.Key] = texts
			}
		case api.InHeader:
			for _, text := range texts {
				if f.Key == "If-Match" || f.Key == "If-None-Match" && text != "*" {
					text = strconv.Quote(text)
				}
				header.Add(f.Key, text)
			}
		}
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return path, header, nil
}
