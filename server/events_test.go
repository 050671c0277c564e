package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store/memstore"
)

func TestStreamReplaysAndStaysLive(t *testing.T) {
	s := servertest.New(t, server.Options{Retry: 300 * time.Millisecond}, testFlows()...)
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
	want := journalOf(t, s.Runtime, "a")
	if diff := cmp.Diff(want[:len(all)], all); diff != "" {
		t.Errorf("the stream differs from the journal: %s", diff)
	}
}

func TestStreamGoesOnBehindTheLastID(t *testing.T) {
	s := servertest.New(t, server.Options{}, testFlows()...)
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
	s := servertest.New(t, server.Options{}, testFlows()...)
	s.Start("a", "count", 1)
	n := len(journalOf(t, s.Runtime, "a"))
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
	s := servertest.New(t, server.Options{}, testFlows()...)
	first := s.Start("a", "count", 2)
	second := s.Start("a", "count", 3)
	for _, name := range []string{first.ID, second.ID, "newest"} {
		st := s.Open("/v1/threads/a/events?run=" + name)
		all, done := st.Done()
		if b, ok := st.Next(); ok {
			t.Errorf("after done is %v", b)
		}
		end := all[len(all)-1]
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
	s := servertest.New(t, server.Options{}, testFlows()...)
	run := s.Start("a", "ask", "how many?")
	path := "/v1/threads/a/events?until=wait&run=" + run.ID
	all, done := s.Open(path).Done()
	end := all[len(all)-1]
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
	s := servertest.New(t, server.Options{}, testFlows()...)
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
	s := servertest.New(t, server.Options{}, testFlows()...)
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
	if diff := cmp.Diff(journalOf(t, s.Runtime, "a"), all); diff != "" {
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
	s := servertest.New(t, server.Options{}, testFlows()...)
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
	}}, testFlows()...)
	s.Start("a", "count", 2)
	n := len(journalOf(t, s.Runtime, "a"))
	for _, token := range []string{"admin", "read"} {
		st := s.Open("/v1/threads/a/events", "Authorization", "Bearer "+token)
		page := servertest.Decode[api.EventPage](s.Do("GET", "/v1/threads/a/events", "", "Authorization", "Bearer "+token), 200)
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
	s := servertest.New(t, server.Options{}, testFlows()...)
	s.Start("a", "count", 1)
	for _, path := range []string{"/v1/threads/a/events", "/v1/events"} {
		r := s.Do("HEAD", path, "", "Accept", "text/event-stream").Want(200)
		if len(r.Body) > 0 || r.Header.Get("Content-Type") != "text/event-stream" {
			t.Errorf("%s: %v %s", path, r.Header, r.Body)
		}
	}
	s.Do("HEAD", "/v1/threads/none/events", "", "Accept", "text/event-stream").Want(404)
}

// liveSpeaker is a flow whose steps send deltas when they are told to.
func liveSpeaker(words <-chan string) perdure.Flow {
	return perdure.NewFlow("speak", func(ctx context.Context, n int) (string, error) {
		all := ""
		for i := range n {
			text, err := perdure.Step(ctx, fmt.Sprint("say-", i), func(ctx context.Context) (string, error) {
				text := ""
				for {
					select {
					case w := <-words:
						if w == "." {
							return text, nil
						}
						perdure.Delta(ctx, w)
						text += w
					case <-ctx.Done():
						return "", ctx.Err()
					}
				}
			})
			if err != nil {
				return "", err
			}
			all += text
		}
		return all, nil
	})
}

