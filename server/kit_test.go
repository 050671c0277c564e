package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// site is a server with a worker, and a client of it.
type site struct {
	t     testing.TB
	rt    *perdure.Runtime
	api   *server.Server
	url   string
	token string
}

// newSite starts a server with a worker on a store in memory.
func newSite(t testing.TB, o server.Options, flows ...perdure.Flow) *site {
	t.Helper()
	return newSiteOn(t, memstore.New(), o, flows...)
}

func newSiteOn(t testing.TB, s store.Store, o server.Options, flows ...perdure.Flow) *site {
	t.Helper()
	rt, err := perdure.New(t.Context(), s, perdure.Options{}, flows...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- rt.Work(ctx) }()
	a := server.New(rt, o)
	ts := httptest.NewServer(a)
	t.Cleanup(func() {
		a.Close()
		ts.Close()
		stop()
		if err := <-done; err != nil {
			t.Errorf("the worker: %v", err)
		}
		s.Close()
	})
	return &site{t: t, rt: rt, api: a, url: ts.URL}
}

// traced are the addresses whose answers start or follow a run.
var traced = regexp.MustCompile(`^/(v1/runs|v1/threads/[^/]+.*|v1/asks/[^/]+(/answer|/secret)?|run|run_sse|resume|apps/[^/]+/users/[^/]+/sessions/.+)$`)

// reply is an answer of the server.
type reply struct {
	t      testing.TB
	Status int
	Header http.Header
	Body   []byte
}

// do sends a request. Headers are pairs of name and value.
func (s *site) do(method, path, body string, headers ...string) *reply {
	s.t.Helper()
	var in io.Reader
	if body != "" {
		in = strings.NewReader(body)
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute) // a stream that nobody should get does not end
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, s.url+path, in)
	if err != nil {
		s.t.Fatal(err)
	}
	if s.token != "" {
		r.Header.Set("Authorization", "Bearer "+s.token)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	data = bytes.TrimSpace(data)
	checkSchema(s.t, r, resp.StatusCode, resp.Header, data)
	if traced.MatchString(r.URL.EscapedPath()) && method != http.MethodHead && resp.StatusCode < 300 && resp.Header.Get("X-Agentkit-Trace-Id") == "" {
		s.t.Errorf("%s %s is answered without the id of its thread", method, path)
	}
	return &reply{t: s.t, Status: resp.StatusCode, Header: resp.Header, Body: data}
}

// want fails unless the answer has a status, and decodes its body.
func (r *reply) want(status int, into ...any) *reply {
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

// problem fails unless the answer is a problem of a kind.
func (r *reply) problem(status int, kind string) *reply {
	r.t.Helper()
	var p struct{ Type, Detail string }
	r.want(status, &p)
	if p.Type != "urn:perdure:problem:"+kind || !strings.HasPrefix(r.Header.Get("Content-Type"), "application/problem+json") {
		r.t.Fatalf("the problem is %s, want %s: %s", p.Type, kind, r.Body)
	}
	return r
}
