package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent/files"
	"github.com/perdure/perdure/internal/schema"
	"github.com/perdure/perdure/llm"
)

// Options configure an agent made by [New]. The zero value is ready to use.
type Options struct {
	// Description tells other agents and models what this one is for.
	Description string
	// Instruction tells the model its task. {key} is replaced by the value of that
	// key of the state, which has to exist; {key?} is removed if it does not. Braces
	// around text that cannot be a key, such as JSON, stay as they are.
	Instruction string
	// Tools that the model may call.
	Tools []Tool
	// Files gives the agent files, the tools for them, and a place for large
	// outputs; see package agent/files.
	Files files.FS
	// Transfer lists agents that the model may hand the conversation over to.
	// They may hand it back, and to each other. The agent that gets it holds the
	// conversation: if it was made by [New], it also answers in the thread's next
	// runs; an agent made from other agents or from code answers once. This applies
	// to agents that a flow runs, not to those below [Sequential], [Loop],
	// [Parallel] or [AsTool]. See [Holder].
	Transfer []Agent
	// Return brings the conversation back to this agent at the end of each run,
	// whichever agent holds it by then.
	Return bool
	// Output asks for JSON in place of free text; see [OutputOf].
	Output *OutputSchema
	// OutputKey is the key of the state that receives the agent's output. Keys that
	// begin with "agent." are reserved.
	OutputKey string
	// History says what the agent sees of the thread's earlier conversation.
	History History
	// Context says what happens when the conversation grows too long.
	Context Context
	// Limits end the agent with ErrLimit.
	Limits Limits
	// Price is what tokens cost, for Limits.Cost and the run's budget.
	Price Price
	// Retry says how often the model is asked again when it is overloaded or
	// unreachable; the default is 8 attempts, up to a minute apart. If the provider
	// says when to try again, the agent waits at least that long.
	Retry *perdure.RetryPolicy
	// ReplyTimeout limits one request to the model; 0 means 10 minutes.
	ReplyTimeout time.Duration
	// Callbacks observe and change what happens.
	Callbacks Callbacks
	// Effort, MaxTokens, Temperature and Choice are passed on to the model.
	Effort      llm.Effort
	MaxTokens   int64
	Temperature *float64
	Choice      llm.Choice
}

// History says what an agent sees of what was said before it was called.
type History string

// The histories.
const (
	HistoryOwn    History = ""       // its own conversation on the thread, over all runs, including agents it was handed over to
	HistoryThread History = "thread" // everything that users and agents said on the thread
	HistoryNone   History = "none"   // nothing
)

// Limits apply to one call of an agent, not counting the agents that it uses; 0 means
// no limit unless stated otherwise. They count what is recorded, so resuming does not
// reset them.
type Limits struct {
	Turns    int           // requests to the model; 0 means 100
	Tokens   int64         // of all requests and replies
	Cost     int64         // in millionths of the currency of Price
	Time     time.Duration // of work: replies and calls, without waiting for people
	Mistakes int           // turns in a row with a mistake by the model; 0 means 3
}

// Price is what a million tokens cost, in millionths of a currency: 3 dollars
// are 3_000_000.
type Price struct{ Input, Output, CacheRead, CacheWrite int64 }

// cost returns what usage costs, in millionths.
func (p Price) cost(u llm.Usage) int64 {
	plain := u.Input - u.CacheRead - u.CacheWrite
	return (plain*p.Input + u.CacheRead*p.CacheRead + u.CacheWrite*p.CacheWrite + u.Output*p.Output) / 1_000_000
}

// OutputSchema is the JSON Schema of an agent's output.
type OutputSchema struct {
	schema *schema.Schema
	err    error
}

// OutputOf returns the schema of a Go type, a struct with tags as for [NewTool].
func OutputOf[T any]() *OutputSchema {
	s, err := schemaOf(reflect.TypeFor[T]())
	return &OutputSchema{s, err}
}

// OutputJSON returns a schema that is given as JSON.
func OutputJSON(raw json.RawMessage) *OutputSchema {
	s, err := parseSchema(raw)
	return &OutputSchema{s, err}
}

// Callbacks are called before and after what an agent does. Each runs inside a step:
// once the step is recorded, the callback is not called again, not even on resume.
// Callbacks call no verbs, but can use state, deps and [perdure.Key]. BeforeTool and
// AfterTool run concurrently for the calls of one message. An error of BeforeModel or
// AfterModel is retried like the model's own errors, unless it is [perdure.Permanent].
type Callbacks struct {
	// BeforeAgent may return a result, which replaces the agent's work.
	BeforeAgent func(ctx context.Context, in Content) (*Result, error)
	// AfterAgent may change the result.
	AfterAgent func(ctx context.Context, r *Result) error
	// BeforeModel may change the request, or return a reply instead of the model.
	BeforeModel func(ctx context.Context, r *llm.Request) (*llm.Reply, error)
	// AfterModel may change the reply, before it is recorded.
	AfterModel func(ctx context.Context, r *llm.Reply) error
	// BeforeTool may return an output; then the tool is not called.
	BeforeTool func(ctx context.Context, c ToolCall) (*Output, error)
	// AfterTool may change the output, before it is recorded.
	AfterTool func(ctx context.Context, c ToolCall, out *Output) error
}