func TestDeltasAreLiveAndHaveNoID(t *testing.T) {
	words := make(chan string)
	s := servertest.New(t, server.Options{}, liveSpeaker(words))
	s.Begin("a", "speak", 2)
	st := s.Open("/v1/threads/a/events?run=newest")
	without := s.Open("/v1/threads/a/events?run=newest&deltas=no")
	for b, ok := st.Next(); ok && b.Kind != "claimed"; b, ok = st.Next() {
	}
	// The reader listens a moment after it has begun to read.
	var got servertest.Block
	for i := 0; got.Kind != "delta" && i < 1000; i++ {
		words <- "a"
		told := make(chan struct{})
		go func() {
			defer close(told)
			for got.Kind != "delta" {
				var ok bool
				if got, ok = st.Next(); !ok {
					return
				}
			}
		}()
		for waiting := true; waiting; {
			select {
			case <-told:
				waiting = false
			case words <- "a":
			}
		}
	}
	var d perdure.DeltaEvent
	if err := json.Unmarshal([]byte(got.Data), &d); err != nil || got.ID != "" || d.Path != "/say-0" || string(d.Data) != `"a"` {
		t.Fatalf("the delta is %+v: %v", got, err)
	}
	words <- "."
	for b, ok := st.Next(); b.Kind != "step"; b, ok = st.Next() {
		if !ok {
			t.Fatal("the step does not arrive")
		}
	}
	words <- "b"
	words <- "."
	seen := map[string]bool{}
	for {
		b, ok := st.Next()
		if !ok {
			break
		}
		switch b.Kind {
		case "delta":
			if err := json.Unmarshal([]byte(b.Data), &d); err != nil || seen[d.Path] || d.Path == "/say-0" {
				t.Errorf("a delta behind its step: %v", b)
			}
		case "step":
			seen["/say-1"] = true
		}
	}
	for {
		b, ok := without.Next()
		if !ok {
			break
		}
		if b.Kind == "delta" {
			t.Errorf("nobody asked for %v", b)
		}
	}
}

func TestCloseTellsReadersToComeBack(t *testing.T) {
	s := servertest.New(t, server.Options{}, testFlows()...)
	s.Start("a", "count", 5)
	st := s.Open("/v1/threads/a/events")
	watch := s.Open("/v1/events")
	got := st.Until("ended")
	for b, _ := watch.Next(); b.Kind != "open"; b, _ = watch.Next() {
	}
	s.Server.Close()
	for _, st := range []*servertest.Stream{st, watch} {
		for {
			b, ok := st.Next()
			if !ok {
				t.Fatal("the stream ended without a word")
			}
			if b.Retry == "200" {
				break
			}
		}
		if b, _ := st.Next(); !b.Comment {
			t.Errorf("it does not say why: %v", b)
		}
		if b, ok := st.Next(); ok {
			t.Errorf("behind the end is %v", b)
		}
	}
	s.Do("GET", "/v1/threads/a/events", "", "Accept", "text/event-stream").Problem(503, "stopping")
	s.Do("GET", "/v1/events", "").Problem(503, "stopping")

	// Another server of the same store goes on where this one stopped.
	next := server.New(s.Runtime, server.Options{})
	ts := httptest.NewServer(next)
	defer ts.Close()
	defer next.Close()
	s.URL = ts.URL
	s.Start("a", "count", 2)
	got = append(got, s.Open("/v1/threads/a/events", "Last-Event-ID", got[len(got)-1].ID).Until("ended")...)
	want := journalOf(t, s.Runtime, "a")
	for i, b := range got {
		if b.String() != want[i] {
			t.Fatalf("event %d is %v, want %s", i, b, want[i])
		}
	}
}

func TestHeartbeats(t *testing.T) {
	s := servertest.New(t, server.Options{Heartbeat: time.Millisecond}, testFlows()...)
	s.Start("a", "count", 1)
	for _, path := range []string{"/v1/threads/a/events", "/v1/events"} {
		st := s.Open(path)
		for n := 0; n < 3; {
			b, ok := st.Next()
			if !ok {
				t.Fatal("the stream ended")
			}
			if b.Comment && b.ID == "" && b.Data == "" {
				n++
			}
		}
	}
}

