package server_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// quotaPeople are callers of two tenants.
var quotaPeople = servertest.People{
	"ann":   {Subject: "ann", Tenant: "acme", Scopes: []api.Scope{api.ScopeAdmin}},
	"eve":   {Subject: "eve", Tenant: "other", Scopes: []api.Scope{api.ScopeAdmin}},
	"limit": {Subject: "bob", User: "bob", Tenant: "acme", Scopes: []api.Scope{api.ScopeRead, api.ScopeRun}},
	"run":   {Subject: "bob", User: "bob", Tenant: "acme", Scopes: []api.Scope{api.ScopeRun}},
	"ops":   {Subject: "ops", Scopes: []api.Scope{api.ScopeAdmin}},
}

// nodes starts two servers with workers on one store.
func nodes(t *testing.T, s store.Store, q server.Quota, flows ...perdure.Flow) (a, b *servertest.Site) {
	t.Helper()
	start := func() *servertest.Site {
		site := servertest.NewProcess(t, s, server.Options{Auth: quotaPeople, Quota: q}, flows...).Site
		site.Token = "ann"
		return site
	}
	return start(), start()
}

// over expects that a request is refused by a quota.
func over(r *servertest.Reply, quota string, limit int64, retry bool) {
	p := servertest.Decode[api.Problem](r.Problem(429, "quota"), 429)
	if after := r.Header.Get("Retry-After"); p.Quota != quota || p.Limit != limit || (p.Retry > 0) != retry || (after != "") != retry || !strings.Contains(p.Detail, strconv.FormatInt(limit, 10)+" "+quota) {
		r.T().Errorf("%+v, Retry-After %q", p, after)
	}
}

// TestQuotaOfThreads: all that makes a thread is refused, on every server, and
// nothing is written; what makes none works.
func TestQuotaOfThreads(t *testing.T) {
	st := memstore.New()
	a, b := nodes(t, st, server.Quota{Threads: 3}, testFlows()...)
	large := `{"flow":"ask","input":"` + strings.Repeat("x", 100_000) + `"}`
	for i := range 3 {
		a.Do("POST", fmt.Sprintf("/v1/threads/t%d/runs", i), `{"flow":"ask","input":"x"}`, "Idempotency-Key", "k").Want(202)
		servertest.Must(a.Runtime.Tenant("acme").Wait(t.Context(), fmt.Sprint("t", i), ""))(t)
	}
	file := string(a.Do("GET", "/v1/threads/t0/export", "").Want(200).Body)
	cells := func() int { return cellsOf(st, "") - cellsOf(st, "quota/") } // which servers write from time to time
	before := cells()
	for _, s := range []*servertest.Site{a, b} {
		over(s.Do("POST", "/v1/runs", `{"flow":"ask","input":"x"}`), "threads", 3, false)
		over(s.Do("POST", "/v1/threads/new/runs", large), "threads", 3, false)
		over(s.Do("POST", "/v1/threads", `{"id":"new"}`), "threads", 3, false)
		over(s.Do("POST", "/v1/threads/t0/fork", `{}`), "threads", 3, false)
		over(s.Do("POST", "/v1/threads/import?as=new", file, "Content-Type", api.TypeLines), "threads", 3, false)
		s.Do("POST", "/v1/threads/t0/runs", `{"flow":"ask","input":"x"}`, "Idempotency-Key", "k").Want(202)
		s.Do("POST", "/v1/threads", `{"id":"t0"}`).Problem(409, "exists")
	}
	if now := cells(); now > before {
		t.Errorf("there are %d cells, and there were %d", now, before)
	}
	b.Do("POST", "/v1/threads/t0/runs", `{"flow":"ask","input":"y"}`).Want(202) // on a thread that exists
	b.Token = "eve"
	b.Do("POST", "/v1/runs", `{"flow":"ask","input":"x"}`).Want(202)
	a.Do("DELETE", "/v1/threads/t1", "").Want(204)
	eventually(t, "there is no room after an erase", func() bool { return a.Do("POST", "/v1/threads", `{}`).Status == 201 })
	if u := servertest.Decode[api.Usage](a.Do("GET", "/v1/usage", ""), 200); u.Quota["threads"] != 3 || len(u.Quota) != 1 || u.Tenant != "acme" {
		t.Errorf("%+v", u)
	}
}

