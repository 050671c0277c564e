package agent_test

import (
	"context"
	"fmt"
	"iter"
	"math"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/perduretest"
)

// TestWholeNumbersAndNullAreArguments: what fits the schema fits the Go type,
// and a model that gives no arguments may say null.
func TestWholeNumbersAndNullAreArguments(t *testing.T) {
	type numbers struct {
		N    int            `json:"n,omitempty"`
		List []uint8        `json:"list,omitempty"`
		By   map[string]any `json:"by,omitempty"`
		F    float64        `json:"f,omitempty"`
	}
	for args, want := range map[string]string{
		`{"n":1.0}`:               "{1 [] map[] 0}",
		`{"n":-2.50e1,"f":1.5}`:   "{-25 [] map[] 1.5}",
		`{"list":[1e0,2],"f":10}`: "{0 [1 2] map[] 10}",
		`{"n":1.5}`:               "",
		`{"n":1e300}`:             "",
		`{"list":[300.0]}`:        "",
		`null`:                    "{0 [] map[] 0}",
		` null `:                  "{0 [] map[] 0}",
	} {
		var n tally
		tool := agent.NewTool("count", "Counts.", func(_ context.Context, a numbers) (string, error) {
			n.add(fmt.Sprint(a))
			return "ok", nil
		})
		perduretest.Virtual(t, flows(agent.New("clerk", scripted(calls(call("count", args)), llm.Assistant("end")), agent.Options{Tools: []agent.Tool{tool}})), func(t *testing.T, e *perduretest.Env) {
			e.Start("t", "flow", "go")
			e.Wait("t", perdure.Succeeded)
		})
		if want != "" {
			want += ":1"
		}
		n.want(t, want)
	}
}

// oddUsage is a model whose server cannot count.
type oddUsage llm.Usage

func (u oddUsage) Generate(context.Context, *llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		usage := llm.Usage(u)
		if yield(llm.Delta{Text: "hello"}, nil) {
			yield(llm.Delta{Usage: &usage, Stop: llm.StopEnd}, nil)
		}
	}
}

// TestAbsurdUsageDoesNotCostTheReply: it is counted as far as it makes sense.
func TestAbsurdUsageDoesNotCostTheReply(t *testing.T) {
	for u, want := range map[oddUsage]llm.Usage{
		{Input: -5, Output: 3}:                           {Output: 3},
		{Input: math.MaxInt64, Output: math.MaxInt64}:    {Input: math.MaxInt32, Output: math.MaxInt32},
		{Input: 5, CacheRead: 9, CacheWrite: 9}:          {Input: 5, CacheRead: 5},
		{Input: math.MinInt64, CacheRead: 1, Output: -1}: {},
	} {
		clerk := agent.New("clerk", u, agent.Options{Price: agent.Price{Input: 15_000_000, Output: 75_000_000, CacheRead: 1, CacheWrite: 1}})
		perduretest.Virtual(t, flows(clerk), func(t *testing.T, e *perduretest.Env) {
			e.Start("t", "flow", "go")
			if run := e.Wait("t", perdure.Succeeded); run.Spent["tokens"] != want.Total() || run.Spent["cost"] < 0 {
				t.Errorf("%+v: it spent %v", u, run.Spent)
			}
		})
	}
}
