package server_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
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
		for _, sum := range servertest.All(s.T, s.Runtime.List(s.T.Context(), perdure.ListOptions{})) {
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
	thread := servertest.Decode[perdure.Thread](s.Do("GET", "/v1/threads/t1", ""), 200)
	if thread.Title != "T" || thread.User != "ann" || thread.Metadata["a"] != "b" {
		t.Errorf("the thread is %+v", thread)
	}
	same := servertest.Decode[perdure.Run](s.Do("GET", "/v1/threads/t1/runs/newest", ""), 200)
	if same.ID != run.ID {
		t.Errorf("the newest is %s", same.ID)
	}
	var list api.RunList
	tag := s.Do("GET", "/v1/threads/t1/runs", "").Want(200, &list).Header.Get("ETag")
	if len(list.Runs) != 1 || list.Runs[0].ID != run.ID || tag != fmt.Sprintf("%q", fmt.Sprint(thread.Seq)) {
		t.Errorf("the runs are %v with the tag %s", list.Runs, tag)
	}
	fresh := servertest.Decode[perdure.Run](s.Do("POST", "/v1/runs", `{"flow":"echo","input":"x"}`), 202)
	if fresh.Thread == "" || fresh.Thread == "t1" {
		t.Errorf("the new thread is %q", fresh.Thread)
	}
	own := servertest.Decode[perdure.Thread](s.Do("GET", "/v1/threads/"+fresh.Thread, ""), 200)
	if own.User != "" {
		t.Errorf("a thread that nobody is known to have started is %q's", own.User)
	}
}

