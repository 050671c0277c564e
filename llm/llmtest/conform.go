package llmtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure/llm"
)

// Run checks the rules that every model must follow. It sends the model all kinds of
// requests, many times, and each must get a reply. Test the model of a provider
// against a local server that answers every request with the same stream:
//
//	llmtest.Run(t, func(t *testing.T) llm.Model {
//		server := httptest.NewServer(answersWithAStream)
//		t.Cleanup(server.Close)
//		return newModel(server.URL)
//	})
func Run(t *testing.T, model func(t *testing.T) llm.Model) {
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			if err := c.run(t.Context(), model(t)); err != nil {
				t.Errorf("%v\n%s", err, c.why)
			}
		})
	}
}

// checks are what a model must hold, and why.
var checks = []struct {
	name, why string
	run       func(context.Context, llm.Model) error
}{
	{"DeltasFold", "A caller puts the deltas together with an llm.Fold, and records the result.", deltasFold},
	{"StopIsLast", "A reply counts as complete once its Stop has come; whatever comes later is lost.", stopIsLast},
	{"ReplyGoesBack", "A conversation continues with the model's own reply and the results of its calls.", replyGoesBack},
	{"LoopMayEnd", "A caller may stop listening at any delta. Then the model yields nothing more, and the request is over.", loopMayEnd},
	{"NothingLeaks", "A process uses a model for months. Requests that were broken off or never begun leave nothing behind.", nothingLeaks},
	{"CancelledBefore", "When the context has ended, its error is returned: it distinguishes a stop by a person from a failure.", cancelledBefore},
	{"CancelledBetween", "When the context ends, so does the reply, with the context's error, unless it was already complete.", cancelledBetween},
	{"RequestStays", "Requests share their messages with the record. A model that writes to them changes history.", requestStays},
	{"Concurrent", "A model is a package variable that all runs of a process share.", concurrent},
}

