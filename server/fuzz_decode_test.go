package server

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
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
	good, _ := json.Marshal(&pass{Stream: s.tickets.stream("acme", "t"), Ends: time.Now().Add(time.Hour), Tenant: "acme", Subject: "ann", Scopes: []api.Scope{api.ScopeRead}})
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
		if json.Unmarshal([]byte(cell), &p) != nil || given != secret || p.Cookie != cookie || p.Stream != s.tickets.stream(c.who.Tenant, thread) ||
			p.Tenant != c.who.Tenant || p.over() || c.who.check() != nil || !c.who.May(api.ScopeRead) {
			t.Errorf("%q lets %+v in to %q", cell, c.who, thread)
		}
	})
}

// FuzzReply makes answers of anything: no secret becomes part of one, and none
// has a decision that the ask does not offer, but for its one word.
func FuzzReply(f *testing.F) {
	for _, raw := range []string{`"approve"`, `true`, `{"decision":"provided"}`, `{"decision":"reject","message":5,"value":null}`, `{"confirmed":true,"payload":{}}`,
		`{"response":"{\"confirmed\":false}"}`, `{"secret":"s"}`, `null`, ``, `{"authConfig":{"oauth2":{"accessToken":"s"}}}`, `{"result":1}`} {
		for kind := range uint8(4) {
			f.Add(raw, kind, "")
			f.Add(raw, kind, adkConfirm)
			f.Add(raw, kind, adkInput)
		}
	}
	f.Fuzz(func(t *testing.T, raw string, kind uint8, name string) {
		ask := []*perdure.AskInfo{
			{Kind: agent.KindCredential, Decisions: []string{agent.DecisionProvided, agent.DecisionReject}},
			{Kind: agent.KindApproval, Decisions: []string{agent.DecisionApprove, agent.DecisionReject, agent.DecisionEdit}},
			{Kind: agent.KindPending, Data: json.RawMessage(`{"tool":"x"}`)},
			{Want: "boolean"},
		}[kind%4]
		if !json.Valid([]byte(raw)) {
			t.Skip("the body it is in is no JSON")
		}
		plain, secret, err := plainReply(ask, json.RawMessage(raw))
		other, secret2, err2 := adkReply(ask, adkReceived{id: "x", name: name, response: json.RawMessage(raw)})
		for _, got := range []struct {
			api.Reply
			secret string
			err    error
		}{{plain, secret, err}, {other, secret2, err2}} {
			switch {
			case got.err != nil:
			case got.secret != "" && (ask.Kind != agent.KindCredential || got.Decision != "" || got.Value != nil || got.Message != ""):
				t.Errorf("%s gives a secret and %+v", raw, got.Reply)
			case ask.Kind == agent.KindCredential && got.secret == "" && got.Decision != agent.DecisionReject:
				t.Errorf("%s answers an ask for a secret with %+v", raw, got.Reply)
			case got.Decision != "" && !slices.Contains(ask.Decisions, got.Decision):
				t.Errorf("%s decides %q", raw, got.Decision)
			case got.Value != nil && !json.Valid(got.Value):
				t.Errorf("%s has the value %q", raw, got.Value)
			}
		}
	})
}

// A text in a response that is JSON itself is no way around the limits on JSON.
func TestTextsInResponsesAreNoWayAroundLimits(t *testing.T) {
	ask := &perdure.AskInfo{Kind: agent.KindCredential, Decisions: []string{agent.DecisionProvided, agent.DecisionReject}}
	nest := func(n int) string {
		return strings.Repeat(`{"authConfig":`, n) + `{"secret":"s"}` + strings.Repeat("}", n)
	}
	for n, want := range map[int]string{1: "s", secretDepth - 1: "s", secretDepth: "", 60: "", 5000: ""} {
		raw, _ := json.Marshal(map[string]string{"response": nest(n)})
		if _, secret, err := adkReply(ask, adkReceived{response: raw}); secret != want || (err == nil) != (want != "") {
			t.Errorf("at depth %d there is %q, %v", n, secret, err)
		}
	}
	raw, _ := json.Marshal(map[string]string{"response": `{"x":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + "}"})
	if _, _, err := adkReply(&perdure.AskInfo{Kind: agent.KindPending, Data: json.RawMessage(`{"tool":"x"}`)}, adkReceived{response: raw}); !errors.Is(err, api.ErrBody) {
		t.Errorf("a deep result is taken: %v", err)
	}
}
