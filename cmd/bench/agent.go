package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/openai"
	"github.com/perdure/perdure/store"
)

// turnMarks are the turns at which an agent is compared.
var turnMarks = []int{50, 200, 800}

// agents measures an agent that calls a tool in every turn.
func agents(ctx context.Context, dir string) error {
	const window = 20
	last := turnMarks[len(turnMarks)-1] + window
	at := make([]time.Time, last+1)
	allocated := make([]uint64, last+1)
	text := strings.Repeat("x", entrySize)
	model := llm.ModelFunc(func(_ context.Context, r *llm.Request) iter.Seq2[llm.Delta, error] {
		return func(yield func(llm.Delta, error) bool) {
			turn := len(r.Messages) / 2
			if turn > last {
				yield(llm.Delta{Text: "done", Stop: llm.StopEnd}, nil)
				return
			}
			if slices.ContainsFunc(turnMarks, func(mark int) bool { return turn == mark-window || turn == mark+window }) {
				allocated[turn] = mallocs()
			}
			at[turn] = time.Now()
			call := &llm.Call{ID: fmt.Sprint("call-", turn), Name: "look", Args: `{"what":"` + text + `"}`}
			_ = yield(llm.Delta{Call: call}, nil) && yield(llm.Delta{Stop: llm.StopCalls, Usage: &llm.Usage{Input: 1, Output: 1}}, nil)
		}
	})
	look := agent.NewTool("look", "Looks.", func(context.Context, struct {
		What string `json:"what"`
	}) (string, error) {
		return text, nil
	})
	flow := agent.NewFlow("turns", agent.New("turns", model, agent.Options{Tools: []agent.Tool{look}, Limits: agent.Limits{Turns: last + 10}}))
	if err := firstToken(ctx, dir); err != nil {
		return err
	}
	return inRuntime(ctx, dir, func(_ store.Store, rt *perdure.Runtime) error {
		if err := complete(ctx, rt, "turns", "turns", "go"); err != nil {
			return err
		}
		bytes, err := turnBytes(ctx, rt, window)
		if err != nil {
			return err
		}
		fmt.Printf("\nAn agent on sqlitestore that calls a tool in each turn, messages of %d bytes:\n", entrySize)
		var perTurn []float64
		for i, mark := range turnMarks {
			took := at[mark+window].Sub(at[mark-window]) / (2 * window)
			perTurn = append(perTurn, float64(took))
			allocs := float64(allocated[mark+window]-allocated[mark-window]) / (2 * window)
			fmt.Printf("at turn %d: %.0f steps/s, %.0f bytes a step, %.0f allocations a turn\n", mark, 2*float64(time.Second)/float64(took), bytes[i], allocs)
		}
		atMost("bytes of a step at turn 800 ÷ at turn 50", bytes[2]/bytes[0], 1.1)
		atMost("time of a turn at turn 800 ÷ at turn 50", perTurn[2]/perTurn[0], 2)
		return nil
	}, flow)
}

// turnBytes returns the bytes of a step around each mark, as events show their
// turn.
func turnBytes(ctx context.Context, rt *perdure.Runtime, window int) ([]float64, error) {
	sums, counts := make([]float64, len(turnMarks)), make([]float64, len(turnMarks))
	for e, err := range rt.Events(ctx, "turns", perdure.EventOptions{Replay: true}) {
		if err != nil {
			return nil, err
		}
		var turn int
		if _, err := fmt.Sscanf(e.Path, "/turns/turn-%d/", &turn); err != nil || e.Kind != "step" {
			continue
		}
		for i, mark := range turnMarks {
			if turn >= mark-window && turn < mark+window {
				sums[i] += float64(len(e.Value))
				counts[i]++
			}
		}
	}
	for i := range sums {
		if counts[i] == 0 {
			return nil, errors.New("there are no steps at the marks")
		}
		sums[i] /= counts[i]
	}
	return sums, nil
}

// firstToken measures how long the first token of a reply takes from the
// provider's server to who watches: through the bare client, and through an
// agent's run, whose deltas a reader gets.
func firstToken(ctx context.Context, dir string) error {
	sent := make(chan time.Time, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		line := func(text string) {
			_, _ = fmt.Fprintf(w, "data: %s\n\n", text)
			w.(http.Flusher).Flush()
		}
		sent <- time.Now()
		line(`{"id":"1","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"first"}}]}`)
		line(`{"id":"1","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"content":" last"},"finish_reason":"stop"}]}`)
		line("[DONE]")
	}))
	defer server.Close()
	model := openai.Model("m", openai.BaseURL(server.URL), openai.Key("none"))
	flow := agent.NewFlow("talk", agent.New("talk", model, agent.Options{}))
	const n = 200
	var bare, run []float64
	err := inRuntime(ctx, dir, func(_ store.Store, rt *perdure.Runtime) error {
		for i := range n {
			for d, err := range model.Generate(ctx, &llm.Request{Messages: []llm.Message{llm.User("hello")}}) {
				if err != nil {
					return err
				}
				if d.Text == "first" {
					bare = append(bare, float64(time.Since(<-sent)))
				}
			}
			took, err := oneTalk(ctx, rt, fmt.Sprint("talk-", i), sent)
			if err != nil {
				return err
			}
			run = append(run, float64(took))
		}
		return nil
	}, flow)
	if err != nil {
		return err
	}
	fmt.Printf("first token from the server to a reader: %.0f µs by the bare client, %.0f µs through a run and its deltas\n", median(bare)/1e3, median(run)/1e3)
	atMost("first token through a run ÷ by the bare client", median(run)/median(bare), 10)
	return nil
}

// oneTalk lets an agent reply once, on a thread that is there already, and
// returns how long its first token took.
func oneTalk(ctx context.Context, rt *perdure.Runtime, thread string, sent <-chan time.Time) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	run, err := rt.Start(ctx, perdure.StartRequest{Flow: "talk", Input: "hello", Thread: thread})
	if err != nil {
		return 0, err
	}
	<-sent // the first run is only there so that its thread can be watched
	if _, err := rt.WaitEnd(ctx, thread, run.ID); err != nil {
		return 0, err
	}
	got := make(chan time.Time, 1)
	watching := make(chan struct{})
	go func() {
		next, stop := iter.Pull2(rt.Deltas(ctx, thread))
		defer stop()
		close(watching)
		if _, err, ok := next(); ok && err == nil {
			got <- time.Now()
		}
	}()
	<-watching
	time.Sleep(5 * time.Millisecond) // the reader listens when it is asked for the first delta
	if _, err := rt.Start(ctx, perdure.StartRequest{Flow: "talk", Input: "hello", Thread: thread}); err != nil {
		return 0, err
	}
	begin := <-sent
	select {
	case at := <-got:
		return at.Sub(begin), nil
	case <-ctx.Done():
		return 0, errors.New("no delta arrives")
	}
}