// requests returns a plain request, and one with everything that a model of text
// and tools takes.
func requests() []*llm.Request {
	zero := 0.0
	return []*llm.Request{
		{Messages: []llm.Message{llm.User("Hello")}},
		{
			System: "Be brief.",
			Messages: []llm.Message{
				llm.User("What is the weather in Oslo and in Rome?"),
				{Role: llm.RoleAssistant, Parts: []llm.Part{
					{Reasoning: &llm.Reasoning{Text: "Two calls."}, Opaque: &llm.Opaque{Provider: "llmtest", Data: "sig"}},
					llm.Text("Let me see."),
					{Call: &llm.Call{ID: "c1", Name: "weather", Args: `{"city": "Oslo"}`}},
					{Call: &llm.Call{ID: "c2", Name: "weather", Args: `{"city": "Rome"}`}},
				}},
				{Role: llm.RoleTool, Parts: []llm.Part{
					{Result: &llm.Result{Call: "c1", Name: "weather", Text: "rain"}},
					{Result: &llm.Result{Call: "c2", Name: "weather", Text: "no such city", Error: true}},
				}},
				llm.Assistant("It rains in Oslo."),
				llm.User("Thanks. Try Rome again."),
			},
			Tools: []llm.Tool{
				{Name: "weather", Description: "Tells the weather.", Schema: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}`)},
			},
			MaxTokens:   1000,
			Temperature: &zero,
			Stop:        []string{"THE END"},
		},
	}
}

// each runs a check on every request.
func each(check func(*llm.Request) error) error {
	for i, r := range requests() {
		if err := check(r); err != nil {
			return fmt.Errorf("request %d: %w", i, err)
		}
	}
	return nil
}

func deltasFold(ctx context.Context, m llm.Model) error {
	return each(func(r *llm.Request) error {
		reply, err := llm.Collect(m.Generate(ctx, r))
		if err != nil {
			return err
		}
		return sound(reply)
	})
}

// sound returns an error if a reply is not valid.
func sound(reply *llm.Reply) error {
	switch reply.Stop {
	case llm.StopEnd, llm.StopCalls, llm.StopLength, llm.StopRefused, llm.StopOther:
	default:
		return fmt.Errorf("the Stop %q is not one of package llm's", reply.Stop)
	}
	ids := map[string]bool{}
	calls := reply.Message.Calls()
	for _, c := range calls {
		if c.Name == "" || c.ID == "" || ids[c.ID] {
			return fmt.Errorf("a call without a name or an id of its own: %+v", c)
		}
		ids[c.ID] = true
	}
	if reply.Stop == llm.StopCalls && len(calls) == 0 {
		return errors.New("the Stop says that there are calls, but there are none")
	}
	if u := reply.Usage; min(u.Input, u.Output, u.CacheRead, u.CacheWrite, u.Reasoning) < 0 || u.CacheRead+u.CacheWrite > u.Input || u.Reasoning > u.Output {
		return fmt.Errorf("the usage %+v has parts that are larger than the whole, or negative", u)
	}
	return nil
}

func stopIsLast(ctx context.Context, m llm.Model) error {
	return each(func(r *llm.Request) error {
		stopped := false
		for d, err := range m.Generate(ctx, r) {
			if stopped {
				return fmt.Errorf("after the Stop comes %+v, %v", d, err)
			}
			if err != nil {
				return err
			}
			stopped = d.Stop != ""
		}
		if !stopped {
			return errors.New("the last delta has no Stop")
		}
		return nil
	})
}

func replyGoesBack(ctx context.Context, m llm.Model) error {
	return each(func(r *llm.Request) error {
		for range 3 {
			reply, err := llm.Collect(m.Generate(ctx, r))
			if err != nil {
				return fmt.Errorf("with %d messages: %w", len(r.Messages), err)
			}
			r.Messages = append(r.Messages, reply.Message)
			results := llm.Message{Role: llm.RoleTool}
			for _, c := range reply.Message.Calls() {
				results.Parts = append(results.Parts, llm.Part{Result: &llm.Result{Call: c.ID, Name: c.Name, Text: "done"}})
			}
			if results.Parts == nil {
				results = llm.User("Go on.")
			}
			r.Messages = append(r.Messages, results)
		}
		return nil
	})
}

func requestStays(ctx context.Context, m llm.Model) error {
	same := requests()
	return each(func(r *llm.Request) error {
		want := same[0]
		same = same[1:]
		if _, err := llm.Collect(m.Generate(ctx, r)); err != nil {
			return err
		}
		if diff := cmp.Diff(want, r); diff != "" {
			return fmt.Errorf("the model changed the request (- before, + after):\n%s", diff)
		}
		return nil
	})
}

func concurrent(ctx context.Context, m llm.Model) error {
	return each(func(r *llm.Request) error {
		errs := make([]error, 8)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() {
				for range 4 {
					if _, err := llm.Collect(m.Generate(ctx, r)); err != nil {
						errs[i] = err
						return
					}
				}
			})
		}
		wg.Wait()
		return errors.Join(errs...)
	})
}

// most is how many different deltas a reply is broken off at.
const most = 20

// breakOff leaves the loop after n deltas and reports whether the reply ended
// before.
func breakOff(deltas iter.Seq2[llm.Delta, error], n int) (whole bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the loop was left at delta %d, and the model panics: %v", n, p)
		}
	}()
	for _, err := range deltas {
		if err != nil {
			return false, err
		}
		if n--; n <= 0 {
			return false, nil
		}
	}
	return true, nil
}

func loopMayEnd(ctx context.Context, m llm.Model) error {
	return each(func(r *llm.Request) error {
		for n := 1; n <= most; n++ {
			whole, err := breakOff(m.Generate(ctx, r), n)
			if whole || err != nil {
				return err
			}
		}
		return nil
	})
}

func nothingLeaks(ctx context.Context, m llm.Model) error {
	const times = 40
	r := requests()[0]
	if _, err := breakOff(m.Generate(ctx, r), 1); err != nil { // connections and the like that stay
		return err
	}
	before := runtime.NumGoroutine()
	for range times {
		m.Generate(ctx, r) // never begun
		if _, err := breakOff(m.Generate(ctx, r), 1); err != nil {
			return err
		}
		next, stop := iter.Pull2(m.Generate(ctx, r))
		next()
		stop()
	}
	// Connections close a little after the loop ends.
	now := runtime.NumGoroutine()
	for i := 0; i < 2000 && now >= before+times/2; i++ {
		time.Sleep(time.Millisecond)
		now = runtime.NumGoroutine()
	}
	if now >= before+times/2 {
		return fmt.Errorf("%d replies that were broken off leave %d goroutines", 2*times, now-before)
	}
	return nil
}

// ended checks that a reply ends with the error of the context, and nothing else.
func ended(ctx context.Context, m llm.Model, r *llm.Request) error {
	want := ctx.Err()
	var got error
	for d, err := range m.Generate(ctx, r) {
		if got != nil {
			return fmt.Errorf("after the error comes %+v, %v", d, err)
		}
		got = err
	}
	if !errors.Is(got, want) {
		return fmt.Errorf("the reply ends with the error %v, want %v", got, want)
	}
	return nil
}

func cancelledBefore(ctx context.Context, m llm.Model) error {
	return each(func(r *llm.Request) error {
		cancelled, cancel := context.WithCancel(ctx)
		cancel()
		late, cancel := context.WithDeadline(ctx, time.Unix(0, 0))
		defer cancel()
		return errors.Join(ended(cancelled, m, r), ended(late, m, r))
	})
}

func cancelledBetween(ctx context.Context, m llm.Model) error {
	return each(func(r *llm.Request) error {
		for n := range most {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			seen, stopped := 0, false
			var got error
			for d, err := range m.Generate(ctx, r) {
				if got != nil {
					return fmt.Errorf("after the error comes %+v, %v", d, err)
				}
				got, stopped = err, d.Stop != ""
				if seen++; seen == n+1 {
					cancel()
				}
			}
			if ctx.Err() == nil && got == nil {
				return nil // it has no more deltas
			}
			if !stopped && !errors.Is(got, context.Canceled) {
				return fmt.Errorf("cancelled after delta %d, the reply ends with the error %v", n+1, got)
			}
		}
		return nil
	})
}