// TestReadersReconnectAtRandom lets readers come and go at random places while
// runs go on: together they see exactly the journal.
func TestReadersReconnectAtRandom(t *testing.T) {
	s := servertest.New(t, server.Options{}, testFlows()...)
	s.Start("base", "count", 30)
	fork := servertest.Must(s.Runtime.Fork(t.Context(), perdure.ForkRequest{Thread: "base", At: 20, As: "fork"}))(t)
	s.Begin("fork", "count", 3)
	_ = fork
	runs := 12
	if testing.Short() {
		runs = 3
	}
	for _, thread := range []string{"base", "fork"} {
		if thread == "fork" {
			for _, run := range mustThread(t, s, "fork").Runs {
				if run.Status == perdure.Paused {
					servertest.Check(t, s.Runtime.Resume(t.Context(), "fork", run.ID, perdure.Note{}))
				}
			}
		}
		go func() {
			for range runs {
				if _, err := s.Runtime.Start(context.WithoutCancel(t.Context()), perdure.StartRequest{Thread: thread, Flow: "count", Input: 40}); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	want := uint64(30 + runs*40)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 7))
			thread := []string{"base", "fork"}[i%2]
			var got []string
			for connect := 0; uint64(len(got)) < want && connect < 400; connect++ {
				st := s.Open("/v1/threads/"+thread+"/events", "Last-Event-ID", fmt.Sprint(len(got)))
				for range rng.IntN(60) {
					b, ok := st.Event()
					if !ok {
						break
					}
					if got = append(got, b.String()); uint64(len(got)) == want {
						break
					}
				}
				st.Close()
			}
			journal := journalOf(t, s.Runtime, thread)
			if uint64(len(got)) != want {
				t.Errorf("%s: %d events, want %d", thread, len(got), want)
			}
			for j := range got {
				if got[j] != journal[j] {
					t.Errorf("%s: event %d is %s, want %s", thread, j+1, got[j], journal[j])
					return
				}
			}
		})
	}
	wg.Wait()
}

func mustThread(t *testing.T, s *servertest.Site, id string) *perdure.Thread {
	t.Helper()
	return servertest.Must(s.Runtime.Get(t.Context(), id))(t)
}

func TestNewsOfThreads(t *testing.T) {
	s := servertest.New(t, server.Options{}, testFlows()...)
	s.Start("old", "count", 1)
	ended := func() bool {
		for range s.Runtime.List(t.Context(), perdure.ListOptions{Status: perdure.Succeeded}) {
			return true
		}
		return false
	}
	for range s.Runtime.Watch(t.Context()) { // a worker writes what lists show
		if ended() {
			break
		}
	}
	st := s.Open("/v1/events")
	mine := s.Open("/v1/events?user=ann")
	for _, st := range []*servertest.Stream{st, mine} {
		if b, ok := st.Event(); !ok || b.Kind != api.KindOpen || b.ID != "" {
			t.Fatalf("it begins with %v", b)
		}
	}
	read := func(st *servertest.Stream, kind, has string) {
		t.Helper()
		for range 100 {
			b, ok := st.Event()
			if !ok {
				t.Fatal("the stream ended")
			}
			if strings.Contains(b.Data, `"old"`) && has != "old" {
				t.Errorf("news of a thread that did not change: %v", b)
			}
			if b.Kind == kind && strings.Contains(b.Data, has) {
				return
			}
		}
		t.Fatalf("no %s of %s", kind, has)
	}
	s.Start("new", "ask", "?")
	read(st, "thread", `"suspended"`)
	servertest.Must(s.Runtime.Start(t.Context(), perdure.StartRequest{Thread: "hers", Flow: "count", Input: 1, User: "ann"}))(t)
	if b, ok := mine.Event(); !ok || !strings.Contains(b.Data, `"hers"`) {
		t.Errorf("ann's first news is %v", b)
	}
	servertest.Check(t, s.Runtime.Erase(t.Context(), "new", perdure.EraseOptions{}))
	read(st, "gone", `"new"`)
}

// TestStreamOverHTTP2 reads a stream without TLS over HTTP/2, beside other
// requests on the same connection.
func TestStreamOverHTTP2(t *testing.T) {
	store := memstore.New()
	s := servertest.NewOn(t, store, server.Options{}, testFlows()...)
	h := server.New(s.Runtime, server.Options{}).HTTPServer()
	l := servertest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	done := make(chan error, 1)
	go func() { done <- h.Serve(l) }()
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	defer tr.CloseIdleConnections()
	s.Start("a", "count", 5)
	s.URL, s.Client = "http://"+l.Addr().String(), &http.Client{Transport: tr}
	st := s.Open("/v1/threads/a/events")
	if st.Response.ProtoMajor != 2 {
		t.Fatalf("the protocol is %s", st.Response.Proto)
	}
	st.Until("ended")
	s.Start("a", "count", 2)
	st.Until("ended")
	go func() { done <- h.Shutdown(context.WithoutCancel(t.Context())) }()
	for b, ok := st.Next(); b.Retry != "200"; b, ok = st.Next() {
		if !ok {
			t.Fatal("Shutdown does not tell the reader to come back")
		}
	}
	for range 2 {
		if err := <-done; err != nil && err != http.ErrServerClosed {
			t.Error(err)
		}
	}
}