func TestARunIsStartedAsAStream(t *testing.T) {
	s := plainSite(t)
	for _, c := range []struct{ path, body, has string }{
		{"/v1/runs", `{"flow":"echo","input":"hello"}`, `"output":"hello"`},
		{"/v1/threads/t/runs", `{"flow":"echo","input":"hello"}`, `"status":"succeeded"`},
		{"/v1/threads/t/runs", `{"flow":"ask","input":{}}`, `"status":"suspended"`},
	} {
		r := s.Do("POST", c.path, c.body, "Accept", "text/event-stream", "Content-Type", "application/json").Want(200)
		thread, text := r.Header.Get("X-Agentkit-Trace-Id"), string(r.Body)
		if thread == "" || !strings.HasPrefix(r.Header.Get("Location"), "/v1/threads/"+thread+"/runs/") {
			t.Errorf("the headers are %v", r.Header)
		}
		if !strings.Contains(text, "event: queued\n") || !strings.Contains(text, ".done\nevent: done\n") || !strings.Contains(text, c.has) {
			t.Errorf("the stream is %s", text)
		}
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
	for _, input := range []string{`{"Promt":"x"}`, `{"Prompt":"x","more":1}`, `{"Prompt":7}`, `[]`} {
		s.Do("POST", "/v1/threads/t/runs", `{"flow":"ask","input":`+input+`}`).Problem(400, "invalid")
		s.Do("PUT", "/v1/schedules/s", `{"flow":"ask","every":"1d","input":`+input+`}`).Problem(400, "invalid")
	}
	s.Do("POST", "/v1/threads/t/runs", `{"flow":"echo","input":"x"}`, "If-Match", `"3"`).Problem(412, "stale")
	for _, tag := range []string{`"0"`, `""`, `"x"`, `*`} {
		s.Do("POST", "/v1/threads/t/runs", `{"flow":"echo","input":"x"}`, "If-Match", tag).Problem(400, "invalid")
	}
	s.Do("GET", "/v1/threads/t", "").Problem(404, "no-thread")
}

func TestAnyIDCanBeAnAddress(t *testing.T) {
	s := plainSite(t)
	for path, id := range map[string]string{"a%2Fb": "a/b", "%C3%BC%20x": "ü x", "...": "...", "a%3Fb%23c": "a?b#c", "%25": "%", "100%2525": "100%25"} {
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
	// Browsers take these for folders, even if they are escaped.
	for path, id := range map[string]string{"%2E%2E": "..", "%2E": "."} {
		s.Do("POST", "/v1/threads/"+path+"/runs", `{"flow":"echo","input":"x"}`).Problem(400, "invalid")
		s.Do("POST", "/v1/threads", `{"id":"`+id+`"}`).Problem(400, "invalid")
		s.Do("POST", "/v1/runs", `{"flow":"echo","input":"x","user":"`+id+`"}`).Problem(400, "invalid")
	}
}

func TestABusyThreadNamesItsRun(t *testing.T) {
	s := plainSite(t)
	run := plainWait(s, plainStart(s, "t", "ask", "{}"))
	p := servertest.Decode[api.Problem](s.Do("POST", "/v1/threads/t/runs", `{"flow":"echo","input":"x","policy":"reject"}`).Problem(409, "busy"), 409)
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
	won := 0
	for _, r := range servertest.Together(8, func(int) *servertest.Reply {
		return s.Do("POST", "/v1/threads/t/runs", `{"flow":"ask","input":{}}`, "If-Match", tag)
	}) {
		if r.Status == 202 {
			won++
			continue
		}
		p := servertest.Decode[api.Problem](r.Problem(412, "stale"), 412)
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
	now := servertest.Decode[perdure.Run](s.Do("POST", "/v1/threads/t/runs/newest/pause", `{"reason":"lunch"}`), 200)
	if now.Status != perdure.Paused {
		t.Errorf("it is %s", now.Status)
	}
	resumed := servertest.Decode[api.Resumed](s.Do("POST", plainPath(run)+"/resume", ""), 200)
	if !resumed.Resumed || resumed.Note != "" {
		t.Errorf("it is %+v", resumed)
	}
	plainWait(s, run) // a worker has to find that it waits for the ask
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
		got := servertest.Decode[api.Resumed](s.Do("POST", "/v1/threads/"+flow+"/runs/newest/resume", "{}"), 200)
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

// plainTeam is a site with people: a boss who may do everything, ann of the
// group buyers, and bob.
func plainTeam(t *testing.T, flows ...perdure.Flow) *servertest.Site {
	t.Helper()
	all := []api.Scope{api.ScopeRead, api.ScopeRun, api.ScopeAnswer}
	s := servertest.New(t, server.Options{Auth: servertest.People{
		"boss": {Subject: "boss", Scopes: []api.Scope{api.ScopeAdmin}},
		"ann":  {Subject: "ann", Groups: []string{"buyers"}, Scopes: all},
		"bob":  {Subject: "bob", Scopes: all},
	}}, append(plainFlows(), flows...)...)
	s.Token = "boss"
	return s
}

// as returns the site as someone else sees it.
func plainAs(s *servertest.Site, token string) *servertest.Site {
	other := *s
	other.Token = token
	return &other
}

func TestTheInboxShowsOpenAsksOfAllThreads(t *testing.T) {
	s := plainTeam(t)
	for i, q := range []string{`{"Kind":"approval","Who":["ann"]}`, `{"Kind":"input","Who":["group:buyers"]}`, `{"Kind":"approval"}`, `{"Who":["bob","group:sellers"]}`} {
		user := []string{"ann", "bob"}[i%2]
		id := fmt.Sprintf("t%d", i)
		s.Do("POST", "/v1/threads/"+id+"/runs", fmt.Sprintf(`{"flow":"ask","input":%s,"user":%q}`, q, user)).Want(202)
		plainWait(s, &perdure.Run{Thread: id, ID: api.Newest})
	}
	plainWait(s, plainStart(s, "many", "yes", "5"))
	plainWait(s, plainStart(s, "none", "echo", `"x"`))
	list := func(s *servertest.Site, query string) (threads []string) {
		t.Helper()
		for range 20 {
			page := servertest.Decode[api.AskPage](s.Do("GET", "/v1/asks?"+query, ""), 200)
			for _, a := range page.Asks {
				threads = append(threads, a.Thread)
				if a.Status != "open" {
					t.Errorf("ask %s is %s", a.ID, a.Status)
				}
			}
			if page.Next == "" {
				return threads
			}
			query, _, _ = strings.Cut(query, "&after=")
			query += "&after=" + page.Next
		}
		t.Fatal("the pages do not end")
		return nil
	}
	five := slices.Repeat([]string{"many"}, 5)
	for _, c := range []struct {
		token, query string
		want         []string
	}{
		{"boss", "", append([]string{"t0", "t1", "t2", "t3"}, five...)},
		{"boss", "limit=1", append([]string{"t0", "t1", "t2", "t3"}, five...)},
		{"boss", "limit=3", append([]string{"t0", "t1", "t2", "t3"}, five...)},
		{"boss", "kind=approval", []string{"t0", "t2"}},
		{"boss", "kind=approval&limit=1", []string{"t0", "t2"}},
		{"boss", "user=bob", []string{"t1", "t3"}},
		{"boss", "flow=ask", []string{"t0", "t1", "t2", "t3"}},
		{"boss", "flow=echo", nil},
		{"boss", "thread=many", five},
		{"boss", "thread=t0&kind=input", nil},
		{"ann", "mine=true", append([]string{"t0", "t1", "t2"}, five...)},
		{"bob", "mine=true", append([]string{"t2", "t3"}, five...)},
		{"bob", "mine=true&thread=t0", nil},
	} {
		if got := list(plainAs(s, c.token), c.query); !slices.Equal(got, c.want) {
			t.Errorf("%s asks for %q: %q, want %q", c.token, c.query, got, c.want)
		}
	}
	s.Do("GET", "/v1/asks?thread=nowhere", "").Problem(404, "no-thread")
	s.Do("GET", "/v1/asks?limit=1001", "").Problem(400, "invalid")
	s.Do("GET", "/v1/asks?after=%2F", "").Problem(400, "invalid")
}

func TestAnAskIsAnsweredOnceByWhoMay(t *testing.T) {
	s := plainTeam(t)
	ann, bob := plainAs(s, "ann"), plainAs(s, "bob")
	run := plainWait(s, plainStart(s, "t", "ask", `{"Who":["group:buyers"],"Decisions":["approve","reject"]}`))
	ask := "/v1/asks/" + run.Asks[0].ID
	info := servertest.Decode[perdure.AskInfo](bob.Do("GET", ask, ""), 200)
	if info.Status != "open" || info.Thread != "t" {
		t.Errorf("the ask is %+v", info)
	}
	bob.Do("POST", ask+"/answer", `{"decision":"approve"}`).Problem(403, "forbidden")
	if r := ann.Do("POST", ask+"/answer", `{"decision":"dance"}`).Problem(422, "answer"); strings.Contains(string(r.Body), "dance") {
		t.Errorf("what was given, which may be a secret, is told: %s", r.Body)
	}
	ann.Do("POST", ask+"/answer", `{"decision":"approve"}`, "If-Match", `"1"`).Problem(412, "stale")
	bob.Do("POST", ask+"/progress", `{"value":{"seen":true}}`).Problem(403, "forbidden")
	ann.Do("POST", ask+"/progress", `{"value":{"seen":true}}`).Want(204)
	ann.Do("POST", ask+"/answer", `{"decision":"approve","value":{"n":1},"message":"fine"}`).Want(200, &info)
	if info.Status != "answered" || info.Answer == nil || info.Answer.By != "ann" || info.Answer.Decision != "approve" || info.Answer.Message != "fine" {
		t.Errorf("the ask is %+v with %+v", info, info.Answer)
	}
	ann.Do("POST", ask+"/answer", `{"decision":"approve","value":{"n":1},"message":"fine"}`).Want(200)
	ann.Do("POST", ask+"/answer", `{"decision":"reject"}`).Problem(409, "answered")
	over := plainWait(s, run)
	if !strings.Contains(string(over.Output), `"by":"ann"`) {
		t.Errorf("the output is %s", over.Output)
	}
	ann.Do("POST", ask+"/progress", `{"value":1}`).Problem(410, "ask-over")
	for _, id := range []string{"none", "x.y", strings.Repeat("z", 300), run.Asks[0].ID + "x"} {
		s.Do("GET", "/v1/asks/"+id, "").Problem(404, "no-ask")
		s.Do("POST", "/v1/asks/"+id+"/answer", `{"value":true}`).Problem(404, "no-ask")
		s.Do("POST", "/v1/asks/"+id+"/progress", `{"value":true}`).Problem(404, "no-ask")
		s.Do("POST", "/v1/asks/"+id+"/secret", `{"secret":"x"}`).Problem(404, "no-ask")
	}
	gone := plainWait(s, plainStart(s, "g", "ask", `{}`))
	s.Do("POST", plainPath(gone)+"/cancel", "").Want(200)
	plainWait(s, gone)
	s.Do("POST", "/v1/asks/"+gone.Asks[0].ID+"/answer", `{"value":true}`).Problem(410, "ask-over")
}

func TestAnAnswerFitsTheAsk(t *testing.T) {
	s := plainSite(t)
	run := plainWait(s, plainStart(s, "t", "yes", "1"))
	ask := "/v1/asks/" + run.Asks[0].ID + "/answer"
	for _, body := range []string{`{}`, `{"value":null}`, `{"value":"yes"}`, `{"value":1}`, `{"value":true,"decision":"approve"}`} {
		s.Do("POST", ask, body).Problem(422, "answer")
	}
	s.Do("POST", ask, `{"value":true}`).Want(200)
}

func TestOfManyAnswersOneCounts(t *testing.T) {
	s := plainSite(t)
	run := plainWait(s, plainStart(s, "t", "yes", "1"))
	replies := servertest.Together(10, func(i int) *servertest.Reply {
		return s.Do("POST", "/v1/asks/"+run.Asks[0].ID+"/answer", fmt.Sprintf(`{"value":%t}`, i%2 == 0))
	})
	info := servertest.Decode[perdure.AskInfo](s.Do("GET", "/v1/asks/"+run.Asks[0].ID, ""), 200)
	for i, r := range replies {
		if (i%2 == 0) == info.Answer.Value {
			r.Want(200)
		} else {
			r.Problem(409, "answered")
		}
	}
}

func TestSeveralAsksAreAnsweredTogetherOrNotAtAll(t *testing.T) {
	s := plainSite(t)
	run := plainWait(s, plainStart(s, "t", "yes", "3"))
	other := plainWait(s, plainStart(s, "o", "yes", "1"))
	id := func(i int) string { return run.Asks[i].ID }
	answers := func(list ...string) string { return `{"answers":[` + strings.Join(list, ",") + `]}` }
	one := func(ask, value string) string { return fmt.Sprintf(`{"ask":%q,"value":%s}`, ask, value) }
	all := answers(one(id(0), "true"), one(id(1), "false"), one(id(2), "true"))
	s.Do("POST", "/v1/threads/t/answers", answers(one(id(0), "true"), one(id(1), `"no"`))).Problem(422, "answer")
	s.Do("POST", "/v1/threads/t/answers", answers(one(id(0), "true"), one(other.Asks[0].ID, "true"))).Problem(404, "no-ask")
	s.Do("POST", "/v1/threads/o/answers", answers(one(id(0), "true"))).Problem(404, "no-ask")
	s.Do("POST", "/v1/threads/none/answers", answers(one(id(0), "true"))).Problem(404, "no-thread")
	s.Do("POST", "/v1/threads/t/answers", answers(one(id(0), "true"), one(id(0), "false"))).Problem(400, "invalid")
	s.Do("POST", "/v1/threads/t/answers", answers()).Problem(400, "invalid")
	s.Do("POST", "/v1/threads/t/answers", `{"answers":[{"ask":"x","colour":1}]}`).Problem(400, "body")
	s.Do("POST", "/v1/threads/t/answers", `{"answers":[null]}`).Problem(400, "body")
	s.Do("POST", "/v1/threads/t/answers", all, "If-Match", `"2"`).Problem(412, "stale")
	var page api.AskPage
	s.Do("GET", "/v1/asks?thread=t", "").Want(200, &page)
	if len(page.Asks) != 3 {
		t.Errorf("%d asks are open", len(page.Asks))
	}
	tag := s.Do("GET", "/v1/threads/t", "").Header.Get("ETag")
	list := servertest.Decode[api.AskList](s.Do("POST", "/v1/threads/t/answers", all, "If-Match", tag), 200)
	if len(list.Asks) != 3 || list.Asks[1].ID != id(1) || list.Asks[1].Status != "answered" {
		t.Errorf("the asks are %+v", list.Asks)
	}
	s.Do("POST", "/v1/threads/t/answers", all, "If-Match", tag).Want(200) // again changes nothing
	if over := plainWait(s, run); over.Status != perdure.Succeeded {
		t.Errorf("the run is %s", over.Status)
	}
}

func TestASignalIsSent(t *testing.T) {
	s := plainSite(t)
	run := plainWait(s, plainStart(s, "t", "signal", `"go"`))
	s.Do("POST", "/v1/threads/t/signals/other", `{"value":"no"}`, "Idempotency-Key", "a").Want(204)
	s.Do("POST", "/v1/threads/t/signals/go", `{"value":"yes"}`, "Idempotency-Key", "b").Want(204)
	s.Do("POST", "/v1/threads/t/signals/go", `{"value":"yes"}`, "Idempotency-Key", "b").Want(204)
	if over := plainWait(s, run); string(over.Output) != `"yes"` {
		t.Errorf("the output is %s", over.Output)
	}
	s.Do("POST", "/v1/threads/none/signals/go", "").Problem(404, "no-thread")
	s.Do("POST", "/v1/threads/t/signals/"+strings.Repeat("x", 2000), "").Problem(400, "name")
}

func TestASecretIsGivenAndNotShown(t *testing.T) {
	t.Setenv("PERDURE_KEYS", "k1:"+base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32))))
	login := perdure.NewFlow("login", func(ctx context.Context, _ string) (string, error) {
		_, err := perdure.Ask[perdure.Answer](ctx, "provide", perdure.Question{Kind: agent.KindCredential, Data: map[string]any{"credential": "mail"},
			Who: []string{"ann"}, Decisions: []string{agent.DecisionProvided, agent.DecisionReject}})
		return "in", err
	})
	s := plainTeam(t, login)
	ann, bob := plainAs(s, "ann"), plainAs(s, "bob")
	run := plainWait(ann, plainStart(ann, "t", "login", `""`))
	const canary = "c4n4ry-of-a-secret"
	path := "/v1/asks/" + run.Asks[0].ID + "/secret"
	bob.Do("POST", path, `{"secret":"`+canary+`"}`).Problem(403, "forbidden")
	r := ann.Do("POST", path, `{"secret":"`+canary+`"}`).Want(204)
	if strings.Contains(string(r.Body), canary) {
		t.Error("the answer shows the secret")
	}
	if over := plainWait(ann, run); over.Status != perdure.Succeeded {
		t.Errorf("the run is %s: %s", over.Status, over.Error)
	}
	for _, path := range []string{"/v1/threads/t/export", "/v1/threads/t/state", "/v1/asks/" + run.Asks[0].ID, "/v1/threads/t/history"} {
		if strings.Contains(string(s.Do("GET", path, "").Want(200).Body), canary) {
			t.Errorf("%s shows the secret", path)
		}
	}
	other := plainWait(ann, plainStart(ann, "o", "ask", `{}`))
	ann.Do("POST", "/v1/asks/"+other.Asks[0].ID+"/secret", `{"secret":"x"}`).Problem(422, "credential")
	t.Setenv("PERDURE_KEYS", "")
	third := plainWait(ann, plainStart(ann, "u", "login", `""`))
	ann.Do("POST", "/v1/asks/"+third.Asks[0].ID+"/secret", `{"secret":"x"}`).Problem(409, "unsealed")
}

func TestRulesAreListedAndRevoked(t *testing.T) {
	s := plainTeam(t)
	rule := servertest.Must(agent.RulesOf(s.Runtime).Allow(t.Context(), agent.Rule{User: "ann", Flow: "f", Agent: "clerk", Tool: "pay", Schema: "s", Args: json.RawMessage(`{"n":1}`), Who: []string{"ann"}}, "ann"))(t)
	ann, bob := plainAs(s, "ann"), plainAs(s, "bob")
	count := func(s *servertest.Site, query string) int {
		list := servertest.Decode[api.RuleList](s.Do("GET", "/v1/rules"+query, ""), 200)
		return len(list.Rules)
	}
	if count(ann, "") != 1 || count(bob, "") != 0 || count(bob, "?user=ann") != 1 {
		t.Error("rules are listed by their user, the caller if none is named")
	}
	bob.Do("DELETE", "/v1/rules/"+rule.ID, "").Problem(403, "forbidden")
	ann.Do("DELETE", "/v1/rules/none", "").Problem(404, "no-rule")
	ann.Do("DELETE", "/v1/rules/"+rule.ID, "").Want(204)
	ann.Do("DELETE", "/v1/rules/"+rule.ID, "").Problem(404, "no-rule")
	if count(ann, "") != 0 {
		t.Error("the rule is still there")
	}
}

// plainServe serves a handler and returns its address.
func plainServe(t testing.TB, h http.Handler) string {
	ts := httptest.NewServer(h)
	t.Cleanup(ts.Close)
	return ts.URL
}

func TestBodiesAreReadStrictly(t *testing.T) {
	s := servertest.New(t, server.Options{MaxBody: 10_000}, plainFlows()...)
	deep := strings.Repeat("[", 100) + strings.Repeat("]", 100)
	for name, c := range map[string]struct {
		body   string
		status int
		kind   string
	}{
		"an unknown member":          {`{"flow":"echo","colour":1}`, 400, "body"},
		"a member twice":             {`{"flow":"echo","flow":"ask"}`, 400, "body"},
		"a member twice, deep":       {`{"flow":"echo","input":{"a":1,"a":2}}`, 400, "body"},
		"another case":               {`{"Flow":"echo"}`, 400, "body"},
		"two cases":                  {`{"flow":"echo","FLOW":"ask"}`, 400, "body"},
		"a wrong type":               {`{"flow":1}`, 400, "body"},
		"a list in place of a map":   {`{"flow":"echo","metadata":[]}`, 400, "body"},
		"a fraction":                 {`{"flow":"echo","budget":{"a":1.5}}`, 400, "body"},
		"a number out of range":      {`{"flow":"echo","budget":{"a":1e30}}`, 400, "body"},
		"no object":                  {`[]`, 400, "body"},
		"null":                       {`null`, 400, "body"},
		"a missing member":           {`{}`, 400, "body"},
		"nothing":                    {``, 400, "body"},
		"something behind":           {`{"flow":"echo"} {}`, 400, "body"},
		"half of it":                 {`{"flow":"ec`, 400, "body"},
		"too deep":                   {`{"flow":"echo","input":` + deep + `}`, 400, "body"},
		"too large":                  {`{"flow":"echo","input":"` + strings.Repeat("x", 10_000) + `"}`, 413, "body-too-large"},
		"bytes that are no text":     {"{\"flow\":\"echo\",\"input\":\"\xff\"}", 400, "body"},
		"half a surrogate":           {`{"flow":"echo","input":"a\ud800b"}`, 400, "body"},
		"half a surrogate in a name": {`{"flow":"echo","input":{"\udfff":1}}`, 400, "body"},
		"a name that is no text":     {"{\"flow\":\"echo\",\"input\":{\"\xff\":1}}", 400, "body"},
		"an escaped name, twice":     {`{"flow":"echo","input":{"a":1,"\u0061":2}}`, 400, "body"},
		"a trailing comma":           {`{"flow":"echo",}`, 400, "body"},
		"a comment":                  {`{"flow":"echo"/**/}`, 400, "body"},
		"no number":                  {`{"flow":"echo","input":NaN}`, 400, "body"},
		"a body with a byte order":   {"\uFEFF{\"flow\":\"echo\"}", 400, "body"},
		"an empty name":              {`{"flow":"echo","":1}`, 400, "body"},
		"the name of a path's field": {`{"flow":"echo","thread":"x"}`, 400, "body"},
		"a header's name":            {`{"flow":"echo","Idempotency-Key":"x"}`, 400, "body"},
		"the minus of a hidden one":  {`{"flow":"echo","-":"x"}`, 400, "body"},
	} {
		t.Run(name, func(t *testing.T) {
			s := *s
			s.T = t
			s.Do("POST", "/v1/threads/t/runs", c.body, "Content-Type", "application/json").Problem(c.status, c.kind)
		})
	}
	long := strings.Repeat("é\\n", 2000)
	for path, body := range map[string]string{
		"/v1/threads/t/runs": `{"flow":"` + long + `"}`, "/v1/runs": `{"flow":"echo","` + long + `":1}`, "/v1/threads": `{"id":"` + long + `"}`,
		"/v1/tokens": `{"subject":"a","scopes":["` + long + `"]}`, "/v1/threads/t/fork?" + url.QueryEscape(long): `{}`,
	} {
		if r := s.Do("POST", path, body); r.Status < 400 || len(r.Body) > 600 || !json.Valid(r.Body) {
			t.Errorf("%.40s: %d bytes are said about a long text: %.900s", path, len(r.Body), r.Body)
		}
	}
	for _, media := range []string{"text/plain", "application/x-www-form-urlencoded", "application/jsonx", "x", "application/json; charset", "application/json; charset=utf-16", "application/json; charset=latin1"} {
		s.Do("POST", "/v1/threads/t/runs", `{"flow":"echo","input":"x"}`, "Content-Type", media).Problem(415, "media-type")
	}
	s.Do("POST", "/v1/threads/t/runs?colour=red", `{"flow":"echo","input":"x"}`).Problem(400, "invalid")
	s.Do("POST", "/v1/threads/t/runs?%zz", `{"flow":"echo","input":"x"}`).Problem(400, "invalid")
	s.Do("POST", "/v1/threads/%ff/runs", `{"flow":"echo","input":"x"}`).Problem(400, "invalid")
	s.Do("GET", "/v1/threads/t", "").Problem(404, "no-thread") // none of it has done anything
	s.Do("POST", "/v1/threads/t/runs", `{"flow":"echo","input":"x"}`, "Content-Type", "application/json; charset=\"UTF-8\"").Want(202)
}

func TestWhatTheMuxSaysIsAProblemToo(t *testing.T) {
	s := plainSite(t)
	s.Do("GET", "/v1/nothing", "").Problem(404, "not-found")
	s.Do("POST", "/v1/threads/t/nothing", "{}").Problem(404, "not-found")
	for _, path := range []string{"//v1/threads", "/v1//threads", "/v1/./threads", "/v1/x/../threads", "/v1/threads/"} {
		s.Do("GET", path, "").Problem(404, "not-found")
	}
	r := s.Do("PUT", "/v1/threads", "{}").Problem(405, "method")
	if allow := r.Header.Get("Allow"); !strings.Contains(allow, "GET") || !strings.Contains(allow, "POST") {
		t.Errorf("allowed is %q", allow)
	}
	s.Do("DELETE", "/healthz", "").Problem(405, "method")
	s.Do("PUT", "/v1/memory", "{}").Problem(404, "not-found") // and is not sent to an address with a slash
	head := s.Do("HEAD", "/v1/flows", "").Want(200)
	if len(head.Body) > 0 || head.Header.Get("Content-Type") != "application/json" {
		t.Errorf("HEAD answers %q with %v", head.Body, head.Header)
	}
	if r := s.Do("HEAD", "/v1/threads/none", ""); r.Status != 404 {
		t.Errorf("HEAD of nothing is %d", r.Status)
	}
}

// many returns a JSON list of n times the same.
func many(item string, n int) string {
	return "[" + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + "]"
}

// An element of a list is worth three bytes of a body, and was a thousand times
// as much work.
func TestListsOfObjectsAreBounded(t *testing.T) {
	s := newFuzzed(t)
	s.Do("POST", "/v1/threads/t1/answers", `{"answers":`+many("{}", 1_000_000)+`}`).Problem(400, "body")
	s.Do("POST", "/v1/threads/t1/answers", `{"answers":`+many("{}", 1001)+`}`).Problem(400, "invalid")
	s.Do("POST", "/run", `{"appName":"asker","userId":"ann","sessionId":"t1","newMessage":{"parts":`+many("{}", 1_000_000)+`}}`).Problem(400, "invalid")
	s.Do("POST", "/run", `{"appName":"asker","userId":"ann","sessionId":"t1","newMessage":{"parts":[5]}}`).Problem(400, "body")
}

// A condition that is not looked at would make a write another one.
func TestConditionsAreNotOverlooked(t *testing.T) {
	s := newFuzzed(t)
	s.Do("PATCH", "/v1/threads/t1", `{"title":"x"}`, "If-Match", `"1"`).Problem(412, "stale")
	s.Do("POST", "/v1/threads", `{"id":"t2"}`, "If-None-Match", `*`).Problem(400, "invalid")
	s.Do("GET", "/v1/threads/t1", "", "If-None-Match", `"1"`).Want(200)
	for _, seq := range []string{"-1", "+1", "1.0", "1e3", "0", "*", "", `""`, "18446744073709551616", `"1", "2"`, "0x1", "1 2", "١"} {
		s.Do("DELETE", "/v1/threads/t1", "", "If-Match", seq).Problem(400, "invalid")
	}
	s.Do("DELETE", "/v1/threads/t1", "", "If-Match", `"18446744073709551615"`).Problem(412, "stale")
	s.Do("GET", "/v1/threads/t1", "").Want(200)
}
