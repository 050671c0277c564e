package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
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
		who := servertest.Decode[api.Me](me("/v1/me", value), 200)
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
	made := servertest.Decode[api.NewToken](site.Do("POST", "/v1/tokens", `{"subject":"ann","groups":["buyers"],"days":7,"note":"for the test"}`), 201)
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

// authFunc is an Authenticator of a test.
type authFunc func() error

func (f authFunc) Authenticate(context.Context, string) (*server.Principal, error) { return nil, f() }

// TestAuthenticatorsThatCannotTell: their callers may try again, and learn nothing else.
func TestAuthenticatorsThatCannotTell(t *testing.T) {
	for _, err := range []error{errors.New("dial tcp: canary"), fmt.Errorf("canary: %w", context.DeadlineExceeded)} {
		away := authFunc(func() error { return err })
		for _, auth := range []server.Authenticator{away, server.Any(away, authTokens(t, memstore.New()))} {
			var log strings.Builder
			site := servertest.New(t, server.Options{Auth: auth, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			site.Token = "pdr_" + strings.Repeat("A", 43)
			for _, method := range []string{"GET", "POST"} {
				r := site.Do(method, "/v1/threads", "{}").Problem(503, "unavailable")
				if strings.Contains(string(r.Body), "canary") || r.Header.Get("Retry-After") != "1" {
					t.Errorf("%v: %v %s", err, r.Header, r.Body)
				}
			}
			if !strings.Contains(log.String(), "canary") {
				t.Errorf("the log does not say why: %s", &log)
			}
		}
	}
}

func whoFlow(who ...string) perdure.Flow {
	return perdure.NewFlow("buy", func(ctx context.Context, in string) (string, error) {
		return perdure.Ask[string](ctx, "approve", perdure.Question{Prompt: in, Who: who})
	})
}

// whoAsk starts a run and returns its ask.
func whoAsk(s *servertest.Site, tenant, thread string) string {
	s.T.Helper()
	rt := s.Runtime.Tenant(tenant)
	run, err := rt.Start(s.T.Context(), perdure.StartRequest{Flow: "buy", Thread: thread, Input: "a desk"})
	if err == nil {
		run, err = rt.Wait(s.T.Context(), thread, run.ID)
	}
	if err != nil || len(run.Asks) != 1 {
		s.T.Fatalf("the run is %v: %v", run, err)
	}
	return run.Asks[0].ID
}

// whoAnswered fails unless the journal says that someone answered.
func whoAnswered(s *servertest.Site, tenant, thread, by string) {
	s.T.Helper()
	var got []string
	for _, ev := range servertest.All(s.T, s.Runtime.Tenant(tenant).Events(s.T.Context(), thread, perdure.EventOptions{Replay: true})) {
		if ev.Kind == "answered" {
			got = append(got, ev.By)
		}
	}
	if want := strings.Fields(by); len(got) != len(want) || len(got) == 1 && got[0] != want[0] {
		s.T.Errorf("the journal says that %q answered, want %q", got, want)
	}
}

func TestWhoMayAnswerIsTheTokensMatter(t *testing.T) {
	site, tokens := authSite(t, server.Options{}, whoFlow("ann", "group:buyers"))
	token := func(subject string, groups ...string) string {
		made := servertest.Must(tokens.Create(t.Context(), "acme", "", api.CreateToken{Subject: subject, Groups: groups}))(t)
		return made.Secret
	}
	admin := site.Token
	site.Do("GET", "/metrics", "").Problem(403, "scope") // of all tenants
	site.Token = authSecret(t, tokens, "", "operator", api.ScopeAdmin)
	site.Do("GET", "/metrics", "").Want(200)
	for name, c := range map[string]struct {
		token string
		by    string
	}{
		"the subject":           {token("ann"), "ann"},
		"a member of the group": {token("bob", "others", "buyers"), "bob"},
		"neither":               {token("cid", "sellers", "ann"), ""},
		"the group's name":      {token("buyers"), ""},
		"an admin":              {admin, ""},
	} {
		thread := strings.ReplaceAll(name, " ", "-")
		ask := whoAsk(site, "acme", thread)
		site.Token = c.token
		for _, forged := range []string{`{"value":"yes","by":"ann"}`, `{"value":"yes","groups":["buyers"]}`, `{"value":"yes","By":"ann"}`} {
			site.Do("POST", "/v1/asks/"+ask+"/answer", forged).Problem(400, "body")
		}
		progress := site.Do("POST", "/v1/asks/"+ask+"/progress", `{"value":"half"}`)
		one := site.Do("POST", "/v1/asks/"+ask+"/answer", `{"value":"yes"}`, "Perdure-As", "ann")
		all := site.Do("POST", "/v1/threads/"+thread+"/answers", `{"answers":[{"ask":"`+ask+`","value":"yes"}]}`, "Perdure-As", "ann")
		if c.by == "" {
			progress.Problem(403, "forbidden")
			one.Problem(403, "forbidden")
			all.Problem(403, "forbidden")
		} else {
			progress.Want(204)
			one.Want(200)
			all.Want(200) // the same again
		}
		whoAnswered(site, "acme", thread, c.by)
	}
}

func TestWhoAnsweredWithoutTokensIsWhoTheySay(t *testing.T) {
	site := servertest.New(t, server.Options{}, whoFlow("ann"))
	ask := whoAsk(site, "", "t")
	site.Do("POST", "/v1/asks/"+ask+"/answer", `{"value":"yes"}`).Problem(403, "forbidden")
	site.Do("POST", "/v1/asks/"+ask+"/answer", `{"value":"yes"}`, "Perdure-As", "ann").Want(200)
	whoAnswered(site, "", "t", "ann")
}

func TestThreadsOfTheSameNameHaveStreamsOfTheirOwn(t *testing.T) {
	site, tokens := authSite(t, server.Options{}, whoFlow())
	mine := site.Token
	theirs := authSecret(t, tokens, "other", "eve", api.ScopeAdmin)
	ask, other := whoAsk(site, "acme", "t"), whoAsk(site, "other", "t")
	for token, want := range map[string]string{mine: ask, theirs: other} {
		st := site.Open("/v1/threads/t/events", "Authorization", "Bearer "+token)
		for _, b := range st.Until("asked") {
			if strings.Contains(b.Data, ask) && want != ask || strings.Contains(b.Data, other) && want != other {
				t.Fatalf("the stream of another tenant's thread: %s", b)
			}
			if b.Kind == "asked" && !strings.Contains(b.Data, want) {
				t.Fatalf("the ask is not %s: %s", want, b)
			}
		}
	}
}

// TestStreamsEndWhenTheTokenExpires reads streams and a wait in virtual time: at
// the second of the expiry they are over, and what happens then is not told.
func TestStreamsEndWhenTheTokenExpires(t *testing.T) {
	for _, c := range []struct{ method, path, body, ticket string }{
		{"GET", "/v1/threads/t/events", "", ""}, {"GET", "/v1/threads/t/events", "", "t"},
		{"GET", "/v1/events", "", ""}, {"GET", "/v1/events", "", "all"},
		{"POST", "/v1/threads/u/runs", `{"flow":"buy","input":"x"}`, ""},
		{"GET", "/v1/threads/t/runs/newest/wait?seconds=60&end=true", "", ""},
	} {
		t.Run(c.path+c.ticket, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				expires := time.Now().Add(90 * time.Second)
				s := newPiped(t, memstore.New(), server.Options{Auth: expiring{expires}, Heartbeat: time.Hour}, false, whoFlow())
				tenant := s.Runtime.Tenant("acme")
				servertest.Must(tenant.Start(t.Context(), perdure.StartRequest{Flow: "buy", Thread: "t", Input: "x"}))(t)
				time.Sleep(40 * time.Second)
				r, _ := http.NewRequestWithContext(t.Context(), c.method, "http://localhost"+c.path, strings.NewReader(c.body))
				r.Header.Set("Accept", api.TypeEvents)
				if c.ticket != "" {
					r.URL.RawQuery = "ticket=" + (&ticketDesk{t, s.Server, nil}).make("x", strings.TrimPrefix(c.ticket, "all"))
				} else {
					r.Header.Set("Authorization", "Bearer x")
				}
				var signals sync.WaitGroup
				defer signals.Wait()
				signals.Go(func() { // at the very moment, and behind it
					time.Sleep(time.Until(expires))
					for range 3 {
						for _, thread := range []string{"t", "u"} {
							_ = tenant.Signal(t.Context(), thread, "too-late", "x", perdure.SignalOptions{})
						}
						time.Sleep(time.Millisecond)
					}
				})
				resp := servertest.Must(s.Client.Do(r))(t)
				defer resp.Body.Close()
				data, _ := io.ReadAll(resp.Body)
				if late := time.Since(expires); late > 15*time.Second || strings.Contains(string(data), "too-late") || resp.StatusCode == 200 && late > 0 {
					t.Errorf("%v behind the expiry it ends with %d %s", late, resp.StatusCode, data)
				}
			})
		})
	}
}