// TestQuotaOfRuns: runs that are executed count on every server, runs that wait
// for people do not.
func TestQuotaOfRuns(t *testing.T) {
	release := make(chan struct{})
	hold := perdure.NewFlow("hold", func(ctx context.Context, _ string) (string, error) {
		return perdure.Step(ctx, "hold", func(ctx context.Context) (string, error) {
			select {
			case <-release:
			case <-ctx.Done():
			}
			return "", ctx.Err()
		})
	})
	a, b := nodes(t, memstore.New(), server.Quota{Runs: 2}, append(testFlows(), hold)...)
	for range 3 {
		run := servertest.Decode[perdure.Run](a.Do("POST", "/v1/runs", `{"flow":"ask","input":"x"}`), 202)
		servertest.Must(a.Runtime.Tenant("acme").Wait(t.Context(), run.Thread, ""))(t)
		eventually(t, "a run that waits for an answer counts", func() bool {
			return servertest.Decode[api.Usage](a.Do("GET", "/v1/usage", ""), 200).Active == 0
		})
	}
	replies := servertest.Together(12, func(i int) *servertest.Reply {
		return a.Do("POST", fmt.Sprintf("/v1/threads/h%d/runs", i), `{"flow":"hold","input":"x"}`, "Idempotency-Key", "k")
	})
	started := ""
	for i, r := range replies {
		if r.Status == 202 {
			started += fmt.Sprint(" h", i)
		} else {
			over(r, "runs", 2, true)
		}
	}
	ids := strings.Fields(started)
	if len(ids) != 2 {
		t.Fatalf("started:%s", started)
	}
	eventually(t, "another server starts more", func() bool {
		r := b.Do("POST", "/v1/runs", `{"flow":"hold","input":"x"}`)
		if r.Status == 429 {
			over(r, "runs", 2, true)
		}
		return r.Status == 429
	})
	a.Do("POST", "/v1/threads/"+ids[0]+"/runs", `{"flow":"hold","input":"x"}`, "Idempotency-Key", "k").Want(202) // the same again
	close(release)
	eventually(t, "there is no room after the runs have ended", func() bool { return b.Do("POST", "/v1/runs", `{"flow":"ask","input":"x"}`).Status == 202 })
}

// TestQuotaOfStreams: those of other servers count after a moment.
func TestQuotaOfStreams(t *testing.T) {
	a, b := nodes(t, memstore.New(), server.Quota{Streams: 2}, testFlows()...)
	one, two := a.Open("/v1/events", "Authorization", "Bearer ann"), a.Open("/v1/events", "Authorization", "Bearer ann")
	over(a.Do("GET", "/v1/events", "", "Accept", api.TypeEvents), "streams", 2, true)
	eventually(t, "another server does not know", func() bool {
		return servertest.Decode[api.Usage](b.Do("GET", "/v1/usage", ""), 200).Streams == 2
	})
	over(b.Do("GET", "/v1/events", "", "Accept", api.TypeEvents), "streams", 2, true)
	// A start is not refused for want of a stream.
	b.Do("POST", "/v1/runs", `{"flow":"count","input":1}`, "Accept", api.TypeEvents).Want(202)
	one.Close()
	two.Close()
	eventually(t, "streams that are over still count", func() bool {
		return servertest.Decode[api.Usage](b.Do("GET", "/v1/usage", ""), 200).Streams == 0
	})
	if got := b.Open("/v1/events", "Authorization", "Bearer ann").Response.StatusCode; got != 200 {
		t.Errorf("a stream is answered %d", got)
	}
}

