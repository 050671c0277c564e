package server_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/server"
)

// plainFlows are what the tests of operations run.
func plainFlows() []perdure.Flow {
	return []perdure.Flow{
		perdure.NewFlow("echo", func(ctx context.Context, in string) (string, error) {
			return perdure.Step(ctx, "say", func(context.Context) (string, error) { return in, nil })
		}),
		perdure.NewFlow("ask", func(ctx context.Context, q plainQuestion) (perdure.Answer, error) {
			return perdure.Ask[perdure.Answer](ctx, "ok", perdure.Question{Kind: q.Kind, Prompt: q.Prompt, Who: q.Who, Decisions: q.Decisions})
		}),
		perdure.NewFlow("yes", func(ctx context.Context, n int) (int, error) {
			g := perdure.NewGroup(ctx)
			for i := range n {
				g.Go(fmt.Sprintf("b%d", i), func(ctx context.Context) error {
					_, err := perdure.Ask[bool](ctx, "sure", perdure.Question{Prompt: "Sure?"})
					return err
				})
			}
			return n, g.Wait()
		}),
		perdure.NewFlow("signal", func(ctx context.Context, in string) (string, error) {
			return perdure.Receive[string](ctx, "got", in, 0)
		}),
		perdure.NewFlow("sleep", func(ctx context.Context, _ string) (string, error) {
			return "", perdure.Sleep(ctx, "long", time.Hour)
		}),
		perdure.NewFlow("fail", func(ctx context.Context, _ string) (string, error) {
			return perdure.Step(ctx, "break", func(context.Context) (string, error) { return "", errors.New("it broke") })
		}),
	}
}

type plainQuestion struct {
	Kind      string
	Prompt    string
	Who       []string
	Decisions []string
}

func plainSite(t testing.TB) *servertest.Site {
	t.Helper()
	return servertest.New(t, server.Options{Version: "test"}, plainFlows()...)
}

// plainStart starts a run on a thread.
func plainStart(s *servertest.Site, thread, flow, input string, headers ...string) *perdure.Run {
	s.T.Helper()
	run := new(perdure.Run)
	s.Do("POST", "/v1/threads/"+thread+"/runs", fmt.Sprintf(`{"flow":%q,"input":%s}`, flow, input), headers...).Want(202, run)
	return run
}

// plainWait waits until a run stands.
func plainWait(s *servertest.Site, run *perdure.Run) *perdure.Run {
	s.T.Helper()
	w := new(api.Waited)
	s.Do("GET", plainPath(run)+"/wait", "").Want(200, w)
	if !w.Over {
		s.T.Fatalf("run %s is %s after half a minute", run.ID, w.Run.Status)
	}
	plainListed(s, w.Run)
	return w.Run
}

