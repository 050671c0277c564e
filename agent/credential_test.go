package agent_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/agent/credentials"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/perduretest"
	"github.com/perdure/perdure/store"
)

// TestACredentialIsThereBeforeItsCallRuns, whoever says that it is; and those
// give it who may for every tool that needs it.
func TestACredentialIsThereBeforeItsCallRuns(t *testing.T) {
	t.Setenv("PERDURE_KEYS", "k:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")
	var n tally
	needs := func(name string, who ...string) agent.Tool {
		return noted(&n, name, agent.Needs(agent.Credential{Name: "key", Who: who}))
	}
	tools := []agent.Tool{needs("strict", "ann", "bob"), needs("other", "bob", "eve"), needs("any"), needs("apart", "zoe")}
	use := func(names ...string) agent.Agent {
		var all []llm.Call
		for _, name := range names {
			all = append(all, call(name, `{"id":"1"}`))
		}
		return agent.New("clerk", scripted(calls(all...), llm.Assistant("end")), agent.Options{Tools: tools})
	}
	play(t, use("strict", "other", "any"), func(t *testing.T, e *perduretest.Env) {
		said := perdure.Answer{Decision: agent.DecisionProvided, By: "bob"}
		for range 2 {
			ask := asked(t, e, "t", 1)[0]
			if len(ask.Who) != 1 || ask.Who[0] != "bob" {
				t.Errorf("%v may give it", ask.Who)
			}
			reply(t, e, ask, said)
			n.want(t, "")
		}
		ask := asked(t, e, "t", 1)[0]
		if !strings.Contains(ask.Prompt, "it is not there") {
			t.Errorf("the prompt is %q", ask.Prompt)
		}
		if err := agent.Provide(t.Context(), e.Runtime(), perdure.AskAnswer{Ask: ask.ID, Answer: said}, "a secret"); err != nil {
			t.Fatal(err)
		}
		e.Wait("t", perdure.Succeeded)
	})
	n.want(t, "any:1 other:1 strict:1")
	play(t, use("strict", "apart"), func(t *testing.T, e *perduretest.Env) {
		e.Wait("t", perdure.Succeeded)
	})
	n.want(t, "any:1 other:1 strict:1")
}

// TestSerialCallsWithAndWithoutCredentials are in one message, of which some
// wait for a login, also two whose names look alike.
func TestSerialCallsWithAndWithoutCredentials(t *testing.T) {
	t.Setenv("PERDURE_KEYS", "k1:"+strings.Repeat("QUFB", 10)+"QUE=")
	var n tally
	free := noted(&n, "free", agent.Serial())
	mail := noted(&n, "mail", agent.Serial(), agent.Needs(agent.Credential{Name: "my login"}))
	post := noted(&n, "post", agent.Needs(agent.Credential{Name: "my_login"}))
	clerk := agent.New("clerk", scripted(calls(call("free", `{"id":"1"}`), call("mail", `{"id":"2"}`), call("post", `{"id":"3"}`)), llm.Assistant("end")),
		agent.Options{Tools: []agent.Tool{free, mail, post}})
	play(t, clerk, func(t *testing.T, e *perduretest.Env) {
		waits := map[string]string{"my login": "c1", "my_login": "c2"}
		for _, ask := range asked(t, e, "t", 2) {
			var data struct {
				Credential string
				Calls      []string
			}
			if err := json.Unmarshal(ask.Data, &data); err != nil || len(data.Calls) != 1 || data.Calls[0] != waits[data.Credential] {
				t.Errorf("the data of an ask is %s, %v: it names the calls that wait", ask.Data, err)
			}
			if err := agent.Provide(t.Context(), e.Runtime(), perdure.AskAnswer{Ask: ask.ID}, "a secret"); err != nil {
				t.Fatal(err)
			}
		}
		e.Wait("t", perdure.Succeeded)
		n.want(t, "free:1 mail:1 post:1")
		oneEach(t, said(t, e, "t"))
	})
}

