package adk_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/agent/credentials"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/internal/sse"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/script"
	"github.com/perdure/perdure/server"
)

// vault is an agent with a tool that needs a secret.
func vault(t *testing.T, secret string) perdure.Flow {
	fetch := agent.NewTool("fetch", "Fetches.", func(ctx context.Context, _ struct{}) (string, error) {
		got, err := credentials.Secret(ctx, "login")
		if err == nil && got != secret {
			err = errOtherSecret
		}
		return "fetched", err
	}, agent.Needs(agent.Credential{Name: "login", Prompt: "Log in, please."}))
	model := script.New(script.Call("fetch", "{}"), script.Say("done"))
	return agent.NewFlow("vault", agent.New("vault", model, agent.Options{Tools: []agent.Tool{fetch}}))
}

// A long-running tool's result is posted under the id of its ask, or under that
// of the call as the model made it.
func TestLongRunningToolGetsItsResultLater(t *testing.T) {
	for name, test := range map[string]struct {
		byCall   bool
		response string
		want     string
	}{
		"by the ask":  {false, `{"status":"approved"}`, `clerk: response mail {"status":"approved"}`},
		"by the call": {true, `{"result":"sent"}`, `clerk: response mail {"result":"sent"}`},
		"an error":    {false, `{"error":"no postage"}`, `clerk: response mail {"error":"mail failed: no postage"}`},
	} {
		t.Run(name, func(t *testing.T) {
			mail := agent.NewTool("mail", "Mails.", func(context.Context, order) (string, error) { return "", agent.Pending("job-1") })
			model := script.New(script.Reply{Calls: []llm.Call{{ID: "call-7", Name: "mail", Args: `{"id":"1"}`}}}, script.Say("done"))
			s := newSite(t, server.Options{}, agent.NewFlow("clerk", agent.New("clerk", model, agent.Options{Tools: []agent.Tool{mail}})))
			s.session("clerk", "u", "s")
			events := s.run(runBody("clerk", "x"))
			wantEvents(t, events, "clerk: call mail", "clerk: call adk_request_input")
			id := events[1].LongRunningToolIDs[0]
			if test.byCall {
				id = "call-7"
			}
			wantEvents(t, s.run(answerBody("clerk", id, "mail", test.response)), test.want, "clerk: done", "clerk: end")
		})
	}
}

// A response is taken as it is, but for what clients put around a value: nothing
// else in it is lost.
func TestAsksForInput(t *testing.T) {
	type verdict struct {
		Result string `json:"result"`
		Score  int    `json:"score,omitempty"`
	}
	flows := []perdure.Flow{asker[string]("text"), asker[int]("number"), asker[any]("any"), asker[verdict]("verdict"), asker[bool]("yes")}
	for _, test := range []struct{ flow, response, want string }{
		{"text", `{"payload":"blue"}`, `"blue"`}, {"text", `{"result":"blue"}`, `"blue"`}, {"text", `{"response":"blue"}`, `"blue"`}, {"text", `"blue"`, `"blue"`},
		{"text", `{"result":"3"}`, `"3"`}, {"text", `{"result":"blue","score":3}`, ""}, {"text", `{"payload":17}`, ""},
		{"number", `{"result":"3"}`, `3`}, {"number", `{"result":"three"}`, ""}, {"number", `{"payload":3}`, `3`},
		{"any", `{"result":"pass","score":3}`, `{"result":"pass","score":3}`}, {"any", `{"payload":1,"score":3}`, `{"payload":1,"score":3}`},
		{"any", `{"error":"x"}`, `{"error":"x"}`}, {"any", `{"response":"{\"result\":\"a\",\"score\":3}"}`, `{"result":"a","score":3}`},
		{"verdict", `{"result":"pass","score":3}`, `{"result":"pass","score":3}`}, {"verdict", `{"result":"pass"}`, `{"result":"pass"}`},
		{"verdict", `{"result":{"result":"pass"}}`, `{"result":"pass"}`}, {"verdict", `{"payload":"{\"result\":\"pass\"}"}`, `{"result":"pass"}`},
		{"yes", `{"result":"true"}`, `true`}, {"yes", `{"confirmed":true}`, `true`}, {"yes", `{"confirmed":true,"payload":{"a":1}}`, ""},
	} {
		s := newSite(t, server.Options{}, flows...)
		s.session(test.flow, "u", "s")
		events := s.run(runBody(test.flow, "x"))
		wantEvents(t, events, test.flow+": call adk_request_input")
		call := events[0].Content.Parts[0].FunctionCall
		if got := string(call.Args); got != fmt.Sprintf(`{"interruptId":%q,"message":"Which one?","payload":["red","blue"]}`, call.ID) {
			t.Errorf("it asks %s", got)
		}
		name := "adk_request_input"
		if strings.Contains(test.response, "confirmed") {
			name = "adk_request_confirmation"
		}
		answer := s.Do("POST", "/run", answerBody(test.flow, call.ID, name, test.response))
		if test.want == "" {
			answer.Problem(422, "answer")
			continue
		}
		answer.Want(200)
		run, err := s.Runtime.Wait(t.Context(), "s", "")
		if err != nil || string(run.Output) != test.want {
			t.Errorf("%s to %s is taken as %s, %v; want %s", test.response, test.flow, run.Output, err, test.want)
		}
	}
}

