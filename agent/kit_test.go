package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/natstest"
	"github.com/perdure/perdure/internal/s3test"
	"github.com/perdure/perdure/internal/sweeps"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/perduretest"
)

// torture asks for the long forms of tests.
var torture = os.Getenv("PERDURE_TORTURE") != ""

// brain is a model that is a function of the conversation. It counts how often
// it was asked for the same reply.
type brain struct {
	think func(r *llm.Request) llm.Message
	fx    *perduretest.Effects

	mu   sync.Mutex
	seen []llm.Request
}

func (b *brain) Generate(ctx context.Context, r *llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		b.mu.Lock()
		b.seen = append(b.seen, *r)
		b.mu.Unlock()
		if b.fx != nil {
			b.fx.Count(ctx, "model")
		}
		if err := wellFormed(r.Messages); err != nil {
			yield(llm.Delta{}, &llm.Error{Kind: llm.ErrInvalid, Provider: "brain", Message: err.Error()})
			return
		}
		m := b.think(r)
		stop := llm.StopEnd
		for i, p := range m.Parts {
			if p.Call != nil {
				stop = llm.StopCalls
			}
			if !yield(llm.Delta{Part: i, Text: p.Text, Call: p.Call, Opaque: p.Opaque}, nil) {
				return
			}
		}
		yield(llm.Delta{Stop: stop, Usage: &llm.Usage{Input: int64(len(r.Messages)), Output: 1}, Model: "brain"}, nil)
	}
}

func (b *brain) requests() []llm.Request {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.seen
}

// wellFormed is what providers demand: each call of a message has exactly one
// result in the message behind it, and there are no others.
func wellFormed(messages []llm.Message) error {
	open := map[string]bool{}
	for i, m := range messages {
		if m.Role != llm.RoleTool && len(open) > 0 {
			return fmt.Errorf("message %d comes before the results of %v", i, open)
		}
		for _, p := range m.Parts {
			if p.Result != nil {
				if !open[p.Result.Call] {
					return fmt.Errorf("message %d has a result for %q, which is not called", i, p.Result.Call)
				}
				delete(open, p.Result.Call)
			}
		}
		for _, c := range m.Calls() {
			open[c.ID] = true
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("the calls %v have no results", open)
	}
	return nil
}

func calls(cs ...llm.Call) llm.Message {
	m := llm.Message{Role: llm.RoleAssistant}
	for i, c := range cs {
		if c.ID == "" {
			c.ID = fmt.Sprintf("c%d", i)
		}
		m.Parts = append(m.Parts, llm.Part{Call: &c})
	}
	return m
}

func call(name, args string) llm.Call { return llm.Call{Name: name, Args: args} }

// last returns the last message of a request.
func last(r *llm.Request) llm.Message { return r.Messages[len(r.Messages)-1] }

// replies counts the model's replies to the newest user message.
func replies(r *llm.Request) int {
	n := 0
	for _, m := range r.Messages {
		switch m.Role {
		case llm.RoleAssistant:
			n++
		case llm.RoleUser:
			n = 0
		}
	}
	return n
}

func results(m llm.Message) string {
	s := ""
	for _, p := range m.Parts {
		if p.Result != nil {
			s += fmt.Sprintf("%s=%s;", p.Result.Name, p.Result.Text)
		}
	}
	return s
}

// decide answers all open asks.
func decide(answer func(a perdure.AskInfo) *perdure.Answer) func(context.Context, *perdure.Runtime, *perdure.Run) error {
	return func(ctx context.Context, rt *perdure.Runtime, run *perdure.Run) error {
		for _, a := range run.Asks {
			if ans := answer(a); ans != nil {
				if err := rt.Answer(ctx, perdure.AskAnswer{Ask: a.ID, Answer: *ans}); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

func raw(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

func init() {
	sweeps.Stores["postgres"] = kit.Postgres
	sweeps.Stores["redis"] = kit.Redis
	sweeps.Stores["nats"] = kit.At(natstest.Volatile)
	kit.Costly("s3", kit.At(s3test.Empty))
}

func sweep(t *testing.T, c perduretest.Crash) {
	t.Helper()
	if c.Want == "" {
		c.Want = perdure.Succeeded
	}
	perduretest.CrashEverywhere(t, c)
}

// toolUse is a call of a tool without an agent.
type toolUse struct {
	Name string         `json:"name"`
	Args map[string]any `json:"args"`
}

func use(name string, args ...any) toolUse {
	u := toolUse{name, map[string]any{}}
	for i := 0; i < len(args); i += 2 {
		u.Args[args[i].(string)] = args[i+1]
	}
	return u
}

// callTool calls a tool in a step, as an agent does.
func callTool(ctx context.Context, step string, tools []agent.Tool, u toolUse) (agent.Output, error) {
	i := slices.IndexFunc(tools, func(t agent.Tool) bool { return t.Name() == u.Name })
	if i < 0 {
		return agent.Output{}, fmt.Errorf("no tool %s", u.Name)
	}
	return perdure.Step(ctx, step, func(ctx context.Context) (agent.Output, error) {
		return agent.CallTool(ctx, tools[i], string(raw(u.Args)))
	})
}

// toolFlow is a flow that makes calls, one after the other, and returns what
// they return.
func toolFlow(name string, tools []agent.Tool) perdure.Flow {
	return perdure.NewFlow(name, func(ctx context.Context, uses []toolUse) ([]string, error) {
		var all []string
		for i, u := range uses {
			out, err := callTool(ctx, fmt.Sprintf("call-%d", i), tools, u)
			if err != nil {
				return nil, err
			}
			if out.Error {
				out.Text = "error: " + out.Text
			}
			all = append(all, out.Text)
		}
		return all, nil
	})
}

// runTools makes calls on a new thread and returns what they return.
func runTools(t *testing.T, tools []agent.Tool, uses ...toolUse) []string {
	t.Helper()
	var out []string
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{toolFlow("tools", tools)}}, func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "tools", uses)
		var err error
		if out, err = perdure.Output[[]string](e.Wait("t", perdure.Succeeded)); err != nil {
			t.Fatal(err)
		}
	})
	return out
}

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

// play starts an agent on the thread t, in a world of its own.
func play(t *testing.T, a agent.Agent, test func(t *testing.T, e *perduretest.Env)) {
	t.Helper()
	perduretest.Virtual(t, flows(a), func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "flow", "go")
		test(t, e)
	})
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
