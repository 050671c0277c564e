package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/observed"
)

// ages are the runs of a thread around which its turns are compared, and ageSpan
// is how many turns are measured at each.
var ages = []int{25, 400, 2000}

const ageSpan = 40

// aged is what a turn costs at an age: CPU, time, and what it reads.
type aged struct {
	cpu, wall float64 // ns
	request   float64 // ns of cpu that it takes to encode the messages to the model, see requestCost
	calls     float64 // reads of the store
	bytes     float64 // that they return
}

// old measures turns of threads that have many behind them.
func old(ctx context.Context, dir string) error {
	fmt.Printf("\nOld threads on sqlitestore: what a turn costs at run %d, %d and %d of one thread:\n", ages[0], ages[1], ages[2])
	fmt.Printf("%-38s %5s %9s %9s %9s %7s %11s %12s %12s\n", "", "run", "CPU", "request", "time", "reads", "bytes read", "CPU ÷ first", "own ÷ first")
	var verdicts []func()
	for _, s := range []struct {
		name, flow string
		input      any
		ages       []int
	}{
		{"runs of ten steps", "plain-steps", work{10, 200}, ages},
		{"chat, the last messages to the model", "short-chat", "hello", ages},
		{"chat, all messages to the model", "chat", "hello", ages[:2]},
	} {
		var first, second, whole float64
		err := agedTurns(ctx, dir, s.flow, s.input, s.ages, func(age int, t aged) {
			own := t.cpu - t.request
			if first == 0 {
				first, whole = own, t.cpu
			} else if second == 0 {
				second = own
			}
			fmt.Printf("%-38s %5d %9s %9s %9s %7.0f %11.0f %12.2f %12.2f\n", s.name, age, short(time.Duration(t.cpu)), short(time.Duration(t.request)), short(time.Duration(t.wall)), t.calls, t.bytes, t.cpu/whole, own/first)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		verdicts = append(verdicts, func() {
			atMost(fmt.Sprintf("%s: CPU of a turn without its requests, at run %d ÷ at %d", s.name, s.ages[1], s.ages[0]), second/first, 1.3)
		})
	}
	fmt.Println("request: what it costs to encode the messages of a turn's requests to the model, as a provider does; own: the rest of CPU.")
	for _, judge := range verdicts {
		judge()
	}
	return getOld(ctx, dir)
}

// chats are agents that call a tool in each turn, whose model encodes the messages,
// as providers do, and answers at once. One of them sends only the newest messages
// to it.
func chats() []perdure.Flow {
	model := llm.ModelFunc(func(_ context.Context, r *llm.Request) iter.Seq2[llm.Delta, error] {
		return func(yield func(llm.Delta, error) bool) {
			asked.Store(r)
			if _, err := json.Marshal(r.Messages); err != nil {
				_ = yield(llm.Delta{}, err)
				return
			}
			used := &llm.Usage{Input: int64(len(r.Messages)) * 100, Output: 10}
			if r.Messages[len(r.Messages)-1].Role == llm.RoleTool {
				_ = yield(llm.Delta{Text: "It is as you see.", Stop: llm.StopEnd, Usage: used}, nil)
				return
			}
			_ = yield(llm.Delta{Call: &llm.Call{ID: "call", Name: "look", Args: `{"what":"this"}`}}, nil) && yield(llm.Delta{Stop: llm.StopCalls, Usage: used}, nil)
		}
	})
	look := agent.NewTool("look", "Looks.", func(context.Context, struct {
		What string `json:"what"`
	}) (string, error) {
		return "there it is", nil
	})
	tools := []agent.Tool{look}
	return []perdure.Flow{
		agent.NewFlow("chat", agent.New("chat", model, agent.Options{Tools: tools})),
		agent.NewFlow("short-chat", agent.New("short-chat", model, agent.Options{Tools: tools, Context: agent.Context{Strategy: agent.Trim, MaxTokens: 4000}})),
	}
}

// asked is the newest request to the model of chats.
var asked atomic.Pointer[llm.Request]

// requestCost returns the CPU, in ns, that a turn of a chat needs to encode the messages
// of its two requests. It is 0 without a model.
func requestCost() (float64, error) {
	const times = 20
	r := asked.Load()
	if r == nil {
		return 0, nil
	}
	began := cpuTime()
	for range times {
		if _, err := json.Marshal(r.Messages); err != nil {
			return 0, err
		}
	}
	return 2 * float64(cpuTime()-began) / times, nil
}

// agedTurns lets a thread grow old, and tells what a turn costs around each age.
func agedTurns(ctx context.Context, parent, flow string, input any, ages []int, tell func(age int, t aged)) error {
	asked.Store(nil)
	return inStore(ctx, parent, func(inner store.Store, _ string) error {
		stats := new(observed.Stats)
		rt, stop, err := working(ctx, observed.New(inner, stats), chats()...)
		if err != nil {
			return err
		}
		defer stop()
		n := 0
		until := func(last int) error {
			for ; n < last; n++ {
				if err := complete(ctx, rt, "old", flow, input); err != nil {
					return err
				}
			}
			return nil
		}
		for _, age := range ages {
			if err := until(age - ageSpan/2); err != nil {
				return err
			}
			before, cpu, began := readsOf(stats), cpuTime(), time.Now()
			if err := until(age + ageSpan/2); err != nil {
				return err
			}
			spent, took, after := cpuTime()-cpu, time.Since(began), readsOf(stats)
			request, err := requestCost()
			if err != nil {
				return err
			}
			tell(age, aged{cpu: float64(spent) / ageSpan, request: request, wall: float64(took) / ageSpan,
				calls: (after.calls - before.calls) / ageSpan, bytes: (after.bytes - before.bytes) / ageSpan})
		}
		return nil
	})
}

// readsOf returns what a store was asked for so far.
func readsOf(stats *observed.Stats) (sum aged) {
	for _, op := range stats.Snapshot() {
		if !op.Op.Writes() {
			sum.calls += float64(op.Calls)
			sum.bytes += float64(op.Bytes)
		}
	}
	return sum
}

// getOld measures how long it takes to get a thread over HTTP, by its events.
func getOld(ctx context.Context, dir string) error {
	return inRuntime(ctx, dir, func(_ store.Store, rt *perdure.Runtime) error {
		web := serve(rt)
		defer web.Close()
		queries := []string{"", "?runs=1000000"}
		took := map[string][]float64{}
		for _, events := range []uint64{100, 10_000} {
			thread := fmt.Sprint("events-", events)
			for seq := uint64(0); seq < events; {
				if err := complete(ctx, rt, thread, "short-chat", "hello"); err != nil {
					return err
				}
				t, err := rt.GetRun(ctx, thread, "")
				if err != nil {
					return err
				}
				seq = t.Seq
			}
			for _, query := range queries {
				each, err := timesOfGet(web.URL + "/v1/threads/" + thread + query)
				if err != nil {
					return err
				}
				took[query] = append(took[query], median(each))
				fmt.Printf("GET of a thread%s with %d events: %s\n", query, events, short(time.Duration(median(each))))
			}
		}
		atMost("GET of a thread with 10 000 events ÷ with 100", took[""][1]/took[""][0], 3)
		return nil
	}, chats()...)
}

// timesOfGet returns how long each of some requests takes.
func timesOfGet(url string) (each []float64, err error) {
	for range 50 {
		began := time.Now()
		resp, err := http.Get(url)
		if err != nil {
			return nil, err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		if err = errors.Join(err, resp.Body.Close()); err != nil {
			return nil, err
		}
		each = append(each, float64(time.Since(began)))
	}
	return each, nil
}