// TestACredentialThatCannotBeOpened fails the run, before its call begins if the tool
// says that it needs it. The model and the journal learn of no key; the log does. A
// retry continues once the key is back.
func TestACredentialThatCannotBeOpened(t *testing.T) {
	key := func(id string, first byte) string {
		return id + ":" + base64.StdEncoding.EncodeToString(append([]byte{first}, make([]byte, 31)...))
	}
	for name, ring := range map[string]string{"missing": key("new-key", 2), "wrong bytes": key("old-key", 2), "no keys": "", "damaged keys": "old-key,"} {
		for kind, opts := range map[string][]agent.ToolOption{
			"needed": {agent.Needs(agent.Credential{Name: "desk"}), agent.AtMostOnce(time.Minute)},
			"read":   {agent.Retry(perdure.RetryPolicy{Wait: time.Millisecond})},
		} {
			t.Run(name+" "+kind, func(t *testing.T) {
				t.Setenv("PERDURE_KEYS", key("old-key", 1))
				var n tally
				use := agent.NewTool("use", "Uses it.", func(ctx context.Context, _ struct{}) (string, error) {
					n.add("begun")
					secret, err := credentials.Secret(ctx, "desk")
					return fmt.Sprint(len(secret)), err
				}, opts...)
				var log bytes.Buffer
				setup := flows(agent.New("clerk", scripted(calls(call("use", "{}")), llm.Assistant("end")), agent.Options{Tools: []agent.Tool{use}}))
				setup.Options.Logger = slog.New(slog.NewTextHandler(&log, nil))
				perduretest.Virtual(t, setup, func(t *testing.T, e *perduretest.Env) {
					rt := e.Runtime()
					if err := credentials.Of(rt).Give(t.Context(), "", "desk", "a secret", ""); err != nil {
						t.Fatal(err)
					}
					t.Setenv("PERDURE_KEYS", ring)
					e.Start("t", "flow", "go")
					run := e.Wait("t", perdure.Failed)
					if !errors.Is(run.Err, credentials.ErrOpen) || strings.Contains(run.Err.Error(), "-key") {
						t.Errorf("the run failed with %v", run.Err)
					}
					if all := said(t, e, "t"); len(all) != 2 {
						t.Errorf("the transcript has %d messages, not the input and the call", len(all))
					}
					for ev, err := range rt.Events(t.Context(), "t", perdure.EventOptions{Replay: true}) {
						if line, _ := json.Marshal(ev); err != nil || strings.Contains(string(line), "-key") || strings.Contains(string(line), "PERDURE_KEYS") {
							t.Errorf("an event tells %s, %v", line, err)
						}
					}
					if !strings.Contains(log.String(), "a credential cannot be opened") || strings.Contains(ring, ":") && !strings.Contains(log.String(), "-key") {
						t.Errorf("the log does not say which key: %s", &log)
					}
					if kind == "needed" {
						n.want(t, "")
					}
					t.Setenv("PERDURE_KEYS", key("old-key", 1))
					if err := rt.Retry(t.Context(), "t", run.ID, perdure.Note{}); err != nil {
						t.Fatal(err)
					}
					e.Wait("t", perdure.Succeeded)
				})
				n.want(t, map[string]string{"needed": "begun:1", "read": "begun:2"}[kind])
			})
		}
	}
}

// leaks are the ways in which a tool can tell a secret by mistake.
var leaks = map[string]func(ctx context.Context, text string) error{
	"error":             func(_ context.Context, s string) error { return errors.New(s) },
	"fatal":             func(_ context.Context, s string) error { return agent.Fatal(errors.New(s)) },
	"long error":        func(_ context.Context, s string) error { return errors.New(strings.Repeat(s, 100)) },
	"panic":             func(_ context.Context, s string) error { panic(s) },
	"error in a panic":  func(_ context.Context, s string) error { panic(fmt.Errorf("it failed: %w", errors.New(s))) },
	"value in a panic":  func(_ context.Context, s string) error { panic(struct{ Name, Text string }{"it", s}) },
	"error that panics": func(_ context.Context, s string) error { return rude(s) },
	"progress": func(ctx context.Context, s string) error {
		agent.Progress(ctx, map[string]string{"text": s})
		return nil
	},
	"delta": func(ctx context.Context, s string) error {
		perdure.Delta(ctx, []string{s})
		return nil
	},
}

// rude is an error that cannot be read.
type rude string

func (r rude) Error() string { panic(string(r)) }

