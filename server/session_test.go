package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
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

// browser is a page that calls a server without a network.
type browser struct {
	t       *testing.T
	api     http.Handler
	cookies map[string]*http.Cookie
	headers []string // of each request, in pairs
	address string
}

func newBrowser(t *testing.T, api http.Handler) *browser {
	return &browser{t: t, api: api, cookies: map[string]*http.Cookie{}, address: "http://localhost"}
}

// do sends a request, with more headers in pairs, and keeps the cookies that are
// set.
func (b *browser) do(method, path, body string, headers ...string) *httptest.ResponseRecorder {
	b.t.Helper()
	r := httptest.NewRequestWithContext(b.t.Context(), method, b.address+path, strings.NewReader(body))
	all := append(slices.Clone(b.headers), headers...)
	for i := 0; i+1 < len(all); i += 2 {
		r.Header.Set(all[i], all[i+1])
	}
	for _, c := range b.cookies {
		r.AddCookie(&http.Cookie{Name: c.Name, Value: c.Value})
	}
	w := httptest.NewRecorder()
	b.api.ServeHTTP(w, r)
	for _, c := range w.Result().Cookies() {
		if b.cookies[c.Name] = c; c.MaxAge < 0 {
			delete(b.cookies, c.Name)
		}
	}
	return w
}

// login logs in, and returns the cookie.
func (b *browser) login(token string) *http.Cookie {
	b.t.Helper()
	w := b.do("POST", "/v1/session", fmt.Sprintf(`{"token":%q}`, token))
	set := w.Result().Cookies()
	if w.Code != 201 || len(set) != 1 {
		b.t.Fatalf("the login is answered %d with %v: %s", w.Code, set, w.Body)
	}
	return set[0]
}

// want fails unless a request is answered with a status.
func (b *browser) want(what string, status int, w *httptest.ResponseRecorder) *httptest.ResponseRecorder {
	b.t.Helper()
	if w.Code != status {
		b.t.Errorf("%s: it is answered %d, want %d: %s", what, w.Code, status, w.Body)
	}
	return w
}

func (b *browser) me() (me api.Me) {
	b.t.Helper()
	w := b.want("me", 200, b.do("GET", "/v1/me", ""))
	servertest.Check(b.t, json.Unmarshal(w.Body.Bytes(), &me))
	return me
}

func sessionServer(t *testing.T, s store.Store, o func(*server.Tokens) server.Options) (*server.Server, *server.Tokens) {
	t.Helper()
	rt := servertest.Must(perdure.New(t.Context(), s, perdure.Options{}, testFlows()...))(t)
	tokens := server.NewTokens(rt)
	a := server.New(rt, o(tokens))
	t.Cleanup(a.Close)
	return a, tokens
}

func storedTokens(t *server.Tokens) server.Options { return server.Options{Auth: t} }

func TestSessionStandsForItsToken(t *testing.T) {
	s := memstore.New()
	a, tokens := sessionServer(t, s, storedTokens)
	b := newBrowser(t, a)
	b.want("without a session", 401, b.do("GET", "/v1/me", ""))
	c := b.login(authSecret(t, tokens, "acme", "ann", api.ScopeRead, api.ScopeRun))
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Secure || c.MaxAge != 12*3600 && c.MaxAge != 12*3600-1 {
		t.Errorf("the cookie is %v", c)
	}
	if me := b.me(); me.Subject != "ann" || me.Tenant != "acme" || len(me.Scopes) != 2 || !me.Login || !me.Session || me.Expires.IsZero() {
		t.Errorf("it stands for %+v", me)
	}
	b.want("a scope that the token lacks", 403, b.do("GET", "/v1/tokens", ""))
	b.want("a write", 202, b.do("POST", "/v1/runs", `{"flow":"count","input":1}`, "Perdure-Console", "1"))

	restarted, _ := sessionServer(t, s, storedTokens)
	b.api = restarted
	if me := b.me(); me.Subject != "ann" {
		t.Errorf("after a restart it stands for %+v", me)
	}
	elsewhere, _ := sessionServer(t, memstore.New(), storedTokens)
	b.api = elsewhere
	b.want("a server of another store", 401, b.do("GET", "/v1/me", ""))

	b.api = a
	b.want("the log-out", 204, b.do("DELETE", "/v1/session", ""))
	b.want("after it", 401, b.do("GET", "/v1/me", ""))
}

