package adk_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/server"
)

// Of clients that respond at the same time one wins, and the tool runs once.
func TestResponsesRaceAndOneWins(t *testing.T) {
	n := new(servertest.Count)
	s := newSite(t, server.Options{}, clerk(n))
	s.session("clerk", "u", "s")
	id := s.run(runBody("clerk", "x"))[1].LongRunningToolIDs[0]
	var wait sync.WaitGroup
	statuses := make([]int, 16)
	for i := range statuses {
		wait.Go(func() {
			response := fmt.Sprintf(`{"confirmed":%v,"hint":"no"}`, i%2 == 0)
			r, err := http.Post(s.URL+"/run_sse", "application/json", strings.NewReader(answerBody("clerk", id, "adk_request_confirmation", response)))
			if err != nil {
				return
			}
			defer r.Body.Close()
			_, _ = io.Copy(io.Discard, r.Body)
			statuses[i] = r.StatusCode
		})
	}
	wait.Wait()
	ask, err := s.Runtime.GetAsk(t.Context(), id)
	if err != nil || ask.Answer == nil {
		t.Fatalf("the ask is %+v, %v", ask, err)
	}
	won := ask.Answer.Decision == "approve"
	for i, status := range statuses {
		if want := map[bool]int{true: 200, false: 409}[(i%2 == 0) == won]; status != want {
			t.Errorf("client %d got %d, want %d", i, status, want)
		}
	}
	if want := map[bool]int{true: 1, false: 0}[won]; n.Of("refund") != want {
		t.Errorf("it was refunded %d times, and the decision is %s", n.Of("refund"), ask.Answer.Decision)
	}
}

// Where no stream may be opened, no run is started.
func TestTooManyStreamsStartNothing(t *testing.T) {
	gate := make(chan struct{})
	s := newSite(t, server.Options{Limits: server.Limits{Streams: 1}}, perdure.NewFlow("slow", func(ctx context.Context, in string) (string, error) {
		return perdure.Step(ctx, "wait", func(context.Context) (string, error) { <-gate; return in, nil })
	}))
	s.session("slow", "u", "s")
	r := servertest.Must(http.Post(s.URL+"/run_sse", "application/json", strings.NewReader(runBody("slow", "x"))))(t)
	defer r.Body.Close()
	s.Do("POST", "/run_sse", runBody("slow", "y")).Problem(503, "overloaded")
	s.Do("POST", "/run", runBody("slow", "y")).Problem(503, "overloaded")
	close(gate)
	if data, err := io.ReadAll(r.Body); err != nil || !strings.Contains(string(data), `"text":"x"`) {
		t.Errorf("the stream was %s, %v", data, err)
	}
	if thread, _ := s.Runtime.Get(t.Context(), "s"); len(thread.Runs) != 1 {
		t.Errorf("there are %d runs", len(thread.Runs))
	}
}

// A session that is erased while it is followed ends the stream with an error.
func TestErasedWhileFollowed(t *testing.T) {
	gate := make(chan struct{})
	s := newSite(t, server.Options{}, perdure.NewFlow("slow", func(ctx context.Context, in string) (string, error) {
		return perdure.Step(ctx, "wait", func(ctx context.Context) (string, error) {
			select {
			case <-gate:
			case <-ctx.Done():
			}
			return in, ctx.Err()
		})
	}))
	defer close(gate)
	s.session("slow", "u", "s")
	r := servertest.Must(http.Post(s.URL+"/run_sse", "application/json", strings.NewReader(runBody("slow", "x"))))(t)
	defer r.Body.Close()
	s.Do("DELETE", "/apps/slow/users/u/sessions/s", "").Want(200)
	if data, err := io.ReadAll(r.Body); err != nil || !strings.Contains(string(data), `data: {"error":`) {
		t.Errorf("the stream was %s, %v", data, err)
	}
}

// What a model or a tool says never looks like the end of a block.
func TestTextsCannotForgeEvents(t *testing.T) {
	const evil = "x\n\nid: 999\ndata: {\"forged\":true}\r\n\r\ndata: {}\u2028"
	s := newSite(t, server.Options{}, perdure.NewFlow("evil", func(context.Context, string) (string, error) { return evil, nil }))
	s.session("evil", "u", "s")
	events, ids, _ := s.runSSE(runBody("evil", evil))
	if len(events) != 1 || ids[0] == "999" || events[0].Content.Parts[0].Text != evil {
		t.Errorf("%d events: %v", len(events), events)
	}
}