// A reader who was away while its thread was erased and the id used again is
// told so, and the new thread has ids of its own.
func TestAReusedIDHasOtherEventIDs(t *testing.T) {
	s := servertest.New(t, server.Options{}, plainFlows()...)
	idsOf := func(path string, headers ...string) (ids []string) {
		t.Helper()
		for line := range strings.Lines(string(s.Do("GET", path, "", append(headers, "Accept", api.TypeEvents)...).Want(200).Body)) {
			if id, ok := strings.CutPrefix(strings.TrimSpace(line), "id: "); ok {
				ids = append(ids, id)
			}
		}
		return ids
	}
	stream := "/v1/threads/t/events?run=newest"
	live := func() []string {
		t.Helper()
		plainWait(s, plainStart(s, "t", "echo", `"x"`))
		return idsOf(stream)
	}
	first := live()
	if !slices.IsSorted(first) || slices.ContainsFunc(first, func(id string) bool { return strings.Contains(id, "-") }) {
		t.Fatalf("the ids of the first life are %v", first)
	}
	s.Do("DELETE", "/v1/threads/t", "").Want(204)
	s.Do("GET", stream, "", "Accept", api.TypeEvents, "Last-Event-ID", first[0]).Problem(410, "erased")
	second := live()
	info := new(perdure.Thread)
	s.Do("GET", "/v1/threads/t", "").Want(200, info)
	if info.Life == "" || len(second) != len(first) {
		t.Fatalf("the second life is %+v with the ids %v", info, second)
	}
	for i, id := range second {
		number, done := strings.CutSuffix(first[i], ".done")
		want := number + "-" + info.Life
		if done {
			want += ".done"
		}
		if id != want {
			t.Errorf("the id %s of the first life is %s in the second, want %s", first[i], id, want)
		}
	}
	s.Do("DELETE", "/v1/threads/t", "").Want(204)
	live()
	s.Do("GET", "/v1/threads/t", "").Want(200, info)
	foreign := append(append([]string{"1", "2.done", "1-x", "0-x"}, first...), second...)
	for _, id := range foreign {
		for _, accept := range []string{api.TypeEvents, api.TypeJSON} {
			bare, _, _ := strings.Cut(id, ".")
			s.Do("GET", "/v1/threads/t/events?after="+bare, "", "Accept", accept).Problem(410, "erased")
		}
		s.Do("GET", "/v1/threads/t/events", "", "Accept", api.TypeEvents, "Last-Event-ID", id).Problem(410, "erased")
		s.Do("HEAD", "/v1/threads/t/events", "", "Accept", api.TypeEvents, "Last-Event-ID", id).Want(410)
		s.Do("GET", stream, "", "Accept", api.TypeEvents, "Last-Event-ID", id).Problem(410, "erased")
	}
	// Who reads the new one goes on with it, by pages and streams.
	third := idsOf(stream)
	if got := idsOf(stream, "Last-Event-ID", third[1]); !slices.Equal(got, third[2:]) {
		t.Errorf("behind %s come %v of %v", third[1], got, third)
	}
	var pages []string
	for after := ""; ; {
		var page api.EventPage
		s.Do("GET", "/v1/threads/t/events?limit=2&after="+after, "").Want(200, &page)
		for _, e := range page.Events {
			pages = append(pages, string(api.IDOf(e.Seq, e.Life, false)))
		}
		if page.Next == 0 {
			break
		}
		after = fmt.Sprint(page.Next, "-", page.Events[0].Life)
	}
	if all := idsOf("/v1/threads/t/events?run=newest&after="); len(pages) == 0 || !strings.HasSuffix(pages[0], "-"+info.Life) || !slices.Contains(all, pages[len(pages)-1]) {
		t.Errorf("the pages have %v", pages)
	}
}
