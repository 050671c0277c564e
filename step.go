package perdure

import (
	"context"
	"encoding/json"
	"reflect"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/exact"
	"github.com/perdure/perdure/internal/tree"
)

// Step runs fn once and records its outcome. When the run is executed again,
// Step returns the recorded outcome and does not call fn.
//
// A step whose fn calls no verb is a leaf: it may change state, spend and use
// [Key]. A step whose fn calls verbs is a composite: flow code that runs again
// on resume, with what was recorded inside it. The changes of an inner step
// remain when the outer one fails.
//
// Step always returns what was recorded: the result as decoded from JSON, and the
// error as a [*StepError] that matches by code, see [Coded]. So a flow behaves the
// same now and when it is resumed.
func Step[T any](ctx context.Context, name string, fn func(context.Context) (T, error), opts ...StepOption) (T, error) {
	raw, err := engine.Step(ctx, tree.Step, name, reflect.TypeFor[T](), body(fn), opts)
	if err != nil {
		var zero T
		return zero, err
	}
	return engine.RecordedAs[T](ctx, "the result of the step", name, raw)
}

// body makes the function of a step return its result as recorded.
func body[T any](fn func(context.Context) (T, error)) func(context.Context) (json.RawMessage, error) {
	return func(ctx context.Context) (json.RawMessage, error) {
		v, err := fn(ctx)
		if err != nil {
			return nil, err
		}
		return exact.Encode(v, reflect.TypeFor[T]())
	}
}

// Scope calls fn in a frame of its own, named but not recorded: it only
// lengthens the path, so that the same names can be used again inside it.
func Scope[T any](ctx context.Context, name string, fn func(context.Context) (T, error)) (T, error) {
	var zero, result T
	stop, err := engine.Scope(ctx, name, func(ctx context.Context) (err error) {
		result, err = fn(ctx)
		return err
	})
	if stop != nil {
		return zero, stop
	}
	return result, err
}

// Cleanup is a step that flow code calls when it returns an error, usually in a
// defer, which determines the order. It also runs when the run was cancelled, with a
// context that is not cancelled, and does nothing in a run that is suspended. Its
// failure is recorded but stops nothing; the returned error is for information.
//
//	defer func() {
//		if err != nil {
//			perdure.Cleanup(ctx, "release-seat", releaseSeat)
//		}
//	}()
//
// Once a cleanup has run, the failure that led to it is no longer retried.
func Cleanup(ctx context.Context, name string, fn func(context.Context) error) error {
	return engine.Cleanup(ctx, name, fn)
}
