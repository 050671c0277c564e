package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/server"
)

func TestStreamReplaysAndStaysLive(t *testing.T) {
	s := servertest.New(t, server.Options{Retry: 300 * time.Millisecond}, servertest.Flows()...)
	s.Start("a", "count", 3)
	st := s.Open("/v1/threads/a/events")
	if got := st.Response.Header; got.Get("Cache-Control") != "no-store, no-transform" || got.Get("X-Accel-Buffering") != "no" || got.Get("Connection") != "" {
		t.Errorf("the headers are %v", got)
	}
	if b, _ := st.Next(); b != (servertest.Block{Retry: "300"}) || st.Response.Header.Get("Last-Event-ID") != "0" {
		t.Errorf("the stream begins with %+v, behind %s", b, st.Response.Header.Get("Last-Event-ID"))
	}
	got := st.Until("ended")
	s.Start("a", "count", 2)
	got = append(got, st.Until("ended")...)
	var all []string
	for _, b := range got {
		all = append(all, b.String())
	}
	want := servertest.Journal(t, s.Runtime, "a")
	if diff := cmp.Diff(want[:len(all)], all); diff != "" {
		t.Errorf("the stream differs from the journal: %s", diff)
	}
}

func TestStreamGoesOnBehindTheLastID(t *testing.T) {
	s := servertest.New(t, server.Options{}, servertest.Flows()...)
	s.Start("a", "count", 3)
	for _, c := range []struct{ path, id, first string }{
		{"", "", "1"}, {"?after=3", "", "4"}, {"?after=3", "5", "6"}, {"?after=100", "2", "3"}, {"", "0", "1"}, {"", "4.done", "5"},
	} {
		var headers []string
		if c.id != "" {
			headers = []string{"Last-Event-ID", c.id}
		}
		st := s.Open("/v1/threads/a/events"+c.path, headers...)
		if b, _ := st.Event(); b.ID != c.first {
			t.Errorf("%q behind %q begins with %q, want %q", c.path, c.id, b.ID, c.first)
		}
		st.Close()
	}
}

func TestStreamRefusesBeforeItBegins(t *testing.T) {
	s := servertest.New(t, server.Options{}, servertest.Flows()...)
	s.Start("a", "count", 1)
	n := len(servertest.Journal(t, s.Runtime, "a"))
	for _, c := range []struct {
		path, id string
		status   int
		kind     string
	}{
		{"none/events", "", 404, "no-thread"},
		{"none/events", "7", 410, "erased"},
		{"a/events?run=none", "", 404, "no-run"},
		{"a/events?run=none", "3.done", 404, "no-run"},
		{"a/events", fmt.Sprint(n + 1), 400, "ahead"},
		{"a/events?after=99", "", 400, "ahead"},
		{"a/events?run=newest", "99", 400, "ahead"},
		{"a/events?run=newest", "99.done", 400, "ahead"},
		{"a/events", "x", 400, "invalid"},
		{"a/events", "01", 400, "invalid"},
		{"a/events", "-1", 400, "invalid"},
		{"a/events", "1.donex", 400, "invalid"},
		{"a/events", "18446744073709551616", 400, "invalid"},
		{"a/events?after=x", "", 400, "invalid"},
		{"a/events?until=wait", "", 400, "invalid"},
		{"a/events?run=newest&until=never", "", 400, "invalid"},
		{"a/events?deltas=maybe", "", 400, "invalid"},
		{"a/events?limit=1001", "", 400, "invalid"},
		{"a/events?nothing=1", "", 400, "invalid"},
	} {
		headers := []string{"Accept", "text/event-stream"}
		if c.id != "" {
			headers = append(headers, "Last-Event-ID", c.id)
		}
		t.Run(c.path+" "+c.id, func(t *testing.T) {
			s.Do("GET", "/v1/threads/"+c.path, "", headers...).Problem(c.status, c.kind)
		})
	}
}

func TestStreamOfARunEndsWithDone(t *testing.T) {
	s := servertest.New(t, server.Options{}, servertest.Flows()...)
	first := s.Start("a", "count", 2)
	second := s.Start("a", "count", 3)
	for _, name := range []string{first.ID, second.ID, "newest"} {
		st := s.Open("/v1/threads/a/events?run=" + name)
		all := st.Until("done")
		if b, ok := st.Next(); ok {
			t.Errorf("behind done is %v", b)
		}
		var done api.Done
		end := all[len(all)-1]
		servertest.Check(t, json.Unmarshal([]byte(end.Data), &done))
		last := all[len(all)-2]
		if done.Status != perdure.Succeeded || end.ID != last.ID+".done" || done.Thread != "a" {
			t.Errorf("done is %+v behind %v", end, last)
		}
		for _, b := range all[:len(all)-1] {
			if !strings.Contains(b.Data, done.Run) {
				t.Errorf("of another run: %v", b)
			}
		}
		// Who has seen the end is told to stop; who may have missed it gets it.
		path := "/v1/threads/a/events?run=" + name
		if r := s.Do("GET", path, "", "Accept", "text/event-stream", "Last-Event-ID", end.ID); r.Status != 204 || len(r.Body) > 0 {
			t.Errorf("behind done: %d %s", r.Status, r.Body)
		}
		again := s.Open(path, "Last-Event-ID", last.ID)
		if b, ok := again.Event(); !ok || b.String() != end.String() {
			t.Errorf("behind the last event: %v", b)
		}
	}
}

