package credentials_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/agent/credentials"
	"github.com/perdure/perdure/internal/scrub"
	"github.com/perdure/perdure/perduretest"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
	"github.com/perdure/perdure/store/seal"
)

const keys = "PERDURE_KEYS"

const canary = "cAnArY<&>\"0123456789-secret"

// shows reports whether the canary, or a part of it, stands in bytes in any
// usual form.
func shows(data []byte) bool {
	for _, part := range []string{canary, canary[:8], canary[10:]} {
		quoted, _ := json.Marshal(part)
		forms := []string{part, strings.Trim(string(quoted), `"`), hex.EncodeToString([]byte(part))}
		for shift := range 3 {
			whole := part[shift:]
			whole = whole[:len(whole)/3*3]
			forms = append(forms, base64.StdEncoding.EncodeToString([]byte(whole)), base64.URLEncoding.EncodeToString([]byte(whole)))
		}
		for _, form := range forms {
			if bytes.Contains(data, []byte(form)) {
				return true
			}
		}
	}
	return false
}

func keyring(t *testing.T, ids ...string) string {
	t.Helper()
	var parts []string
	for _, id := range ids {
		key := bytes.Repeat([]byte(id), 32)[:32]
		parts = append(parts, id+":"+base64.StdEncoding.EncodeToString(key))
	}
	return strings.Join(parts, ",")
}

// dump returns everything that is in a store.
func dump(t *testing.T, s store.Store) []byte {
	t.Helper()
	var b bytes.Buffer
	for cell, err := range s.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s %s\n", cell.Key, cell.Value)
	}
	for name, err := range s.Journals(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		entries, err := store.ReadAll(t.Context(), s, name, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			fmt.Fprintf(&b, "%s %s\n", name, e.Data)
		}
	}
	return b.Bytes()
}

