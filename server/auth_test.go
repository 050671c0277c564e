package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

func TestBearerTokensAreTakenFromTheHeaderOnly(t *testing.T) {
	site, _ := authSite(t, server.Options{})
	token := site.Token
	site.Token = ""
	me := func(path string, values ...string) *servertest.Reply {
		t.Helper()
		r := servertest.Must(http.NewRequestWithContext(t.Context(), "GET", site.URL+path, nil))(t)
		for _, v := range values {
			r.Header.Add("Authorization", v)
		}
		r.AddCookie(&http.Cookie{Name: "perdure_stream", Value: token})
		r.AddCookie(&http.Cookie{Name: "token", Value: token})
		resp := servertest.Must(http.DefaultClient.Do(r))(t)
		return servertest.ReplyOf(t, resp)
	}
	for _, value := range []string{"Bearer " + token, "bearer " + token, "BEARER  " + token} {
		var who api.Me
		me("/v1/me", value).Want(200, &who)
		if who.Subject != "root" || who.Tenant != "acme" {
			t.Errorf("%q is %+v", value[:7], who)
		}
	}
	for _, values := range [][]string{
		{}, {""}, {"Bearer"}, {"Bearer "}, {token}, {"Basic " + token}, {"Bearer" + token}, {"Bearer " + token + " x"}, {"Bearer " + token + ","},
		{"Bearer " + token, "Bearer " + token}, {"Bearer x", "Bearer " + token}, {"Bearer " + token + ", Bearer " + token}, {"Token " + token}, {"Bearer \"" + token + "\""},
	} {
		got := me("/v1/me", values...).Problem(401, "unauthorized")
		if got.Header.Get("WWW-Authenticate") != "Bearer" || bytes.Contains(got.Body, []byte(token[4:])) {
			t.Errorf("%d values: %v %s", len(values), got.Header, got.Body)
		}
	}
	for _, query := range []string{"token", "access_token", "ticket", "authorization", "api_key"} {
		me("/v1/me?"+query+"="+token).Problem(401, "unauthorized")
	}
}

func TestTokenOperations(t *testing.T) {
	site, tokens := authSite(t, server.Options{})
	var made api.NewToken
	site.Do("POST", "/v1/tokens", `{"subject":"ann","groups":["buyers"],"days":7,"note":"for the test"}`).Want(201, &made)
	if made.Tenant != "acme" || made.By != "root" || made.Expires.IsZero() || len(made.Scopes) != 3 {
		t.Errorf("the token is %+v", made)
	}
	site.Do("POST", "/v1/tokens", `{"subject":"ann","tenant":"other"}`).Problem(403, "scope")
	site.Do("POST", "/v1/tokens", `{"subject":"ann","tenant":"acme"}`).Want(201)
	site.Do("POST", "/v1/tokens", `{"subject":""}`).Problem(400, "invalid")
	var list api.TokenList
	got := site.Do("GET", "/v1/tokens", "").Want(200, &list)
	if len(list.Tokens) != 3 || strings.Contains(string(got.Body), made.Secret[4:]) {
		t.Errorf("the list is %s", got.Body)
	}
	foreign := servertest.Must(tokens.Create(t.Context(), "other", "", api.CreateToken{Subject: "eve", Scopes: []api.Scope{api.ScopeAdmin}}))(t)
	site.Do("DELETE", "/v1/tokens/"+foreign.ID, "").Problem(404, "not-found")
	authWant(t, tokens, foreign.Secret, "eve")

	admin := site.Token
	site.Token = made.Secret
	site.Do("GET", "/v1/me", "").Want(200)
	for _, method := range []string{"GET", "POST"} {
		site.Do(method, "/v1/tokens", "").Problem(403, "scope")
	}
	site.Token = admin
	site.Do("DELETE", "/v1/tokens/"+made.ID, "").Want(204)
	site.Do("DELETE", "/v1/tokens/"+made.ID, "").Want(204)
	site.Token = made.Secret
	site.Do("GET", "/v1/me", "").Problem(401, "unauthorized")
}

func TestTokensThatAreKeptElsewhereAreNotMadeHere(t *testing.T) {
	site := servertest.New(t, server.Options{Auth: servertest.People{"abc": {Subject: "root", Scopes: []api.Scope{api.ScopeAdmin}}}})
	site.Token = "abc"
	site.Do("POST", "/v1/tokens", `{"subject":"ann"}`).Problem(404, "not-found")
	site.Do("GET", "/v1/tokens", "").Problem(404, "not-found")
	site.Do("DELETE", "/v1/tokens/0000000000000000", "").Problem(404, "not-found")
}

func TestPrincipalsThatCannotBeAreRefused(t *testing.T) {
	site := servertest.New(t, server.Options{Auth: servertest.People{
		"group": {Subject: "group:admins", Scopes: api.Scopes},
		"empty": {Scopes: api.Scopes},
		"none":  {Subject: "ann"},
	}})
	for _, site.Token = range []string{"group", "empty", "none"} {
		site.Do("GET", "/v1/me", "").Problem(500, "internal")
	}
	free := servertest.New(t, server.Options{})
	free.Do("GET", "/v1/me", "", "Perdure-As", "group:admins").Problem(400, "invalid")
	free.Do("GET", "/v1/me", "", "Perdure-As", "ann").Want(200)
}

