package server_test

import (
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/server"
)

// TestEraseUserWithTokens erases a user with everything, tokens included. Only an admin
// may. One who erases themselves gets the answer, and nothing more.
func TestEraseUserWithTokens(t *testing.T) {
	site, tokens := authSite(t, server.Options{}, testFlows()...)
	admin := site.Token
	secret := func(in api.CreateToken) string {
		t.Helper()
		return servertest.Must(tokens.Create(t.Context(), "acme", "root", in))(t).Secret
	}
	user := secret(api.CreateToken{User: "ada"})
	own := secret(api.CreateToken{Subject: "eve", Scopes: []api.Scope{api.ScopeAdmin, api.ScopeRun, api.ScopeRead}})
	other := secret(api.CreateToken{User: "bob"})

	site.Token = user
	site.Do("POST", "/v1/threads/t/runs", `{"flow":"ask","input":"x"}`).Want(202)
	site.Do("POST", "/v1/tickets", `{"thread":"t"}`).Want(201)
	site.Token = other
	site.Do("POST", "/v1/threads/u/runs", `{"flow":"ask","input":"x"}`).Want(202)
	site.Do("POST", "/v1/tickets", `{"thread":"u"}`).Want(201)
	tickets := func() (n int) {
		for _, err := range threads.Behind(site.Runtime).All.Store.List(t.Context(), "ticket/", "") {
			servertest.Check(t, err)
			n++
		}
		return n
	}
	if n := tickets(); n != 2 {
		t.Errorf("there are %d tickets", n)
	}
	site.Token = user
	site.Do("DELETE", "/v1/users/ada", "").Problem(403, "scope")
	site.Do("GET", "/v1/users/ada", "").Problem(403, "scope")
	site.Token = admin
	var n perdure.UserData
	site.Do("GET", "/v1/users/ada", "").Want(200, &n)
	if n.Threads != 1 {
		t.Errorf("there is %+v", n)
	}
	site.Do("GET", "/v1/users/ada/receipt", "").Problem(404, "not-found")
	var first, again perdure.Receipt
	site.Do("DELETE", "/v1/users/ada?reason=asked", "").Want(200, &first)
	site.Do("GET", "/v1/users/ada/receipt", "").Want(200, &again)
	if first.Erased.Threads != 1 || first.Tenant != "acme" || first.Sig == "" || first.Sig != again.Sig {
		t.Errorf("receipts %+v and %+v", first, again)
	}
	site.Do("GET", "/v1/threads/t", "").Problem(404, "no-thread")
	if n := tickets(); n != 1 {
		t.Errorf("%d tickets are left, want that of the other user", n)
	}
	authWant(t, tokens, other, "bob")
	for _, s := range servertest.Must(tokens.List(t.Context(), "acme"))(t) {
		if s.User == "ada" || s.Subject == "ada" {
			t.Errorf("there is still a token: %+v", s)
		}
	}
	site.Token = user
	site.Do("GET", "/v1/threads", "").Problem(401, "unauthorized")
	site.Token = own
	site.Do("DELETE", "/v1/users/eve", "").Want(200)
	site.Do("GET", "/v1/threads", "").Problem(401, "unauthorized")
}
