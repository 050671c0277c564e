package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/servertest"
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
	s := servertest.New(t, server.Options{}, servertest.Flows()...)
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
	want := servertest.Journal(t, s.Runtime, "a")
	for i, b := range got {
		if b.String() != want[i] {
			t.Fatalf("event %d is %v, want %s", i, b, want[i])
		}
	}
}

func TestHeartbeats(t *testing.T) {
	s := servertest.New(t, server.Options{Heartbeat: time.Millisecond}, servertest.Flows()...)
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
	s := servertest.New(t, server.Options{}, servertest.Flows()...)
	s.Start("base", "count", 30)
	fork := servertest.Must(s.Runtime.Fork(t.Context(), perdure.ForkRequest{Thread: "base", At: 20, As: "fork"}))(t)
	s.Begin("fork", "count", 3)
	_ = fork
	const runs = 12
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
			journal := servertest.Journal(t, s.Runtime, thread)
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
	th := servertest.Must(s.Runtime.Get(t.Context(), id))(t)
	return th
}

func TestNewsOfThreads(t *testing.T) {
	s := servertest.New(t, server.Options{}, servertest.Flows()...)
	s.Start("old", "count", 1)
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
	s := servertest.NewOn(t, store, server.Options{}, servertest.Flows()...)
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