func TestStreamOfARunThatWaits(t *testing.T) {
	s := servertest.New(t, server.Options{}, servertest.Flows()...)
	run := s.Start("a", "ask", "how many?")
	path := "/v1/threads/a/events?until=wait&run=" + run.ID
	all := s.Open(path).Until("done")
	end := all[len(all)-1]
	var done api.Done
	servertest.Check(t, json.Unmarshal([]byte(end.Data), &done))
	if done.Status != perdure.Suspended || len(done.Asks) != 1 || done.Asks[0].Prompt != "how many?" {
		t.Fatalf("done is %s", end.Data)
	}
	s.Do("GET", path, "", "Accept", "text/event-stream", "Last-Event-ID", end.ID).Want(204)
	// One that wants the real end is not told to stop.
	real := s.Open("/v1/threads/a/events?run="+run.ID, "Last-Event-ID", end.ID)
	servertest.Check(t, s.Runtime.Answer(t.Context(), perdure.AskAnswer{Ask: done.Asks[0].ID, Answer: perdure.Answer{Value: json.RawMessage(`"two"`)}}))
	for _, st := range []*servertest.Stream{real, s.Open(path, "Last-Event-ID", end.ID)} {
		rest := st.Until("done")
		if rest[0].ID == "" || rest[0].Kind == "asked" {
			t.Errorf("it goes on with %v", rest[0])
		}
		if err := json.Unmarshal([]byte(rest[len(rest)-1].Data), &done); err != nil || done.Status != perdure.Succeeded || string(done.Output) != `"two"` {
			t.Errorf("the end is %v", rest[len(rest)-1])
		}
	}
}

func TestStreamOfARunThatIsRetriedGoesOn(t *testing.T) {
	fail := true
	s := servertest.New(t, server.Options{}, perdure.NewFlow("once", func(ctx context.Context, _ string) (string, error) {
		return perdure.Step(ctx, "try", func(context.Context) (string, error) {
			if fail {
				return "", errors.New("not now")
			}
			return "ok", nil
		})
	}))
	run := s.Start("a", "once", "")
	path := "/v1/threads/a/events?run=" + run.ID
	all := s.Open(path).Until("done")
	end := all[len(all)-1]
	fail = false
	servertest.Check(t, s.Runtime.Retry(t.Context(), "a", run.ID, perdure.Note{}))
	rest := s.Open(path, "Last-Event-ID", end.ID).Until("done")
	if rest[0].Kind != "retried" || !strings.Contains(rest[len(rest)-1].Data, `"succeeded"`) {
		t.Errorf("it goes on with %v", rest)
	}
}

func TestStreamOfAnErasedThreadEnds(t *testing.T) {
	s := servertest.New(t, server.Options{}, servertest.Flows()...)
	s.Start("a", "ask", "?")
	st := s.Open("/v1/threads/a/events")
	st.Until("asked")
	servertest.Check(t, s.Runtime.Erase(t.Context(), "a", perdure.EraseOptions{}))
	all := st.Until("erased")
	if last := all[len(all)-1]; last.ID != "" {
		t.Errorf("the end has an id: %v", last)
	}
	if b, ok := st.Next(); ok {
		t.Errorf("behind the end is %v", b)
	}
	s.Do("GET", "/v1/threads/a/events", "", "Accept", "text/event-stream", "Last-Event-ID", "2").Problem(410, "erased")
}

func TestPagesOfEvents(t *testing.T) {
	s := servertest.New(t, server.Options{}, servertest.Flows()...)
	s.Start("a", "count", 20)
	run := s.Start("a", "count", 5)
	var all []string
	var seqs []uint64
	for after, pages := uint64(0), 0; ; pages++ {
		var page api.EventPage
		s.Do("GET", fmt.Sprintf("/v1/threads/a/events?limit=7&after=%d", after), "").Want(200, &page)
		for _, ev := range page.Events {
			data, _ := json.Marshal(ev)
			all = append(all, fmt.Sprintf("%d %s %s", ev.Seq, ev.Kind, data))
			seqs = append(seqs, ev.Seq)
		}
		if page.Next == 0 || pages > 100 {
			break
		}
		after = page.Next
	}
	if diff := cmp.Diff(servertest.Journal(t, s.Runtime, "a"), all); diff != "" {
		t.Error(diff)
	}
	var page api.EventPage
	s.Do("GET", "/v1/threads/a/events?run=newest", "").Want(200, &page)
	if len(page.Events) == 0 || slices.ContainsFunc(page.Events, func(ev perdure.Event) bool { return ev.Run != run.ID }) {
		t.Errorf("of the run: %v", page.Events)
	}
	s.Do("GET", "/v1/threads/a/events?after=1000", "").Problem(400, "ahead")
	s.Do("GET", "/v1/threads/none/events", "").Problem(404, "no-thread")
	s.Do("GET", "/v1/threads/a/events?limit=-1", "").Problem(400, "invalid")
	end := s.Do("GET", fmt.Sprintf("/v1/threads/a/events?after=%d", seqs[len(seqs)-1]), "").Want(200)
	if string(end.Body) != `{"events":[]}` {
		t.Errorf("behind the end: %s", end.Body)
	}
}