// TestQuotaOfBytes: uploads and starts are refused when it is used up, answers are
// not.
func TestQuotaOfBytes(t *testing.T) {
	a, b := nodes(t, memstore.New(), server.Quota{Bytes: 1 << 20}, testFlows()...)
	run := servertest.Decode[perdure.Run](a.Do("POST", "/v1/runs", `{"flow":"ask","input":"x"}`), 202)
	u := uploaded(a, "a", "image/png", strings.Repeat("x", 600_000))
	over(a.Do("POST", "/v1/uploads", strings.Repeat("x", 600_000)), "bytes", 1<<20, false)
	r := servertest.Must(http.NewRequestWithContext(t.Context(), "POST", a.URL+"/v1/uploads", struct{ io.Reader }{strings.NewReader(strings.Repeat("x", 600_000))}))(t)
	r.Header.Set("Authorization", "Bearer ann")
	over(servertest.ReplyOf(t, servertest.Must(http.DefaultClient.Do(r))(t)), "bytes", 1<<20, false)
	fits := 0
	for _, r := range servertest.Together(6, func(int) *servertest.Reply { return a.Do("POST", "/v1/uploads", strings.Repeat("z", 200_000)) }) {
		if r.Status == 201 {
			fits++
			a.Do("DELETE", "/v1/uploads/"+servertest.Decode[perdure.Upload](r, 201).ID, "").Want(204)
		} else {
			over(r, "bytes", 1<<20, r.Header.Get("Retry-After") != "") // as long as others may write
		}
	}
	if fits == 0 || fits > 2 {
		t.Errorf("%d uploads fit at the same time", fits)
	}
	eventually(t, "there is no room after uploads were removed", func() bool {
		return a.Do("POST", "/v1/threads/r/runs", `{"flow":"count","input":1}`).Status == 202
	})
	a.Do("POST", "/v1/threads/t/runs", `{"flow":"ask","input":"`+strings.Repeat("y", 500_000)+`"}`).Want(202)
	for _, s := range []*servertest.Site{a, b} {
		eventually(t, "the bytes of a thread do not count", func() bool {
			return s.Do("POST", "/v1/threads/t/runs", `{"flow":"count","input":1}`).Status == 429
		})
		over(s.Do("POST", "/v1/runs", `{"flow":"count","input":1}`), "bytes", 1<<20, false)
	}
	waiting := servertest.Must(a.Runtime.Tenant("acme").Wait(t.Context(), run.Thread, run.ID))(t)
	a.Do("POST", "/v1/asks/"+waiting.Asks[0].ID+"/answer", `{"value":"x"}`).Want(200)
	a.Do("DELETE", "/v1/uploads/"+u.ID, "").Want(204)
	eventually(t, "there is no room after an upload was removed", func() bool {
		return b.Do("POST", "/v1/runs", `{"flow":"count","input":1}`).Status == 202
	})
}

// TestQuotaOfBytesThatAreReserved: an upload that does not say its length holds all the
// room, and who is refused meanwhile may try again.
func TestQuotaOfBytesThatAreReserved(t *testing.T) {
	const most = 1 << 20
	a, _ := nodes(t, memstore.New(), server.Quota{Bytes: most}, testFlows()...)
	from, to := io.Pipe()
	r := servertest.Must(http.NewRequestWithContext(t.Context(), "POST", a.URL+"/v1/uploads", from))(t)
	r.Header.Set("Authorization", "Bearer ann")
	ended := make(chan *servertest.Reply, 1)
	go func() { ended <- servertest.ReplyOf(t, servertest.Must(http.DefaultClient.Do(r))(t)) }()
	io.WriteString(to, "x")
	start := func() *servertest.Reply { return a.Do("POST", "/v1/runs", `{"flow":"count","input":1}`) }
	var refused *servertest.Reply
	eventually(t, "a start finds room", func() bool { refused = start(); return refused.Status == 429 })
	over(refused, "bytes", most, true)
	over(a.Do("POST", "/v1/uploads", "y"), "bytes", most, true)
	over(a.Do("POST", "/v1/uploads", strings.Repeat("y", most+1)), "bytes", most, false)
	to.Close()
	(<-ended).Want(201)
	start().Want(202)
}