// expiring lets anyone in until then.
type expiring struct{ until time.Time }

func (e expiring) Authenticate(context.Context, string) (*server.Principal, error) {
	return &server.Principal{Tenant: "acme", Subject: "ann", Scopes: []api.Scope{api.ScopeRead, api.ScopeRun}, Expires: e.until}, nil
}

// TestStreamsEndWithTheTokenBehindThem waits a minute, of virtual time.
func TestStreamsEndWithTheTokenBehindThem(t *testing.T) {
	for _, path := range []string{"/v1/threads/t/events", "/v1/events"} {
		for _, ticket := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				st := memstore.New()
				tokens := authTokens(t, st)
				s := newPiped(t, st, server.Options{Auth: tokens}, false, whoFlow())
				servertest.Must(s.Runtime.Tenant("acme").Start(t.Context(), perdure.StartRequest{Flow: "buy", Thread: "t", Input: "x"}))(t)
				made := servertest.Must(tokens.Create(t.Context(), "acme", "", api.CreateToken{Subject: "ann"}))(t)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				r, _ := http.NewRequestWithContext(ctx, "GET", "http://localhost"+path, nil)
				r.Header.Set("Accept", api.TypeEvents)
				if ticket {
					thread := ""
					if path != "/v1/events" {
						thread = "t"
					}
					r.URL.RawQuery = "ticket=" + (&ticketDesk{t, s.Server, tokens}).make(made.Secret, thread)
				} else {
					r.Header.Set("Authorization", "Bearer "+made.Secret)
				}
				resp := servertest.Must(s.Client.Do(r))(t)
				defer resp.Body.Close()
				if resp.StatusCode != 200 || (resp.Header.Get("Set-Cookie") != "") != ticket {
					t.Fatalf("the stream is answered %d %v", resp.StatusCode, resp.Header)
				}
				servertest.Check(t, tokens.Revoke(t.Context(), "acme", made.ID))
				io.Copy(io.Discard, resp.Body)
				if ctx.Err() != nil {
					t.Errorf("%s, with a ticket %v: the stream goes on", path, ticket)
				}
			})
		}
	}
}

