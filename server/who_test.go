package server_test

import (
	"context"
	"io"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/inproc"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store/memstore"
)

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
	for ev, err := range s.Runtime.Tenant(tenant).Events(s.T.Context(), thread, perdure.EventOptions{Replay: true}) {
		if err != nil {
			s.T.Fatal(err)
		}
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
				rt := servertest.Must(perdure.New(t.Context(), memstore.New(), perdure.Options{}, whoFlow()))(t)
				tenant := rt.Tenant("acme")
				servertest.Must(tenant.Start(t.Context(), perdure.StartRequest{Flow: "buy", Thread: "t", Input: "x"}))(t)
				expires := time.Now().Add(90 * time.Second)
				auth := expiring{expires}
				srv := server.New(rt, server.Options{Auth: auth, Heartbeat: time.Hour})
				client, stop := inproc.Serve(srv)
				defer stop()
				defer srv.Close()
				time.Sleep(40 * time.Second)
				r, _ := http.NewRequestWithContext(t.Context(), c.method, "http://localhost"+c.path, strings.NewReader(c.body))
				r.Header.Set("Accept", api.TypeEvents)
				if c.ticket != "" {
					r.URL.RawQuery = "ticket=" + (&ticketDesk{t, srv, nil}).make("x", strings.TrimPrefix(c.ticket, "all"))
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
				resp := servertest.Must(client.Do(r))(t)
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
				rt := servertest.Must(perdure.New(t.Context(), memstore.New(), perdure.Options{}, whoFlow()))(t)
				servertest.Must(rt.Tenant("acme").Start(t.Context(), perdure.StartRequest{Flow: "buy", Thread: "t", Input: "x"}))(t)
				tokens := server.NewTokens(rt)
				srv := server.New(rt, server.Options{Auth: tokens})
				client, stop := inproc.Serve(srv)
				defer stop()
				defer srv.Close()
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
					r.URL.RawQuery = "ticket=" + (&ticketDesk{t, srv, tokens}).make(made.Secret, thread)
				} else {
					r.Header.Set("Authorization", "Bearer "+made.Secret)
				}
				resp := servertest.Must(client.Do(r))(t)
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
	var ticket api.Ticket
	site.Do("POST", "/v1/tickets", `{"thread":"mine"}`).Want(201, &ticket)
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