// TestQuotaOfBytesOfBodies: what starts, creations, imports and attached uploads bring
// counts at once, not only when the tenant is counted the next time.
func TestQuotaOfBytesOfBodies(t *testing.T) {
	const most = 1 << 20
	big := strings.Repeat("x", 200_000)
	exported := func(a *servertest.Site) string {
		a.Token = "eve" // whose tenant has a quota of its own
		a.Do("POST", "/v1/threads", `{"id":"big","state":{"k":"`+big+`"}}`).Want(201)
		file := string(a.Do("GET", "/v1/threads/big/export", "").Want(200).Body) + "\n"
		a.Token = "ann"
		return file
	}
	for name, one := range map[string]struct {
		fit  int // how many at most
		send func(a *servertest.Site) func(i int) *servertest.Reply
	}{
		"starts": {6, func(a *servertest.Site) func(int) *servertest.Reply {
			return func(i int) *servertest.Reply {
				return a.Do("POST", fmt.Sprintf("/v1/threads/t%d/runs", i), `{"flow":"ask","input":"`+big+`"}`)
			}
		}},
		"creations": {6, func(a *servertest.Site) func(int) *servertest.Reply {
			return func(i int) *servertest.Reply {
				return a.Do("POST", "/v1/threads", fmt.Sprintf(`{"id":"t%d","state":{"k":"%s"}}`, i, big))
			}
		}},
		"imports": {5, func(a *servertest.Site) func(int) *servertest.Reply {
			file := exported(a)
			return func(i int) *servertest.Reply {
				return a.Do("POST", fmt.Sprintf("/v1/threads/import?as=t%d", i), file, "Content-Type", api.TypeLines)
			}
		}},
		"imports of unknown length": {5, func(a *servertest.Site) func(int) *servertest.Reply {
			file := exported(a)
			return func(i int) *servertest.Reply {
				r := servertest.Must(http.NewRequestWithContext(a.T.Context(), "POST", fmt.Sprintf("%s/v1/threads/import?as=t%d", a.URL, i), struct{ io.Reader }{strings.NewReader(file)}))(a.T)
				r.Header.Set("Authorization", "Bearer ann")
				r.Header.Set("Content-Type", api.TypeLines)
				return servertest.ReplyOf(a.T, servertest.Must(http.DefaultClient.Do(r))(a.T))
			}
		}},
		"starts with a file": {2, func(a *servertest.Site) func(int) *servertest.Reply {
			u := uploaded(a, "a", "image/png", strings.Repeat("x", 400_000))
			return func(i int) *servertest.Reply {
				return a.Do("POST", fmt.Sprintf("/v1/threads/t%d/runs", i), `{"flow":"ask","input":"x","attach":["`+u.ID+`"]}`)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			a, _ := nodes(t, memstore.New(), server.Quota{Bytes: most}, testFlows()...)
			send := one.send(a)
			admitted := 0
			for i := range 30 {
				if r := send(i); r.Status == 201 || r.Status == 202 {
					admitted++
				} else {
					over(r, "bytes", most, false)
				}
			}
			if admitted == 0 || admitted > one.fit {
				t.Errorf("%d were admitted under a quota of 1 MiB, want at most %d", admitted, one.fit)
			}
		})
	}
}

// TestQuotaOfEmptyUploads: each counts something, so there is an end to them.
func TestQuotaOfEmptyUploads(t *testing.T) {
	const most = 40 << 10
	a, b := nodes(t, memstore.New(), server.Quota{Bytes: most}, testFlows()...)
	ids := []string{}
	for _, s := range []*servertest.Site{a, b} {
		for {
			r := s.Do("POST", "/v1/uploads", "")
			if r.Status != 201 {
				over(r, "bytes", most, false)
				break
			}
			if ids = append(ids, servertest.Decode[perdure.Upload](r, 201).ID); len(ids) > 20 {
				t.Fatal("there is no end to empty uploads")
			}
		}
	}
	if len(ids) < 10 {
		t.Errorf("only %d uploads fit", len(ids))
	}
	for _, id := range ids {
		a.Do("DELETE", "/v1/uploads/"+id, "").Want(204)
	}
	eventually(t, "there is no room after uploads were removed", func() bool { return b.Do("POST", "/v1/uploads", "").Status == 201 })
}

// kept is a store that several servers share, and that none of them closes.
type kept struct{ store.Store }

// Close does nothing.
func (kept) Close() error { return nil }

// Unwrap is for what the store can do besides.
func (k kept) Unwrap() store.Store { return k.Store }

// TestQuotaOfStarts: servers count together, and Retry-After is when there is room.
func TestQuotaOfStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := kept{memstore.New()}
		o := server.Options{Quota: server.Quota{Starts: 4}}
		a, b := newPiped(t, st, o, false, testFlows()...), newPiped(t, st, o, false, testFlows()...)
		start := func(s *servertest.Site, headers ...string) *servertest.Reply {
			return s.Do("POST", "/v1/threads/t/runs", `{"flow":"count","input":1}`, headers...)
		}
		for i := range 3 {
			start(a, "Idempotency-Key", fmt.Sprint(i)).Want(202)
			time.Sleep(7 * time.Second)
		}
		start(a, "Idempotency-Key", "0").Want(202) // the same again
		for range 5 {                              // what is refused is no start
			a.Do("POST", "/v1/runs", `{"flow":"count","input":1,"attach":["nope"]}`).Want(404)
			a.Do("POST", "/v1/threads/t/runs", `{"flow":"count","input":1,"attach":["nope"]}`).Want(404)
		}
		if u := servertest.Decode[api.Usage](a.Do("GET", "/v1/usage", ""), 200); u.Starts != 3 || u.Threads != 1 {
			t.Errorf("after starts that were refused: %+v", u)
		}
		start(b).Want(202)
		over(start(b), "starts", 4, true)
		time.Sleep(5 * time.Second) // more than it takes them to tell each other
		r := start(a)
		over(r, "starts", 4, true)
		wait := servertest.Must(strconv.Atoi(r.Header.Get("Retry-After")))(t)
		time.Sleep(time.Duration(wait-5) * time.Second)
		over(start(a), "starts", 4, true)
		time.Sleep(5 * time.Second)
		start(a).Want(202)
		over(start(a), "starts", 4, true)
		// A server that is gone does not count for long, and leaves nothing.
		b.Server.Close()
		time.Sleep(2 * time.Minute)
		if n := cellsOf(st, "quota/"); n != 0 {
			t.Errorf("%d cells are left", n)
		}
	})
}

