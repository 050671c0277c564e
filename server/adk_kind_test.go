package server_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
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
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/script"
	"github.com/perdure/perdure/server"
)

// adkVault is an agent with a tool that needs a secret.
func adkVault(t *testing.T, secret string) perdure.Flow {
	fetch := agent.NewTool("fetch", "Fetches.", func(ctx context.Context, _ struct{}) (string, error) {
		got, err := credentials.Secret(ctx, "login")
		if err == nil && got != secret {
			err = errResumeSecret
		}
		return "fetched", err
	}, agent.Needs(agent.Credential{Name: "login", Prompt: "Log in, please."}))
	model := script.New(script.Call("fetch", "{}"), script.Say("done"))
	return agent.NewFlow("vault", agent.New("vault", model, agent.Options{Tools: []agent.Tool{fetch}}))
}

// A long-running tool's result is posted under the id of its ask, or under that
// of the call as the model made it.
func TestADKLongRunningToolGetsItsResultLater(t *testing.T) {
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
			mail := agent.NewTool("mail", "Mails.", func(context.Context, adkOrder) (string, error) { return "", agent.Pending("job-1") })
			model := script.New(script.Reply{Calls: []llm.Call{{ID: "call-7", Name: "mail", Args: `{"id":"1"}`}}}, script.Say("done"))
			s := newSite(t, server.Options{}, agent.NewFlow("clerk", agent.New("clerk", model, agent.Options{Tools: []agent.Tool{mail}})))
			s.adkSession("clerk", "u", "s")
			events := s.adkRun(adkBody("clerk", "x"))
			adkWant(t, events, "clerk: call mail", "clerk: call adk_request_input")
			id := events[1].LongRunningToolIDs[0]
			if test.byCall {
				id = "call-7"
			}
			adkWant(t, s.adkRun(adkAnswerBody("clerk", id, "mail", test.response)), test.want, "clerk: done", "clerk: end")
		})
	}
}

// A response is taken as it is, but for what clients put around a value: nothing
// else in it is lost.
func TestADKAsksForInput(t *testing.T) {
	type verdict struct {
		Result string `json:"result"`
		Score  int    `json:"score,omitempty"`
	}
	flows := []perdure.Flow{adkAsker[string]("text"), adkAsker[int]("number"), adkAsker[any]("any"), adkAsker[verdict]("verdict"), adkAsker[bool]("yes")}
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
		s.adkSession(test.flow, "u", "s")
		events := s.adkRun(adkBody(test.flow, "x"))
		adkWant(t, events, test.flow+": call adk_request_input")
		call := events[0].Content.Parts[0].FunctionCall
		if got := string(call.Args); got != fmt.Sprintf(`{"interruptId":%q,"message":"Which one?","payload":["red","blue"]}`, call.ID) {
			t.Errorf("it asks %s", got)
		}
		name := "adk_request_input"
		if strings.Contains(test.response, "confirmed") {
			name = "adk_request_confirmation"
		}
		answer := s.do("POST", "/run", adkAnswerBody(test.flow, call.ID, name, test.response))
		if test.want == "" {
			answer.problem(422, "answer")
			continue
		}
		answer.want(200)
		run, err := s.rt.Wait(t.Context(), "s", "")
		if err != nil || string(run.Output) != test.want {
			t.Errorf("%s to %s is taken as %s, %v; want %s", test.response, test.flow, run.Output, err, test.want)
		}
	}
}

// adkAsker is a flow whose output is what it is answered.
func adkAsker[T any](name string) perdure.Flow {
	return perdure.NewFlow(name, func(ctx context.Context, _ string) (T, error) {
		return perdure.Ask[T](ctx, "which", perdure.Question{Prompt: "Which one?", Data: []string{"red", "blue"}})
	})
}

// A confirmation with the arguments as they were shown is no edit; one that would
// lose something is refused.
func TestADKConfirmationWithAPayload(t *testing.T) {
	for response, want := range map[string]string{
		`{"confirmed":true}`: "approve", `{"confirmed":true,"payload":{"id":"A-1", "amount":7.0}}`: "approve",
		`{"confirmed":false,"payload":{"amount":7,"id":"A-1"}}`: "reject", `{"confirmed":true,"payload":{"id":"A-1","amount":8}}`: "edit",
		`{"confirmed":true,"payload":{}}`: "", `{"decision":"approve","message":""}`: "approve",
		`{"decision":"approve","payload":{"id":"A-1","amount":8}}`: "", `{"decision":"approve","message":5}`: "",
	} {
		s := newSite(t, server.Options{}, adkClerk(new(adkCount)))
		s.adkSession("clerk", "u", "s")
		id := s.adkRun(adkBody("clerk", "x"))[1].LongRunningToolIDs[0]
		answer := s.do("POST", "/run", adkAnswerBody("clerk", id, "adk_request_confirmation", response))
		if want == "" && answer.Status/100 == 4 {
			continue
		}
		if got := strings.Fields(strings.Join(s.answers(), " ") + " none")[0]; got != want {
			t.Errorf("%s is recorded as %s, want %s; %s", response, got, want, answer.Body)
		}
	}
}