func TestSessionCookieIsSecureBehindTLS(t *testing.T) {
	a, tokens := sessionServer(t, memstore.New(), storedTokens)
	token := authSecret(t, tokens, "", "ann", api.ScopeRead)
	for _, c := range []struct {
		name, address string
		headers       []string
		secure        bool
	}{
		{"plain", "http://localhost", nil, false},
		{"TLS", "https://localhost", nil, true},
		{"a proxy", "http://localhost", []string{"X-Forwarded-Proto", "https"}, true},
		{"two proxies", "http://localhost", []string{"X-Forwarded-Proto", "https, http"}, true},
		{"a plain proxy before one with TLS", "http://localhost", []string{"X-Forwarded-Proto", "http,https"}, false},
	} {
		b := newBrowser(t, a)
		b.address, b.headers = c.address, c.headers
		if got := b.login(token); got.Secure != c.secure || strings.HasPrefix(got.Name, "__Host-") != c.secure {
			t.Errorf("%s: the cookie is %v", c.name, got)
		}
		b.me()
	}
}

func TestSessionChangesNothingForForeignPages(t *testing.T) {
	a, tokens := sessionServer(t, memstore.New(), func(t *server.Tokens) server.Options {
		return server.Options{Auth: t, Origins: []string{"https://friend.example", "*"}}
	})
	b := newBrowser(t, a)
	token := authSecret(t, tokens, "", "ann", api.ScopeAdmin)
	b.login(token)
	const body = `{"flow":"count","input":1}`
	for _, c := range []struct {
		name    string
		headers []string
		status  int
	}{
		{"without the header", nil, 401},
		{"own page without the header", []string{"Origin", "http://localhost"}, 401},
		{"another value of the header", []string{"Origin", "http://localhost", "Perdure-Console", "0"}, 401},
		{"own page", []string{"Origin", "http://localhost", "Perdure-Console", "1"}, 202},
		{"own page, newer browser", []string{"Origin", "http://localhost", "Sec-Fetch-Site", "same-origin", "Perdure-Console", "1"}, 202},
		{"listed page", []string{"Origin", "https://friend.example", "Perdure-Console", "1"}, 401},
		{"any page", []string{"Origin", "https://evil.example", "Perdure-Console", "1"}, 401},
		{"another port", []string{"Origin", "http://localhost:81", "Perdure-Console", "1"}, 401},
		{"the same site", []string{"Sec-Fetch-Site", "same-site", "Perdure-Console", "1"}, 403},
		{"listed page with a token", []string{"Origin", "https://friend.example", "Authorization", "Bearer " + token}, 202},
	} {
		b.want(c.name, c.status, b.do("POST", "/v1/runs", body, c.headers...))
	}
	b.want("reading by a listed page", 401, b.do("GET", "/v1/threads", "", "Origin", "https://friend.example"))
	b.want("login by a listed page", 403, b.do("POST", "/v1/session", `{"token":"`+token+`"}`, "Origin", "https://friend.example"))
	b.want("log-out by a listed page", 403, b.do("DELETE", "/v1/session", "", "Origin", "https://friend.example"))
	w := b.do("OPTIONS", "/v1/runs", "", "Origin", "https://friend.example", "Access-Control-Request-Method", "POST")
	if strings.Contains(w.Header().Get("Access-Control-Allow-Headers"), "Perdure-Console") {
		t.Error("other pages may send the header")
	}
}

func TestAuthorizationWinsOverASession(t *testing.T) {
	a, tokens := sessionServer(t, memstore.New(), storedTokens)
	b := newBrowser(t, a)
	b.login(authSecret(t, tokens, "", "ann", api.ScopeRead))
	b.headers = []string{"Authorization", "Bearer " + authSecret(t, tokens, "", "ben", api.ScopeRead)}
	if me := b.me(); me.Subject != "ben" || me.Session {
		t.Errorf("it is %+v", me)
	}
	for _, wrong := range []string{"Bearer pdr_x", "Basic YTpi", "Bearer"} {
		b.want(wrong, 401, b.do("GET", "/v1/me", "", "Authorization", wrong))
	}
}

