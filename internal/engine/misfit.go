package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/perdure/perdure/internal/exact"
	"github.com/perdure/perdure/internal/fault"
)

// RecordedAs reads a recorded value into a T. One that does not fit blocks the
// run before the code goes on: an error that the code may handle would make it
// believe that what is recorded has failed. What and name say what the value
// is, such as a step and its name.
func RecordedAs[T any](ctx context.Context, what, name string, raw json.RawMessage) (T, error) {
	v, err := exact.Decode[T](raw)
	if err == nil {
		return v, nil
	}
	var zero T
	f, outside := inside(ctx)
	if outside != nil {
		return zero, err
	}
	where := fmt.Sprintf("%s at %s/%s", what, f.path(), name)
	switch what {
	case "state":
		where = fmt.Sprintf("state %q, read at %s/", name, f.path())
	case "input":
		where = "the input"
	}
	return zero, f.pass.misfit(f, where, raw, reflect.TypeFor[T]().String(), err)
}

// misfit blocks the run because a recorded value cannot be read by the code.
func (p *Pass) misfit(f *frame, where string, raw json.RawMessage, reader string, err error) error {
	return p.block(f, fmt.Sprintf("%s:\n- recorded: %s\n+ the code: %s, which cannot read it: %s", where, shown(raw), reader, fault.Clip(err.Error(), maxShown)))
}
