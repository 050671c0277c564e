package llmtest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// Recorder is an http.RoundTripper that passes requests on and keeps the traffic
// for [Recorder.Save].
type Recorder struct {
	next    http.RoundTripper
	secrets *secrets

	mu   sync.Mutex
	list []*recording
}

// recording is an exchange that may still be under way.
type recording struct {
	request request
	status  int
	header  http.Header
	chunks  [][]byte
	whole   bool
}

var _ http.RoundTripper = (*Recorder)(nil)

// NewRecorder returns a recorder. Most tests use [Client].
func NewRecorder(o Options) *Recorder {
	return &Recorder{next: cmp.Or(o.Transport, http.DefaultTransport), secrets: newSecrets(o.Secrets)}
}

// RoundTrip passes a request on. Requests without an answer are not recorded.
func (rec *Recorder) RoundTrip(r *http.Request) (*http.Response, error) {
	rec.secrets.learn(r.Header, r.URL.Query())
	form, data, err := newRequest(r, rec.secrets)
	if err != nil {
		return nil, err
	}
	out := r.Clone(r.Context())
	out.Body, out.ContentLength = nil, int64(len(data))
	if len(data) > 0 {
		out.Body = io.NopCloser(bytes.NewReader(data))
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
	}
	out.Header.Del("Accept-Encoding") // what is compressed cannot be read, nor searched for secrets
	e := &recording{request: form}
	rec.mu.Lock()
	rec.list = append(rec.list, e)
	rec.mu.Unlock()
	resp, err := rec.next.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	if enc := resp.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		resp.Body.Close()
		return nil, fmt.Errorf("llmtest: the answer comes in %s, which cannot be recorded", enc)
	}
	rec.secrets.learn(resp.Header, nil)
	rec.mu.Lock()
	e.status, e.header = resp.StatusCode, plainHeader(resp.Header)
	rec.mu.Unlock()
	resp.Body = &recordedBody{rec: rec, e: e, body: resp.Body}
	resp.Request = r
	return resp, nil
}

// plainHeader returns the headers that models read.
func plainHeader(h http.Header) http.Header {
	out := http.Header{}
	for name, values := range h {
		lower := strings.ToLower(name)
		switch {
		case lower == "content-type", strings.HasPrefix(lower, "retry-after"), lower == "x-should-retry",
			strings.Contains(lower, "ratelimit-"):
			out[name] = values
		}
	}
	return out
}

// recordedBody keeps what is read from it.
type recordedBody struct {
	rec  *Recorder
	e    *recording
	body io.ReadCloser
}

// Read keeps each piece as it came.
func (b *recordedBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	b.rec.mu.Lock()
	defer b.rec.mu.Unlock()
	if n > 0 {
		b.e.chunks = append(b.e.chunks, bytes.Clone(p[:n]))
	}
	if errors.Is(err, io.EOF) {
		b.e.whole = true
	}
	return n, err
}

// Close closes the body.
func (b *recordedBody) Close() error { return b.body.Close() }

// Save writes the recording, without the secrets.
func (rec *Recorder) Save(file string) error {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	t := tape{Exchanges: []exchange{}}
	for _, e := range rec.list {
		if e.status != 0 {
			t.Exchanges = append(t.Exchanges, rec.clean(e))
		}
	}
	data, err := plainJSON(t, "  ")
	if err != nil {
		return fmt.Errorf("llmtest: %s: %w", file, err)
	}
	if err = os.MkdirAll(filepath.Dir(file), 0o777); err == nil {
		err = os.WriteFile(file, append(data, '\n'), 0o666)
	}
	if err != nil {
		return fmt.Errorf("llmtest: %w", err)
	}
	return nil
}

// clean returns an exchange as it is saved. Everything is cleaned once more: a
// secret may have become known only later, from the header of another request.
func (rec *Recorder) clean(e *recording) exchange {
	req := e.request
	req.Path, req.Query = rec.secrets.clean(req.Path), rec.secrets.clean(req.Query)
	text := req.Body.raw
	if req.Body.json != nil {
		text = piece(req.Body.json)
	}
	req.Body = newBody([]byte(rec.secrets.clean(string(text))))
	resp := response{Status: e.status, Header: http.Header{}, Chunks: []piece{}, Cut: !e.whole}
	for name, values := range e.header {
		for _, v := range values {
			resp.Header.Add(name, rec.secrets.clean(v))
		}
	}
	var all strings.Builder
	var cuts []int
	for _, c := range e.chunks {
		all.Write(c)
		cuts = append(cuts, all.Len())
	}
	cleaned, cuts := rec.secrets.cleanCut(all.String(), cuts)
	from := 0
	for _, end := range cuts {
		if end > from {
			resp.Chunks = append(resp.Chunks, piece(cleaned[from:end]))
		}
		from = end
	}
	return exchange{req, resp}
}