func TestRecheckTellsWhatBecameOfTheToken(t *testing.T) {
	fixed := servertest.People{"abc": {Tenant: "a", Subject: "ann", Scopes: []api.Scope{api.ScopeRead}}}
	d := newTicketDesk(t, memstore.New(), func(*server.Tokens) server.Authenticator { return fixed })
	r := httptest.NewRequest("GET", "/v1/flows", nil)
	r.Header.Set("Authorization", "Bearer abc")
	c := servertest.Must(d.api.Admit(httptest.NewRecorder(), r, &api.FlowsList.Info))(t)
	for _, step := range []struct {
		now  *server.Principal
		want error
	}{
		{&server.Principal{Tenant: "a", Subject: "ann", Scopes: api.Scopes}, nil},
		{&server.Principal{Tenant: "a", Subject: "ann", Scopes: []api.Scope{api.ScopeRun}}, api.ErrScope},
		{&server.Principal{Tenant: "b", Subject: "ann", Scopes: api.Scopes}, api.ErrUnauthorized},
		{&server.Principal{Tenant: "a", Subject: "bob", Scopes: api.Scopes}, api.ErrUnauthorized},
		{nil, api.ErrUnauthorized},
	} {
		fixed["abc"] = step.now
		if err := c.Recheck(t.Context()); !errors.Is(err, step.want) {
			t.Errorf("with %+v now: %v, want %v", step.now, err, step.want)
		}
	}
}

// TestSecretsAreInNoLogAndNoError sends secrets in all places where one may stand
// by mistake, to a server that cannot ask one of its stores and says so.
func TestSecretsAreInNoLogAndNoError(t *testing.T) {
	var log bytes.Buffer
	var mu sync.Mutex
	logger := slog.New(slog.NewTextHandler(&guardLog{&mu, &log}, &slog.HandlerOptions{Level: slog.LevelDebug - 10}))
	s := memstore.New()
	down := authTokens(t, authDown{s})
	site := servertest.NewOn(t, s, server.Options{Auth: server.Any(down, authTokens(t, s)), Logger: logger})
	good := authSecret(t, authTokens(t, s), "acme", "root", api.ScopeAdmin)
	site.Token = good
	var ticket api.Ticket
	var made api.NewToken
	site.Do("POST", "/v1/tickets", `{"thread":"t"}`).Want(201, &ticket)
	site.Do("POST", "/v1/tokens", `{"subject":"ann"}`).Want(201, &made)
	canary := "pdr_" + strings.Repeat("CANARY0", 6) + "A"
	secrets := []string{good, made.Secret, ticket.Ticket, canary}
	for _, secret := range secrets {
		for _, op := range api.All() {
			if !site.Server.Bound(op.Name) {
				continue
			}
			path := strings.NewReplacer("{place...}", "a/b", "{", "", "}", "").Replace(op.Path)
			for _, header := range []string{"Bearer " + secret, secret, "Bearer " + secret + " " + secret} {
				for _, query := range []string{"", "?ticket=" + secret, "?token=" + secret} {
					if header == "Bearer "+secret && (secret == good || secret == made.Secret) {
						continue // let in
					}
					got := site.Do(op.Method, path+query, `{"secret":"`+secret+`"}`, "Authorization", header, "Cookie", "perdure_stream="+secret)
					if bytes.Contains(got.Body, []byte(secret[4:])) {
						t.Fatalf("%s%s is answered %s", op.Name, query, got.Body)
					}
				}
			}
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for _, secret := range secrets {
		if strings.Contains(log.String(), secret[4:]) {
			t.Fatalf("the log has a secret:\n%s", log.String())
		}
	}
	if !strings.Contains(log.String(), "a request failed") {
		t.Error("nothing was logged: the test sees nothing")
	}
}

// brokenStore says where it is when it fails.
type brokenStore struct {
	store.Store
	broken atomic.Bool
}

func (s *brokenStore) Get(ctx context.Context, key string) (store.Cell, error) {
	if s.broken.Load() {
		return store.Cell{}, fmt.Errorf("%w: dial db.canary.example: user canary", store.ErrUnavailable)
	}
	return s.Store.Get(ctx, key)
}

// What a store says when it fails is for the log, also where nobody has been
// asked for a token yet.
func TestErrorsOfTheStoreAreNotTold(t *testing.T) {
	s := &brokenStore{Store: memstore.New()}
	tokens := authTokens(t, s)
	site := servertest.NewOn(t, s, server.Options{Auth: tokens})
	site.Token = "pdr_" + strings.Repeat("A", 43)
	s.broken.Store(true)
	for _, path := range []string{"/v1/threads/t", "/v1/threads/t/events", "/v1/me"} {
		if r := site.Do("GET", path, "").Problem(503, "unavailable"); strings.Contains(string(r.Body), "canary") {
			t.Errorf("%s: %s", path, r.Body)
		}
	}
	s.broken.Store(false)
}