// TestALeakyToolTellsNoSecret has tools, and a plain step, that tell a secret in
// every way and encoding, and looks for it everywhere.
func TestALeakyToolTellsNoSecret(t *testing.T) {
	t.Setenv("PERDURE_KEYS", "k:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")
	const secret = `Hush-"<hush>"-0123`
	told := fmt.Sprintf("%s %s %s %q %x %X", secret, strings.ToUpper(secret), strings.ToLower(secret), secret, secret, secret)
	for k := range 3 {
		for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding, base64.RawURLEncoding} {
			told += " " + enc.EncodeToString([]byte("ab"[:k]+secret+"!"))
		}
	}
	var parts []string // of what was told, without the characters that depend on what is around
	for word := range strings.FieldsSeq(told) {
		parts = append(parts, strings.ToLower(word[4:12]))
	}
	const begin = "what it tells is "
	use := func(ctx context.Context, leak func(context.Context, string) error) (string, error) {
		if s, err := credentials.Secret(ctx, "desk"); err != nil || s != secret {
			return "", fmt.Errorf("no secret: %w", err)
		}
		return begin + told, leak(ctx, begin+told)
	}
	for name, leak := range leaks {
		tool := func(opts ...agent.ToolOption) perdure.Flow {
			opts = append(opts, agent.Needs(agent.Credential{Name: "desk"}), agent.Retry(perdure.RetryPolicy{Attempts: 2, Wait: time.Millisecond}))
			leaky := agent.NewTool("leaky", "Leaks.", func(ctx context.Context, _ struct{}) (string, error) { return use(ctx, leak) }, opts...)
			return agent.NewFlow("f", agent.New("a", scripted(calls(call("leaky", "{}")), llm.Assistant("done")), agent.Options{Tools: []agent.Tool{leaky}}))
		}
		for kind, flow := range map[string]perdure.Flow{
			"tool": tool(),
			"once": tool(agent.AtMostOnce(time.Minute)),
			"reconciled": tool(agent.AtMostOnce(time.Minute), agent.Reconcile(func(ctx context.Context, _ struct{}) (string, perdure.Outcome, error) {
				s, err := use(ctx, leak)
				return s, perdure.OutcomeDone, err
			})),
			"verbs": tool(agent.UsesVerbs()),
			"step": perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
				return perdure.Step(ctx, "leaky", func(ctx context.Context) (string, error) {
					_, err := use(ctx, leak)
					return "", err
				})
			}),
			"flow": perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
				_, err := use(ctx, leak)
				return "", err
			}),
		} {
			t.Run(name+" of a "+kind, func(t *testing.T) {
				var log, seen bytes.Buffer
				hello := perdure.NewFlow("hello", func(context.Context, string) (string, error) { return "", nil })
				opts := perdure.Options{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
				perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{hello, flow}, Options: opts}, func(t *testing.T, e *perduretest.Env) {
					rt := e.Runtime()
					if err := credentials.Of(rt).Give(t.Context(), "", "desk", secret, ""); err != nil {
						t.Fatal(err)
					}
					e.Start("t", "hello", "")
					e.Wait("t", perdure.Succeeded)
					ctx, stop := context.WithCancel(t.Context())
					ended := make(chan struct{})
					go func() {
						defer close(ended)
						for d := range rt.Deltas(ctx, "t") {
							fmt.Fprintf(&seen, "%s\n", d.Data)
						}
					}()
					synctest.Wait()
					e.Start("t", "f", "go")
					run, err := rt.Wait(t.Context(), "t", "")
					if err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
					stop()
					<-ended
					for ev, err := range rt.Events(t.Context(), "t", perdure.EventOptions{Replay: true}) {
						if err != nil {
							t.Fatal(err)
						}
						line, _ := json.Marshal(ev)
						fmt.Fprintf(&seen, "%s\n", line)
					}
					if err := rt.Export(t.Context(), "t", &seen, perdure.ExportOptions{}); err != nil {
						t.Fatal(err)
					}
					shown, _ := json.Marshal(run)
					fmt.Fprintf(&seen, "%s\n%v\n%s\n%s", shown, run.Err, perdure.Stack(run.Err), log.String())
					for journal, err := range e.Store.Journals(t.Context(), "") {
						if err != nil {
							t.Fatal(err)
						}
						entries, err := store.ReadAll(t.Context(), e.Store, journal, 0)
						if err != nil {
							t.Fatal(err)
						}
						for _, entry := range entries {
							seen.Write(entry.Data)
						}
					}
					all := strings.ToLower(seen.String())
					if !strings.Contains(all, begin) {
						t.Errorf("it told nothing: %s", all)
					}
					for _, part := range parts {
						if i := strings.Index(all, part); i >= 0 {
							t.Errorf("%q is told: …%s…", part, all[max(0, i-100):min(len(all), i+100)])
						}
					}
				})
			})
		}
	}
}
