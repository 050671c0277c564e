package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/script"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// adkLife is a server process: it can be ended and another one be started on
// the same store.
type adkLife struct {
	*site
	once sync.Once
	end  func()
}

// adkStart starts a server process. If it is killed its worker finds its store
// gone, as a process that dies finds everything.
func adkStart(t *testing.T, s store.Store, flows ...perdure.Flow) *adkLife {
	t.Helper()
	mortal := &adkMortal{Store: s}
	rt, err := perdure.New(t.Context(), mortal, perdure.Options{Lease: time.Second, Grace: time.Millisecond}, flows...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- rt.Work(ctx) }()
	a := server.New(rt, server.Options{})
	ts := httptest.NewServer(a)
	l := &adkLife{site: &site{t: t, rt: rt, api: a, url: ts.URL}}
	l.end = func() {
		l.once.Do(func() {
			mortal.kill()
			a.Close()
			ts.CloseClientConnections()
			ts.Close()
			stop()
			<-done
		})
	}
	t.Cleanup(l.end)
	return l
}

// adkMortal is a store of which a process sees nothing any more once it is
// killed.
type adkMortal struct {
	store.Store
	mu   sync.RWMutex
	dead bool
}

func (m *adkMortal) kill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead = true
}

func (m *adkMortal) alive() error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.dead {
		return store.ErrClosed
	}
	return nil
}

// Append implements store.Store.
func (m *adkMortal) Append(ctx context.Context, journal string, after uint64, entries ...[]byte) (uint64, error) {
	if err := m.alive(); err != nil {
		return 0, err
	}
	return m.Store.Append(ctx, journal, after, entries...)
}

// Put implements store.Store.
func (m *adkMortal) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	if err := m.alive(); err != nil {
		return "", err
	}
	return m.Store.Put(ctx, key, value, prev)
}

// Delete implements store.Store.
func (m *adkMortal) Delete(ctx context.Context, key string, prev store.Version) error {
	if err := m.alive(); err != nil {
		return err
	}
	return m.Store.Delete(ctx, key, prev)
}

