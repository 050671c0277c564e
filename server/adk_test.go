package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/script"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store/memstore"
)

// adkCount counts what tools did, in all lives of a test.
type adkCount struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *adkCount) add(what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[what]++
	return c.n[what]
}

func (c *adkCount) of(what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[what]
}

type adkOrder struct {
	ID     string `json:"id"`
	Amount int    `json:"amount,omitempty"`
}

// adkClerk is an agent that refunds an order after approval.
func adkClerk(n *adkCount, opts ...agent.ToolOption) perdure.Flow {
	refund := agent.NewTool("refund", "Refunds an order.", func(_ context.Context, o adkOrder) (string, error) {
		n.add("refund")
		return fmt.Sprintf("refunded %s with %d", o.ID, o.Amount), nil
	}, append([]agent.ToolOption{agent.NeedsApproval()}, opts...)...)
	model := script.New(
		script.Reply{Text: "I look at it.", Calls: []llm.Call{{Name: "refund", Args: `{"id":"A-1","amount":7}`}}, Chunks: 3},
		script.Reply{Text: "It is done, thank you.", Chunks: 4})
	return agent.NewFlow("clerk", agent.New("clerk", model, agent.Options{Tools: []agent.Tool{refund}}))
}

// adkNote is an event as a client reads it.
type adkNote struct {
	ID, InvocationID, Author string
	Timestamp                float64
	Partial, TurnComplete    bool
	LongRunningToolIDs       []string
	ErrorCode, ErrorMessage  string
	Content                  *struct {
		Role  string
		Parts []struct {
			Text         string
			FunctionCall *struct {
				ID, Name string
				Args     json.RawMessage
			}
			FunctionResponse *struct {
				ID, Name string
				Response json.RawMessage
			}
		}
	}
}