// TestQuotaOfStartsAfterARestart: what a server that has stopped admitted counts.
func TestQuotaOfStartsAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := kept{memstore.New()}
		o := server.Options{Quota: server.Quota{Starts: 4}}
		start := func(s *servertest.Site) *servertest.Reply {
			return s.Do("POST", "/v1/threads/t/runs", `{"flow":"count","input":1}`)
		}
		a := newPiped(t, st, o, false, testFlows()...)
		for range 4 {
			start(a).Want(202)
		}
		a.Server.Close()
		b := newPiped(t, st, o, false, testFlows()...)
		synctest.Wait() // until it has read what others told
		over(start(b), "starts", 4, true)
		time.Sleep(30 * time.Second) // the other one is silent, and its starts are not too old
		over(start(b), "starts", 4, true)
		time.Sleep(time.Minute)
		start(b).Want(202)
		time.Sleep(2 * time.Minute)
		if n := cellsOf(st, "quota/"); n != 0 {
			t.Errorf("%d cells are left", n)
		}
	})
}

func TestQuotaFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "quotas.json")
	write := func(text string) {
		t.Helper()
		servertest.Check(t, os.WriteFile(path, []byte(text), 0o600))
	}
	for text, want := range map[string]string{
		"":                                 "JSON",
		"[]":                               "object",
		`{"a": 1}`:                         "object",
		`{"a": {"thread": 1}}`:             "there is no quota",
		`{"a": {"threads": -1}}`:           "at least 1",
		`{"a": {"threads": 1.5}}`:          "whole number",
		`{"a": {"threads": "1"}}`:          "whole number",
		`{"a": {}, "a": {}}`:               "a",
		`{"group:a": {}}`:                  "group:",
		`{"a": {"threads": 1}, "b": null}`: "object",
	} {
		write(text)
		if _, err := server.QuotaFile(path, nil); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", text, err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		write(`{"acme": {"threads": 7, "bytes": 0}, "": {"runs": 1}}`)
		f := servertest.Must(server.QuotaFile(path, nil))(t)
		standard := server.Quota{Threads: 1, Bytes: 2, Starts: 3}
		if got := f.Of("acme", standard); got != (server.Quota{Threads: 7, Starts: 3}) {
			t.Errorf("%+v", got)
		}
		if got := f.Of("other", standard); got != standard || fmt.Sprintf("%q", f.Tenants()) != `["" "acme"]` {
			t.Errorf("%+v %q", got, f.Tenants())
		}
		write(`{"acme": {"threads": 8}}`)
		time.Sleep(2 * time.Second)
		if got := f.Of("acme", standard); got.Threads != 8 || got.Bytes != 2 {
			t.Errorf("%+v", got)
		}
		write("{")
		time.Sleep(2 * time.Second)
		if got := f.Of("acme", standard); got.Threads != 8 {
			t.Errorf("an invalid file: %+v", got)
		}
	})
}
