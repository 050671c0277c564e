package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store/memstore"
)

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
	s := newSite(t, server.Options{}, liveSpeaker(words))
	if _, err := s.rt.Start(t.Context(), perdure.StartRequest{Thread: "a", Flow: "speak", Input: 2}); err != nil {
		t.Fatal(err)
	}
	st := sseOpen(s, "/v1/threads/a/events?run=newest")
	without := sseOpen(s, "/v1/threads/a/events?run=newest&deltas=no")
	for b, ok := st.next(); ok && b.kind != "claimed"; b, ok = st.next() {
	}
	// The reader listens a moment after it has begun to read.
	var got sseBlock
	for i := 0; got.kind != "delta" && i < 1000; i++ {
		words <- "a"
		told := make(chan struct{})
		go func() {
			defer close(told)
			for got.kind != "delta" {
				var ok bool
				if got, ok = st.next(); !ok {
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
	if err := json.Unmarshal([]byte(got.data), &d); err != nil || got.id != "" || d.Path != "/say-0" || string(d.Data) != `"a"` {
		t.Fatalf("the delta is %+v: %v", got, err)
	}
	words <- "."
	for b, ok := st.next(); b.kind != "step"; b, ok = st.next() {
		if !ok {
			t.Fatal("the step does not arrive")
		}
	}
	words <- "b"
	words <- "."
	seen := map[string]bool{}
	for {
		b, ok := st.next()
		if !ok {
			break
		}
		switch b.kind {
		case "delta":
			if err := json.Unmarshal([]byte(b.data), &d); err != nil || seen[d.Path] || d.Path == "/say-0" {
				t.Errorf("a delta behind its step: %v", b)
			}
		case "step":
			seen["/say-1"] = true
		}
	}
	for {
		b, ok := without.next()
		if !ok {
			break
		}
		if b.kind == "delta" {
			t.Errorf("nobody asked for %v", b)
		}
	}
}

func TestCloseTellsReadersToComeBack(t *testing.T) {
	s := newSite(t, server.Options{}, sseFlows()...)
	sseStart(s, "a", "count", 5)
	st := sseOpen(s, "/v1/threads/a/events")
	watch := sseOpen(s, "/v1/events")
	got := st.until("ended")
	for b, _ := watch.next(); b.kind != "open"; b, _ = watch.next() {
	}
	s.api.Close()
	for _, st := range []*sseStream{st, watch} {
		for {
			b, ok := st.next()
			if !ok {
				t.Fatal("the stream ended without a word")
			}
			if b.retry == "200" {
				break
			}
		}
		if b, _ := st.next(); !b.comment {
			t.Errorf("it does not say why: %v", b)
		}
		if b, ok := st.next(); ok {
			t.Errorf("behind the end is %v", b)
		}
	}
	s.do("GET", "/v1/threads/a/events", "", "Accept", "text/event-stream").problem(503, "stopping")
	s.do("GET", "/v1/events", "").problem(503, "stopping")

	// Another server of the same store goes on where this one stopped.
	next := server.New(s.rt, server.Options{})
	ts := httptest.NewServer(next)
	defer ts.Close()
	defer next.Close()
	s.url = ts.URL
	sseStart(s, "a", "count", 2)
	got = append(got, sseOpen(s, "/v1/threads/a/events", "Last-Event-ID", got[len(got)-1].id).until("ended")...)
	want := sseJournal(t, s.rt, "a")
	for i, b := range got {
		if b.String() != want[i] {
			t.Fatalf("event %d is %v, want %s", i, b, want[i])
		}
	}
}

func TestStreamsAreLimited(t *testing.T) {
	s := newSite(t, server.Options{Limits: server.Limits{Streams: 2}}, sseFlows()...)
	sseStart(s, "a", "count", 1)
	one, two := sseOpen(s, "/v1/threads/a/events"), sseOpen(s, "/v1/events")
	one.until("ended")
	two.next()
	r := s.do("GET", "/v1/threads/a/events", "", "Accept", "text/event-stream").problem(503, "overloaded")
	if r.Header.Get("Retry-After") == "" {
		t.Error("it does not say when to try again")
	}
	// A run that is started is told without a stream.
	var run perdure.Run
	s.do("POST", "/v1/threads/b/runs", `{"flow":"count","input":1}`, "Accept", "text/event-stream").want(202, &run)
	if _, err := s.rt.WaitEnd(t.Context(), "b", run.ID); err != nil {
		t.Error(err)
	}
	one.close()
	for i := 0; ; i++ { // the server sees it a moment later
		st := sseOpen(s, "/v1/threads/a/events")
		if st.resp.StatusCode == 200 {
			break
		}
		st.close()
		if i > 1000 {
			t.Fatal("the stream that was closed still counts")
		}
		runtime.Gosched()
	}
}

func TestHeartbeats(t *testing.T) {
	s := newSite(t, server.Options{Heartbeat: time.Millisecond}, sseFlows()...)
	sseStart(s, "a", "count", 1)
	for _, path := range []string{"/v1/threads/a/events", "/v1/events"} {
		st := sseOpen(s, path)
		for n := 0; n < 3; {
			b, ok := st.next()
			if !ok {
				t.Fatal("the stream ended")
			}
			if b.comment && b.id == "" && b.data == "" {
				n++
			}
		}
	}
}

// TestReadersReconnectAtRandom lets readers come and go at random places while
// runs go on: together they see exactly the journal.
func TestReadersReconnectAtRandom(t *testing.T) {
	s := newSite(t, server.Options{}, sseFlows()...)
	sseStart(s, "base", "count", 30)
	fork, err := s.rt.Fork(t.Context(), perdure.ForkRequest{Thread: "base", At: 20, As: "fork"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.rt.Start(t.Context(), perdure.StartRequest{Thread: "fork", Flow: "count", Input: 3}); err != nil {
		t.Fatal(err)
	}
	_ = fork
	const runs = 12
	for _, thread := range []string{"base", "fork"} {
		if thread == "fork" {
			for _, run := range mustThread(t, s, "fork").Runs {
				if run.Status == perdure.Paused {
					if err := s.rt.Resume(t.Context(), "fork", run.ID, perdure.Note{}); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		go func() {
			for range runs {
				if _, err := s.rt.Start(context.WithoutCancel(t.Context()), perdure.StartRequest{Thread: thread, Flow: "count", Input: 40}); err != nil {
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
				st := sseOpen(s, "/v1/threads/"+thread+"/events", "Last-Event-ID", fmt.Sprint(len(got)))
				for range rng.IntN(60) {
					b, ok := st.event()
					if !ok {
						break
					}
					if got = append(got, b.String()); uint64(len(got)) == want {
						break
					}
				}
				st.close()
			}
			journal := sseJournal(t, s.rt, thread)
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

func mustThread(t *testing.T, s *site, id string) *perdure.Thread {
	t.Helper()
	th, err := s.rt.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return th
}

// TestStreamsLeaveNothingBehind counts goroutines.
func TestStreamsLeaveNothingBehind(t *testing.T) {
	s := newSite(t, server.Options{}, sseFlows()...)
	sseStart(s, "a", "ask", "?")
	http.DefaultClient.CloseIdleConnections()
	before := runtime.NumGoroutine()
	for range 20 {
		var open []*sseStream
		for _, path := range []string{"/v1/threads/a/events", "/v1/threads/a/events?run=newest", "/v1/threads/a/events?run=newest&until=wait", "/v1/events"} {
			st := sseOpen(s, path)
			st.next()
			open = append(open, st)
		}
		for _, st := range open {
			st.close()
		}
	}
	http.DefaultClient.CloseIdleConnections()
	for i := 0; runtime.NumGoroutine() > before; i++ {
		if i > 2000 {
			buf := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, before %d\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
		}
		time.Sleep(time.Millisecond)
	}
}

func TestNewsOfThreads(t *testing.T) {
	s := newSite(t, server.Options{}, sseFlows()...)
	sseStart(s, "old", "count", 1)
	st := sseOpen(s, "/v1/events")
	mine := sseOpen(s, "/v1/events?user=ann")
	for _, st := range []*sseStream{st, mine} {
		if b, ok := st.event(); !ok || b.kind != api.KindOpen || b.id != "" {
			t.Fatalf("it begins with %v", b)
		}
	}
	read := func(st *sseStream, kind, has string) {
		t.Helper()
		for range 100 {
			b, ok := st.event()
			if !ok {
				t.Fatal("the stream ended")
			}
			if strings.Contains(b.data, `"old"`) && has != "old" {
				t.Errorf("news of a thread that did not change: %v", b)
			}
			if b.kind == kind && strings.Contains(b.data, has) {
				return
			}
		}
		t.Fatalf("no %s of %s", kind, has)
	}
	sseStart(s, "new", "ask", "?")
	read(st, "thread", `"suspended"`)
	if _, err := s.rt.Start(t.Context(), perdure.StartRequest{Thread: "hers", Flow: "count", Input: 1, User: "ann"}); err != nil {
		t.Fatal(err)
	}
	if b, ok := mine.event(); !ok || !strings.Contains(b.data, `"hers"`) {
		t.Errorf("ann's first news is %v", b)
	}
	if err := s.rt.Erase(t.Context(), "new", perdure.EraseOptions{}); err != nil {
		t.Fatal(err)
	}
	read(st, "gone", `"new"`)
}

// TestStreamOverHTTP2 reads a stream without TLS over HTTP/2, beside other
// requests on the same connection.
func TestStreamOverHTTP2(t *testing.T) {
	store := memstore.New()
	s := newSiteOn(t, store, server.Options{}, sseFlows()...)
	h := server.New(s.rt, server.Options{}).HTTPServer()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- h.Serve(l) }()
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	defer tr.CloseIdleConnections()
	sseStart(s, "a", "count", 5)
	ctx, cancel := context.WithCancel(t.Context())
	r, _ := http.NewRequestWithContext(ctx, "GET", "http://"+l.Addr().String()+"/v1/threads/a/events", nil)
	st := sseDo(t, &http.Client{Transport: tr}, r, cancel, []string{"Accept", "text/event-stream"})
	if st.resp.ProtoMajor != 2 {
		t.Fatalf("the protocol is %s", st.resp.Proto)
	}
	st.until("ended")
	sseStart(s, "a", "count", 2)
	st.until("ended")
	go func() { done <- h.Shutdown(context.WithoutCancel(t.Context())) }()
	for b, ok := st.next(); b.retry != "200"; b, ok = st.next() {
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
