package mcptool

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store/memstore"
)

// run runs a flow until it ends or waits for someone.
func run(t *testing.T, flow perdure.Flow) (*perdure.Runtime, *perdure.Run) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	rt, err := perdure.New(ctx, memstore.New(), perdure.Options{}, flow)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- rt.Work(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	r, err := rt.Start(ctx, perdure.StartRequest{Flow: flow.Name(), Input: ""})
	if err != nil {
		t.Fatal(err)
	}
	limit, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	if r, err = rt.Wait(limit, r.Thread, r.ID); err != nil {
		t.Fatal(err)
	}
	return rt, r
}

// once is a flow whose only step calls a tool at most once.
func once(s *Server, tool string) perdure.Flow {
	return perdure.NewFlow("once", func(ctx context.Context, _ string) (string, error) {
		return perdure.Step(ctx, "call", func(ctx context.Context) (string, error) {
			out, err := s.Call(ctx, tool, nil)
			return out.Text, err
		}, perdure.AtMostOnce(), perdure.Timeout(30*time.Second), perdure.Retry(perdure.RetryPolicy{Wait: time.Millisecond, Attempts: 5}))
	})
}

func TestLostCallIsNotRepeatedBehindAnAtMostOnceTool(t *testing.T) {
	file := filepath.Join(t.TempDir(), "notes")
	s := program(t, "server", Options{Env: map[string]string{fileVar: file}})
	_, r := run(t, once(s, "crash"))
	if len(r.Asks) != 1 || r.Asks[0].Kind != "outcome" {
		t.Fatalf("the run is %s (%v) with %+v, want it to ask for the outcome", r.Status, r.Err, r.Asks)
	}
	data, _ := os.ReadFile(file)
	if n := strings.Count(string(data), "crash runs"); n != 1 {
		t.Errorf("the call ran %d times", n)
	}
}

func TestCallThatWasNotSentIsTriedAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "notes")
	s := program(t, "late", Options{Env: map[string]string{fileVar: file}})
	_, r := run(t, once(s, "echo"))
	if r.Status != "succeeded" || string(r.Output) != `"echo "` {
		t.Errorf("the run is %s (%v) with %s and %+v, want it to succeed", r.Status, r.Err, r.Output, r.Asks)
	}
}

func TestServerGetsTheIdempotencyKey(t *testing.T) {
	s := web(t, Options{}, nil)
	_, r := run(t, perdure.NewFlow("key", func(ctx context.Context, _ string) ([]string, error) {
		return perdure.Step(ctx, "call", func(ctx context.Context) ([]string, error) {
			out, err := s.Call(ctx, "key", nil)
			return []string{perdure.Key(ctx), out.Text}, err
		})
	}))
	var keys []string
	if err := json.Unmarshal(r.Output, &keys); err != nil || keys[0] == "" || keys[0] != keys[1] {
		t.Errorf("the step's key and the server's: %s %v", r.Output, err)
	}
}

func TestProgressIsADelta(t *testing.T) {
	s := web(t, Options{}, nil)
	var seen atomic.Bool
	flow := perdure.NewFlow("progress", func(ctx context.Context, _ string) (string, error) {
		if _, err := perdure.Ask[string](ctx, "go", perdure.Question{}); err != nil {
			return "", err
		}
		// Deltas may be missed: it goes on until one was seen.
		for i := range 1000 {
			_, err := perdure.Step(ctx, "call-"+strconv.Itoa(i), func(ctx context.Context) (string, error) {
				out, err := s.Call(ctx, "progress", nil)
				return out.Text, err
			})
			if err != nil || seen.Load() {
				return "", err
			}
		}
		return "", nil
	})
	rt, r := run(t, flow)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got := make(chan Progress, 1)
	go func() {
		defer close(got)
		for d, err := range rt.Deltas(ctx, r.Thread) {
			if err != nil {
				return
			}
			var p Progress
			if json.Unmarshal(d.Data, &p) == nil && p.Done == 2 && !seen.Swap(true) {
				got <- p
				return
			}
		}
	}()
	if err := rt.Answer(ctx, perdure.AskAnswer{Ask: r.Asks[0].ID, Answer: perdure.Answer{Value: ""}}); err != nil {
		t.Fatal(err)
	}
	want := Progress{Server: "test", Tool: "progress", Done: 2, Total: 3, Message: "part 2"}
	if diff := cmp.Diff(want, <-got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if _, err := rt.Wait(ctx, r.Thread, r.ID); err != nil {
		t.Error(err)
	}
}