// adkABC is an agent whose model calls the tools a, b and c; the process dies in
// the first c.
func adkABC(n *adkCount, inC chan<- struct{}) perdure.Flow {
	var tools []agent.Tool
	for _, name := range []string{"a", "b", "c"} {
		tools = append(tools, agent.NewTool(name, "Does "+name+".", func(ctx context.Context, o adkOrder) (string, error) {
			if n.add(name) == 1 && name == "c" {
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
func TestSeedADKResumesAStoppedWorkflowByInvocationID(t *testing.T) {
	n, inC := new(adkCount), make(chan struct{})
	journal := memstore.New()
	defer journal.Close()
	first := adkStart(t, journal, adkABC(n, inC))
	first.do("POST", "/apps/my_resumable_agent/users/u_123/sessions/s_abc", "").want(200)
	go func() {
		r, err := http.Post(first.url+"/run_sse", "application/json", strings.NewReader(
			`{"app_name":"my_resumable_agent","user_id":"u_123","session_id":"s_abc","new_message":{"role":"user","parts":[{"text":"go"}]}}`))
		if err == nil {
			r.Body.Close()
		}
	}()
	<-inC
	var session struct{ Events []adkNote }
	first.do("GET", "/apps/my_resumable_agent/users/u_123/sessions/s_abc", "").want(200, &session)
	invocation := session.Events[len(session.Events)-1].InvocationID // "found in the Event history"
	first.end()

	second := adkStart(t, journal, adkABC(n, inC))
	events, _, _ := second.adkSSE(fmt.Sprintf(`{
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
	if got := adkShort(events); !strings.Contains(got, "root_agent: response c {\"result\":\"c 1\"}\nroot_agent: all three are done\nmy_resumable_agent: end") {
		t.Errorf("the events are\n%s", got)
	}
	if n.of("a") != 1 || n.of("b") != 1 || n.of("c") != 2 {
		t.Errorf("the tools ran %v times", n.n)
	}
	second.do("POST", "/run_sse", strings.Replace(`{"app_name":"my_resumable_agent","user_id":"u_123","session_id":"s_abc","invocation_id":"X"}`, "X", "invocation-123", 1)).problem(404, "no-run")
	thread, err := second.rt.Get(t.Context(), "s_abc")
	if err != nil || len(thread.Runs) != 1 {
		t.Errorf("the session has %d runs, %v: a resume never starts one", len(thread.Runs), err)
	}
}

// Promise: an invocation of another session is not resumed.
func TestSeedADKResumesOnlyInvocationsOfTheSession(t *testing.T) {
	s := newSite(t, server.Options{}, adkClerk(new(adkCount)))
	s.adkSession("clerk", "u", "s")
	s.adkSession("clerk", "u", "s2")
	s.adkSession("clerk", "eve", "s3")
	events := s.adkRun(adkBody("clerk", "x"))
	id := events[0].InvocationID
	resume := func(user, session string) *reply {
		return s.do("POST", "/run", fmt.Sprintf(`{"appName":"clerk","userId":%q,"sessionId":%q,"invocationId":%q}`, user, session, id))
	}
	resume("u", "s2").problem(404, "no-run")
	resume("eve", "s3").problem(404, "no-run")
	resume("eve", "s").problem(404, "no-thread")
	var again []adkNote
	resume("u", "s").want(200, &again)
	if len(again) == 0 || again[len(again)-1].ID != events[len(events)-1].ID {
		t.Errorf("what it waits for is not there:\n%s", adkShort(again))
	}
}

// Promise: a paused workflow goes on by its invocation id, and one that failed in
// a tool is resumed by running that tool again.
func TestSeedADKResumesPausedAndFailedWorkflows(t *testing.T) {
	n := new(adkCount)
	fragile := perdure.NewFlow("fragile", func(ctx context.Context, in string) (string, error) {
		for _, name := range []string{"a", "b"} {
			if _, err := perdure.Step(ctx, name, func(context.Context) (int, error) { return n.add(name), nil }); err != nil {
				return "", err
			}
		}
		return perdure.Step(ctx, "c", func(context.Context) (string, error) {
			if n.add("c") == 1 {
				return "", fmt.Errorf("the network is down")
			}
			return in + " is done", nil
		})
	})
	s := newSite(t, server.Options{}, fragile)
	s.adkSession("fragile", "u", "s")
	events := s.adkRun(adkBody("fragile", "it"))
	adkWant(t, events, "fragile: error FAILED end")
	resume := fmt.Sprintf(`{"appName":"fragile","userId":"u","sessionId":"s","invocationId":%q}`, events[0].InvocationID)
	// A reconnect is no resume.
	again, _, _ := s.adkSSE(resume, "Last-Event-ID", "1")
	adkWant(t, again, "fragile: error FAILED end")
	adkWant(t, s.adkRun(resume), "fragile: it is done end")
	adkWant(t, s.adkRun(resume), "fragile: it is done end")
	if n.of("a") != 1 || n.of("b") != 1 || n.of("c") != 2 {
		t.Errorf("the steps ran %v times", n.n)
	}

	held := make(chan struct{})
	slow := perdure.NewFlow("slow", func(ctx context.Context, in string) (string, error) {
		if _, err := perdure.Step(ctx, "wait", func(context.Context) (bool, error) { <-held; return true, nil }); err != nil {
			return "", err
		}
		return perdure.Step(ctx, "then", func(context.Context) (string, error) { return in, nil })
	})
	s = newSite(t, server.Options{}, slow)
	s.adkSession("slow", "u", "s")
	started := make(chan []adkNote, 1)
	go func() {
		r, err := http.Post(s.url+"/run", "application/json", strings.NewReader(adkBody("slow", "y")))
		var events []adkNote
		if err == nil {
			_ = json.NewDecoder(r.Body).Decode(&events)
			r.Body.Close()
		}
		started <- events
	}()
	run := ""
	for e, err := range s.rt.Events(t.Context(), "s", perdure.EventOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == "claimed" {
			run = e.Run
			break
		}
	}
	if err := s.rt.Pause(t.Context(), "s", run, perdure.Note{}); err != nil {
		t.Fatal(err)
	}
	close(held)
	adkWant(t, <-started) // it stands, and nothing was said
	adkWant(t, s.adkRun(fmt.Sprintf(`{"appName":"slow","userId":"u","sessionId":"s","invocationId":%q}`, run)), "slow: y end")
}

// Promise: what a client missed is there when it connects again with
// Last-Event-ID, without gap and repetition, with the same bytes; and nothing is
// started.
func TestSeedADKReconnectsWithoutGapsAndStartsNothing(t *testing.T) {
	n := new(adkCount)
	s := newSite(t, server.Options{}, adkClerk(n))
	s.adkSession("clerk", "u", "s")
	body := adkBody("clerk", "refund")
	events, ids, data := s.adkSSE(body)
	adkWant(t, events, "clerk: I look at it. call refund", "clerk: call adk_request_confirmation")
	answer := adkAnswerBody("clerk", events[1].Content.Parts[0].FunctionCall.ID, "adk_request_confirmation", `{"confirmed":true}`)
	_, moreIDs, moreData := s.adkSSE(answer)
	ids, data = append(ids, moreIDs...), append(data, moreData...)
	for i, id := range ids {
		for _, repeated := range []string{body, answer} {
			_, againIDs, againData := s.adkSSE(repeated, "Last-Event-ID", id)
			if !slices.Equal(againIDs, ids[i+1:]) || !slices.Equal(againData, data[i+1:]) {
				t.Errorf("after %s come %v\n%s\nwant %v\n%s", id, againIDs, strings.Join(againData, "\n"), ids[i+1:], strings.Join(data[i+1:], "\n"))
			}
		}
	}
	// The session has the same bytes.
	var session struct{ Events []json.RawMessage }
	s.do("GET", "/apps/clerk/users/u/sessions/s", "").want(200, &session)
	var kept []string
	for _, e := range session.Events {
		if !strings.Contains(string(e), `"author":"user"`) {
			kept = append(kept, string(e))
		}
	}
	if !slices.Equal(kept, data) {
		t.Errorf("the session has\n%s\nand the stream had\n%s", strings.Join(kept, "\n"), strings.Join(data, "\n"))
	}
	if thread, _ := s.rt.Get(t.Context(), "s"); len(thread.Runs) != 1 || n.of("refund") != 1 {
		t.Errorf("%d runs, %d refunds", len(thread.Runs), n.of("refund"))
	}
	// A second run is another one, and a reconnect of the first stays with it.
	s.adkRun(adkBody("clerk", "again"))
	if _, again, _ := s.adkSSE(body, "Last-Event-ID", ids[1]); !slices.Equal(again, ids[2:]) {
		t.Errorf("a reconnect sees %v", again)
	}
	// With an idempotency key even the first request can be repeated.
	a, _, _ := s.adkSSE(body, "Idempotency-Key", "k")
	b, _, _ := s.adkSSE(body, "Idempotency-Key", "k")
	if a[0].ID != b[0].ID {
		t.Errorf("the same key started %s and %s", a[0].InvocationID, b[0].InvocationID)
	}
}
