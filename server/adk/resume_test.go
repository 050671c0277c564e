package adk_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/inproc"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/script"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/server/adk"
	"github.com/perdure/perdure/store/memstore"
)

// abcAgent is an agent whose model calls the tools a, b and c; the process dies in
// the first c.
func abcAgent(n *kit.Tally, inC chan<- struct{}) perdure.Flow {
	var tools []agent.Tool
	for _, name := range []string{"a", "b", "c"} {
		tools = append(tools, agent.NewTool(name, "Does "+name+".", func(ctx context.Context, o order) (string, error) {
			if n.Hit(name) == 1 && name == "c" {
				close(inC)
				<-ctx.Done()
				return "", context.Cause(ctx)
			}
			return name + " " + o.ID, nil
		}))
	}
	call := func(name string) script.Reply {
		return script.Reply{Calls: []llm.Call{{Name: name, Args: `{"id":"1"}`}}}
	}
	model := script.New(call("a"), call("b"), call("c"), script.Say("all three are done"))
	return agent.NewFlow("my_resumable_agent", agent.New("root_agent", model, agent.Options{Tools: tools}))
}

// Promise of "Resume stopped agents": restart the API server if needed, POST
// /run_sse with app_name, user_id, session_id and invocation_id, exactly as the
// document has it with its last comma, and the workflow picks up where it left
// off: results of A and B are reinstated and C, in which it stopped, runs again.
func TestResumesAStoppedWorkflowByInvocationID(t *testing.T) {
	n, inC := new(kit.Tally), make(chan struct{})
	journal := memstore.New()
	defer journal.Close()
	first, kill := newProcess(t, journal, abcAgent(n, inC))
	first.Do("POST", "/apps/my_resumable_agent/users/u_123/sessions/s_abc", "").Want(200)
	go func() {
		r, err := http.Post(first.URL+"/run_sse", "application/json", strings.NewReader(
			`{"app_name":"my_resumable_agent","user_id":"u_123","session_id":"s_abc","new_message":{"role":"user","parts":[{"text":"go"}]}}`))
		if err == nil {
			r.Body.Close()
		}
	}()
	<-inC
	var session struct{ Events []note }
	first.Do("GET", "/apps/my_resumable_agent/users/u_123/sessions/s_abc", "").Want(200, &session)
	invocation := session.Events[len(session.Events)-1].InvocationID // "found in the Event history"
	kill()

	second, _ := newProcess(t, journal, abcAgent(n, inC))
	events, _, _ := second.runSSE(fmt.Sprintf(`{
       "app_name": "my_resumable_agent",
       "user_id": "u_123",
       "session_id": "s_abc",
       "invocation_id": %q,
     }`, invocation))
	if len(events) == 0 {
		t.Fatal("nothing follows")
	}
	last := events[len(events)-1]
	if !last.TurnComplete || last.InvocationID != invocation || last.ErrorCode != "" {
		t.Errorf("it ends with %+v", last)
	}
	if got := shortForm(events); !strings.Contains(got, "root_agent: response c {\"result\":\"c 1\"}\nroot_agent: all three are done\nmy_resumable_agent: end") {
		t.Errorf("the events are\n%s", got)
	}
	if n.Of("a") != 1 || n.Of("b") != 1 || n.Of("c") != 2 {
		t.Errorf("the tools ran %v times", n.All())
	}
	second.Do("POST", "/run_sse", strings.Replace(`{"app_name":"my_resumable_agent","user_id":"u_123","session_id":"s_abc","invocation_id":"X"}`, "X", "invocation-123", 1)).Problem(404, "no-run")
	thread, err := second.Runtime.Get(t.Context(), "s_abc")
	if err != nil || len(thread.Runs) != 1 {
		t.Errorf("the session has %d runs, %v: a resume never starts one", len(thread.Runs), err)
	}
}