// TestTicketsCookieBringsABrowserBack is what EventSource does: it comes back to
// the same address, with the cookie.
func TestTicketsCookieBringsABrowserBack(t *testing.T) {
	site, _ := authSite(t, server.Options{}, whoFlow())
	whoAsk(site, "acme", "mine")
	whoAsk(site, "acme", "my thread/1")
	whoAsk(site, "acme", "another")
	jar := servertest.Must(cookiejar.New(nil))(t)
	ticket := servertest.Decode[api.Ticket](site.Do("POST", "/v1/tickets", `{"thread":"mine"}`), 201)
	browser := &http.Client{Jar: jar}
	get := func(path string) int {
		t.Helper()
		resp := servertest.Must(browser.Get(site.URL + path))(t)
		resp.Body.Close()
		return resp.StatusCode
	}
	const path = "/v1/threads/mine/events"
	for i := range 3 {
		if status := get(path + "?limit=1&ticket=" + ticket.Ticket); status != 200 {
			t.Errorf("time %d is answered %d", i, status)
		}
	}
	for _, other := range []string{"/v1/threads/another/events", "/v1/events", "/v1/threads/mine", "/v1/me"} {
		if status := get(other + "?ticket=" + ticket.Ticket); status != 401 {
			t.Errorf("%s is answered %d", other, status)
		}
	}
	browser.Jar = nil
	if status := get(path + "?ticket=" + ticket.Ticket); status != 401 {
		t.Errorf("without the cookie it is answered %d", status)
	}
	// A browser compares the path as it stands in the address.
	site.Do("POST", "/v1/tickets", `{"thread":"my thread/1"}`).Want(201, &ticket)
	site.Token = ""
	got := site.Do("GET", "/v1/threads/my%20thread%2F1/events?limit=1&ticket="+ticket.Ticket, "").Want(200)
	if cookie := got.Header.Get("Set-Cookie"); !strings.Contains(cookie, "; Path=/v1/threads/my%20thread%2F1/events; Max-Age=") {
		t.Errorf("the cookie is %s", cookie)
	}
}