func TestSessionEndsWithItsTokenAtTheLatest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, tokens := sessionServer(t, memstore.New(), storedTokens)
		make := func(minutes int) *api.NewToken {
			return servertest.Must(tokens.Create(t.Context(), "", "", api.CreateToken{Subject: "ann", Scopes: []api.Scope{api.ScopeRead}, Minutes: &minutes}))(t)
		}
		long, short, revoked := newBrowser(t, a), newBrowser(t, a), newBrowser(t, a)
		long.login(make(24 * 60).Secret)
		if c := short.login(make(60).Secret); c.MaxAge > 3600 {
			t.Errorf("the cookie outlives its token: %v", c)
		}
		token := make(24 * 60)
		revoked.login(token.Secret)
		revoked.me()
		servertest.Check(t, tokens.Revoke(t.Context(), "", token.ID))
		got := revoked.want("a revoked token", 401, revoked.do("GET", "/v1/me", ""))
		if !strings.Contains(got.Body.String(), "urn:perdure:problem:unauthorized") {
			t.Errorf("the problem is %s", got.Body)
		}
		short.me()
		time.Sleep(time.Hour)
		short.want("an expired token", 401, short.do("GET", "/v1/me", ""))
		time.Sleep(11*time.Hour - 2*time.Second)
		long.me()
		time.Sleep(2 * time.Second)
		long.want("after 12 hours", 401, long.do("GET", "/v1/me", ""))
	})
}

// countedPeople counts how often it is asked.
type countedPeople struct {
	servertest.People
	asked int
}

func (p *countedPeople) Authenticate(ctx context.Context, token string) (*server.Principal, error) {
	p.asked++
	return p.People.Authenticate(ctx, token)
}

// countedPuts counts what is written to a store.
type countedPuts struct {
	store.Store
	n atomic.Int64
}

func (s *countedPuts) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	s.n.Add(1)
	return s.Store.Put(ctx, key, value, prev)
}

// TestFailedLoginCostsWhatAWrongTokenDoes is with an Authenticator of the
// program's own, too.
func TestFailedLoginCostsWhatAWrongTokenDoes(t *testing.T) {
	auth := &countedPeople{People: servertest.People{"abc": {Tenant: "acme", Subject: "ann", Scopes: []api.Scope{api.ScopeAdmin}}, "long": nil}}
	long := strings.Repeat("x", 4000)
	auth.People[long] = auth.People["abc"]
	s := &countedPuts{Store: memstore.New()}
	a, _ := sessionServer(t, s, func(*server.Tokens) server.Options { return server.Options{Auth: auth} })
	b := newBrowser(t, a)
	before := s.n.Load()
	b.want("a wrong token", 401, b.do("GET", "/v1/me", "", "Authorization", "Bearer wrong"))
	header := auth.asked
	w := b.want("a wrong login", 401, b.do("POST", "/v1/session", `{"token":"wrong"}`))
	if login := auth.asked - header; login != header || s.n.Load() != before || len(w.Result().Cookies()) != 0 {
		t.Errorf("a wrong login is looked up %d times, a wrong token %d times; %d writes, cookies %v", login, header, s.n.Load()-before, w.Result().Cookies())
	}
	for _, body := range []string{`{"token":""}`, `{"token":"a b"}`, `{"token":"abc,abc"}`} {
		b.want(body, 401, b.do("POST", "/v1/session", body))
	}
	b.want("a long body", 413, b.do("POST", "/v1/session", `{"token":"`+strings.Repeat("x", 20_000)+`"}`))
	b.want("no token", 400, b.do("POST", "/v1/session", `{}`))
	b.want("a token that fits into no cookie", 400, b.do("POST", "/v1/session", `{"token":"`+long+`"}`))
	b.login("abc")
	if me := b.me(); me.Subject != "ann" || s.n.Load() != before {
		t.Errorf("it is %+v, with %d writes", me, s.n.Load()-before)
	}
	b.want("a write", 202, b.do("POST", "/v1/runs", `{"flow":"count","input":1}`, "Perdure-Console", "1"))
	delete(auth.People, "abc")
	b.want("a token that is no more", 401, b.do("GET", "/v1/me", ""))
}