// ToolCall is a call as callbacks see it: checked, and approved if necessary.
type ToolCall struct {
	Agent string          `json:"agent"`
	Tool  string          `json:"tool"`
	ID    string          `json:"id"`
	Args  json.RawMessage `json:"args"`
}

// modelAgent is an agent that is made of a model.
type modelAgent struct {
	name  string
	model llm.Model
	Options
	tools map[string]Tool
	order []Tool
	err   error
}

// New makes an agent from a model. Its name has 1 to 64 letters, digits, - and _, and
// must differ from those of the agents that it works with: history is kept by name.
// Wrong options are reported when the agent runs, and by [Check].
func New(name string, model llm.Model, o Options) Agent {
	a := &modelAgent{name: name, model: model, Options: o, tools: map[string]Tool{}}
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: agent %q: %w", ErrOption, name, fmt.Errorf(format, args...)))
	}
	if !toolName.MatchString(name) {
		wrong("its name is not 1 to 64 letters, digits, - and _")
	}
	if model == nil {
		wrong("it has no model")
	}
	a.order = append(a.order, o.Tools...)
	if o.Files != nil {
		a.order = append(a.order, FileTools(o.Files)...)
	}
	if len(o.Transfer) > 0 {
		a.order = append(a.order, transferTool)
	}
	for _, t := range o.Tools {
		if t.tool != nil && t.name == transferTool.name {
			wrong("a tool cannot be called %q", t.name)
		}
	}
	for _, t := range a.order {
		if err := t.check(); err != nil {
			wrong("%w", err)
			continue
		}
		if _, twice := a.tools[t.name]; twice {
			wrong("two tools are called %q", t.name)
		}
		a.tools[t.name] = t
	}
	if o.Context.MaxTokens > 0 && o.Context.Strategy == "" {
		wrong("Context.MaxTokens needs a Strategy")
	}
	if k := o.OutputKey; strings.HasPrefix(k, "agent.") {
		wrong("OutputKey %q is a key of the agents' own", k)
	}
	if o.Output != nil && o.Output.err != nil {
		wrong("its output: %w", o.Output.err)
	}
	if o.Limits.Turns < 0 || o.Limits.Tokens < 0 || o.Limits.Cost < 0 || o.Limits.Time < 0 || o.Limits.Mistakes < 0 || o.Context.MaxTokens < 0 || o.Context.Keep < 0 {
		wrong("a negative limit")
	}
	if _, err := fillIn(o.Instruction, func(string) (string, bool, error) { return "", true, nil }); err != nil {
		wrong("its instruction: %w", err)
	}
	a.err = errors.Join(errs...)
	return a
}

func (a *modelAgent) Name() string        { return a.name }
func (a *modelAgent) description() string { return a.Description }

func (a *modelAgent) check(n *names) error {
	if fresh, err := n.see(a); err != nil || !fresh {
		return err
	}
	errs := []error{a.err}
	for _, t := range a.Transfer {
		if t == nil {
			errs = append(errs, fmt.Errorf("%w: agent %q hands over to nil", ErrOption, a.name))
			continue
		}
		errs = append(errs, t.check(n))
	}
	for _, t := range a.order {
		if t.tool == nil {
			continue
		}
		for _, sub := range t.agents {
			errs = append(errs, sub.check(n))
		}
	}
	return errors.Join(errs...)
}

var placeholder = regexp.MustCompile(`\{([A-Za-z_][A-Za-z0-9_.:/-]*)(\??)\}`)

// fillIn replaces the placeholders of an instruction. Braces around anything
// else stay as they are.
func fillIn(text string, get func(key string) (string, bool, error)) (string, error) {
	var first error
	out := placeholder.ReplaceAllStringFunc(text, func(m string) string {
		parts := placeholder.FindStringSubmatch(m)
		v, ok, err := get(parts[1])
		switch {
		case err != nil && first == nil:
			first = err
		case !ok && parts[2] == "" && first == nil:
			first = fmt.Errorf("%w: the instruction needs the state %q, which is not there; write {%s?} if it may be missing", ErrOption, parts[1], parts[1])
		}
		return v
	})
	return out, first
}

// instruction returns the instruction with the state filled in.
func (a *modelAgent) instruction(ctx context.Context) (string, error) {
	if !strings.Contains(a.Instruction, "{") {
		return a.Instruction, nil
	}
	return fillIn(a.Instruction, func(key string) (string, bool, error) {
		raw, ok, err := perdure.NewState[json.RawMessage](key).Lookup(ctx)
		if err != nil || !ok {
			return "", false, err
		}
		var text string
		if json.Unmarshal(raw, &text) == nil {
			return text, true, nil
		}
		return string(raw), true, nil
	})
}