// ticketDesk is a server without a network, so that its time can be virtual.
type ticketDesk struct {
	t      *testing.T
	api    *server.Server
	tokens *server.Tokens
}

func newTicketDesk(t *testing.T, s store.Store, auth func(*server.Tokens) server.Authenticator) *ticketDesk {
	t.Helper()
	rt := servertest.Must(perdure.New(t.Context(), s, perdure.Options{}))(t)
	tokens := server.NewTokens(rt)
	return &ticketDesk{t, server.New(rt, server.Options{Auth: auth(tokens)}), tokens}
}

func ticketStored(t *server.Tokens) server.Authenticator { return t }

// make gets a ticket for a thread.
func (d *ticketDesk) make(token, thread string) string {
	d.t.Helper()
	body, _ := json.Marshal(api.CreateTicket{Thread: thread})
	r := httptest.NewRequest("POST", "http://localhost/v1/tickets", strings.NewReader(string(body)))
	r.Header.Set("Authorization", "Bearer "+token)
	w := httptest.NewRecorder()
	d.api.ServeHTTP(w, r)
	var out api.Ticket
	if err := json.Unmarshal(w.Body.Bytes(), &out); w.Code != 201 || err != nil || out.Ticket == "" {
		d.t.Fatalf("a ticket: %d %s", w.Code, w.Body)
	}
	return out.Ticket
}

// enter asks for the events of a thread, "" for those of the tenant, and returns
// the caller and the cookie that was set.
func (d *ticketDesk) enter(method, thread, query, cookie string) (server.Caller, string, error) {
	op, path := &api.EventsWatch.Info, "/v1/events"
	if thread != "" {
		op, path = &api.EventsList.Info, "/v1/threads/"+thread+"/events"
	}
	return d.enterOp(op, method, path, thread, query, cookie)
}

func (d *ticketDesk) enterOp(op *api.Info, method, path, thread, query, cookie string) (server.Caller, string, error) {
	d.t.Helper()
	r := httptest.NewRequest(method, path+query, nil)
	r.SetPathValue("thread", thread)
	if cookie != "" {
		r.Header.Set("Cookie", "perdure_stream="+cookie)
	}
	w := httptest.NewRecorder()
	c, err := d.api.Admit(w, r, op)
	set := w.Result().Cookies()
	if len(set) == 0 {
		return c, "", err
	}
	if one := set[0]; len(set) != 1 || one.Name != "perdure_stream" || one.Path != path || !one.HttpOnly || one.SameSite != http.SameSiteStrictMode || one.Secure || one.MaxAge < 1 || one.MaxAge > 3600 {
		d.t.Errorf("the cookies are %v", set)
	}
	return c, set[0].Value, err
}

