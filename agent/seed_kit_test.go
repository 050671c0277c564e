package agent_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/perduretest"
)

// tally counts what happened, in all lives of a test.
type tally struct {
	mu sync.Mutex
	n  map[string]int
}

// add counts and returns how often it happened so far.
func (t *tally) add(what string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n == nil {
		t.n = map[string]int{}
	}
	t.n[what]++
	return t.n[what]
}

func (t *tally) of(what string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.n[what]
}

// String lists the counts in the order of their names.
func (t *tally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []string
	for _, k := range slices.Sorted(maps.Keys(t.n)) {
		out = append(out, fmt.Sprintf("%s:%d", k, t.n[k]))
	}
	return strings.Join(out, " ")
}

func (t *tally) want(tb testing.TB, want string) {
	tb.Helper()
	if got := t.String(); got != want {
		tb.Errorf("it happened %s, want %s", got, want)
	}
}

// hang works until its process dies.
func hang(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// scripted is a model that gives the n-th of some replies to a user's message.
func scripted(ms ...llm.Message) *brain {
	return &brain{think: func(r *llm.Request) llm.Message { return ms[min(replies(r), len(ms)-1)] }}
}

// teller is an agent of a model that is counted, and dies with its process the
// first time if it is to.
func teller(n *tally, name string, dies bool, say string, o agent.Options) agent.Agent {
	o.Callbacks.BeforeModel = func(ctx context.Context, _ *llm.Request) (*llm.Reply, error) {
		if n.add(name) == 1 && dies {
			return nil, hang(ctx)
		}
		return nil, nil
	}
	return agent.New(name, scripted(llm.Assistant(say)), o)
}

func flows(a agent.Agent) perduretest.Setup {
	return perduretest.Setup{Flows: []perdure.Flow{agent.NewFlow("flow", a)}}
}

func text(t *testing.T, run *perdure.Run) string {
	t.Helper()
	out, err := perdure.Output[string](run)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// said returns the transcript of a thread.
func said(t *testing.T, e *perduretest.Env, thread string) []agent.Record {
	t.Helper()
	at, err := e.Runtime().StateAt(t.Context(), thread, 0)
	if err != nil {
		t.Fatal(err)
	}
	all, err := agent.Transcript(at.State)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// asked waits until there are n open asks and returns them in the order of
// their paths.
func asked(t *testing.T, e *perduretest.Env, thread string, n int) []perdure.AskInfo {
	t.Helper()
	run := e.Wait(thread, perdure.Suspended)
	if len(run.Asks) != n {
		t.Fatalf("there are %d asks, want %d\n%s", len(run.Asks), n, e.Trace(thread))
	}
	asks := slices.Clone(run.Asks)
	slices.SortFunc(asks, func(a, b perdure.AskInfo) int { return strings.Compare(a.Path, b.Path) })
	return asks
}

func reply(t *testing.T, e *perduretest.Env, ask perdure.AskInfo, a perdure.Answer) {
	t.Helper()
	if err := e.Runtime().Answer(t.Context(), perdure.AskAnswer{Ask: ask.ID, Answer: a}); err != nil {
		t.Fatal(err)
	}
}

// noted is a tool that counts its calls.
func noted(n *tally, name string, opts ...agent.ToolOption) agent.Tool {
	return agent.NewTool(name, "Does "+name+".", func(_ context.Context, o order) (string, error) {
		n.add(name)
		return name + " " + o.ID, nil
	}, opts...)
}