// Promise: an invocation of another session is not resumed.
func TestResumesOnlyInvocationsOfTheSession(t *testing.T) {
	s := newSite(t, server.Options{}, clerk(new(kit.Tally)))
	s.session("clerk", "u", "s")
	s.session("clerk", "u", "s2")
	s.session("clerk", "eve", "s3")
	events := s.run(runBody("clerk", "x"))
	id := events[0].InvocationID
	resume := func(user, session string) *servertest.Reply {
		return s.Do("POST", "/run", fmt.Sprintf(`{"appName":"clerk","userId":%q,"sessionId":%q,"invocationId":%q}`, user, session, id))
	}
	resume("u", "s2").Problem(404, "no-run")
	resume("eve", "s3").Problem(404, "no-run")
	resume("eve", "s").Problem(404, "no-thread")
	again := servertest.Decode[[]note](resume("u", "s"), 200)
	if len(again) == 0 || again[len(again)-1].ID != events[len(events)-1].ID {
		t.Errorf("what it waits for is not there:\n%s", shortForm(again))
	}
}

// Promise: a paused workflow goes on by its invocation id, and one that failed in
// a tool is resumed by running that tool again.
func TestResumesPausedAndFailedWorkflows(t *testing.T) {
	n := new(kit.Tally)
	fragile := perdure.NewFlow("fragile", func(ctx context.Context, in string) (string, error) {
		for _, name := range []string{"a", "b"} {
			if _, err := perdure.Step(ctx, name, func(context.Context) (int, error) { return n.Hit(name), nil }); err != nil {
				return "", err
			}
		}
		return perdure.Step(ctx, "c", func(context.Context) (string, error) {
			if n.Hit("c") == 1 {
				return "", fmt.Errorf("the network is down")
			}
			return in + " is done", nil
		})
	})
	s := newSite(t, server.Options{}, fragile)
	s.session("fragile", "u", "s")
	events := s.run(runBody("fragile", "it"))
	wantEvents(t, events, "fragile: error FAILED end")
	resume := fmt.Sprintf(`{"appName":"fragile","userId":"u","sessionId":"s","invocationId":%q}`, events[0].InvocationID)
	// A reconnect is no resume.
	again, _, _ := s.runSSE(resume, "Last-Event-ID", "1")
	wantEvents(t, again, "fragile: error FAILED end")
	wantEvents(t, s.run(resume), "fragile: it is done end")
	wantEvents(t, s.run(resume), "fragile: it is done end")
	if n.Of("a") != 1 || n.Of("b") != 1 || n.Of("c") != 2 {
		t.Errorf("the steps ran %v times", n.All())
	}

	held := make(chan struct{})
	slow := perdure.NewFlow("slow", func(ctx context.Context, in string) (string, error) {
		if _, err := perdure.Step(ctx, "wait", func(context.Context) (bool, error) { <-held; return true, nil }); err != nil {
			return "", err
		}
		return perdure.Step(ctx, "then", func(context.Context) (string, error) { return in, nil })
	})
	s = newSite(t, server.Options{}, slow)
	s.session("slow", "u", "s")
	started := make(chan []note, 1)
	go func() {
		r, err := http.Post(s.URL+"/run", "application/json", strings.NewReader(runBody("slow", "y")))
		var events []note
		if err == nil {
			_ = json.NewDecoder(r.Body).Decode(&events)
			r.Body.Close()
		}
		started <- events
	}()
	run := ""
	for e, err := range s.Runtime.Events(t.Context(), "s", perdure.EventOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == "claimed" {
			run = e.Run
			break
		}
	}
	servertest.Check(t, s.Runtime.Pause(t.Context(), "s", run, perdure.Note{}))
	close(held)
	wantEvents(t, <-started) // it stands, and nothing was said
	wantEvents(t, s.run(fmt.Sprintf(`{"appName":"slow","userId":"u","sessionId":"s","invocationId":%q}`, run)), "slow: y end")
}