// login is a flow with two asks for one credential and one for another, and then
// a tool that does all it can to show the secret.
var login = perdure.NewFlow("login", func(ctx context.Context, _ string) (string, error) {
	g := perdure.NewGroup(ctx)
	for i, name := range []string{"mail", "mail", "bank"} {
		g.Go(fmt.Sprint("ask-", i), func(ctx context.Context) error {
			_, err := perdure.Ask[perdure.Answer](ctx, "provide", perdure.Question{
				Kind: agent.KindCredential, Data: map[string]any{"credential": name}, Who: []string{"ann", "boss", "group:bankers"},
				Decisions: []string{agent.DecisionProvided, agent.DecisionReject}, Schema: json.RawMessage(`{"type":"null"}`),
			})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return "", err
	}
	return perdure.Step(ctx, "use", func(ctx context.Context) (string, error) {
		text := ""
		err := scrub.Guard(ctx, func(ctx context.Context, secrets *scrub.Set) error {
			secret, err := credentials.Secret(ctx, "mail")
			if err != nil || secret != canary {
				return fmt.Errorf("it is another secret: %w", err)
			}
			quoted, _ := json.Marshal(secret)
			text = secrets.Text(fmt.Sprintf("%s %s %v", secret, quoted, credentials.Redact(secret)))
			return perdure.Permanent(fmt.Errorf("login with %q failed", secret))
		})
		return fmt.Sprintf("%s %v", text, err), nil
	})
})

func TestASecretIsNowhereInClear(t *testing.T) {
	for _, sealed := range []bool{false, true} {
		t.Run(fmt.Sprintf("sealed %v", sealed), func(t *testing.T) {
			if !sealed {
				t.Setenv(keys, keyring(t, "k1"))
			} else {
				t.Setenv(keys, "")
			}
			var log bytes.Buffer
			opts := perdure.Options{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
			synctest.Test(t, func(t *testing.T) {
				raw := memstore.New()
				rt := working(t, raw, sealed, opts, login)
				ctx := t.Context()
				wait := func(run *perdure.Run, want perdure.Status) *perdure.Run {
					t.Helper()
					run, err := rt.Wait(ctx, run.Thread, run.ID)
					if err != nil || run.Status != want {
						t.Fatalf("%+v, %v, want %s", run, err, want)
					}
					return run
				}
				run, err := rt.Start(ctx, perdure.StartRequest{Flow: "login", Input: "", User: "ann"})
				if err != nil {
					t.Fatal(err)
				}
				run = wait(run, perdure.Suspended)
				if len(run.Asks) != 3 {
					t.Fatalf("%d asks", len(run.Asks))
				}
				var mail, bank string
				for _, a := range run.Asks {
					if strings.Contains(string(a.Data), "bank") {
						bank = a.ID
					} else {
						mail = a.ID
					}
				}
				if err := agent.Provide(ctx, rt, perdure.AskAnswer{Ask: mail, Answer: perdure.Answer{By: "eve"}, Groups: []string{"guests"}}, canary); !errors.Is(err, perdure.ErrForbidden) || shows([]byte(err.Error())) {
					t.Errorf("eve provides it: %v", err)
				}
				if has, err := credentials.Of(rt).Has(ctx, "ann", "mail"); has || err != nil {
					t.Errorf("eve's secret is kept: %v", err)
				}
				stale := perdure.AskAnswer{Ask: mail, Answer: perdure.Answer{By: "boss"}, IfSeq: 1}
				if err := agent.Provide(ctx, rt, stale, canary); !errors.Is(err, perdure.ErrStale) {
					t.Errorf("at another sequence: %v", err)
				}
				if err := agent.Provide(ctx, rt, perdure.AskAnswer{Ask: mail, Answer: perdure.Answer{By: "boss"}}, canary); err != nil {
					t.Fatal(err)
				}
				if run = wait(run, perdure.Suspended); len(run.Asks) != 1 || run.Asks[0].ID != bank {
					t.Fatalf("open are %+v", run.Asks)
				}
				if err := agent.Provide(ctx, rt, perdure.AskAnswer{Ask: mail, Answer: perdure.Answer{By: "boss"}}, canary); err != nil {
					t.Errorf("the same again: %v", err)
				}
				if err := agent.Provide(ctx, rt, perdure.AskAnswer{Ask: mail, Answer: perdure.Answer{By: "ann"}}, canary); !errors.Is(err, perdure.ErrAnswered) || shows([]byte(err.Error())) {
					t.Errorf("another answer: %v", err)
				}
				if err := rt.Answer(ctx, perdure.AskAnswer{Ask: bank, Answer: perdure.Answer{Decision: agent.DecisionProvided, Value: canary, By: "ann"}}); !errors.Is(err, perdure.ErrAnswer) {
					t.Errorf("a secret is taken as an answer: %v", err)
				}
				if err := agent.Provide(ctx, rt, perdure.AskAnswer{Ask: bank, Answer: perdure.Answer{By: "cat"}, Groups: []string{"guests", "bankers"}}, canary); err != nil {
					t.Fatal(err)
				}
				run = wait(run, perdure.Succeeded)
				if !strings.Contains(string(run.Output), scrub.Mark) || strings.Contains(string(run.Output), "another secret") {
					t.Errorf("the tool did not run as planned: %s", run.Output)
				}
				var export bytes.Buffer
				if err := rt.Export(ctx, run.Thread, &export, perdure.ExportOptions{}); err != nil {
					t.Fatal(err)
				}
				var events bytes.Buffer
				for ev, err := range rt.Events(ctx, run.Thread, perdure.EventOptions{Replay: true}) {
					if err != nil {
						t.Fatal(err)
					}
					_ = json.NewEncoder(&events).Encode(ev)
				}
				at, err := rt.StateAt(ctx, run.Thread, 0)
				if err != nil {
					t.Fatal(err)
				}
				state, _ := json.Marshal(at)
				for where, data := range map[string][]byte{"store": dump(t, raw), "export": export.Bytes(), "events": events.Bytes(), "state": state, "log": log.Bytes()} {
					if shows(data) {
						t.Errorf("the secret is in the %s", where)
					}
				}
				if !sealed && !bytes.Contains(dump(t, raw), []byte("shelf/credential/")) {
					t.Error("no credential is in the store")
				}
			})
		})
	}
}

// working returns a runtime that works on a store, which it seals or not. It is
// for use in a bubble.
func working(t *testing.T, s store.Store, sealed bool, opts perdure.Options, flows ...perdure.Flow) *perdure.Runtime {
	t.Helper()
	if sealed {
		r, err := seal.ParseRing(keyring(t, "s1"))
		if err != nil {
			t.Fatal(err)
		}
		if s, err = seal.New(t.Context(), s, r); err != nil {
			t.Fatal(err)
		}
	}
	opts.Version = "test"
	rt, err := perdure.New(t.Context(), s, opts, flows...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- rt.Work(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the worker: %v", err)
		}
	})
	return rt
}

func TestWithoutAKeyNothingIsKept(t *testing.T) {
	for name, ring := range map[string]string{"no keys": "", "bad keys": "k1:" + canary} {
		t.Setenv(keys, ring)
		s := memstore.New()
		rt := newRuntime(t, s)
		err := credentials.Of(rt).Give(t.Context(), "ann", "mail", canary, "ann")
		if !errors.Is(err, credentials.ErrUnsealed) || !strings.Contains(err.Error(), keys) || shows([]byte(err.Error())) {
			t.Errorf("%s: %v", name, err)
		}
		if data := dump(t, s); shows(data) || bytes.Contains(data, []byte("shelf/")) {
			t.Errorf("%s: something is kept", name)
		}
	}
}

func newRuntime(t *testing.T, s store.Store) *perdure.Runtime {
	t.Helper()
	rt, err := perdure.New(t.Context(), s, perdure.Options{Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return rt
}

// runFlow runs a flow on a new thread of a user and returns its output.
func runFlow(t *testing.T, rt *perdure.Runtime, user, flow string) string {
	t.Helper()
	run, err := rt.Start(t.Context(), perdure.StartRequest{Flow: flow, Input: "", User: user})
	if err != nil {
		t.Fatal(err)
	}
	if run, err = rt.Wait(t.Context(), run.Thread, run.ID); err != nil {
		t.Fatal(err)
	}
	out, err := perdure.Output[string](run)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// unlock is a flow that says whether it gets the secret "mail".
var unlock = perdure.NewFlow("unlock", func(ctx context.Context, _ string) (string, error) {
	return perdure.Step(ctx, "use", func(ctx context.Context) (string, error) {
		has, err := credentials.Given(ctx, "mail")
		if err != nil {
			return "", err
		}
		secret, err := credentials.Secret(ctx, "mail")
		switch {
		case secret == canary:
			return fmt.Sprint(has, " good"), nil
		case secret != "":
			return "another", nil
		case errors.Is(err, credentials.ErrNotFound):
			return fmt.Sprint(has, " none"), nil
		}
		return fmt.Sprint(has, " ", err), nil
	})
})

func TestSecretsAreThoseOfTheOwner(t *testing.T) {
	t.Setenv(keys, keyring(t, "k1"))
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{unlock}}, func(t *testing.T, e *perduretest.Env) {
		ctx, rt := t.Context(), e.Runtime()
		c := credentials.Of(rt)
		if err := c.Give(ctx, "ann", "mail", canary, "ann"); err != nil {
			t.Fatal(err)
		}
		if got := runFlow(t, rt, "ann", "unlock"); got != "true good" {
			t.Errorf("ann gets %s", got)
		}
		for _, user := range []string{"", "bob", "ann/mail"} {
			if got := runFlow(t, rt, user, "unlock"); got != "false none" {
				t.Errorf("%q gets %s", user, got)
			}
		}
		if has, err := credentials.Of(rt.Tenant("other")).Has(ctx, "ann", "mail"); has || err != nil {
			t.Errorf("another tenant has it: %v", err)
		}
		if names, err := c.List(ctx, "ann"); err != nil || fmt.Sprint(names) != "[mail]" {
			t.Error(names, err)
		}
		// A new key in front of the ring, then without the old one.
		t.Setenv(keys, keyring(t, "k2", "k1"))
		if got := runFlow(t, rt, "ann", "unlock"); got != "true good" {
			t.Errorf("with a new key: %s", got)
		}
		t.Setenv(keys, keyring(t, "k2"))
		if got := runFlow(t, rt, "ann", "unlock"); got != `true agent: a credential cannot be opened: "mail": the log of the worker says why; retry the run once that is repaired` {
			t.Errorf("without the key: %s", got)
		}
		t.Setenv(keys, keyring(t, "k1"))
		for range 2 {
			if err := c.Forget(ctx, "ann", "mail"); err != nil {
				t.Fatal(err)
			}
		}
		if got := runFlow(t, rt, "ann", "unlock"); got != "false none" {
			t.Errorf("after it was forgotten: %s", got)
		}
		for name, err := range map[string]error{
			"no secret": c.Give(ctx, "ann", "mail", "", "ann"), "no name": c.Give(ctx, "ann", "", canary, "ann"),
			"too long": c.Give(ctx, "ann", "mail", strings.Repeat(canary, 5000), "ann"),
		} {
			if !errors.Is(err, credentials.ErrInvalid) || shows([]byte(err.Error())) {
				t.Errorf("%s: %.200v", name, err)
			}
		}
	})
}

// TestAMovedSecretIsRefused gives one user the sealed bytes of another.
func TestAMovedSecretIsRefused(t *testing.T) {
	t.Setenv(keys, keyring(t, "k1"))
	s := memstore.New()
	rt := newRuntime(t, s)
	c := credentials.Of(rt)
	if err := c.Give(t.Context(), "ann", "mail", canary, "ann"); err != nil {
		t.Fatal(err)
	}
	sealed, err := c.Sealed(t.Context(), "ann", "mail")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.Unseal(t.Context(), "ann", "mail", sealed); err != nil || got != canary {
		t.Fatal("it does not open where it belongs:", err)
	}
	for _, at := range [][2]string{{"bob", "mail"}, {"ann", "bank"}, {"annm", "ail"}} {
		if _, err := c.Unseal(t.Context(), at[0], at[1], sealed); err == nil {
			t.Errorf("it opens at %q", at)
		}
	}
	if _, err := credentials.Of(rt.Tenant("other")).Unseal(t.Context(), "ann", "mail", sealed); err == nil {
		t.Error("it opens for another tenant")
	}
	planted, _ := json.Marshal(credentials.SealedSecret{Clear: []byte("planted")})
	if got, err := c.Unseal(t.Context(), "ann", "mail", planted); !errors.Is(err, credentials.ErrUnsealed) {
		t.Errorf("a secret in clear is taken: %q %v", got, err)
	}
	var broken credentials.SealedSecret
	if err := json.Unmarshal(sealed, &broken); err != nil {
		t.Fatal(err)
	}
	broken.Box[len(broken.Box)-1] ^= 1
	changed, _ := json.Marshal(broken)
	if _, err := c.Unseal(t.Context(), "ann", "mail", changed); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("changed bytes open: %v", err)
	}
}

func TestRedactedDoesNotShow(t *testing.T) {
	type config struct {
		Token credentials.Redacted
		Map   map[credentials.Redacted]credentials.Redacted
		inner credentials.Redacted
	}
	c := config{credentials.Redact(canary), map[credentials.Redacted]credentials.Redacted{credentials.Redact(canary): credentials.Redact(canary)}, credentials.Redact(canary)}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
		fmt.Fprintf(&out, verb+verb+verb+"\n", c, &c, c.Token)
	}
	fmt.Fprintln(&out, c, c.Token, errors.New(c.Token.String()), credentials.SealedSecret{Clear: []byte(canary)})
	if err := json.NewEncoder(&out).Encode(c); err != nil {
		t.Fatal(err)
	}
	slog.New(slog.NewTextHandler(&out, nil)).Info("m", "c", c, "t", c.Token)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("m", "c", c, "t", c.Token)
	if shows(out.Bytes()) || !strings.Contains(out.String(), scrub.Mark) {
		t.Errorf("it shows: %s", out.String())
	}
	if c.Token.Reveal() != canary || c.inner.Reveal() != canary || (credentials.Redacted{}).Reveal() != "" {
		t.Error("it cannot be used")
	}
}