func TestSessionsThatAreNone(t *testing.T) {
	a, tokens := sessionServer(t, memstore.New(), storedTokens)
	b := newBrowser(t, a)
	c := b.login(authSecret(t, tokens, "", "ann", api.ScopeRead))
	flipped := []byte(c.Value)
	flipped[20] ^= 1
	for _, value := range []string{"", "x", c.Value[:10], c.Value[:len(c.Value)-2], string(flipped), c.Value + "AAAA", strings.Repeat("A", 5000)} {
		b.cookies[c.Name] = &http.Cookie{Name: c.Name, Value: value}
		b.want(fmt.Sprintf("%.20q", value), 401, b.do("GET", "/v1/me", ""))
	}
}

func TestSessionOpensStreamsAndMakesTickets(t *testing.T) {
	site, _ := authSite(t, server.Options{}, testFlows()...)
	site.Do("POST", "/v1/threads/t1/runs", `{"flow":"count","input":2}`).Want(202)
	c := servertest.Must(http.ParseSetCookie(site.Do("POST", "/v1/session", `{"token":"`+site.Token+`"}`).Want(201).Header.Get("Set-Cookie")))(t)
	site.Token = ""
	cookie := c.Name + "=" + c.Value
	site.Do("GET", "/v1/threads/t1/events", "").Problem(401, "unauthorized")
	st := site.Open("/v1/threads/t1/events", "Cookie", cookie)
	st.Until("ended")
	st.Hangup()
	news := site.Open("/v1/events", "Cookie", cookie)
	news.Until("open")
	news.Hangup()
	site.Do("POST", "/v1/tickets", `{"thread":"t1"}`, "Cookie", cookie).Problem(401, "unauthorized")
	ticket := servertest.Decode[api.Ticket](site.Do("POST", "/v1/tickets", `{"thread":"t1"}`, "Cookie", cookie, "Perdure-Console", "1"), 201)
	site.Do("GET", "/v1/threads/t1/events?ticket="+ticket.Ticket, "").Want(200)
	site.Do("GET", "/v1/threads/t1/events?ticket="+ticket.Ticket, "").Problem(401, "unauthorized")
}

// TestStreamsEndWithTheSession is the end of a session while a stream is open.
func TestStreamsEndWithTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		tokens := authTokens(t, s)
		site := newPiped(t, s, server.Options{Auth: tokens}, false, testFlows()...)
		site.Token = authSecret(t, tokens, "", "ann", api.ScopeAdmin)
		site.Do("POST", "/v1/threads", `{"id":"t1"}`).Want(201)
		c := servertest.Must(http.ParseSetCookie(site.Do("POST", "/v1/session", `{"token":"`+site.Token+`"}`).Want(201).Header.Get("Set-Cookie")))(t)
		site.Token = ""
		begun := time.Now()
		st := site.Open("/v1/threads/t1/events", "Cookie", c.Name+"="+c.Value)
		for {
			if _, ok := st.Event(); !ok {
				break
			}
		}
		if lasted := time.Since(begun); lasted < 11*time.Hour || lasted > 12*time.Hour+time.Minute {
			t.Errorf("the stream lasts %v", lasted)
		}
	})
}

// TestSessionWithoutTokens is how perdure dev lets in its owner's browser by the
// secret that it prints.
func TestSessionWithoutTokens(t *testing.T) {
	a, _ := sessionServer(t, memstore.New(), func(*server.Tokens) server.Options {
		return server.Options{Local: func(r *http.Request) error {
			if r.Header.Get("Authorization") != "Bearer secret" {
				return api.ErrUnauthorized
			}
			return nil
		}}
	})
	b := newBrowser(t, a)
	b.want("without a session", 401, b.do("GET", "/v1/me", ""))
	b.want("a wrong secret", 401, b.do("POST", "/v1/session", `{"token":"wrong"}`))
	b.login("secret")
	if me := b.me(); me.Subject != "local" || !me.Login || !me.Session {
		t.Errorf("it is %+v", me)
	}
	b.want("a write without the header", 401, b.do("POST", "/v1/runs", `{"flow":"count","input":1}`))
	b.want("a write", 202, b.do("POST", "/v1/runs", `{"flow":"count","input":1}`, "Perdure-Console", "1"))
	b.want("another secret wins", 401, b.do("GET", "/v1/me", "", "Authorization", "Bearer wrong"))

	open, _ := sessionServer(t, memstore.New(), func(*server.Tokens) server.Options { return server.Options{} })
	if me := newBrowser(t, open).me(); me.Login || me.Session {
		t.Errorf("a server for everyone says %+v", me)
	}
}
