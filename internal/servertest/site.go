// Package servertest is the kit of tests that talk to a server over HTTP. It may
// import package server and what that stands on.
package servertest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/archive"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// Site is a server with a worker, and a client of it.
type Site struct {
	T       testing.TB
	Runtime *perdure.Runtime
	Server  *server.Server
	URL     string
	Token   string       // that requests carry; "": none
	Client  *http.Client // that sends them
}

// New starts a server with a worker on a store in memory.
func New(t testing.TB, o server.Options, flows ...perdure.Flow) *Site {
	t.Helper()
	return NewOn(t, memstore.New(), o, flows...)
}

// NewOn starts a server with a worker on a store, which it closes in the end.
func NewOn(t testing.TB, s store.Store, o server.Options, flows ...perdure.Flow) *Site {
	t.Helper()
	site := Start(t, s, o, true, flows...)
	ts := httptest.NewServer(site.Server)
	t.Cleanup(func() { // before what start does
		site.Server.Close()
		ts.Close()
	})
	site.URL, site.Client = ts.URL, http.DefaultClient
	return site
}

// Start starts a runtime, and a worker if it is wanted, behind a server that
// nobody reaches.
func Start(t testing.TB, s store.Store, o server.Options, work bool, flows ...perdure.Flow) *Site {
	t.Helper()
	place := Must(archive.Dir(t.TempDir()))(t)
	options := perdure.Options{Archive: place}
	if o.Metrics != nil {
		options.Observer = o.Metrics
	}
	rt := Must(perdure.New(t.Context(), s, options, flows...))(t)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	if work {
		go func() { done <- rt.Work(ctx) }()
	} else {
		done <- nil
	}
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("the worker: %v", err)
		}
		s.Close()
	})
	return &Site{T: t, Runtime: rt, Server: server.New(rt, o)}
}

// traced are the addresses whose answers start or follow a run.
var traced = regexp.MustCompile(`^/(v1/runs|v1/threads/[^/]+.*|v1/asks/[^/]+(/answer|/secret)?|run|run_sse|resume|apps/[^/]+/users/[^/]+/sessions/.+)$`)

// Reply is an answer of the server.
type Reply struct {
	t      testing.TB
	Status int
	Header http.Header
	Body   []byte
}

// Do sends a request. Headers are pairs of name and value.
func (s *Site) Do(method, path, body string, headers ...string) *Reply {
	s.T.Helper()
	var in io.Reader
	if body != "" {
		in = strings.NewReader(body)
	}
	ctx, cancel := context.WithTimeout(s.T.Context(), 2*time.Minute) // a stream that nobody should get does not end
	defer cancel()
	r := Must(http.NewRequestWithContext(ctx, method, s.URL+path, in))(s.T)
	if s.Token != "" {
		r.Header.Set("Authorization", "Bearer "+s.Token)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp := Must(s.Client.Do(r))(s.T)
	got := ReplyOf(s.T, resp)
	CheckSchema(s.T, r, got)
	if traced.MatchString(r.URL.EscapedPath()) && method != http.MethodHead && got.Status < 300 && got.Header.Get("X-Agentkit-Trace-Id") == "" {
		s.T.Errorf("%s %s is answered without the id of its thread", method, path)
	}
	return got
}

// ReplyOf reads an answer to its end.
func ReplyOf(t testing.TB, resp *http.Response) *Reply {
	t.Helper()
	defer resp.Body.Close()
	data := Must(io.ReadAll(resp.Body))(t)
	return &Reply{t: t, Status: resp.StatusCode, Header: resp.Header, Body: bytes.TrimSpace(data)}
}

// Want fails unless the answer has a status, and decodes its body.
func (r *Reply) Want(status int, into ...any) *Reply {
	r.t.Helper()
	if r.Status != status {
		r.t.Fatalf("the answer is %d, want %d: %s", r.Status, status, r.Body)
	}
	for _, v := range into {
		if err := json.Unmarshal(r.Body, v); err != nil {
			r.t.Fatalf("%v in %s", err, r.Body)
		}
	}
	return r
}

// Decode fails unless the answer has a status, and returns its body.
func Decode[T any](r *Reply, status int) (v T) {
	r.t.Helper()
	r.Want(status, &v)
	return v
}

// Problem fails unless the answer is a problem of a kind.
func (r *Reply) Problem(status int, kind string) *Reply {
	r.t.Helper()
	var p struct{ Type, Detail string }
	r.Want(status, &p)
	if p.Type != "urn:perdure:problem:"+kind || !strings.HasPrefix(r.Header.Get("Content-Type"), "application/problem+json") {
		r.t.Fatalf("the problem is %s, want %s: %s", p.Type, kind, r.Body)
	}
	return r
}

// Check fails the test at an error.
func Check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Must returns a value, or fails the test at an error.
func Must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		Check(t, err)
		return v
	}
}

// People is an Authenticator whose tokens are the keys of a map. It has no
// hashes of them.
type People map[string]*server.Principal

// Authenticate looks a token up.
func (p People) Authenticate(_ context.Context, token string) (*server.Principal, error) {
	if who := p[token]; who != nil {
		return who, nil
	}
	return nil, api.ErrUnauthorized
}

// All returns what a sequence yields, or fails the test at an error.
func All[T any](t testing.TB, seq iter.Seq2[T, error]) (all []T) {
	t.Helper()
	for v, err := range seq {
		Check(t, err)
		all = append(all, v)
	}
	return all
}

// Together makes requests at the same time, and returns their answers.
func Together(n int, request func(i int) *Reply) []*Reply {
	replies := make([]*Reply, n)
	var wg sync.WaitGroup
	for i := range replies {
		wg.Go(func() { replies[i] = request(i) })
	}
	wg.Wait()
	return replies
}

// T returns the test that the answer is for.
func (r *Reply) T() testing.TB { return r.t }