// Several calls of one message are confirmed in one request, all or none.
func TestADKConfirmsSeveralCallsTogether(t *testing.T) {
	n := new(adkCount)
	refund := agent.NewTool("refund", "Refunds.", func(_ context.Context, o adkOrder) (string, error) {
		n.add(o.ID)
		return "ok", nil
	}, agent.NeedsApproval())
	model := script.New(script.Reply{Calls: []llm.Call{{Name: "refund", Args: `{"id":"1"}`}, {Name: "refund", Args: `{"id":"2"}`}}}, script.Say("done"))
	s := newSite(t, server.Options{}, agent.NewFlow("clerk", agent.New("clerk", model, agent.Options{Tools: []agent.Tool{refund}})))
	s.adkSession("clerk", "u", "s")
	events := s.adkRun(adkBody("clerk", "x"))
	adkWant(t, events, "clerk: call refund call refund", "clerk: call adk_request_confirmation", "clerk: call adk_request_confirmation")
	part := func(id, confirmed string) string {
		return fmt.Sprintf(`{"functionResponse":{"id":%q,"name":"adk_request_confirmation","response":{"confirmed":%s}}}`, id, confirmed)
	}
	send := func(parts ...string) *reply {
		return s.do("POST", "/run", `{"appName":"clerk","userId":"u","sessionId":"s","newMessage":{"role":"user","parts":[`+strings.Join(parts, ",")+`]}}`)
	}
	one, two := events[1].LongRunningToolIDs[0], events[2].LongRunningToolIDs[0]
	send(part(one, "true"), part("none", "true")).problem(404, "no-ask")
	if thread, _ := s.rt.Get(t.Context(), "s"); len(thread.Runs[0].Asks) != 2 {
		t.Fatalf("%d asks are open", len(thread.Runs[0].Asks))
	}
	var done []adkNote
	send(part(one, "true"), part(two, "false")).want(200, &done)
	if got := adkShort(done); !strings.HasSuffix(got, "clerk: done\nclerk: end") || n.of("1")+n.of("2") != 1 {
		t.Errorf("%v, and\n%s", n.n, got)
	}
}

// A conversation goes on while another invocation of the session waits.
func TestADKNewMessageBesideAnInvocationThatWaits(t *testing.T) {
	s := newSite(t, server.Options{}, adkClerk(new(adkCount)))
	s.adkSession("clerk", "u", "s")
	first := s.adkRun(adkBody("clerk", "one"))
	second := s.adkRun(adkBody("clerk", "two"))
	if len(second) == 0 || second[0].InvocationID == first[0].InvocationID {
		t.Fatalf("the second message came to\n%s", adkShort(second))
	}
	adkWant(t, s.adkRun(adkAnswerBody("clerk", first[1].LongRunningToolIDs[0], "adk_request_confirmation", `{"confirmed":true}`)),
		`clerk: response refund {"result":"refunded A-1 with 7"}`, "clerk: It is done, thank you.", "clerk: end")
}

func TestADKSequentialAgentsAndMedia(t *testing.T) {
	shown := make(chan []llm.Part, 1)
	look := llm.ModelFunc(func(_ context.Context, r *llm.Request) iter.Seq2[llm.Delta, error] {
		return func(yield func(llm.Delta, error) bool) {
			shown <- r.Messages[0].Parts
			_ = yield(llm.Delta{Text: "I see"}, nil) && yield(llm.Delta{Stop: llm.StopEnd}, nil)
		}
	})
	all := agent.Sequential("all", agent.New("looker", look, agent.Options{}), agent.New("writer", script.New(script.Say("I wrote")), agent.Options{History: agent.HistoryNone}))
	s := newSite(t, server.Options{}, agent.NewFlow("all", all))
	s.adkSession("all", "u", "s")
	png := "\x89PNG picture"
	body := fmt.Sprintf(`{"appName":"all","userId":"u","sessionId":"s","newMessage":{"role":"user","parts":[{"text":"look"},{"inline_data":{"mime_type":"image/png","data":%q}}]}}`,
		base64.URLEncoding.EncodeToString([]byte(png)))
	adkWant(t, s.adkRun(body), "looker: I see", "writer: I wrote", "all: end")
	seen := <-shown
	if len(seen) != 2 || seen[0].Text != "look" || seen[1].Media == nil || string(seen[1].Media.Data) != png || seen[1].Media.MIME != "image/png" {
		t.Errorf("the model was shown %+v", seen)
	}
}

