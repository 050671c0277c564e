package mcpface_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/server/mcpface"
)

// echo returns what it is given.
var echo = perdure.NewFlow("echo", func(_ context.Context, in string) (string, error) { return in, nil })

// A call that cannot be is a result that says why, whatever is wrong with it.
func TestWrongCallsAreToldWhy(t *testing.T) {
	s := newSite(t, false, asker, buy)
	s.Begin("t1", "asker", "x")
	servertest.Must(s.Runtime.Wait(t.Context(), "t1", ""))(t)
	a := s.connect("")
	giant := strings.Repeat("x", 100<<10)
	for _, test := range []struct {
		kind, name string
		args       any
	}{
		{"invalid", "threads_get", args{}},
		{"invalid", "threads_get", args{"thread": 7}},
		{"invalid", "threads_get", args{"thread": "t1", "runs": "many"}},
		{"invalid", "threads_get", args{"thread": "t1", "runs": -1}},
		{"invalid", "threads_get", args{"thread": "t1", "runs": 1.5}},
		{"invalid", "threads_get", args{"thread": "t1", "Thread": "t1"}},
		{"invalid", "threads_get", args{"thread": "t1", "cursor": "7"}},
		{"stale", "threads_get", args{"thread": "t1", "cursor": "7-abcdefabcdef"}},
		{"invalid", "threads_get", args{"thread": giant}},
		{"invalid", "threads_list", args{"metadata": []string{giant}}},
		{"invalid", "threads_list", args{"metadata": "k=v"}},
		{"invalid", "threads_list", args{"updated": "yesterday"}},
		{"no-thread", "threads_get", args{"thread": strings.Repeat("x", 150)}},
		{"no-thread", "threads_get", args{"thread": "../../v1/tokens"}},
		{"no-thread", "threads_get", args{"thread": ".."}},
		{"no-run", "runs_get", args{"thread": "t1", "run": "a/b?c#d"}},
		{"invalid", "runs_wait", args{"thread": "t1", "seconds": 100000}},
		{"invalid", "runs_wait", args{"thread": "t1", "seconds": 0}},
		{"invalid", "events_follow", args{"thread": "t1", "seconds": 100000}},
		{"invalid", "events_follow", args{"thread": "t1", "limit": 0}},
		{"invalid", "events_follow", args{"thread": "t1", "after": "nowhere"}},
		{"invalid", "events_follow", args{"thread": giant}},
		{"invalid", "events_follow", args{}},
		{"ahead", "events_follow", args{"thread": "t1", "after": 999}},
		{"no-thread", "events_follow", args{"thread": "never", "after": 3}},
		{"invalid", "runs_cancel", args{"thread": "t1", "if_seq": 0}},
		{"stale", "runs_cancel", args{"thread": "t1", "if_seq": 1}},
		{"invalid", "runs_new", args{"flow": "buy", "idempotency_key": ""}},
		{"invalid", "runs_new", args{"flow": "buy", "attach": []string{"x"}}},
		{"no-flow", "runs_new", args{"flow": "nothing"}},
		{"invalid", "flow_buy", args{"input": args{"item": "x"}, "idempotency_key": ""}},
		{"invalid", "flow_buy", args{"input": args{"item": "x"}, "idempotency_key": giant}},
		{"invalid", "flow_buy", args{"input": args{"item": "x"}, "flow": "asker"}},
		{"invalid", "flow_buy", args{"input": args{"item": "x", "cuont": 2}}},
		{"no-ask", "asks_answer", args{"ask": "nothing", "decision": "approve"}},
		{"not-found", "docs_read", args{"name": "../secret"}},
		{"not-found", "docs_read", args{"name": "secret.txt"}},
		{"not-found", "docs_read", args{"name": "/etc/passwd"}},
		{"invalid", "docs_read", args{"name": "guide", "offset": -1}},
		{"invalid", "docs_search", args{"query": " "}},
		{"invalid", "docs_list", args{"x": 1}},
	} {
		a.fails(test.kind, test.name, test.args)
	}
	for want, wrong := range map[string]args{
		"a string where an integer has to be":              {"thread": "t1", "runs": "many"},
		"a number -1 where an integer from 0 on has to be": {"thread": "t1", "before": -1},
	} {
		if got := text(a.try("threads_get", wrong)); !strings.Contains(got, want) {
			t.Errorf("%v: %s", wrong, got)
		}
	}
	if n := len(servertest.All(t, s.Runtime.List(t.Context(), perdure.ListOptions{}))); n != 1 {
		t.Errorf("there are %d threads", n)
	}
	for _, name := range []string{"nothing", giant, "flow_", "threads.get"} {
		_, err := a.CallTool(t.Context(), &mcp.CallToolParams{Name: name})
		if wrong, ok := errors.AsType[*jsonrpc.Error](err); !ok || wrong.Code != jsonrpc.CodeInvalidParams {
			t.Errorf("the tool %.20q is answered %v", name, err)
		}
	}
}