// Promise: what a client missed is there when it connects again with
// Last-Event-ID, without gap and repetition, with the same bytes; and nothing is
// started.
func TestReconnectsWithoutGapsAndStartsNothing(t *testing.T) {
	n := new(kit.Tally)
	s := newSite(t, server.Options{}, clerk(n))
	s.session("clerk", "u", "s")
	body := runBody("clerk", "refund")
	events, ids, data := s.runSSE(body)
	wantEvents(t, events, "clerk: I look at it. call refund", "clerk: call adk_request_confirmation")
	answer := answerBody("clerk", events[1].Content.Parts[0].FunctionCall.ID, "adk_request_confirmation", `{"confirmed":true}`)
	_, moreIDs, moreData := s.runSSE(answer)
	ids, data = append(ids, moreIDs...), append(data, moreData...)
	for i, id := range ids {
		for _, repeated := range []string{body, answer} {
			_, againIDs, againData := s.runSSE(repeated, "Last-Event-ID", id)
			if !slices.Equal(againIDs, ids[i+1:]) || !slices.Equal(againData, data[i+1:]) {
				t.Errorf("after %s come %v\n%s\nwant %v\n%s", id, againIDs, strings.Join(againData, "\n"), ids[i+1:], strings.Join(data[i+1:], "\n"))
			}
		}
	}
	// The session has the same bytes.
	var session struct{ Events []json.RawMessage }
	s.Do("GET", "/apps/clerk/users/u/sessions/s", "").Want(200, &session)
	var kept []string
	for _, e := range session.Events {
		if !strings.Contains(string(e), `"author":"user"`) {
			kept = append(kept, string(e))
		}
	}
	if !slices.Equal(kept, data) {
		t.Errorf("the session has\n%s\nand the stream had\n%s", strings.Join(kept, "\n"), strings.Join(data, "\n"))
	}
	if thread, _ := s.Runtime.Get(t.Context(), "s"); len(thread.Runs) != 1 || n.Of("refund") != 1 {
		t.Errorf("%d runs, %d refunds", len(thread.Runs), n.Of("refund"))
	}
	// A second run is another one, and a reconnect of the first stays with it.
	s.run(runBody("clerk", "again"))
	if _, again, _ := s.runSSE(body, "Last-Event-ID", ids[1]); !slices.Equal(again, ids[2:]) {
		t.Errorf("a reconnect sees %v", again)
	}
	// With an idempotency key even the first request can be repeated.
	a, _, _ := s.runSSE(body, "Idempotency-Key", "k")
	b, _, _ := s.runSSE(body, "Idempotency-Key", "k")
	if a[0].ID != b[0].ID {
		t.Errorf("the same key started %s and %s", a[0].InvocationID, b[0].InvocationID)
	}
}

// A client that was away while its session was erased and the id used again is
// told so, and the new session has event ids of its own.
func TestAReusedSessionIDHasOtherEventIDs(t *testing.T) {
	s := newSite(t, server.Options{}, clerk(new(kit.Tally)))
	s.session("clerk", "u", "s")
	_, ids, _ := s.runSSE(runBody("clerk", "refund"))
	s.Do("DELETE", "/apps/clerk/users/u/sessions/s", "").Want(200)
	s.session("clerk", "u", "s")
	_, again, _ := s.runSSE(runBody("clerk", "refund"))
	if len(again) != len(ids) || !strings.HasPrefix(again[0], ids[0]+"-") {
		t.Errorf("the ids were %v and are %v", ids, again)
	}
	s.Do("POST", "/run_sse", runBody("clerk", "refund"), "Last-Event-ID", ids[0], "Accept", api.TypeEvents).Want(410)
	if _, rest, _ := s.runSSE(runBody("clerk", "refund"), "Last-Event-ID", again[0]); !slices.Equal(rest, again[1:]) {
		t.Errorf("behind %s come %v of %v", again[0], rest, again)
	}
}

// A request that waits for the end of a run lasts as long as a stream, and ends
// with its token too.
func TestARunThatIsWaitedForEndsWithTheToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := servertest.Must(perdure.New(t.Context(), memstore.New(), perdure.Options{}, asker[string]("buy")))(t)
		servertest.Must(rt.Tenant("acme").Create(t.Context(), perdure.CreateRequest{Thread: "s", User: "u", Metadata: map[string]string{"adk.app": "buy"}}))(t)
		tokens := server.NewTokens(rt)
		srv := server.New(rt, server.Options{Auth: tokens, Faces: []server.Face{adk.Face()}})
		client, stop := inproc.Serve(srv)
		defer stop()
		defer srv.Close()
		made := servertest.Must(tokens.Create(t.Context(), "acme", "", api.CreateToken{Subject: "ann"}))(t)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		r, _ := http.NewRequestWithContext(ctx, "POST", "http://localhost/run", strings.NewReader(runBody("buy", "x")))
		r.Header.Set("Authorization", "Bearer "+made.Secret)
		time.AfterFunc(time.Second, func() {
			if err := tokens.Revoke(ctx, "acme", made.ID); err != nil {
				t.Error(err)
			}
		})
		resp := servertest.Must(client.Do(r))(t) // no worker is there
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("the answer is %s", resp.Status)
		}
	})
}
