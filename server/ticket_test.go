package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
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
		_, _, err := d.enter("HEAD", "t1", ticket, "")
		ticketRefused(t, "HEAD", err)
		_, _, err = d.enter("GET", "t2", ticket, "")
		ticketRefused(t, "another thread", err)
		_, _, err = d.enter("GET", "", ticket, "")
		ticketRefused(t, "the tenant's stream", err)
		_, _, err = d.enter("GET", "t1", ticket+"&"+ticket[1:], "")
		ticketRefused(t, "two tickets", err)
		_, _, err = d.enter("GET", "t1", "", ticket[len("?ticket="):])
		ticketRefused(t, "a ticket as a cookie", err)
		_, _, err = d.enter("GET", "t1", "?ticket="+token, "")
		ticketRefused(t, "a token in the address", err)
		_, _, err = d.enter("GET", "t1", "?token="+token, "")
		ticketRefused(t, "a token in the address", err)

		c, cookie, err := other.enter("GET", "t1", ticket, "")
		if err != nil || cookie == "" || c.Who.Subject != "ann" || c.Who.Tenant != "acme" || c.Who.May(api.ScopeRun) {
			t.Fatalf("the ticket gives %+v, cookie %q: %v", c.Who, cookie, err)
		}
		_, _, err = d.enter("GET", "t1", ticket, "")
		ticketRefused(t, "the ticket again", err)
		c, again, err := d.enter("GET", "t1", ticket, cookie) // as EventSource comes back
		if err != nil || again != "" || c.Who.Subject != "ann" {
			t.Errorf("with the cookie: %+v, %q, %v", c.Who, again, err)
		}
		for what, thread := range map[string]string{"another thread": "t2", "the tenant's stream": ""} {
			_, _, err = d.enter("GET", thread, "", cookie)
			ticketRefused(t, what+" with the cookie", err)
		}
		_, _, err = d.enter("GET", "t1", "?ticket="+cookie, "")
		ticketRefused(t, "a cookie as a ticket", err)
		_, _, err = d.enterOp(&api.ThreadsGet.Info, "GET", "/v1/threads/t1", "t1", "", cookie)
		ticketRefused(t, "another operation with the cookie", err)
		_, _, err = d.enter("HEAD", "t1", "", cookie)
		ticketRefused(t, "HEAD with the cookie", err)

		time.Sleep(time.Hour - time.Second)
		if _, _, err = d.enter("GET", "t1", "", cookie); err != nil {
			t.Errorf("the cookie within its hour: %v", err)
		}
		time.Sleep(time.Second)
		_, _, err = d.enter("GET", "t1", "", cookie)
		ticketRefused(t, "an old cookie", err)
		late := "?ticket=" + d.make(token, "")
		time.Sleep(30 * time.Second)
		_, _, err = d.enter("GET", "", late, "")
		ticketRefused(t, "an old ticket", err)
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
		_, _, err = d.enter("GET", "t", "", cookie)
		ticketRefused(t, "a cookie", err)
		_, _, err = d.enter("GET", "t", unused, "")
		ticketRefused(t, "a ticket", err)

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
		_, _, err = d.enter("GET", "t", "", cookie)
		ticketRefused(t, "a cookie of an expired token", err)
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
	_, _, err := d.enter("GET", "t", "?ticket="+ticket, "")
	ticketRefused(t, "a ticket from before", err)
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
	_, _, err := d.enter("GET", "t", "?ticket="+ticket, "")
	ticketRefused(t, "once more", err)
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