// With streaming a reply arrives in pieces first, and then whole. The pieces are
// of one attempt: a client puts all of them together.
func TestADKStreamsPiecesAndThenTheWhole(t *testing.T) {
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
	s.adkSession("singer", "u", "s")
	r, err := http.Post(s.url+"/run_sse", "application/json", strings.NewReader(strings.Replace(adkBody("singer", "x"), `{"app`, `{"streaming":true,"app`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	lines := bufio.NewScanner(r.Body)
	lines.Buffer(nil, 16<<20)
	partial, whole, id := 0, 0, ""
	for lines.Scan() {
		line := lines.Text()
		switch {
		case line == "":
			id = ""
		case strings.HasPrefix(line, "id: "):
			id = line
		case strings.Contains(line, `"partial":true`):
			if id != "" || !strings.Contains(line, `"author":"voice"`) || !strings.Contains(line, `{"text":"la "}`) || whole > 0 {
				t.Fatalf("%q with %q after %d whole ones", line, id, whole)
			}
			if partial++; partial == 1 {
				close(heard)
			}
		case strings.HasPrefix(line, "data: ") && strings.Contains(line, `"role":"model"`):
			whole++
		}
	}
	if partial == 0 || whole != 1 {
		t.Errorf("%d pieces and %d whole ones", partial, whole)
	}
}

// Faces need the scopes that operations need, and see one tenant.
func TestADKScopesAndTenants(t *testing.T) {
	n := new(adkCount)
	s := newSite(t, server.Options{Auth: adkTokens{
		"full":   {Tenant: "a", Subject: "ann", Scopes: []api.Scope{api.ScopeRead, api.ScopeRun, api.ScopeAnswer}},
		"runner": {Tenant: "a", Subject: "bob", Scopes: []api.Scope{api.ScopeRun}},
		"other":  {Tenant: "b", Subject: "eve", Scopes: []api.Scope{api.ScopeAdmin}},
	}}, adkClerk(n, agent.WithApproval(agent.Approval{Who: []string{"ann"}})))
	s.token = "full"
	s.adkSession("clerk", "u", "s")
	events := s.adkRun(adkBody("clerk", "x"))
	id := events[1].LongRunningToolIDs[0]
	answer := adkAnswerBody("clerk", id, "adk_request_confirmation", `{"confirmed":true}`)
	resume := fmt.Sprintf(`{"traceId":"s","promptId":%q,"response":"approve"}`, id)
	s.do("DELETE", "/apps/clerk/users/u/sessions/s", "").problem(403, "scope")
	s.token = "runner"
	s.do("POST", "/run", answer).problem(403, "scope")
	s.do("POST", "/resume", resume).problem(403, "scope")
	s.do("GET", "/apps/clerk/users/u/sessions/s", "").problem(403, "scope")
	s.do("POST", "/run", adkBody("clerk", "x"), "Last-Event-ID", "0").problem(403, "scope")
	s.do("POST", "/run_sse", adkBody("clerk", "x"), "Last-Event-ID", "0").problem(403, "scope")
	s.token = "other"
	s.do("POST", "/run", answer).problem(404, "no-thread")
	s.do("POST", "/resume", resume).problem(404, "no-ask")
	s.do("POST", "/resume", fmt.Sprintf(`{"traceId":%q,"promptId":"approve","response":"approve"}`, events[0].InvocationID)).problem(404, "no-ask")
	s.do("GET", "/apps/clerk/users/u/sessions/s", "").problem(404, "no-thread")
	if got := string(s.do("GET", "/apps/clerk/users/u/sessions", "").want(200).Body); got != "[]" {
		t.Errorf("another tenant sees %s", got)
	}
	s.token = ""
	s.do("POST", "/run_sse", answer).problem(401, "unauthorized")
	s.token = "full"
	if s.do("POST", "/run", answer).want(200); n.of("refund") != 1 {
		t.Errorf("it was refunded %d times", n.of("refund"))
	}
	ask, err := s.rt.Tenant("a").GetAsk(t.Context(), id)
	if err != nil || ask.Answer == nil || ask.Answer.By != "ann" {
		t.Errorf("the ask is %+v, %v", ask, err)
	}
}

type adkTokens map[string]server.Principal

// Authenticate implements server.Authenticator.
func (a adkTokens) Authenticate(_ context.Context, token string) (*server.Principal, error) {
	if p, ok := a[token]; ok {
		return &p, nil
	}
	return nil, api.ErrUnauthorized
}

// A session with an id is made of a request or of the bare state, as clients of
// different versions send it.
func TestADKCreatesOfARequestOrOfAState(t *testing.T) {
	s := newSite(t, server.Options{}, adkClerk(new(adkCount)))
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
		s.do("POST", fmt.Sprint("/apps/clerk/users/u/sessions/s", i), c.body).want(200, &got)
		if string(got.State) != c.want {
			t.Errorf("%s makes the state %s, want %s", c.body, got.State, c.want)
		}
	}
	s.do("POST", "/apps/clerk/users/u/sessions/no", `{"events":[{"author":"user"}]}`).problem(422, "unsupported")
}
