package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/perdure/perdure/api"
)

// request is a call of an operation.
type request struct {
	op     *api.Info
	in     reflect.Value
	body   io.Reader   // in place of JSON
	accept string      // "": JSON
	header http.Header // additional headers
	repeat bool        // repeating it changes nothing
	once   bool        // the caller retries by itself
	waits  bool        // for a run, as event streams do
	safe   bool        // it may be sent again when its outcome is unknown; set by send
}

// send sends a request and returns a successful response. If the connection is
// lost before the response begins, it retries if that is safe.
func (c *Client) send(ctx context.Context, q *request) (*http.Response, error) {
	path, header, err := address(q.op, q.in)
	if err != nil {
		return nil, err
	}
	for name, values := range q.header {
		header[name] = values
	}
	q.safe = q.op.Takes == "" && (q.op.Method == http.MethodGet || q.repeat || header.Get("Idempotency-Key") != "")
	header.Set("Accept", cmp.Or(q.accept, api.TypeJSON))
	if c.opts.Token != "" {
		header.Set("Authorization", "Bearer "+c.opts.Token)
	}
	full := (&url.URL{Scheme: c.base.Scheme, Host: c.base.Host, Path: c.base.Path}).String() + path
	var data []byte
	if q.op.HasBody() {
		if data, err = json.Marshal(q.in.Interface()); err != nil {
			return nil, fmt.Errorf("client: the input of %s: %w", q.op.Name, err)
		}
		header.Set("Content-Type", api.TypeJSON)
	} else if q.op.Takes != "" && header.Get("Content-Type") == "" {
		header.Set("Content-Type", q.op.Takes)
	}
	for attempt := 0; ; attempt++ {
		body := q.body
		if data != nil {
			body = bytes.NewReader(data)
		}
		r, err := http.NewRequestWithContext(ctx, q.op.Method, full, body)
		if err != nil {
			return nil, fmt.Errorf("client: %s: %w", q.op.Name, err)
		}
		r.Header = header.Clone()
		if known, ok := body.(*lent); ok {
			r.ContentLength = known.length
		}
		resp, err := c.http.Do(r)
		again := false
		switch {
		case ctx.Err() != nil:
			if err == nil {
				resp.Body.Close()
			}
			return nil, ctx.Err()
		case err != nil:
			refused := unsent(err)
			again = q.safe
			if refused {
				again = q.op.Takes == "" && c.reached.Load()
			}
			if _, bad := errors.AsType[*tls.CertificateVerificationError](err); bad {
				again = false
			}
			err = c.explainLost(err, refused)
			if q.op.Method != http.MethodGet && !refused {
				err = fmt.Errorf("%w; %s", err, unsure)
			}
		default:
			c.reached.Store(true)
			if err = c.problem(resp); err == nil {
				return resp, nil
			}
			again = errors.Is(err, api.ErrStopping) && q.op.Takes == "" || isLost(resp.StatusCode) && q.safe
		}
		if q.once || !again || attempt >= c.attempts(q) {
			if _, reported := errors.AsType[*api.Problem](err); !reported { // those say what they are about
				err = fmt.Errorf("client: %s: %w", q.op.Name, err)
			}
			return nil, err
		}
		if err := c.pause(ctx, attempt, 0); err != nil {
			return nil, err
		}
	}
}

// unsure says what may have become of a change whose answer is lost.
const unsure = "what was asked for may have happened: it is safe to repeat it with the same idempotency key; without one, look first"

// isLost reports whether a status is that of a server that cannot answer now, or of a gateway
// that does not reach it: 502 to 504, and those that only gateways have, such as 521.
func isLost(status int) bool { return status >= 502 && status <= 504 || status >= 520 }

// attempts returns how often a request is retried.
func (c *Client) attempts(q *request) int {
	if q.waits {
		return c.opts.StreamAttempts
	}
	return c.opts.Attempts
}

// unsent reports whether an error occurred before anything was sent.
func unsent(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial" || errors.Is(err, syscall.ECONNREFUSED)
}

// explainLost explains an error of a connection. It leaves out the address that errors
// of package http begin with, which may hold text that people wrote.
func (c *Client) explainLost(err error, refused bool) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if _, bad := errors.AsType[*tls.CertificateVerificationError](err); bad {
		return fmt.Errorf("the certificate of %s is not trusted here: %w; trust its authority, as with SSL_CERT_FILE, and use a name that it is for", c.base.Host, err)
	}
	if refused {
		return fmt.Errorf("nothing answers at %s: is the server running? perdure dev starts one: %w", c.base.Host, err)
	}
	return fmt.Errorf("the connection to %s is lost: %w", c.base.Host, err)
}

// pause waits before an attempt. Hint is the delay that the server asked for, or 0.
func (c *Client) pause(ctx context.Context, attempt int, hint time.Duration) error {
	base := cmp.Or(c.opts.Delay, min(hint, time.Minute), 100*time.Millisecond)
	d := min(base<<min(attempt, 10), 30*base)
	// Clients that lost the same server should not all return at the same moment.
	wait := time.NewTimer(d/2 + rand.N(d/2+1))
	defer wait.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-wait.C:
		return nil
	}
}