// What is no message of the protocol is refused without harm.
func TestWrongMessagesAreRefused(t *testing.T) {
	s := newSite(t, false, echo)
	for _, body := range []string{
		"", "{", "null", "7", `"x"`, "[]", `[{"jsonrpc":"2.0","id":1,"method":"tools/list"}]`, `{"jsonrpc":"1.0","id":1,"method":"tools/list"}`,
		`{"jsonrpc":"2.0","id":{},"method":"tools/list"}`, `{"jsonrpc":"2.0","id":1,"method":"no/such"}`, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[]}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"threads_get","arguments":[1]}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"threads_get","arguments":{"thread":"a","thread":"b"}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":7}}`, strings.Repeat("[", 100_000), "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}",
		`{"jsonrpc":"2.0","id":"` + strings.Repeat("x", 1<<20) + `","method":"no/such"}`, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"events_follow","arguments":{"thread":"` + strings.Repeat("é", 1<<19) + `"}}}`,
		strings.Repeat(" ", 5<<20),
	} {
		got := s.Do("POST", "/mcp", body, "Content-Type", "application/json", "Accept", "application/json, text/event-stream", "Mcp-Protocol-Version", "2025-11-25")
		var answer struct {
			Error  json.RawMessage
			Result struct{ IsError bool }
		}
		_ = json.Unmarshal(got.Body, &answer)
		if got.Status >= 500 || got.Status == 200 && answer.Error == nil && !answer.Result.IsError {
			t.Errorf("%.100s is answered %d %.200s", body, got.Status, got.Body)
		}
	}
	s.connect("").call("flows_list", nil, nil)
	for body, want := range map[string]string{
		`{"jsonrpc":"2.0","id":"a","method":"no/such"}`:                                          `"id":"a","error":{"code":-32601,`,
		`{"jsonrpc":"2.0","id":7,"method":"tools/call"}`:                                         `"id":7,"error":{"code":-32600,`,
		`{"jsonrpc":"2.0","id":7,"method":"initialize","params":{"protocolVersion":7}}`:          `"id":7,"error":{"code":-32602,`,
		`{"jsonrpc":"2.0","method":"no/such"}`:                                                   "urn:perdure:problem:body",
		`{"jsonrpc":"2.0","id":1.5,"method":"ping"}`:                                             "urn:perdure:problem:body",
		`{"jsonrpc":"2.0","id":1,"method":"ping","id":2}`:                                        "urn:perdure:problem:body",
		`{"jsonrpc":"2.0","id":1,"method":"ping"}{"jsonrpc":"2.0","id":2,"method":"tools/list"}`: "urn:perdure:problem:body",
	} {
		got := s.Do("POST", "/mcp", body, "Content-Type", "application/json", "Accept", "application/json, text/event-stream")
		if !strings.Contains(string(got.Body), want) {
			t.Errorf("%s is answered %d %s, want %s", body, got.Status, got.Body, want)
		}
	}
}

// On the standard input, a line that is no message is answered with an error of the
// protocol, and the next line is read.
func TestWrongLinesAreAnswered(t *testing.T) {
	s := newSite(t, false, echo)
	c := servertest.Must(client.New(s.URL, client.Options{}))(t)
	deep := strings.Repeat("[", 200_000)
	lines := []struct{ line, want string }{
		{`{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`, `"id":"init","result":`},
		{"nonsense", `"id":null,"error":{"code":-32700,`}, {"{", `"id":null,"error":{"code":-32700,`}, {"\xff\xfe", `"id":null,"error":{"code":-32700,`}, {deep, `"id":null,"error":{"code":-32700,`},
		{`{"jsonrpc":"2.0","id":1,"method":"ping"}{"jsonrpc":"2.0","id":2,"method":"ping"}`, `"id":null,"error":{"code":-32700,`},
		{`{"jsonrpc":"2.0","id":null,"method":"ping"}`, `"id":null,"error":{"code":-32600,`},
		{"[]", `"id":null,"error":{"code":-32600,`}, {"null", `"id":null,"error":{"code":-32600,`}, {"{}", `"id":null,"error":{"code":-32600,`},
		{`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, `"id":null,"error":{"code":-32600,`}, {`{"jsonrpc":"2.0","id":5}`, `"id":5,"error":{"code":-32600,`},
		{`{"jsonrpc":"1.0","id":"v","method":"ping"}`, `"id":"v","error":{"code":-32600,`}, {`{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, `"id":null,"error":{"code":-32600,`},
		{`{"jsonrpc":"2.0","id":"long","method":"ping","params":{"x":"` + strings.Repeat("x", 16<<20) + `"}}`, `"id":null,"error":{"code":-32600,`},
		{`{"jsonrpc":"2.0","id":7,"method":"ping","params":` + strings.Repeat(`{"x":`, 100) + "1" + strings.Repeat("}", 101), `"id":7,"error":{"code":-32600,`},
		{`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"flow_echo","arguments":{"input":"\ud800"}}}`, `"id":7,"result":{"_meta":{"perdure/problem":"urn:perdure:problem:invalid"}`},
		{`{"jsonrpc":"2.0","id":"list","method":"tools/list"}`, `"id":"list","result":{"ttlMs":0,"cacheScope":"private"`},
		{`{"jsonrpc":"2.0","id":6,"method":7}`, `"id":6,"error":{"code":-32600,`}, {`{"jsonrpc":"2.0","id":"none","method":"no/such"}`, `"id":"none","error":{"code":-32601,`},
		{`{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":7}}`, `"id":8,"error":{"code":-32602,`}, {"", ""}, {"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\r", ""},
		{`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"flows_list"}}`, `"id":9,"result":`},
	}
	in, write := io.Pipe()
	read, out := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- mcpface.ServeIO(t.Context(), c, in, out, mcpface.Options{}) }()
	answers := bufio.NewReader(read)
	for _, l := range lines {
		servertest.Must(io.WriteString(write, l.line+"\n"))(t)
		if l.want == "" {
			continue
		}
		if got := servertest.Must(answers.ReadString('\n'))(t); !strings.HasPrefix(got, `{"jsonrpc":"2.0",`+l.want) {
			t.Errorf("%.100s is answered %.200s, want %s", l.line, got, l.want)
		}
	}
	servertest.Check(t, write.Close())
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// With 0 seconds events_follow returns what there is, and waits for nothing.
func TestFollowWithoutWaiting(t *testing.T) {
	s := newSite(t, false, asker)
	run := s.Begin("t1", "asker", "x")
	servertest.Must(s.Runtime.Wait(t.Context(), "t1", ""))(t)
	a := s.connect("")
	type page struct {
		Events []perdure.Event
		Next   string
		Over   bool
	}
	for _, of := range []string{"", run.ID, "newest"} {
		var all, none page
		if a.call("events_follow", args{"thread": "t1", "run": of, "seconds": 0}, &all); len(all.Events) < 3 || all.Over != (of != "") {
			t.Errorf("run %q: %+v", of, all)
		}
		if a.call("events_follow", args{"thread": "t1", "run": of, "seconds": 0, "after": all.Next}, &none); len(none.Events) != 0 || none.Next != all.Next || none.Over != (of != "") {
			t.Errorf("run %q, after all: %+v", of, none)
		}
	}
}

// A long input arrives, and a long result comes in parts that can be put together.
func TestLongResultsComeInParts(t *testing.T) {
	s := newSite(t, false, echo)
	a := s.connect("")
	long := strings.Repeat("é\"\\", 1<<14)
	var h struct{ Thread, Run string }
	a.call("flow_echo", args{"input": long, "thread": "t1"}, &h)
	run := servertest.Must(s.Runtime.Wait(t.Context(), h.Thread, h.Run))(t)
	if want, _ := json.Marshal(long); string(run.Output) != string(want) {
		t.Fatalf("%d bytes became %d", len(want), len(run.Output))
	}
	whole, cursor := "", ""
	for parts := 0; ; parts++ {
		var got of[json.RawMessage]
		res := a.call("runs_get", args{"thread": "t1", "cursor": cursor}, &got)
		if whole += got.Part; len(text(res)) > 128<<10 || got.Result != nil {
			t.Fatalf("%d bytes in one answer", len(text(res)))
		}
		if cursor = got.Next; cursor == "" {
			if got.Bytes != len(whole) || parts < 2 {
				t.Errorf("%d bytes in %d parts, and it should be %d", len(whole), parts, got.Bytes)
			}
			break
		}
	}
	var again perdure.Run
	if err := json.Unmarshal([]byte(whole), &again); err != nil || string(again.Output) != string(run.Output) {
		t.Errorf("the parts are %d bytes: %v", len(whole), err)
	}
	var f struct {
		Events []perdure.Event
		Cut    []struct{ Seq uint64 }
		Over   bool
	}
	res := a.call("events_follow", args{"thread": "t1", "run": h.Run}, &f)
	if len(text(res)) > 64<<10 || len(f.Cut) < 2 || !f.Over || f.Events[0].Seq == 0 {
		t.Errorf("%d bytes: %+v", len(text(res)), f)
	}
	var cut of[any]
	if a.call("runs_resume", args{"thread": "t1"}, &cut); cut.Next != "" || cut.Part == "" || !strings.Contains(cut.Rest, "runs_get") {
		t.Errorf("%.200v", cut)
	}
	a.call("flow_echo", args{"input": strings.Repeat("x", 1<<20), "thread": "t2"}, nil)
}

// A call that its client gives up ends, and takes nothing with it: in the versions of
// the protocol in which the request is the call, and in those before.
func TestCancelledCallEnds(t *testing.T) {
	s := newSite(t, false, asker)
	run := s.Begin("t1", "asker", "x")
	servertest.Must(s.Runtime.Wait(t.Context(), "t1", ""))(t)
	a := s.connect("")
	var f struct{ Next string }
	a.call("events_follow", args{"thread": "t1"}, &f)
	streams := func(want int) {
		for {
			var stats api.Stats
			if s.Do("GET", "/v1/stats", "").Want(200, &stats); stats.Streams == want {
				return
			}
		}
	}
	wait := args{"thread": "t1", "after": f.Next, "seconds": 45}
	for name, call := range map[string]func(context.Context) error{
		"new": func(ctx context.Context) error {
			_, err := a.CallTool(ctx, &mcp.CallToolParams{Name: "events_follow", Arguments: wait})
			return err
		},
		"old": func(ctx context.Context) error {
			body, _ := json.Marshal(args{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": args{"name": "events_follow", "arguments": wait}})
			r := servertest.Must(http.NewRequestWithContext(ctx, "POST", s.URL+"/mcp", bytes.NewReader(body)))(t)
			for name, value := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": "2025-11-25"} {
				r.Header.Set(name, value)
			}
			resp, err := http.DefaultClient.Do(r)
			if err == nil {
				resp.Body.Close()
			}
			return err
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- call(ctx) }()
		streams(1)
		cancel()
		if err := <-done; err == nil {
			t.Errorf("%s: the call was answered", name)
		}
		streams(0)
	}
	if now := servertest.Must(s.Runtime.GetRun(t.Context(), "t1", run.ID))(t); now.Status != perdure.Suspended {
		t.Errorf("the run is %s", now.Status)
	}
}

// Calls with long arguments do not wait for themselves: a user has one turn for large
// requests, which the request of the protocol leaves to the one that its tool makes.
func TestLongArgumentsOfAUser(t *testing.T) {
	s := newSite(t, true, echo)
	a := s.connect(s.secret(api.CreateToken{User: "ann", Tenant: "acme"}))
	var calls sync.WaitGroup
	for i := range 2 {
		calls.Go(func() {
			res, err := a.CallTool(t.Context(), &mcp.CallToolParams{Name: "flow_echo", Arguments: args{"input": strings.Repeat("x", 300<<10), "thread": fmt.Sprint("t", i)}})
			if err != nil || res.IsError {
				t.Errorf("%v %v", res, err)
			}
		})
	}
	calls.Wait()
}

// The documentation can be listed, searched and read.
func TestDocumentation(t *testing.T) {
	a := newSite(t, false).connect("")
	var list struct {
		Pages []struct{ Name, Title string }
	}
	if a.call("docs_list", nil, &list); fmt.Sprint(list.Pages) != "[{adr/0001-x A decision} {guide The guide}]" {
		t.Errorf("%v", list.Pages)
	}
	var page struct{ Text string }
	if a.call("docs_read", args{"name": "guide.md"}, &page); page.Text != "# The guide\n\nHow to fork a thread.\n" {
		t.Errorf("%q", page.Text)
	}
	if a.call("docs_read", args{"name": "x"}, &page); !strings.HasPrefix(page.Text, "# A decision") {
		t.Errorf("without its folder and number: %q", page.Text)
	}
	var found struct {
		Lines []struct {
			Name string
			Line int
		}
	}
	if a.call("docs_search", args{"query": "THREAD fork"}, &found); fmt.Sprint(found.Lines) != "[{guide 3}]" {
		t.Errorf("%v", found.Lines)
	}
}

// A server that cannot be reached is a fault of the calls, not of the protocol; and the
// end of the input is the end.
func TestUnreachableServer(t *testing.T) {
	c := servertest.Must(client.New("http://127.0.0.1:1", client.Options{Attempts: -1}))(t)
	in, write := io.Pipe()
	read, out := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- mcpface.ServeIO(t.Context(), c, in, out, mcpface.Options{Docs: pages}) }()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &mcp.IOTransport{Reader: read, Writer: write}, nil)
	if err != nil {
		t.Fatal(err)
	}
	a := &coder{TB: t, ClientSession: session}
	a.call("docs_list", nil, nil)
	a.fails("unavailable", "events_follow", args{"thread": "t1"})
	a.fails("unavailable", "threads_list", nil)
	if res := a.try("threads_list", nil); !strings.Contains(text(res), "127.0.0.1:1") || !strings.Contains(text(res), "What to do: try again") {
		t.Errorf("%s", text(res))
	}
	servertest.Check(t, write.Close())
	if err := <-done; err != nil {
		t.Errorf("at the end of the input: %v", err)
	}
}

// A script that writes its calls and closes the input gets all answers, and nothing
// but answers.
func TestCallsBeforeTheEndAreAnswered(t *testing.T) {
	s := newSite(t, false, echo)
	c := servertest.Must(client.New(s.URL, client.Options{}))(t)
	in := `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
`
	for i := range 9 {
		in += fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"flows_list"}}`+"\n", i+1)
	}
	var out bytes.Buffer
	if err := mcpface.ServeIO(t.Context(), c, strings.NewReader(in), &out, mcpface.Options{}); err != nil {
		t.Fatal(err)
	}
	ids := map[int]bool{}
	for line := range strings.Lines(out.String()) {
		var answer struct {
			ID     *int
			Result json.RawMessage
		}
		if err := json.Unmarshal([]byte(line), &answer); err != nil || answer.ID == nil || answer.Result == nil {
			t.Fatalf("%.200s: %v", line, err)
		}
		ids[*answer.ID] = true
	}
	if len(ids) != 10 {
		t.Errorf("answers to %v", ids)
	}
}
