package perdure

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/exact"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/tree"
)

// Flow is a function that runs execute. Make one with [NewFlow].
type Flow struct {
	name string
	in   reflect.Type
	fn   func(context.Context, json.RawMessage) (json.RawMessage, error)
}

// NewFlow makes a flow from a function. The function may be called many times for
// one run: all its effects on the world belong in steps, and all its decisions
// must follow from its input and from what verbs return.
func NewFlow[In, Out any](name string, fn func(context.Context, In) (Out, error)) Flow {
	if fn == nil {
		return Flow{name: name}
	}
	return Flow{
		name: name,
		in:   reflect.TypeFor[In](),
		fn: func(ctx context.Context, raw json.RawMessage) (json.RawMessage, error) {
			in, err := engine.RecordedAs[In](ctx, "input", "", raw)
			if err != nil {
				return nil, err
			}
			out, err := fn(ctx, in)
			if err != nil {
				return nil, err
			}
			return exact.Encode(out, reflect.TypeFor[Out]())
		},
	}
}

// Name returns the name of the flow.
func (f Flow) Name() string { return f.name }

// Input returns the type of the flow's input.
func (f Flow) Input() reflect.Type { return f.in }

func (f Flow) check() error {
	if f.fn == nil {
		return fmt.Errorf("%w: flow %q has no function; make it with NewFlow", fault.ErrInvalid, f.name)
	}
	if err := tree.CheckName(f.name); err != nil {
		return fmt.Errorf("%w: flow: %w", fault.ErrName, err)
	}
	return nil
}