// asker is a flow whose output is what it is answered.
func asker[T any](name string) perdure.Flow {
	return perdure.NewFlow(name, func(ctx context.Context, _ string) (T, error) {
		return perdure.Ask[T](ctx, "which", perdure.Question{Prompt: "Which one?", Data: []string{"red", "blue"}})
	})
}

// A confirmation with the arguments as they were shown is no edit; one that would
// lose something is refused.
func TestConfirmationWithAPayload(t *testing.T) {
	for response, want := range map[string]string{
		`{"confirmed":true}`: "approve", `{"confirmed":true,"payload":{"id":"A-1", "amount":7.0}}`: "approve",
		`{"confirmed":false,"payload":{"amount":7,"id":"A-1"}}`: "reject", `{"confirmed":true,"payload":{"id":"A-1","amount":8}}`: "edit",
		`{"confirmed":true,"payload":{}}`: "", `{"decision":"approve","message":""}`: "approve",
		`{"decision":"approve","payload":{"id":"A-1","amount":8}}`: "", `{"decision":"approve","message":5}`: "",
	} {
		s := newSite(t, server.Options{}, clerk(new(kit.Tally)))
		s.session("clerk", "u", "s")
		id := s.run(runBody("clerk", "x"))[1].LongRunningToolIDs[0]
		answer := s.Do("POST", "/run", answerBody("clerk", id, "adk_request_confirmation", response))
		if want == "" && answer.Status/100 == 4 {
			continue
		}
		if got := strings.Fields(strings.Join(s.answers(), " ") + " none")[0]; got != want {
			t.Errorf("%s is recorded as %s, want %s; %s", response, got, want, answer.Body)
		}
	}
}

