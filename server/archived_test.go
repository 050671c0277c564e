package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/server"
)

// TestArchive archives a thread while someone follows it, asks for it in every way,
// and restores it: a reader continues with the id that it had.
func TestArchive(t *testing.T) {
	site := servertest.New(t, server.Options{}, testFlows()...)
	site.Start("w", "ask", "?")
	site.Do("POST", "/v1/threads/w/archive", `{}`).Problem(409, "busy")
	site.Start("t", "count", 3)
	before := site.Do("GET", "/v1/threads/t", "").Want(200)
	all := site.Do("GET", "/v1/threads/t/events", "").Want(200)
	live := site.Open("/v1/threads/t/events", "Last-Event-ID", "2")
	defer live.Close()
	if b, ok := live.Event(); !ok || b.ID != "3" {
		t.Errorf("the first event after 2 is %v", b)
	}

	site.Do("POST", "/v1/threads/t/archive", `{}`, "If-Match", `"1"`).Problem(412, "stale")
	a := servertest.Decode[perdure.ArchivedThread](site.Do("POST", "/v1/threads/t/archive", `{"reason":"old"}`), 200)
	if a.ID != "t" || a.Flow != "count" || a.Status != perdure.Succeeded || a.Archived.IsZero() {
		t.Errorf("it is %+v", a)
	}
	if last := live.Until("erased"); len(last) == 0 || !strings.Contains(last[len(last)-1].Data, `"name":"archive"`) {
		t.Errorf("the open stream ended with %v", last)
	}
	for _, request := range [][]string{{"GET", "/v1/threads/t", ""}, {"GET", "/v1/threads/t/events?after=2", ""}, {"GET", "/v1/threads/t/runs", ""}, {"GET", "/v1/threads/t/export", ""},
		{"POST", "/v1/threads/t/runs", `{"flow":"count","input":1}`}, {"PATCH", "/v1/threads/t", `{"title":"x"}`}, {"POST", "/v1/threads", `{"id":"t"}`},
		{"POST", "/v1/tickets", `{"thread":"t"}`}} {
		p := site.Do(request[0], request[1], request[2]).Problem(410, "archived")
		if !strings.Contains(string(p.Body), "perdure unarchive t") || !strings.Contains(string(p.Body), `"at":"20`) {
			t.Errorf("%s %s: %s", request[0], request[1], p.Body)
		}
	}
	site.Do("GET", "/v1/threads/t/events", "", "Accept", api.TypeEvents, "Last-Event-ID", "2").Problem(410, "archived")
	page := servertest.Decode[api.ArchivedPage](site.Do("GET", "/v1/archived", ""), 200)
	if len(page.Threads) != 1 || page.Threads[0].ID != "t" || page.Next != "" {
		t.Errorf("archived are %+v", page)
	}
	if page := servertest.Decode[api.ArchivedPage](site.Do("GET", "/v1/archived?user=nobody", ""), 200); len(page.Threads) != 0 {
		t.Errorf("of nobody there are %+v", page)
	}
	if page := servertest.Decode[api.ThreadPage](site.Do("GET", "/v1/threads", ""), 200); len(page.Threads) != 1 || page.Threads[0].ID != "w" {
		t.Errorf("listed are %+v", page)
	}

	back := site.Do("POST", "/v1/threads/t/restore", `{}`).Want(200)
	for what, got := range map[string][2]string{"thread": {string(back.Body), string(before.Body)}, "events": {string(site.Do("GET", "/v1/threads/t/events", "").Want(200).Body), string(all.Body)}} {
		if got[0] != got[1] {
			t.Errorf("the %s is\n%s\nbefore:\n%s", what, got[0], got[1])
		}
	}
	again := site.Open("/v1/threads/t/events", "Last-Event-ID", "2")
	defer again.Close()
	if b, ok := again.Event(); !ok || b.ID != "3" {
		t.Errorf("the first event after 2 is now %v", b)
	}
	site.Do("POST", "/v1/threads/t/restore", `{"remove":true}`).Want(200)
	site.Do("POST", "/v1/threads/w/restore", `{}`).Problem(409, "nothing-to-do")
	site.Do("POST", "/v1/threads/t/archive", `{}`).Want(200)
	site.Do("DELETE", "/v1/threads/t", "").Want(http.StatusNoContent)
	site.Do("GET", "/v1/threads/t", "").Problem(404, "no-thread")
	if page := servertest.Decode[api.ArchivedPage](site.Do("GET", "/v1/archived", ""), 200); len(page.Threads) != 0 {
		t.Errorf("after the erase there are %+v", page)
	}
}

// TestWhereArchivedThreadsAreIsNotForUsers: a token of one user sees no paths of the
// server.
func TestWhereArchivedThreadsAreIsNotForUsers(t *testing.T) {
	site, tokens := authSite(t, server.Options{}, testFlows()...)
	admin := site.Token
	made := servertest.Must(tokens.Create(t.Context(), "acme", "test", api.CreateToken{Subject: "ada", User: "ada", Scopes: []api.Scope{api.ScopeRead, api.ScopeRun}}))(t)
	site.Token = made.Secret
	site.Do("POST", "/v1/threads", `{"id":"t"}`).Want(201)
	site.Token = admin
	site.Do("POST", "/v1/threads/t/archive", `{}`).Want(200)
	site.Token = made.Secret
	own := servertest.Decode[api.ArchivedPage](site.Do("GET", "/v1/archived", ""), 200)
	site.Token = admin
	all := servertest.Decode[api.ArchivedPage](site.Do("GET", "/v1/archived", ""), 200)
	if len(own.Threads) != 1 || own.Threads[0].Where != "" || len(all.Threads) != 1 || all.Threads[0].Where == "" {
		t.Errorf("a user sees %+v, an admin %+v", own.Threads, all.Threads)
	}
}
