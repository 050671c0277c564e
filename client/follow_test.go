package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store/memstore"
)

// script answers the requests for events in turn: with a text that is a stream,
// or a number that is a status.
type script struct {
	answers []string
	stay    bool // the last one does not end

	mu  sync.Mutex
	ids []string // Last-Event-ID of each request
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	n := len(s.ids)
	s.ids = append(s.ids, r.Header.Get("Last-Event-ID"))
	answer := s.answers[min(n, len(s.answers)-1)]
	s.mu.Unlock()
	status := 200
	if _, err := fmt.Sscanf(answer, "%d", &status); err == nil && status != 204 {
		w.Header().Set("Content-Type", api.TypeProblem)
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"type":"urn:perdure:problem:x","status":%d}`, status)
		return
	}
	w.Header().Set("Content-Type", api.TypeEvents)
	w.WriteHeader(status)
	io.WriteString(w, answer)
	http.NewResponseController(w).Flush()
	if s.stay && n >= len(s.answers)-1 {
		<-r.Context().Done()
	}
}

func event(seq int) string {
	return fmt.Sprintf("id: %d\nevent: step\ndata: {\"thread\":\"t\",\"seq\":%d,\"kind\":\"step\",\"run\":\"r\"}\n\n", seq, seq)
}

// follow follows a script and returns what it yields, as short texts.
func follow(t *testing.T, s *script, o client.FollowOptions, co client.Options) (got []string, last error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := served(t, s)
		ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
		defer cancel()
		for u, err := range w.client(t, co).Follow(ctx, "t", o) {
			switch {
			case last != nil:
				t.Error("something comes after an error")
			case err != nil:
				last = err
			case u.Event != nil:
				got = append(got, fmt.Sprint(u.Event.Seq))
			case u.Delta != nil:
				got = append(got, "delta "+string(u.Delta.Data))
			case u.Done != nil:
				got = append(got, "done "+string(u.Done.Status))
			}
		}
	})
	return got, last
}

func TestFollowGoesOnBehindTheLastEvent(t *testing.T) {
	const delta = "event: delta\ndata: {\"run\":\"r\",\"path\":\"p\",\"data\":1}\n\n"
	s := &script{answers: []string{
		"retry: 3\nid: 0\n\n" + event(1) + event(2) + delta + "id: 3\nevent: step\ndata: {\"thr",
		"500", "503", "429", "408",
		"id: 2\n\n: hello\n\n" + event(3) + "event: later\ndata: what nobody knows yet\n\n",
		event(4) + "id: 4.done\nevent: done\ndata: {\"thread\":\"t\",\"run\":\"r\",\"status\":\"succeeded\"}\n\n" + event(5),
	}}
	got, err := follow(t, s, client.FollowOptions{Run: "r"}, client.Options{Attempts: 5})
	if d := cmp.Diff([]string{"1", "2", "delta 1", "3", "4", "done succeeded"}, got); d != "" || err != nil {
		t.Errorf("%v %s", err, d)
	}
	if d := cmp.Diff([]string{"0", "2", "2", "2", "2", "2", "3"}, s.ids); d != "" {
		t.Error(d)
	}
}

func TestFollowEndsWithAnErrorThatLasts(t *testing.T) {
	for _, status := range []string{"400", "401", "403", "404", "410", "422"} {
		s := &script{answers: []string{event(1), status, event(2)}}
		got, err := follow(t, s, client.FollowOptions{}, client.Options{})
		var p *api.Problem
		if !errors.As(err, &p) || fmt.Sprint(p.Status) != status || len(got) != 1 || len(s.ids) != 2 {
			t.Errorf("%s: %v %v, %d requests", status, got, err, len(s.ids))
		}
	}
}

func TestFollowPassesOnNothingButTheNextEvent(t *testing.T) {
	for name, bad := range map[string]string{
		"a gap": event(4), "a repeat": event(2), "an old one": event(1),
		"another id": strings.Replace(event(3), "id: 3", "id: 4", 1), "no number": strings.Replace(event(3), "id: 3", "id: x", 1),
		"another thread": strings.Replace(event(3), `"t"`, `"u"`, 1), "no JSON": "id: 3\nevent: step\ndata: {\n\n",
		"null": "id: 3\nevent: step\ndata: null\n\n", "a delta that is none": "event: delta\ndata: 7\n\n", "an end in the future": "id: 9.done\nevent: done\ndata: {}\n\n",
	} {
		got, err := follow(t, &script{answers: []string{event(1) + event(2) + bad + event(3)}}, client.FollowOptions{}, client.Options{})
		if len(got) != 2 || err == nil || !strings.Contains(err.Error(), "the events of thread t after 2") {
			t.Errorf("%s: %v %v", name, got, err)
		}
	}
	// The events of a run have gaps, but an order.
	got, err := follow(t, &script{answers: []string{event(3) + event(8) + event(8)}}, client.FollowOptions{After: 2, Run: "r"}, client.Options{})
	if len(got) != 2 || err == nil {
		t.Errorf("%v %v", got, err)
	}
}

func TestFollowGivesUpWhenNothingIsHeard(t *testing.T) {
	for name, c := range map[string]struct {
		answers  []string
		attempts int
		streams  int
		want     int // requests
	}{
		"never":                    {[]string{"500"}, 3, 5, 4},
		"not at all again":         {[]string{event(1), "500"}, -1, 0, 1},
		"events begin the count":   {[]string{"500", "500", event(1), "500", event(2), "500", "500"}, 2, 0, 7},
		"comments do too":          {[]string{"500", ":\n\n", ":\n\n", "500"}, 1, 0, 4},
		"a stream without a sound": {[]string{"id: 0\n\n"}, 4, 0, 5},
		"a stream that was open":   {[]string{event(1), "500"}, 1, 5, 6},
	} {
		s := &script{answers: c.answers}
		if _, err := follow(t, s, client.FollowOptions{}, client.Options{Attempts: c.attempts, StreamAttempts: c.streams}); err == nil || len(s.ids) != c.want {
			t.Errorf("%s: %d requests, want %d: %v", name, len(s.ids), c.want, err)
		}
	}
}

func TestFollowEndsQuietlyWithItsContextOrReader(t *testing.T) {
	got, err := follow(t, &script{answers: []string{event(1)}, stay: true}, client.FollowOptions{}, client.Options{Silence: 48 * time.Hour})
	if len(got) != 1 || err != nil {
		t.Errorf("%v %v", got, err)
	}
	got, err = follow(t, &script{answers: []string{event(1), "204"}}, client.FollowOptions{Run: "r"}, client.Options{})
	if len(got) != 1 || err != nil {
		t.Errorf("a stream that is over: %v %v", got, err)
	}
	synctest.Test(t, func(t *testing.T) {
		w := served(t, &script{answers: []string{event(1) + event(2)}, stay: true})
		for e, err := range w.client(t, client.Options{}).Events(t.Context(), "t", perdure.EventOptions{}) {
			if err != nil || e.Seq != 1 {
				t.Errorf("%v %v", e, err)
			}
			break
		}
	})
	corrupt := "event: corrupt\ndata: {\"type\":\"urn:perdure:problem:corrupt\",\"detail\":\"entry 2\"}\n\n"
	if _, err := follow(t, &script{answers: []string{event(1) + corrupt}}, client.FollowOptions{}, client.Options{}); !errors.Is(err, perdure.ErrCorrupt) || !strings.Contains(err.Error(), "entry 2") {
		t.Errorf("damage is %v", err)
	}
	if _, err := follow(t, &script{answers: []string{event(1) + "id: 2\nevent: erased\ndata: {}\n\n"}}, client.FollowOptions{}, client.Options{}); !errors.Is(err, perdure.ErrErased) {
		t.Error(err)
	}
}

func TestFollowWaitsAsTheStreamAsks(t *testing.T) {
	for _, c := range []struct {
		delay    time.Duration
		min, max time.Duration
	}{{0, 4 * time.Second, 8 * time.Second}, {time.Minute, 30 * time.Second, time.Minute}} {
		synctest.Test(t, func(t *testing.T) {
			w := served(t, &script{answers: []string{"retry: 8000\n\n" + event(1), event(2)}})
			begun := time.Now()
			for e, err := range w.client(t, client.Options{Delay: c.delay}).Events(t.Context(), "t", perdure.EventOptions{}) {
				if err != nil {
					t.Fatal(err)
				}
				if e.Seq == 2 {
					break
				}
			}
			if took := time.Since(begun); took < c.min || took > c.max { // of the bubble's clock
				t.Errorf("with %v it took %v", c.delay, took)
			}
		})
	}
}

func TestEventsComeOnceAndInOrderOverThreeHundredCuts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, client.Options{Attempts: 1000, Delay: time.Millisecond}, counting)
		run := s.start(perdure.StartRequest{Flow: "counting", Input: 400})
		cuts, r := 0, rand.New(rand.NewPCG(1, 2))
		s.wire.mu.Lock()
		s.wire.keep = func() int {
			if cuts++; cuts > 400 {
				return 1 << 30
			}
			return r.IntN(1100)
		}
		s.wire.mu.Unlock()
		s.restart()
		var got []perdure.Event
		for u, err := range s.Follow(t.Context(), run.Thread, client.FollowOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			if u.Event == nil {
				continue
			}
			got = append(got, *u.Event)
			if len(got)%100 == 0 {
				s.restart()
			}
			if u.Event.Kind == "ended" {
				break
			}
		}
		all := s.journal(run.Thread)
		if d := cmp.Diff(all[:len(got)], got); d != "" || len(got) < 400 {
			t.Errorf("%d events: %s", len(got), d)
		}
		if cuts < 300 {
			t.Errorf("there were only %d cuts", cuts)
		}
	})
}

// TestASilentStreamIsLost: a peer that is gone may never be heard of, and a
// server that is there sends something now and then.
func TestASilentStreamIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{}
		var ids []string
		w.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			ids = append(ids, r.Header.Get("Last-Event-ID"))
			if len(ids) == 3 {
				rw.WriteHeader(http.StatusNoContent)
				return
			}
			rw.Header().Set("Content-Type", api.TypeEvents)
			for range 100 * (len(ids) - 1) { // of the second one: slow, but there
				io.WriteString(rw, ": still here\n\n")
				http.NewResponseController(rw).Flush()
				time.Sleep(15 * time.Second)
			}
			io.WriteString(rw, event(len(ids)))
			http.NewResponseController(rw).Flush()
			<-r.Context().Done()
		}))
		defer w.close()
		n := 0
		for u, err := range w.client(t, client.Options{}).Follow(t.Context(), "t", client.FollowOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			if n++; u.Event.Seq != uint64(n) {
				t.Fatalf("event %d is %d", n, u.Event.Seq)
			}
		}
		if diff := cmp.Diff([]string{"0", "1", "2"}, ids); n != 2 || diff != "" {
			t.Errorf("%d events, and the connections began behind %v", n, ids)
		}
	})
}

// The life counts before the first event too.
func TestFollowNamesTheLifeFromTheBeginning(t *testing.T) {
	s := &script{answers: []string{"204"}}
	if _, err := follow(t, s, client.FollowOptions{Life: "x", Run: "r"}, client.Options{}); err != nil || len(s.ids) != 1 || s.ids[0] != "0-x" {
		t.Errorf("it asks behind %v: %v", s.ids, err)
	}
}

// TestEventsSurviveServersThatAreGoneForAWhile uses a real port: it is closed,
// found closed by the client, and opened by another server.
func TestEventsSurviveServersThatAreGoneForAWhile(t *testing.T) {
	st := memstore.New()
	defer st.Close()
	step := make(chan struct{}, 1000) // the run goes as far as its events were read
	step <- struct{}{}
	flow := perdure.NewFlow("steps", func(ctx context.Context, n int) (int, error) {
		for i := range n {
			if _, err := perdure.Step(ctx, fmt.Sprint("s", i), func(context.Context) (int, error) { <-step; return i, nil }); err != nil {
				return 0, err
			}
		}
		return n, nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	rt := servertest.Must(perdure.New(ctx, st, perdure.Options{}, flow))(t)
	defer rt.Close()
	worked := make(chan error, 1)
	work, stop := context.WithCancel(ctx)
	go func() { worked <- rt.Work(work) }()
	defer func() {
		stop()
		if err := <-worked; err != nil {
			t.Error(err)
		}
	}()

	var mu sync.Mutex
	var srv *http.Server // nil: there is none
	address, refused := "127.0.0.1:0", 0
	serve := func() {
		l := servertest.Must(net.Listen("tcp", address))(t)
		address = l.Addr().String()
		srv = &http.Server{Handler: server.New(rt, server.Options{})}
		go srv.Serve(l)
	}
	serve()
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil && srv == nil {
			refused++
			serve() // for the next attempt
		}
		return conn, err
	}}
	defer transport.CloseIdleConnections()
	c := servertest.Must(client.New("http://"+address, client.Options{HTTP: &http.Client{Transport: transport}, Attempts: 1000, Delay: time.Millisecond}))(t)
	const steps = 60
	run := servertest.Must(c.Start(ctx, perdure.StartRequest{Flow: "steps", Input: steps}))(t)
	var got []perdure.Event
	for e, err := range c.Events(ctx, run.Thread, perdure.EventOptions{Run: run.ID}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e)
		step <- struct{}{}
		mu.Lock()
		if len(got)%5 == 0 && srv != nil {
			srv.Close()
			srv = nil
		}
		mu.Unlock()
	}
	if srv != nil {
		srv.Close()
	}
	var want []perdure.Event
	for e, err := range rt.Events(ctx, run.Thread, perdure.EventOptions{Run: run.ID, Replay: true}) {
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, e)
	}
	if d := cmp.Diff(want, got); d != "" || len(got) < steps {
		t.Errorf("%d events: %s", len(got), d)
	}
	if refused < 5 {
		t.Errorf("only %d connections were refused", refused)
	}
}