// Several calls of one message are confirmed in one request, all or none.
func TestConfirmsSeveralCallsTogether(t *testing.T) {
	n := new(kit.Tally)
	refund := agent.NewTool("refund", "Refunds.", func(_ context.Context, o order) (string, error) {
		n.Hit(o.ID)
		return "ok", nil
	}, agent.NeedsApproval())
	model := script.New(script.Reply{Calls: []llm.Call{{Name: "refund", Args: `{"id":"1"}`}, {Name: "refund", Args: `{"id":"2"}`}}}, script.Say("done"))
	s := newSite(t, server.Options{}, agent.NewFlow("clerk", agent.New("clerk", model, agent.Options{Tools: []agent.Tool{refund}})))
	s.session("clerk", "u", "s")
	events := s.run(runBody("clerk", "x"))
	wantEvents(t, events, "clerk: call refund call refund", "clerk: call adk_request_confirmation", "clerk: call adk_request_confirmation")
	part := func(id, confirmed string) string {
		return fmt.Sprintf(`{"functionResponse":{"id":%q,"name":"adk_request_confirmation","response":{"confirmed":%s}}}`, id, confirmed)
	}
	send := func(parts ...string) *servertest.Reply {
		return s.Do("POST", "/run", `{"appName":"clerk","userId":"u","sessionId":"s","newMessage":{"role":"user","parts":[`+strings.Join(parts, ",")+`]}}`)
	}
	one, two := events[1].LongRunningToolIDs[0], events[2].LongRunningToolIDs[0]
	send(part(one, "true"), part("none", "true")).Problem(404, "no-ask")
	if thread, _ := s.Runtime.Get(t.Context(), "s"); len(thread.Runs[0].Asks) != 2 {
		t.Fatalf("%d asks are open", len(thread.Runs[0].Asks))
	}
	done := servertest.Decode[[]note](send(part(one, "true"), part(two, "false")), 200)
	if got := shortForm(done); !strings.HasSuffix(got, "clerk: done\nclerk: end") || n.Of("1")+n.Of("2") != 1 {
		t.Errorf("%v, and\n%s", n, got)
	}
}

// A conversation goes on while another invocation of the session waits.
func TestNewMessageBesideAnInvocationThatWaits(t *testing.T) {
	s := newSite(t, server.Options{}, clerk(new(kit.Tally)))
	s.session("clerk", "u", "s")
	first := s.run(runBody("clerk", "one"))
	second := s.run(runBody("clerk", "two"))
	if len(second) == 0 || second[0].InvocationID == first[0].InvocationID {
		t.Fatalf("the second message came to\n%s", shortForm(second))
	}
	wantEvents(t, s.run(answerBody("clerk", first[1].LongRunningToolIDs[0], "adk_request_confirmation", `{"confirmed":true}`)),
		`clerk: response refund {"result":"refunded A-1 with 7"}`, "clerk: It is done, thank you.", "clerk: end")
}

func TestSequentialAgentsAndMedia(t *testing.T) {
	shown := make(chan []llm.Part, 1)
	look := llm.ModelFunc(func(_ context.Context, r *llm.Request) iter.Seq2[llm.Delta, error] {
		return func(yield func(llm.Delta, error) bool) {
			shown <- r.Messages[0].Parts
			_ = yield(llm.Delta{Text: "I see"}, nil) && yield(llm.Delta{Stop: llm.StopEnd}, nil)
		}
	})
	all := agent.Sequential("all", agent.New("looker", look, agent.Options{}), agent.New("writer", script.New(script.Say("I wrote")), agent.Options{History: agent.HistoryNone}))
	s := newSite(t, server.Options{}, agent.NewFlow("all", all))
	s.session("all", "u", "s")
	png := "\x89PNG picture"
	body := fmt.Sprintf(`{"appName":"all","userId":"u","sessionId":"s","newMessage":{"role":"user","parts":[{"text":"look"},{"inline_data":{"mime_type":"image/png","data":%q}}]}}`,
		base64.URLEncoding.EncodeToString([]byte(png)))
	wantEvents(t, s.run(body), "looker: I see", "writer: I wrote", "all: end")
	seen := <-shown
	if len(seen) != 2 || seen[0].Text != "look" || seen[1].Media == nil || string(seen[1].Media.Data) != png || seen[1].Media.MIME != "image/png" {
		t.Errorf("the model was shown %+v", seen)
	}
}