// plainListed waits until the list shows the thread of a run as it is: lists may
// lag a moment behind.
func plainListed(s *servertest.Site, run *perdure.Run) {
	s.T.Helper()
	for range 2000 {
		th, err := s.Runtime.Get(s.T.Context(), run.Thread)
		if err != nil {
			return // of another tenant, or erased
		}
		asks := 0
		for _, r := range th.Runs {
			asks += len(r.Asks)
		}
		for sum, err := range s.Runtime.List(s.T.Context(), perdure.ListOptions{}) {
			if err != nil {
				s.T.Fatal(err)
			}
			if sum.ID == run.Thread && sum.Status == th.Status && sum.Asks == asks {
				return
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	s.T.Fatalf("the list does not show thread %s as it is", run.Thread)
}

func plainPath(run *perdure.Run) string { return "/v1/threads/" + run.Thread + "/runs/" + run.ID }

func TestARunIsStartedAndWaitedFor(t *testing.T) {
	s := plainSite(t)
	var run perdure.Run
	r := s.Do("POST", "/v1/threads/t1/runs", `{"flow":"echo","input":"hello","title":"T","user":"ann","metadata":{"a":"b"}}`).Want(202, &run)
	if got := r.Header.Get("Location"); got != plainPath(&run) {
		t.Errorf("the location is %s", got)
	}
	if got := r.Header.Get("X-Agentkit-Trace-Id"); got != "t1" {
		t.Errorf("the trace is %s", got)
	}
	over := plainWait(s, &run)
	if over.Status != perdure.Succeeded || string(over.Output) != `"hello"` {
		t.Errorf("the run is %s with %s", over.Status, over.Output)
	}
	var thread perdure.Thread
	s.Do("GET", "/v1/threads/t1", "").Want(200, &thread)
	if thread.Title != "T" || thread.User != "ann" || thread.Metadata["a"] != "b" {
		t.Errorf("the thread is %+v", thread)
	}
	var same perdure.Run
	s.Do("GET", "/v1/threads/t1/runs/newest", "").Want(200, &same)
	if same.ID != run.ID {
		t.Errorf("the newest is %s", same.ID)
	}
	var list api.RunList
	tag := s.Do("GET", "/v1/threads/t1/runs", "").Want(200, &list).Header.Get("ETag")
	if len(list.Runs) != 1 || list.Runs[0].ID != run.ID || tag != fmt.Sprintf("%q", fmt.Sprint(thread.Seq)) {
		t.Errorf("the runs are %v with the tag %s", list.Runs, tag)
	}
	var fresh perdure.Run
	s.Do("POST", "/v1/runs", `{"flow":"echo","input":"x"}`).Want(202, &fresh)
	if fresh.Thread == "" || fresh.Thread == "t1" {
		t.Errorf("the new thread is %q", fresh.Thread)
	}
	var own perdure.Thread
	s.Do("GET", "/v1/threads/"+fresh.Thread, "").Want(200, &own)
	if own.User != "" {
		t.Errorf("a thread that nobody is known to have started is %q's", own.User)
	}
}

func TestARunIsStartedAsAStream(t *testing.T) {
	s := plainSite(t)
	r := s.Do("POST", "/v1/threads/t/runs", `{"flow":"echo","input":"hello"}`, "Accept", "text/event-stream").Want(200)
	if r.Header.Get("X-Agentkit-Trace-Id") != "t" || !strings.HasPrefix(r.Header.Get("Location"), "/v1/threads/t/runs/") {
		t.Errorf("the headers are %v", r.Header)
	}
	if !strings.Contains(string(r.Body), "event: done") || !strings.Contains(string(r.Body), `"output":"hello"`) {
		t.Errorf("the stream is %s", r.Body)
	}
	s.Do("POST", "/v1/threads/t/runs", `{"flow":"none"}`, "Accept", "text/event-stream").Problem(422, "no-flow")
	samples := plainMetrics(t, s.Do("GET", "/metrics", "").Want(200).Body)
	if samples["perdure_events_sent_total{}"] == 0 {
		t.Error("the events are not counted")
	}
	if _, there := samples[`perdure_http_request_duration_seconds_count{operation="runs.start"}`]; !there {
		t.Error("the refused start is not timed")
	}
	if n := samples[`perdure_http_request_duration_seconds_count{operation="runs.start"}`]; n != 1 {
		t.Errorf("%v starts are timed: a stream takes as long as it likes", n)
	}
}

func TestWhatCannotBeStarted(t *testing.T) {
	s := plainSite(t)
	s.Do("POST", "/v1/threads/t/runs", `{"flow":"none"}`).Problem(422, "no-flow")
	s.Do("POST", "/v1/threads/t/runs", `{"flow":"echo","input":"x","policy":"maybe"}`).Problem(400, "invalid")
	s.Do("POST", "/v1/threads/t/runs", `{"flow":"echo","input":"x"}`, "If-Match", `"3"`).Problem(412, "stale")
	for _, tag := range []string{`"0"`, `""`, `"x"`, `*`} {
		s.Do("POST", "/v1/threads/t/runs", `{"flow":"echo","input":"x"}`, "If-Match", tag).Problem(400, "invalid")
	}
	s.Do("GET", "/v1/threads/t", "").Problem(404, "no-thread")
}

func TestAnyIDCanBeAnAddress(t *testing.T) {
	s := plainSite(t)
	for path, id := range map[string]string{"a%2Fb": "a/b", "%C3%BC%20x": "ü x", "%2E%2E": "..", "%2E": ".", "a%3Fb%23c": "a?b#c", "%25": "%", "100%2525": "100%25"} {
		var run perdure.Run
		r := s.Do("POST", "/v1/threads/"+path+"/runs", `{"flow":"echo","input":"x"}`).Want(202, &run)
		if run.Thread != id {
			t.Errorf("%s is %q, want %q", path, run.Thread, id)
		}
		var again perdure.Run
		if s.Do("GET", r.Header.Get("Location"), "").Want(200, &again); again.ID != run.ID {
			t.Errorf("%s leads to another run", r.Header.Get("Location"))
		}
	}
}

func TestABusyThreadNamesItsRun(t *testing.T) {
	s := plainSite(t)
	run := plainWait(s, plainStart(s, "t", "ask", "{}"))
	var p api.Problem
	s.Do("POST", "/v1/threads/t/runs", `{"flow":"echo","input":"x","policy":"reject"}`).Problem(409, "busy").Want(409, &p)
	if p.Run != run.ID || p.Thread != "t" {
		t.Errorf("the problem names %s of %s", p.Run, p.Thread)
	}
}

func TestTheSameKeyStartsOneRun(t *testing.T) {
	s := plainSite(t)
	var first, again perdure.Run
	for _, run := range []*perdure.Run{&first, &again} {
		s.Do("POST", "/v1/runs", `{"flow":"echo","input":"x"}`, "Idempotency-Key", "k").Want(202, run)
	}
	if first.ID != again.ID || first.Thread != again.Thread {
		t.Errorf("the runs are %s and %s", first.ID, again.ID)
	}
	s.Do("POST", "/v1/runs", `{"flow":"echo","input":"y"}`, "Idempotency-Key", "k").Problem(409, "key-reused")
	s.Do("POST", "/v1/runs", `{"flow":"echo","input":"y"}`, "Idempotency-Key", "").Problem(400, "invalid")
}

func TestOfTwoTabsOneWins(t *testing.T) {
	s := plainSite(t)
	plainWait(s, plainStart(s, "t", "echo", `"x"`))
	tag := s.Do("GET", "/v1/threads/t", "").Want(200).Header.Get("ETag")
	replies := make([]*servertest.Reply, 8)
	var wg sync.WaitGroup
	for i := range replies {
		wg.Go(func() {
			replies[i] = s.Do("POST", "/v1/threads/t/runs", `{"flow":"ask","input":{}}`, "If-Match", tag)
		})
	}
	wg.Wait()
	won := 0
	for _, r := range replies {
		if r.Status == 202 {
			won++
			continue
		}
		var p api.Problem
		r.Problem(412, "stale").Want(412, &p)
		if p.Seq == nil || fmt.Sprintf("%q", fmt.Sprint(*p.Seq)) == tag || p.Thread != "t" {
			t.Errorf("the problem does not name the current sequence: %s", r.Body)
		}
	}
	if won != 1 {
		t.Errorf("%d tabs won", won)
	}
}

func TestRunsAreControlled(t *testing.T) {
	s := plainSite(t)
	run := plainWait(s, plainStart(s, "t", "ask", "{}"))
	s.Do("POST", plainPath(run)+"/pause", `{"reason":"lunch"}`, "If-Match", `"1"`).Problem(412, "stale")
	var now perdure.Run
	s.Do("POST", "/v1/threads/t/runs/newest/pause", `{"reason":"lunch"}`).Want(200, &now)
	if now.Status != perdure.Paused {
		t.Errorf("it is %s", now.Status)
	}
	var resumed api.Resumed
	s.Do("POST", plainPath(run)+"/resume", "").Want(200, &resumed)
	if !resumed.Resumed || resumed.Note != "" {
		t.Errorf("it is %+v", resumed)
	}
	s.Do("POST", plainPath(run)+"/resume", "").Want(200, &resumed)
	if resumed.Resumed || !strings.Contains(resumed.Note, run.Asks[0].ID) {
		t.Errorf("the note is %q", resumed.Note)
	}
	s.Do("POST", plainPath(run)+"/retry", "").Problem(409, "nothing-to-do")
	s.Do("POST", plainPath(run)+"/cancel", `{"reason":"enough"}`).Want(200)
	if over := plainWait(s, run); over.Status != perdure.Cancelled {
		t.Errorf("it is %s", over.Status)
	}
	s.Do("POST", plainPath(run)+"/cancel", "").Want(200, &now) // again changes nothing
	s.Do("POST", plainPath(run)+"/pause", "").Problem(409, "nothing-to-do")
	r := s.Do("POST", plainPath(run)+"/again", "").Want(202, &now)
	if now.ID == run.ID || r.Header.Get("Location") != plainPath(&now) || r.Header.Get("X-Agentkit-Trace-Id") != "t" {
		t.Errorf("the new run is %s at %s", now.ID, r.Header.Get("Location"))
	}
	failed := plainWait(s, plainStart(s, "f", "fail", `""`))
	s.Do("POST", plainPath(failed)+"/retry", "").Want(200)
	if over := plainWait(s, failed); over.Retries != 1 {
		t.Errorf("it was retried %d times", over.Retries)
	}
}

func TestResumeSaysWhyThereIsNothingToDo(t *testing.T) {
	s := plainSite(t)
	for flow, c := range map[string]struct{ input, note string }{
		"echo":   {`"x"`, "has succeeded"},
		"fail":   {`"x"`, "has failed"},
		"signal": {`"go"`, `the signal "go"`},
		"ask":    {`{}`, "answer it"},
	} {
		run := plainWait(s, plainStart(s, flow, flow, c.input))
		tag := s.Do("GET", "/v1/threads/"+flow, "").Header.Get("ETag")
		var got api.Resumed
		s.Do("POST", "/v1/threads/"+flow+"/runs/newest/resume", "{}").Want(200, &got)
		if got.Resumed || !strings.Contains(got.Note, c.note) || got.Run.ID != run.ID {
			t.Errorf("%s: %+v", flow, got)
		}
		if now := s.Do("GET", "/v1/threads/"+flow, "").Header.Get("ETag"); now != tag {
			t.Errorf("%s: the thread went from %s to %s", flow, tag, now)
		}
	}
}

func TestUnknownRunsAre404(t *testing.T) {
	s := plainSite(t)
	plainWait(s, plainStart(s, "t", "echo", `"x"`))
	for _, path := range []string{"", "/wait"} {
		s.Do("GET", "/v1/threads/t/runs/none"+path, "").Problem(404, "no-run")
		s.Do("GET", "/v1/threads/none/runs/newest"+path, "").Problem(404, "no-thread")
	}
	for _, verb := range []string{"cancel", "pause", "resume", "retry", "again"} {
		s.Do("POST", "/v1/threads/t/runs/none/"+verb, "").Problem(404, "no-run")
		s.Do("POST", "/v1/threads/none/runs/newest/"+verb, "").Problem(404, "no-thread")
	}
	s.Do("GET", "/v1/threads/none/runs", "").Problem(404, "no-thread")
}

func TestAWaitIsBounded(t *testing.T) {
	s := plainSite(t)
	run := plainStart(s, "t", "sleep", `""`)
	var w api.Waited
	s.Do("GET", plainPath(run)+"/wait?seconds=1", "").Want(200, &w)
	if w.Over || w.Run.ID != run.ID {
		t.Errorf("it is %+v", w)
	}
	s.Do("GET", plainPath(run)+"/wait?seconds=61", "").Problem(400, "invalid")
	s.Do("GET", plainPath(run)+"/wait?seconds=-1", "").Problem(400, "invalid")
	asked := plainWait(s, plainStart(s, "a", "ask", `{}`))
	s.Do("GET", plainPath(asked)+"/wait?end=true&seconds=1", "").Want(200, &w)
	if w.Over {
		t.Error("a run that waits for an answer has not ended")
	}
	done := make(chan *servertest.Reply)
	go func() { done <- s.Do("GET", plainPath(run)+"/wait?seconds=60", "") }()
	s.Server.Close()
	(<-done).Problem(503, "stopping")
}