// adkShort shows events in a line each.
func adkShort(events []adkNote) string {
	var lines []string
	for _, e := range events {
		line := e.Author + ":"
		if e.Partial {
			line += " partial"
		}
		if e.Content != nil {
			for _, p := range e.Content.Parts {
				switch {
				case p.FunctionCall != nil:
					line += " call " + p.FunctionCall.Name
				case p.FunctionResponse != nil:
					line += fmt.Sprintf(" response %s %s", p.FunctionResponse.Name, p.FunctionResponse.Response)
				default:
					line += " " + p.Text
				}
			}
		}
		if e.ErrorCode != "" {
			line += " error " + e.ErrorCode
		}
		if e.TurnComplete {
			line += " end"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func adkWant(t testing.TB, events []adkNote, want ...string) {
	t.Helper()
	if got := adkShort(events); got != strings.Join(want, "\n") {
		t.Fatalf("the events are\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

// adkSession makes a session.
func (s *site) adkSession(app, user, id string) {
	s.t.Helper()
	s.do("POST", "/apps/"+app+"/users/"+user+"/sessions", `{"sessionId":"`+id+`"}`).want(200)
}

// adkRun posts to /run.
func (s *site) adkRun(body string) []adkNote {
	s.t.Helper()
	var events []adkNote
	s.do("POST", "/run", body).want(200, &events)
	return events
}

// adkSSE posts to /run_sse and returns the events, the ids of their blocks, and
// the bytes of their data.
func (s *site) adkSSE(body string, headers ...string) (events []adkNote, ids, data []string) {
	s.t.Helper()
	r := s.do("POST", "/run_sse", body, append(headers, "Accept", "text/event-stream")...).want(200)
	return adkStream(s.t, r)
}

func adkStream(t testing.TB, r *reply) (events []adkNote, ids, data []string) {
	t.Helper()
	if got := r.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Fatalf("the answer is %s", got)
	}
	id := ""
	lines := bufio.NewScanner(strings.NewReader(string(r.Body)))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if line == "" {
			id = ""
		}
		if text, ok := strings.CutPrefix(line, "id: "); ok {
			id = text
		}
		if text, ok := strings.CutPrefix(line, "data: "); ok {
			var e adkNote
			if err := json.Unmarshal([]byte(text), &e); err != nil {
				t.Fatalf("%v in %s", err, text)
			}
			events, ids, data = append(events, e), append(ids, id), append(data, text)
		}
	}
	return events, ids, data
}

// answers returns the decisions and values that people gave in all threads.
func (s *site) answers() (all []string) {
	s.t.Helper()
	for sum, err := range s.rt.List(s.t.Context(), perdure.ListOptions{}) {
		if err != nil {
			s.t.Fatal(err)
		}
		for e, err := range s.rt.Events(s.t.Context(), sum.ID, perdure.EventOptions{Replay: true}) {
			if err != nil {
				s.t.Fatal(err)
			}
			if e.Kind == "answered" {
				all = append(all, strings.TrimSpace(e.Decision+" "+string(e.Value)))
			}
		}
	}
	return all
}

// adkBody is the body of a run with a text.
func adkBody(app, text string) string {
	return fmt.Sprintf(`{"appName":%q,"userId":"u","sessionId":"s","newMessage":{"role":"user","parts":[{"text":%q}]}}`, app, text)
}

// adkAnswerBody is the body of a run that responds to a call.
func adkAnswerBody(app, id, name, response string) string {
	return fmt.Sprintf(`{"appName":%q,"userId":"u","sessionId":"s","newMessage":{"role":"user","parts":[{"functionResponse":{"id":%q,"name":%q,"response":%s}}]}}`, app, id, name, response)
}

func TestADKAppsAndVersion(t *testing.T) {
	s := newSite(t, server.Options{Version: "9.9"}, adkClerk(new(adkCount)))
	if got := string(s.do("GET", "/list-apps?relative_path=./", "").want(200).Body); got != `["clerk"]` {
		t.Errorf("the apps are %s", got)
	}
	var detailed struct {
		Apps []struct{ Name, RootAgentName, Language string }
	}
	s.do("GET", "/list-apps?detailed=true", "").want(200, &detailed)
	if len(detailed.Apps) != 1 || detailed.Apps[0].RootAgentName != "clerk" {
		t.Errorf("in detail they are %v", detailed)
	}
	var version map[string]string
	s.do("GET", "/version", "").want(200, &version)
	if version["version"] != "9.9" || version["language"] != "go" {
		t.Errorf("the version is %v", version)
	}
	s.do("GET", "/health", "").want(200)
	s.do("GET", "/apps/clerk/app-info", "").want(200)
	s.do("GET", "/apps/none/app-info", "").problem(404, "not-found")
}

func TestADKSessions(t *testing.T) {
	s := newSite(t, server.Options{}, adkClerk(new(adkCount)), perdure.NewFlow("other", func(_ context.Context, in string) (string, error) { return in, nil }))
	const all = "/apps/clerk/users/u/sessions"
	var made struct {
		ID, AppName, UserID string
		State               map[string]any
		Events              []any
		LastUpdateTime      float64
	}
	s.do("POST", all, `{"state":{"tone":"kind","__session_metadata__":{"displayName":"hi there"}}}`).want(200, &made)
	if made.ID == "" || made.AppName != "clerk" || made.UserID != "u" || made.State["tone"] != "kind" || made.Events == nil || made.LastUpdateTime < 1e9 {
		t.Fatalf("made %+v", made)
	}
	if thread, err := s.rt.Get(t.Context(), made.ID); err != nil || thread.Title != "hi there" {
		t.Errorf("the thread is %+v, %v", thread, err)
	}
	s.do("POST", all, "").want(200)
	s.do("POST", all, `{"session_id":"s","unknown":[1]}`).want(200)
	s.do("POST", all, `{"sessionId":"s"}`).problem(409, "exists")
	s.do("POST", all+"/deprecated", `{"key":1}`).want(200, &made)
	if made.ID != "deprecated" || made.State["key"] != 1.0 {
		t.Errorf("made %+v", made)
	}
	s.do("POST", all+"/deprecated", "").problem(409, "exists")
	s.do("POST", all, `{"events":[{"id":"x"}]}`).problem(422, "unsupported")
	s.do("POST", all, `{"state":{"agent.messages":[]}}`).problem(400, "invalid")
	s.do("POST", "/apps/none/users/u/sessions", "").problem(404, "not-found")

	var list []struct{ ID string }
	s.do("GET", all, "").want(200, &list)
	if len(list) != 4 {
		t.Errorf("there are %d sessions", len(list))
	}
	for _, elsewhere := range []string{"/apps/clerk/users/eve/sessions", "/apps/other/users/u/sessions"} {
		if got := string(s.do("GET", elsewhere, "").want(200).Body); got != "[]" {
			t.Errorf("%s has %s", elsewhere, got)
		}
		s.do("GET", elsewhere+"/s", "").problem(404, "no-thread")
		s.do("DELETE", elsewhere+"/s", "").problem(404, "no-thread")
	}
	s.do("POST", "/run", strings.Replace(adkBody("clerk", "x"), `"u"`, `"eve"`, 1)).problem(404, "no-thread")
	s.do("POST", "/run", adkBody("other", "x")).problem(404, "no-thread")
	if got := string(s.do("DELETE", all+"/s", "").want(200).Body); got != "null" {
		t.Errorf("the answer to DELETE is %q", got)
	}
	s.do("GET", all+"/s", "").problem(404, "no-thread")
	s.do("POST", "/run_sse", strings.Replace(adkBody("clerk", "x"), `"s"`, `"nowhere"`, 1)).problem(404, "no-thread")
}

func TestADKRunsWithApprovalByFunctionResponse(t *testing.T) {
	for name, test := range map[string]struct {
		response string
		tail     []string
		refunds  int
	}{
		"confirmed": {`{"confirmed":true}`, []string{
			`clerk: response refund {"result":"refunded A-1 with 7"}`, `clerk: It is done, thank you.`, `clerk: end`}, 1},
		"edited": {`{"confirmed":true,"payload":{"id":"A-2","amount":1}}`, []string{
			`clerk: response refund {"result":"refunded A-2 with 1"}`, `clerk: It is done, thank you.`, `clerk: end`}, 1},
		"as ADK Web wraps it": {`{"response":"{\"confirmed\": true}"}`, []string{
			`clerk: response refund {"result":"refunded A-1 with 7"}`, `clerk: It is done, thank you.`, `clerk: end`}, 1},
		"rejected": {`{"confirmed":false,"hint":"too much"}`, []string{
			`clerk: response refund {"error":"The call was rejected by local and was not made: too much\nDo not make the same call again."}`, `clerk: It is done, thank you.`, `clerk: end`}, 0},
		"answered in its place": {`{"decision":"respond","value":"later"}`, []string{
			`clerk: response refund {"result":"later"}`, `clerk: It is done, thank you.`, `clerk: end`}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			n := new(adkCount)
			s := newSite(t, server.Options{}, adkClerk(n))
			s.adkSession("clerk", "u", "s")
			events := s.adkRun(adkBody("clerk", "refund A-1"))
			adkWant(t, events, "clerk: I look at it. call refund", "clerk: call adk_request_confirmation")
			ask := events[1].Content.Parts[0].FunctionCall
			if len(events[1].LongRunningToolIDs) != 1 || events[1].LongRunningToolIDs[0] != ask.ID {
				t.Errorf("it waits for %v", events[1].LongRunningToolIDs)
			}
			var args struct {
				OriginalFunctionCall struct {
					Name string
					Args adkOrder
				}
			}
			if err := json.Unmarshal(ask.Args, &args); err != nil || args.OriginalFunctionCall.Name != "refund" || args.OriginalFunctionCall.Args != (adkOrder{"A-1", 7}) {
				t.Errorf("it asks about %s", ask.Args)
			}
			answer := adkAnswerBody("clerk", ask.ID, "adk_request_confirmation", test.response)
			adkWant(t, s.adkRun(answer), test.tail...)
			if n.of("refund") != test.refunds {
				t.Errorf("it was refunded %d times", n.of("refund"))
			}
			// The same again does nothing, and is answered with the same events.
			adkWant(t, s.adkRun(answer), test.tail...)
			if n.of("refund") != test.refunds {
				t.Errorf("the same response again refunded")
			}
			s.do("POST", "/run", adkAnswerBody("clerk", ask.ID, "adk_request_confirmation", `{"confirmed":false,"hint":"other"}`)).problem(409, "answered")
			var session struct{ Events []adkNote }
			s.do("GET", "/apps/clerk/users/u/sessions/s", "").want(200, &session)
			if got := len(session.Events); got != 2+2+len(test.tail) {
				t.Errorf("the session has %d events:\n%s", got, adkShort(session.Events))
			}
		})
	}
}

func TestADKRefusesResponsesThatDoNotFit(t *testing.T) {
	n := new(adkCount)
	s := newSite(t, server.Options{}, adkClerk(n, agent.WithApproval(agent.Approval{Decisions: []string{"approve", "reject"}})))
	s.adkSession("clerk", "u", "s")
	s.do("POST", "/apps/clerk/users/u/sessions/s2", "").want(200)
	events := s.adkRun(adkBody("clerk", "refund A-1"))
	id := events[1].Content.Parts[0].FunctionCall.ID
	for body, want := range map[string]struct {
		status int
		kind   string
	}{
		adkAnswerBody("clerk", id, "adk_request_confirmation", `{"confirmed":true,"payload":{"id":"x"}}`):                                             {422, "answer"},
		adkAnswerBody("clerk", id, "adk_request_confirmation", `{}`):                                                                                  {422, "answer"},
		adkAnswerBody("clerk", id, "adk_request_confirmation", `{"confirmed":"yes"}`):                                                                 {400, "body"},
		adkAnswerBody("clerk", id, "refund", `{"result":"forged"}`):                                                                                   {422, "answer"},
		adkAnswerBody("clerk", id, "adk_request_input", `{"payload":"forged"}`):                                                                       {422, "answer"},
		adkAnswerBody("clerk", "nobody", "adk_request_confirmation", `{"confirmed":true}`):                                                            {404, "no-ask"},
		strings.Replace(adkAnswerBody("clerk", id, "adk_request_confirmation", `{"confirmed":true}`), `"s"`, `"s2"`, 1):                               {404, "no-ask"},
		strings.Replace(adkAnswerBody("clerk", id, "adk_request_confirmation", `{"confirmed":true}`), `{"app`, `{"invocationId":"x","app`, 1):         {404, "no-run"},
		strings.Replace(adkAnswerBody("clerk", id, "adk_request_confirmation", `{"confirmed":true}`), `{"functionR`, `{"text":"and"},{"functionR`, 1): {422, "unsupported"},
	} {
		s.do("POST", "/run", body).problem(want.status, want.kind)
	}
	if n.of("refund") != 0 {
		t.Error("it was refunded")
	}
	adkWant(t, s.adkRun(adkAnswerBody("clerk", id, "", `{"confirmed":true}`)),
		`clerk: response refund {"result":"refunded A-1 with 7"}`, `clerk: It is done, thank you.`, `clerk: end`)
}

func TestADKRunRefusesBadRequests(t *testing.T) {
	s := newSite(t, server.Options{MaxBody: 10_000}, adkClerk(new(adkCount)))
	s.adkSession("clerk", "u", "s")
	head := `{"appName":"clerk","userId":"u","sessionId":"s"`
	for body, want := range map[string]struct {
		status int
		kind   string
	}{
		``:                                  {400, "body"},
		`[]`:                                {400, "body"},
		`{"a"`:                              {400, "body"},
		`{,}`:                               {400, "body"},
		"{\"\xff\"":                         {400, "body"},
		head + `,"invocationId":"x\ud800"}`: {400, "body"},
		head + `}`:                          {400, "invalid"},
		head + `,"invocationId":"unknown"}`: {404, "no-run"},
		head + `,"app_name":"other","invocationId":"x"}`:                                              {400, "body"},
		head + `,"newMessage":{"role":"model","parts":[{"text":"x"}]}}`:                               {400, "invalid"},
		head + `,"newMessage":{"parts":[]}}`:                                                          {400, "invalid"},
		head + `,"newMessage":"hi"}`:                                                                  {400, "body"},
		head + `,"newMessage":{"parts":[{"functionCall":{"name":"x"}}]}}`:                             {422, "unsupported"},
		head + `,"newMessage":{"parts":[{"inlineData":{"data":"!"}}]}}`:                               {400, "body"},
		head + `,"newMessage":{"parts":[{"text":"x"}]},"stateDelta":{"a":1}}`:                         {422, "unsupported"},
		head + `,"newMessage":{"parts":[{"text":"x"}]},"invocationId":"i"}`:                           {422, "unsupported"},
		head + `,"x":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `,"invocationId":"i"}`: {400, "body"},
		head + `,"x":"` + strings.Repeat("x", 20_000) + `"}`:                                          {413, "body-too-large"},
	} {
		for _, path := range []string{"/run", "/run_sse"} {
			s.do("POST", path, body).problem(want.status, want.kind)
		}
	}
	s.do("POST", "/run", adkBody("clerk", "x"), "Content-Type", "text/plain").problem(415, "media-type")
	s.do("POST", "/run_sse", adkBody("clerk", "x"), "Last-Event-ID", "garbage").problem(400, "invalid")
	s.do("POST", "/run_sse", adkBody("clerk", "x"), "Last-Event-ID", "900").problem(400, "ahead")
	thread, err := s.rt.Get(t.Context(), "s")
	if err != nil || len(thread.Runs) != 0 {
		t.Errorf("the thread is %+v, %v", thread, err)
	}
}

// Both spellings of each member, and members that are not known, are taken.
func TestADKTakesBothSpellings(t *testing.T) {
	s := newSite(t, server.Options{}, perdure.NewFlow("echo", func(_ context.Context, in string) (string, error) { return "echo " + in, nil }))
	s.adkSession("echo", "u", "s")
	adkWant(t, s.adkRun(`{"app_name":"echo","user_id":"u","session_id":"s","new_message":{"role":"user","parts":[{"text":"a"}]},"custom_metadata":{"x":1}}`), "echo: echo a end")
	adkWant(t, s.adkRun(`{"appName":"echo","userId":"u","sessionId":"s","newMessage":{"parts":[{"text":"b"},{"text":"c",}],},"functionCallEventId":null,}`), "echo: echo b\nc end")
}

func TestADKShowsWhatFails(t *testing.T) {
	s := newSite(t, server.Options{}, perdure.NewFlow("fail", func(context.Context, string) (string, error) { return "", fmt.Errorf("no luck") }))
	s.adkSession("fail", "u", "s")
	events := s.adkRun(adkBody("fail", "x"))
	adkWant(t, events, "fail: error FAILED end")
	if !strings.Contains(events[0].ErrorMessage, "no luck") {
		t.Errorf("the message is %q", events[0].ErrorMessage)
	}
}

// The server's stop does not cancel a run, and a run that is followed by no one
// goes on.
func TestADKStopEndsTheAnswerAndNotTheRun(t *testing.T) {
	gate := make(chan struct{})
	s := newSiteOn(t, memstore.New(), server.Options{}, perdure.NewFlow("slow", func(ctx context.Context, in string) (string, error) {
		return perdure.Step(ctx, "wait", func(ctx context.Context) (string, error) {
			select {
			case <-gate:
				return in, nil
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
		})
	}))
	s.adkSession("slow", "u", "s")
	// The client goes away when its run has started.
	ctx, cancel := context.WithCancel(t.Context())
	r, _ := http.NewRequestWithContext(ctx, "POST", s.url+"/run_sse", strings.NewReader(adkBody("slow", "x")))
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if got := resp.Header.Get("X-Agentkit-Trace-Id"); got != "s" {
		t.Errorf("the trace id is %q", got)
	}
	cancel()
	resp.Body.Close()
	go func() {
		n := 0
		for e, err := range s.rt.Events(context.WithoutCancel(ctx), "s", perdure.EventOptions{}) {
			if e.Kind == "queued" {
				n++
			}
			if err != nil || n == 2 {
				break
			}
		}
		s.api.Close()
	}()
	s.do("POST", "/run", adkBody("slow", "y")).problem(503, "stopping")
	s.do("POST", "/run_sse", adkBody("slow", "z")).problem(503, "stopping")
	s.do("POST", "/run", adkBody("slow", "z")).problem(503, "stopping")
	close(gate)
	for _, run := range []string{"", ""} {
		done, err := s.rt.WaitEnd(t.Context(), "s", run)
		if err != nil || done.Status != perdure.Succeeded {
			t.Fatalf("the run is %+v, %v", done, err)
		}
	}
	if thread, _ := s.rt.Get(t.Context(), "s"); len(thread.Runs) != 2 {
		t.Errorf("there are %d runs, and the last requests were refused before they started one", len(thread.Runs))
	}
}