// With streaming a reply arrives in pieces first, and then whole. The pieces are
// of one attempt: a client puts all of them together.
func TestStreamsPiecesAndThenTheWhole(t *testing.T) {
	heard := make(chan struct{})
	attempts := 0
	model := llm.ModelFunc(func(ctx context.Context, _ *llm.Request) iter.Seq2[llm.Delta, error] {
		return func(yield func(llm.Delta, error) bool) {
			if attempts++; attempts == 2 {
				for range 200 {
					if !yield(llm.Delta{Text: "dum "}, nil) {
						return
					}
				}
				yield(llm.Delta{Stop: llm.StopEnd}, nil)
				return
			}
			for listening := true; listening; { // until the client has heard a piece
				select {
				case <-heard:
					listening = false
				case <-ctx.Done():
					return
				default:
				}
				if !yield(llm.Delta{Text: "la "}, nil) {
					return
				}
			}
			yield(llm.Delta{}, llm.ErrOverloaded)
		}
	})
	s := newSite(t, server.Options{}, agent.NewFlow("singer", agent.New("voice", model, agent.Options{Retry: &perdure.RetryPolicy{Wait: time.Millisecond}})))
	s.session("singer", "u", "s")
	r := servertest.Must(http.Post(s.URL+"/run_sse", "application/json", strings.NewReader(strings.Replace(runBody("singer", "x"), `{"app`, `{"streaming":true,"app`, 1))))(t)
	defer r.Body.Close()
	events := sse.NewReader(r.Body, 16<<20)
	partial, whole := 0, 0
	for e, err := events.Next(); err == nil; e, err = events.Next() {
		switch data := string(e.Data); {
		case strings.Contains(data, `"partial":true`):
			if e.ID != "" || !strings.Contains(data, `"author":"voice"`) || !strings.Contains(data, `{"text":"la "}`) || whole > 0 {
				t.Fatalf("%+v after %d whole ones", e, whole)
			}
			if partial++; partial == 1 {
				close(heard)
			}
		case strings.Contains(data, `"role":"model"`):
			whole++
		}
	}
	if partial == 0 || whole != 1 {
		t.Errorf("%d pieces and %d whole ones", partial, whole)
	}
}

// Faces need the scopes that operations need, and see one tenant.
func TestScopesAndTenants(t *testing.T) {
	n := new(kit.Tally)
	s := newSite(t, server.Options{Auth: servertest.People{
		"full":   {Tenant: "a", Subject: "ann", Scopes: []api.Scope{api.ScopeRead, api.ScopeRun, api.ScopeAnswer}},
		"runner": {Tenant: "a", Subject: "bob", Scopes: []api.Scope{api.ScopeRun}},
		"other":  {Tenant: "b", Subject: "eve", Scopes: []api.Scope{api.ScopeAdmin}},
	}}, clerk(n, agent.WithApproval(agent.Approval{Who: []string{"ann"}})))
	s.Token = "full"
	s.session("clerk", "u", "s")
	events := s.run(runBody("clerk", "x"))
	id := events[1].LongRunningToolIDs[0]
	answer := answerBody("clerk", id, "adk_request_confirmation", `{"confirmed":true}`)
	resume := fmt.Sprintf(`{"traceId":"s","promptId":%q,"response":"approve"}`, id)
	s.Do("DELETE", "/apps/clerk/users/u/sessions/s", "").Problem(403, "scope")
	s.Token = "runner"
	s.Do("POST", "/run", answer).Problem(403, "scope")
	s.Do("POST", "/resume", resume).Problem(403, "scope")
	s.Do("GET", "/apps/clerk/users/u/sessions/s", "").Problem(403, "scope")
	s.Do("POST", "/run", runBody("clerk", "x"), "Last-Event-ID", "0").Problem(403, "scope")
	s.Do("POST", "/run_sse", runBody("clerk", "x"), "Last-Event-ID", "0").Problem(403, "scope")
	s.Token = "other"
	s.Do("POST", "/run", answer).Problem(404, "no-thread")
	s.Do("POST", "/resume", resume).Problem(404, "no-ask")
	s.Do("POST", "/resume", fmt.Sprintf(`{"traceId":%q,"promptId":"approve","response":"approve"}`, events[0].InvocationID)).Problem(404, "no-ask")
	s.Do("GET", "/apps/clerk/users/u/sessions/s", "").Problem(404, "no-thread")
	if got := string(s.Do("GET", "/apps/clerk/users/u/sessions", "").Want(200).Body); got != "[]" {
		t.Errorf("another tenant sees %s", got)
	}
	s.Token = ""
	s.Do("POST", "/run_sse", answer).Problem(401, "unauthorized")
	s.Token = "full"
	if s.Do("POST", "/run", answer).Want(200); n.Of("refund") != 1 {
		t.Errorf("it was refunded %d times", n.Of("refund"))
	}
	ask, err := s.Runtime.Tenant("a").GetAsk(t.Context(), id)
	if err != nil || ask.Answer == nil || ask.Answer.By != "ann" {
		t.Errorf("the ask is %+v, %v", ask, err)
	}
}