func TestWhichAnswerIsAskedFor(t *testing.T) {
	s := servertest.New(t, server.Options{}, servertest.Flows()...)
	run := s.Start("a", "count", 1)
	for accept, want := range map[string]string{
		"":                                    "application/json",
		"*/*":                                 "application/json",
		"application/json":                    "application/json",
		"text/event-stream":                   "text/event-stream",
		"text/event-stream, */*":              "text/event-stream",
		"*/*, text/event-stream":              "text/event-stream",
		"application/json, text/event-stream": "application/json",
		"application/json;q=0.1, text/event-stream;q=0.9": "text/event-stream",
		"text/event-stream;q=0":                           "application/json",
		"text/event-stream;q=x, ;;":                       "application/json",
	} {
		got := s.Do("GET", "/v1/threads/a/events?run="+run.ID, "", "Accept", accept).Want(200).Header.Get("Content-Type")
		if got != want {
			t.Errorf("%q gets %s", accept, got)
		}
	}
}

func TestInternalEventsAreBareForOthersThanAdmins(t *testing.T) {
	s := servertest.New(t, server.Options{Auth: servertest.People{
		"admin": {Subject: "root", Scopes: []api.Scope{api.ScopeAdmin}},
		"read":  {Subject: "ann", Scopes: []api.Scope{api.ScopeRead}},
	}}, servertest.Flows()...)
	s.Start("a", "count", 2)
	n := len(servertest.Journal(t, s.Runtime, "a"))
	for _, token := range []string{"admin", "read"} {
		st := s.Open("/v1/threads/a/events", "Authorization", "Bearer "+token)
		var page api.EventPage
		s.Do("GET", "/v1/threads/a/events", "", "Authorization", "Bearer "+token).Want(200, &page)
		if len(page.Events) != n {
			t.Errorf("%s sees %d events of %d", token, len(page.Events), n)
		}
		for i, b := range st.Until("ended") {
			var ev perdure.Event
			servertest.Check(t, json.Unmarshal([]byte(b.Data), &ev))
			if diff := cmp.Diff(page.Events[i], ev); diff != "" {
				t.Errorf("%s sees in a stream other than on a page: %s", token, diff)
			}
			if b.ID != fmt.Sprint(i+1) {
				t.Errorf("%s gets the id %s", token, b.ID)
			}
			if ev.Kind == "claimed" && (ev.Worker != "") != (token == "admin") {
				t.Errorf("%s sees %s", token, b.Data)
			}
			if ev.Kind == "step" && ev.Value == nil {
				t.Errorf("%s does not see %s", token, b.Data)
			}
		}
	}
}

func TestHeadOfAStreamHasNoBody(t *testing.T) {
	s := servertest.New(t, server.Options{}, servertest.Flows()...)
	s.Start("a", "count", 1)
	for _, path := range []string{"/v1/threads/a/events", "/v1/events"} {
		r := s.Do("HEAD", path, "", "Accept", "text/event-stream").Want(200)
		if len(r.Body) > 0 || r.Header.Get("Content-Type") != "text/event-stream" {
			t.Errorf("%s: %v %s", path, r.Header, r.Body)
		}
	}
	s.Do("HEAD", "/v1/threads/none/events", "", "Accept", "text/event-stream").Want(404)
}

func TestStartAnswersWithTheRunsEvents(t *testing.T) {
	s := servertest.New(t, server.Options{}, servertest.Flows()...)
	for _, c := range []struct{ path, body, status string }{
		{"/v1/runs", `{"flow":"count","input":3}`, "succeeded"},
		{"/v1/threads/a/runs", `{"flow":"count","input":3}`, "succeeded"},
		{"/v1/threads/b/runs", `{"flow":"ask","input":"?"}`, "suspended"},
	} {
		r := s.Do("POST", c.path, c.body, "Accept", "text/event-stream", "Content-Type", "application/json")
		text := string(r.Want(200).Body)
		if !strings.Contains(text, "event: queued\n") || !strings.Contains(text, ".done\nevent: done\n") || !strings.Contains(text, `"status":"`+c.status+`"`) {
			t.Errorf("%s answers with %s", c.path, text)
		}
	}
}
