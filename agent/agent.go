package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/llm"
)

// Agent does a task that is given in words. [New] makes one from a model;
// [Sequential], [Loop], [Parallel] and [Func] make one from other agents or from
// code. [Run] runs it inside a flow, [AsTool] makes it a tool of another agent, and
// [NewFlow] makes it a flow.
type Agent interface {
	// Name returns its name, which is also the name of its step.
	Name() string

	description() string
	check(*names) error
	run(ctx context.Context, step string, v visit) (*Result, error)
}

// visit is how an agent is called.
type visit struct {
	in     Content
	from   string // the agent that said the input; "" if it was a user
	alone  bool   // it sees nothing of the thread but its input
	root   bool   // its conversation is the thread's: who holds it is kept
	talk   *talk  // that it takes over, nil if it begins one
	within string // the agent in whose conversation it is called, if it begins one
}

// Result is the outcome of an agent.
type Result struct {
	Agent    string          `json:"agent"` // name of the agent
	Text     string          `json:"text"`
	Value    json.RawMessage `json:"value,omitempty"` // of an agent with an output schema
	Escalate bool            `json:"escalate,omitempty"`
	Turns    int             `json:"turns,omitempty"`
	Usage    llm.Usage       `json:"usage,omitzero"`
	Transfer string          `json:"transfer,omitempty"` // the agent that it hands over to
	Stop     llm.Stop        `json:"stop,omitempty"`     // why its last reply ended
}

// Run has an agent do a task and returns its text. It is a step of the flow, with
// the agent's name: to run an agent twice in one frame, put each call into a
// [perdure.Scope].
func Run[I Input](ctx context.Context, a Agent, in I) (string, error) {
	r, err := Do(ctx, a, in)
	if err != nil {
		return "", err
	}
	return r.Text, nil
}

// RunTo is Run for an agent with an output schema. It returns the decoded output.
func RunTo[T any, I Input](ctx context.Context, a Agent, in I) (T, error) {
	var v T
	r, err := Do(ctx, a, in)
	if err != nil {
		return v, err
	}
	if r.Value == nil {
		return v, fmt.Errorf("%w: what agent %q was asked was answered by %q, which has no Output, so there is nothing to decode", ErrOption, a.Name(), r.Agent)
	}
	if err := json.Unmarshal(r.Value, &v); err != nil {
		var zero T
		return zero, engine.Misfit(ctx, fmt.Sprintf("the output of agent %q", a.Name()), r.Value, reflect.TypeFor[T]().String(), err)
	}
	return v, nil
}

// Do is Run, but returns the whole result.
func Do[I Input](ctx context.Context, a Agent, in I) (*Result, error) {
	if err := Check(a); err != nil {
		return nil, perdure.Permanent(err)
	}
	c := contentOf(in)
	if err := c.check(); err != nil {
		return nil, perdure.Permanent(err)
	}
	return a.run(ctx, a.Name(), visit{in: c, root: ctx.Value(belowKey{}) == nil})
}

// belowKey marks the contexts of agents that other agents call: a conversation
// there is not the thread's own.
type belowKey struct{}

// NewFlow makes a flow that runs an agent. Its input is a [Content], and its output the
// agent's text, or its value if the agent has an output schema.
func NewFlow(name string, a Agent) perdure.Flow {
	return perdure.NewFlow(name, func(ctx context.Context, in Content) (json.RawMessage, error) {
		r, err := Do(ctx, a, in)
		if err != nil {
			return nil, err
		}
		if r.Value != nil {
			return r.Value, nil
		}
		return json.Marshal(r.Text)
	})
}

// Check returns everything that is wrong with an agent and the agents that it uses. Run
// checks too; call Check in a test, or when the program starts.
func Check(a Agent) error {
	if a == nil {
		return fmt.Errorf("%w: no agent", ErrOption)
	}
	return a.check(&names{agents: map[string]Agent{}})
}

// names finds agents that share a name.
type names struct{ agents map[string]Agent }

// see notes an agent and reports whether it is new.
func (n *names) see(a Agent) (bool, error) {
	old, seen := n.agents[a.Name()]
	if seen && old != a {
		return false, fmt.Errorf("%w: two agents are called %q", ErrOption, a.Name())
	}
	n.agents[a.Name()] = a
	return !seen, nil
}

// composite runs the code of an agent as a step that holds the steps inside it.
// The input is part of the step's identity, so that agents in another order than
// the recorded one are noticed.
func composite(ctx context.Context, step, agent string, in Content, fn func(ctx context.Context) (*Result, error)) (*Result, error) {
	r, err := perdure.Step(ctx, step, func(ctx context.Context) (Result, error) {
		r, err := fn(ctx)
		if err != nil {
			return Result{}, err
		}
		return *r, nil
	}, perdure.Input(in), describeAgent(agent))
	if err != nil {
		return nil, err
	}
	return &r, nil
}

// outcome reports whether an error is the recorded outcome of a step, rather than
// a sign that the run waits, ends or belongs to another worker.
func outcome(err error) (*perdure.StepError, bool) {
	if isAny(err, perdure.ErrSuspended, perdure.ErrFenced, perdure.ErrBlocked, perdure.ErrCancelled) {
		return nil, false
	}
	return errors.AsType[*perdure.StepError](err)
}

// isAny reports whether an error matches one of the targets.
func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}