// A session with an id is made of a request or of the bare state, as clients of
// different versions send it.
func TestCreatesOfARequestOrOfAState(t *testing.T) {
	s := newSite(t, server.Options{}, clerk(new(kit.Tally)))
	for i, c := range []struct{ body, want string }{
		{`{"state":{"a":1},"events":[]}`, `{"a":1}`},
		{`{"state":{"a":1},"events":null}`, `{"a":1}`},
		{`{"state":{"a":1},"foo":1}`, `{"a":1}`},
		{`{"state":null}`, `{}`},
		{`{"events":[]}`, `{}`},
		{`{}`, `{}`},
		{`{"a":1,"b":{}}`, `{"a":1,"b":{}}`},
		{`{"state":"open","events":3}`, `{"events":3,"state":"open"}`},
	} {
		var got struct{ State json.RawMessage }
		s.Do("POST", fmt.Sprint("/apps/clerk/users/u/sessions/s", i), c.body).Want(200, &got)
		if string(got.State) != c.want {
			t.Errorf("%s makes the state %s, want %s", c.body, got.State, c.want)
		}
	}
	s.Do("POST", "/apps/clerk/users/u/sessions/no", `{"events":[{"author":"user"}]}`).Problem(422, "unsupported")
}

// A secret that answers an ask for a credential is sealed, and in no journal.
func TestSecretsStayOutOfTheJournal(t *testing.T) {
	t.Setenv("PERDURE_KEYS", "k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=")
	const secret = "canary-4711-secret"
	for _, way := range []string{"/resume", "/run"} {
		s := newSite(t, server.Options{}, vault(t, secret))
		s.session("vault", "u", "s")
		events := s.run(runBody("vault", "x"))
		wantEvents(t, events, "vault: call fetch", "vault: call adk_request_credential")
		id := events[1].Content.Parts[0].FunctionCall.ID
		if way == "/resume" {
			s.Do("POST", way, fmt.Sprintf(`{"traceId":"s","promptId":%q,"response":%q}`, id, secret)).Want(200)
		} else {
			s.Do("POST", way, answerBody("vault", id, "adk_request_credential", `{"nothing":"here"}`)).Problem(422, "answer")
			s.Do("POST", way, answerBody("vault", id, "adk_request_credential", `{"exchangedAuthCredential":{"authType":"OAUTH2","oauth2":{"accessToken":"`+secret+`"}}}`)).Want(200)
		}
		run, err := s.Runtime.WaitEnd(t.Context(), "s", "")
		if err != nil || run.Status != perdure.Succeeded {
			t.Fatalf("%s: the run is %+v, %v", way, run, err)
		}
		for _, e := range servertest.All(t, s.Runtime.Events(t.Context(), "s", perdure.EventOptions{Replay: true})) {
			if strings.Contains(fmt.Sprintf("%s %s %s", e.Value, e.Reason, e.Error), secret) {
				t.Errorf("%s: the secret is in event %d", way, e.Seq)
			}
		}
		if r := s.Do("GET", "/apps/vault/users/u/sessions/s", "").Want(200); strings.Contains(string(r.Body), secret) {
			t.Errorf("%s: the session shows the secret", way)
		}
	}
}

var errOtherSecret = errors.New("another secret")