// refuses fails if a stream can be entered.
func (d *ticketDesk) refuses(what, method, thread, query, cookie string) {
	d.t.Helper()
	_, _, err := d.enter(method, thread, query, cookie)
	ticketRefused(d.t, what, err)
}

func ticketRefused(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, api.ErrUnauthorized) {
		t.Errorf("%s: the error is %v", what, err)
	}
}

func TestTicketIsGoodOnceAndForItsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		d, other := newTicketDesk(t, s, ticketStored), newTicketDesk(t, s, ticketStored)
		token := authSecret(t, d.tokens, "acme", "ann", api.ScopeRead)
		ticket := "?ticket=" + d.make(token, "t1")
		for what, op := range map[string]*api.Info{"another operation": &api.ThreadsGet.Info, "a change": &api.RunsStart.Info, "its history": &api.HistoryList.Info} {
			_, _, err := d.enterOp(op, "GET", "/v1/threads/t1", "t1", ticket, "")
			ticketRefused(t, what, err)
		}
		d.refuses("HEAD", "HEAD", "t1", ticket, "")
		d.refuses("another thread", "GET", "t2", ticket, "")
		d.refuses("the tenant's stream", "GET", "", ticket, "")
		d.refuses("two tickets", "GET", "t1", ticket+"&"+ticket[1:], "")
		d.refuses("a ticket as a cookie", "GET", "t1", "", ticket[len("?ticket="):])
		d.refuses("a token in the address", "GET", "t1", "?ticket="+token, "")
		d.refuses("a token in the address", "GET", "t1", "?token="+token, "")

		c, cookie, err := other.enter("GET", "t1", ticket, "")
		if err != nil || cookie == "" || c.Who.Subject != "ann" || c.Who.Tenant != "acme" || c.Who.May(api.ScopeRun) {
			t.Fatalf("the ticket gives %+v, cookie %q: %v", c.Who, cookie, err)
		}
		d.refuses("the ticket again", "GET", "t1", ticket, "")
		c, again, err := d.enter("GET", "t1", ticket, cookie) // as EventSource comes back
		if err != nil || again != "" || c.Who.Subject != "ann" {
			t.Errorf("with the cookie: %+v, %q, %v", c.Who, again, err)
		}
		for what, thread := range map[string]string{"another thread": "t2", "the tenant's stream": ""} {
			d.refuses(what+" with the cookie", "GET", thread, "", cookie)
		}
		d.refuses("a cookie as a ticket", "GET", "t1", "?ticket="+cookie, "")
		_, _, err = d.enterOp(&api.ThreadsGet.Info, "GET", "/v1/threads/t1", "t1", "", cookie)
		ticketRefused(t, "another operation with the cookie", err)
		d.refuses("HEAD with the cookie", "HEAD", "t1", "", cookie)

		time.Sleep(time.Hour - time.Second)
		if _, _, err = d.enter("GET", "t1", "", cookie); err != nil {
			t.Errorf("the cookie within its hour: %v", err)
		}
		time.Sleep(time.Second)
		d.refuses("an old cookie", "GET", "t1", "", cookie)
		late := "?ticket=" + d.make(token, "")
		time.Sleep(30 * time.Second)
		d.refuses("an old ticket", "GET", "", late, "")
		if _, _, err = d.enter("GET", "", "?ticket="+d.make(token, ""), ""); err != nil {
			t.Errorf("the tenant's stream: %v", err)
		}
	})
}

func TestTicketEndsWithItsToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTicketDesk(t, memstore.New(), ticketStored)
		made := servertest.Must(d.tokens.Create(t.Context(), "acme", "", api.CreateToken{Subject: "ann"}))(t)
		unused := "?ticket=" + d.make(made.Secret, "t")
		c, cookie, err := d.enter("GET", "t", "?ticket="+d.make(made.Secret, "t"), "")
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Recheck(t.Context()); err != nil {
			t.Errorf("the stream may go on: %v", err)
		}
		servertest.Check(t, d.tokens.Revoke(t.Context(), "acme", made.ID))
		ticketRefused(t, "an open stream", c.Recheck(t.Context()))
		d.refuses("a cookie", "GET", "t", "", cookie)
		d.refuses("a ticket", "GET", "t", unused, "")

		short, err := d.tokens.Create(t.Context(), "acme", "", api.CreateToken{Subject: "ann", Days: new(1)})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(24*time.Hour - 10*time.Second)
		c, cookie, err = d.enter("GET", "t", "?ticket="+d.make(short.Secret, "t"), "")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		ticketRefused(t, "an open stream of an expired token", c.Recheck(t.Context()))
		d.refuses("a cookie of an expired token", "GET", "t", "", cookie)
	})
}