// problem returns the error that a response reports and closes its body, or nil
// for a success.
func (c *Client) problem(resp *http.Response) error {
	if resp.StatusCode < 300 {
		return nil
	}
	defer resp.Body.Close()
	if resp.StatusCode < 400 {
		return c.foreign(resp)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return fmt.Errorf("the answer %s was cut off: %w", resp.Status, err)
	}
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	p := new(api.Problem)
	if media != api.TypeProblem || json.Unmarshal(data, p) != nil || p.Type == "" {
		return c.foreign(resp)
	}
	p.Status = cmp.Or(p.Status, resp.StatusCode)
	return p
}

// strangeError is a response that is not of this API.
type strangeError struct {
	status int
	text   string
}

func (e *strangeError) Error() string { return e.text }

// Away reports whether a gateway answered that the server cannot be reached now, or only
// elsewhere.
func (e *strangeError) Away() bool {
	return isLost(e.status) || e.status == http.StatusTooManyRequests || e.status >= 300 && e.status < 400
}

// foreign returns the error of a response that is not of this API. It says whether a
// change may have happened, and what to do.
func (c *Client) foreign(resp *http.Response) error {
	e := &strangeError{status: resp.StatusCode}
	status := strings.TrimSpace(fmt.Sprintf("%d %s", e.status, http.StatusText(e.status)))
	to, err := resp.Location()
	tail := ", or has lost its answer; " + unsure
	switch {
	case e.status >= 300 && e.status < 400 && err == nil:
		undone := ", and has not carried it out"
		if tail = ""; !slices.Contains([]int{301, 302, 307, 308}, e.status) { // such as 303, which also follows success
			undone, tail = "", "; "+unsure
		}
		e.text = fmt.Sprintf("the server at %s answers %s and sends elsewhere%s: use the address %s://%s if that is right, or let the gateway pass on the API without a login", c.base.Host, status, undone, to.Scheme, to.Host)
	case e.status == http.StatusTooManyRequests:
		e.text = fmt.Sprintf("the gateway at %s answers %s, and has not passed it on: try again later", c.base.Host, status)
		if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
			e.text += fmt.Sprintf(", in %d s", seconds)
		}
	case e.Away():
		e.text = fmt.Sprintf("the gateway at %s answers %s: it does not reach the server", c.base.Host, status)
	default:
		e.text = fmt.Sprintf("the server at %s answers %s, which is not Perdure's API", c.base.Host, status)
	}
	if (e.status >= 500 || e.status < 400) && resp.Request.Method != http.MethodGet {
		e.text += tail
	}
	return e
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
			key, list := strings.CutSuffix(f.Key, "...")
			for i := range texts {
				if texts[i] == "" && !list {
					return "", nil, api.Invalid("%s: the %s is empty", op.Name, key)
				}
				if texts[i] = url.PathEscape(texts[i]); strings.Trim(texts[i], ".") == "" {
					texts[i] = strings.ReplaceAll(texts[i], ".", "%2E") // a dot segment would name a parent
				}
			}
			if len(texts) == 0 {
				return "", nil, api.Invalid("%s: no %s is given", op.Name, key)
			}
			path = strings.Replace(path, "{"+f.Key+"}", strings.Join(texts, "/"), 1)
		case api.InQuery:
			if len(texts) > 0 {
				query[f.Key] = texts
			}
		case api.InHeader:
			for _, text := range texts {
				if strings.TrimSpace(text) != text || strings.ContainsFunc(text, unicode.IsControl) {
					return "", nil, api.Invalid("%s: a header cannot carry %q as %s", op.Name, text, f.Key)
				}
				if f.Key == "If-Match" && in.FieldByIndex(f.Index).Kind() == reflect.Uint64 {
					text += "-" + api.AnyLife // an IfSeq is a sequence
				}
				if f.Key == "If-Match" || f.Key == "If-None-Match" && text != "*" {
					text = `"` + text + `"`
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

// lent is a body that the caller closes, and whose length the server is told if it is
// known: a quota of bytes has to have room for as much.
type lent struct {
	io.Reader
	length int64 // -1: not known
}

// lend returns the body of a request.
func lend(r io.Reader) *lent {
	switch at := r.(type) {
	case *bytes.Buffer:
		return &lent{r, int64(at.Len())}
	case *bytes.Reader:
		return &lent{r, int64(at.Len())}
	case *strings.Reader:
		return &lent{r, int64(at.Len())}
	case *os.File:
		info, err := at.Stat()
		if err != nil || !info.Mode().IsRegular() {
			break
		}
		if begin, err := at.Seek(0, io.SeekCurrent); err == nil && begin < info.Size() {
			left := info.Size() - begin
			return &lent{io.LimitReader(r, left), left} // it may grow meanwhile
		}
	}
	return &lent{r, -1}
}
