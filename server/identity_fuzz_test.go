package server

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/store/memstore"
)

func FuzzBearer(f *testing.F) {
	for _, text := range []string{"Bearer x", "bearer  x", "Basic x", "Bearer", "Bearer x,Bearer y", "Bearer\tx", " Bearer x ", "Bearer \u00a0"} {
		f.Add(text, "")
		f.Add(text, text)
	}
	f.Fuzz(func(t *testing.T, one, two string) {
		r := &http.Request{Header: http.Header{"Authorization": {one}}}
		if two != "" {
			r.Header.Add("Authorization", two)
		}
		token, given, err := bearer(r)
		switch {
		case !given:
			t.Errorf("%q is no header", one)
		case err != nil && (token != "" || !errors.Is(err, api.ErrUnauthorized) || one != "" && len(one) > 8 && strings.Contains(err.Error(), one)):
			t.Errorf("%q: %q, %v", one, token, err)
		case err == nil && (two != "" || token == "" || strings.ContainsAny(token, " \t,") || !strings.HasSuffix(strings.TrimSpace(one), token)):
			t.Errorf("%q and %q have the token %q", one, two, token)
		}
	})
}

func FuzzTokenFile(f *testing.F) {
	const secret = "a secret that is long enough"
	for _, text := range []string{
		`[{"secret":"` + secret + `","subject":"ann","scopes":["read"]}]`,
		`[{"hash":"sha256:` + strings.Repeat("0", 64) + `","tenant":"t","subject":"ann","groups":["g"],"scopes":["admin"],"expires":"2030-01-01T00:00:00Z"}]`,
		`[]`, `null`, `[null]`, `[{}]`, `{}`, `[{"secret":5}]`, `[{"subject":"group:x","secret":"` + secret + `","scopes":["read"]}]`,
	} {
		f.Add(text, uint32(0o600))
		f.Add(text, uint32(0o644))
	}
	f.Fuzz(func(t *testing.T, text string, mode uint32) {
		entries, err := parseTokens([]byte(text), os.FileMode(mode)&os.ModePerm)
		if err != nil {
			if entries != nil || strings.Contains(err.Error(), secret) {
				t.Fatalf("%v: %v", entries, err)
			}
			return
		}
		for _, p := range entries {
			if err := p.check(); err != nil {
				t.Errorf("%q lets %+v in: %v", text, p, err)
			}
		}
		if mode&0o077 != 0 && strings.Contains(text, `"secret":"`+secret) && len(entries) > 0 && !strings.Contains(text, "sha256") {
			t.Errorf("secrets that others can read are taken: %q", text)
		}
	})
}

// FuzzTicket puts anything in the place of a ticket: what is let in is a ticket
// for the stream that is asked for.
func FuzzTicket(f *testing.F) {
	rt, err := perdure.New(f.Context(), memstore.New(), perdure.Options{})
	if err != nil {
		f.Fatal(err)
	}
	s := New(rt, Options{Auth: NewTokens(rt)})
	secret := newSecret()
	good, _ := json.Marshal(&pass{Stream: s.tickets.stream("acme", "t"), Ends: time.Now().Add(time.Hour), Identity: api.Identity{Tenant: "acme", Subject: "ann", Scopes: []api.Scope{api.ScopeRead}}})
	for _, cell := range []string{string(good), "", "null", "{}", "[]", strings.Replace(string(good), "acme", "other", 1), strings.Replace(string(good), "ann", "group:x", 1), strings.Replace(string(good), "{", `{"cookie":true,`, 1)} {
		f.Add(cell, "SECRET", "t", false)
		f.Add(cell, "SECRET", "u", false)
		f.Add(cell, "SECRET", "t", true)
		f.Add(cell, "x", "t", false)
	}
	f.Fuzz(func(t *testing.T, cell, given, thread string, cookie bool) {
		ctx := t.Context()
		if old, err := s.tickets.store.Get(ctx, ticketKey(secret)); err == nil {
			if err := s.tickets.store.Delete(ctx, old.Key, old.Version); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.tickets.store.Put(ctx, ticketKey(secret), []byte(cell), ""); err != nil {
			t.Skip(err)
		}
		r := httptest.NewRequest("GET", "http://localhost/v1/threads/t/events", nil)
		r.SetPathValue("thread", thread)
		given = strings.ReplaceAll(given, "SECRET", secret)
		if cookie {
			r.Header.Set("Cookie", cookieName+"="+given)
		} else {
			q := r.URL.Query()
			q.Set("ticket", given)
			r.URL.RawQuery = q.Encode()
		}
		c, err := s.admit(httptest.NewRecorder(), r, &api.EventsList.Info)
		if err != nil {
			return
		}
		var p pass
		if json.Unmarshal([]byte(cell), &p) != nil || given != secret || p.Cookie != cookie || p.Stream != s.tickets.stream(c.Who.Tenant, thread) ||
			p.Tenant != c.Who.Tenant || p.expired() || c.Who.check() != nil || !c.Who.May(api.ScopeRead) {
			t.Errorf("%q lets %+v in to %q", cell, c.Who, thread)
		}
	})
}