// TestTicketOfTokensWithoutHashes is about an Authenticator that cannot be asked
// again without the token.
func TestTicketOfTokensWithoutHashes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fixed := servertest.People{"abc": {Tenant: "acme", Subject: "ann", Scopes: []api.Scope{api.ScopeRead}}}
		for _, auth := range []server.Authenticator{fixed, server.Any(authTokens(t, memstore.New()), fixed)} {
			d := newTicketDesk(t, memstore.New(), func(*server.Tokens) server.Authenticator { return auth })
			c, cookie, err := d.enter("GET", "t", "?ticket="+d.make("abc", "t"), "")
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err = d.enter("GET", "t", "", cookie); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Hour)
			ticketRefused(t, "the cookie after an hour", c.Recheck(t.Context()))
		}
	})
}

func TestTicketMadeWithoutTokensIsWorthNothingWithThem(t *testing.T) {
	s := memstore.New()
	free := newTicketDesk(t, s, func(*server.Tokens) server.Authenticator { return nil })
	ticket := free.make("", "t")
	d := newTicketDesk(t, s, ticketStored)
	d.refuses("a ticket from before", "GET", "t", "?ticket="+ticket, "")
}

func TestTicketOfManyThatTryOneIsLetIn(t *testing.T) {
	s := memstore.New()
	d := newTicketDesk(t, s, ticketStored)
	ticket := d.make(authSecret(t, d.tokens, "", "ann", api.ScopeRead), "t")
	var in atomic.Int32
	var all sync.WaitGroup
	for range 16 {
		node := newTicketDesk(t, s, ticketStored)
		all.Go(func() {
			if _, _, err := node.enter("GET", "t", "?ticket="+ticket, ""); err == nil {
				in.Add(1)
			}
		})
	}
	all.Wait()
	if in.Load() != 1 {
		t.Errorf("%d were let in", in.Load())
	}
}

// ticketLost is a store whose deletes happen, and are not confirmed.
type ticketLost struct{ store.Store }

func (l ticketLost) Delete(ctx context.Context, key string, prev store.Version) error {
	return errors.Join(l.Store.Delete(ctx, key, prev), store.ErrUnknown)
}

func TestTicketWhoseUseIsOpenLetsNobodyIn(t *testing.T) {
	d := newTicketDesk(t, ticketLost{memstore.New()}, ticketStored)
	ticket := d.make(authSecret(t, d.tokens, "", "ann", api.ScopeRead), "t")
	if _, _, err := d.enter("GET", "t", "?ticket="+ticket, ""); err == nil || errors.Is(err, api.ErrUnauthorized) {
		t.Errorf("the error is %v", err)
	}
	d.refuses("once more", "GET", "t", "?ticket="+ticket, "")
}

func TestTicketsThatAreOverAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		d := newTicketDesk(t, s, ticketStored)
		token := authSecret(t, d.tokens, "", "ann", api.ScopeRead)
		for range 300 {
			d.make(token, "a thread of someone")
		}
		time.Sleep(time.Hour)
		for range 10 {
			d.make(token, "t")
		}
		n := 0
		for cell, err := range s.List(t.Context(), "ticket/", "") {
			if err != nil || strings.Contains(string(cell.Value), "someone") {
				t.Errorf("the cell %s: %s, %v", cell.Key, cell.Value, err)
			}
			n++
		}
		if n != 10 {
			t.Errorf("%d tickets are left", n)
		}
	})
}
