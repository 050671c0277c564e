package perdure

import (
	"context"
	"fmt"
	"reflect"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/exact"
	"github.com/perdure/perdure/internal/journal"
)

// State is one key of the thread's state, which lives on from run to run. It
// can be read anywhere in a run and is written in leaf steps, with whose
// outcome the change commits. What a flow reads is stable in replay: the state
// at the run's start, as all runs had committed it by then, and the changes of
// the steps passed so far.
//
//	var tone = perdure.NewState[string]("tone")
type State[T any] struct{ key string }

// NewState returns the state of a key. A key is one of State, Counter or List
// throughout.
func NewState[T any](key string) State[T] { return State[T]{key} }

// Get returns the value, the zero T if there is none.
func (s State[T]) Get(ctx context.Context) (T, error) {
	v, _, err := s.Lookup(ctx)
	return v, err
}

// Lookup returns the value and whether there is one.
func (s State[T]) Lookup(ctx context.Context) (T, bool, error) {
	var zero T
	raw, ok, err := engine.ReadState(ctx, s.key)
	if err != nil || !ok {
		return zero, false, err
	}
	v, err := engine.RecordedAs[T](ctx, "state", s.key, raw)
	return v, err == nil, err
}

// Set writes the value. Of several branches that write it, the last one in the
// order of the journal wins.
func (s State[T]) Set(ctx context.Context, v T) error {
	raw, err := exact.Encode(v, reflect.TypeFor[T]())
	if err != nil {
		return fmt.Errorf("state %q: %w", s.key, err)
	}
	return engine.WriteState(ctx, journal.Change{Key: s.key, Set: &journal.Value{JSON: raw}})
}

// Delete removes the value.
func (s State[T]) Delete(ctx context.Context) error {
	return engine.WriteState(ctx, journal.Change{Key: s.key, Delete: true})
}

// StateKeys returns the keys of the state that begin with a prefix, in order:
// of [State], [Text], [Counter] and [List]. Like a value it can be read anywhere
// in a run, and is stable in replay.
func StateKeys(ctx context.Context, prefix string) ([]string, error) {
	return engine.StateKeys(ctx, prefix)
}

// Counter is a key of the state that is only added to, so that branches
// cannot lose each other's changes.
type Counter struct{ key string }

// NewCounter returns the counter of a key.
func NewCounter(key string) Counter { return Counter{key} }

// Get returns the count.
func (c Counter) Get(ctx context.Context) (int64, error) {
	return State[int64](c).Get(ctx)
}

// Add adds n to it.
func (c Counter) Add(ctx context.Context, n int64) error {
	return engine.WriteState(ctx, journal.Change{Key: c.key, Add: &n})
}

// List is a key of the state that is only appended to, so that branches
// cannot lose each other's changes. Only what is new is written.
type List[T any] struct{ key string }

// NewList returns the list of a key.
func NewList[T any](key string) List[T] { return List[T]{key} }

// Get returns the whole list.
func (l List[T]) Get(ctx context.Context) ([]T, error) {
	return State[[]T](l).Get(ctx)
}

// Append adds values to its end.
func (l List[T]) Append(ctx context.Context, values ...T) error {
	c := journal.Change{Key: l.key}
	for _, v := range values {
		raw, err := exact.Encode(v, reflect.TypeFor[T]())
		if err != nil {
			return fmt.Errorf("state %q: %w", l.key, err)
		}
		c.Append = append(c.Append, journal.Value{JSON: raw})
	}
	if len(c.Append) == 0 {
		return nil
	}
	return engine.WriteState(ctx, c)
}

// AppendResult adds what the step returns to its end, when the step succeeds.
// It is written once, as the step's result, and has to fit T.
func (l List[T]) AppendResult(ctx context.Context) error {
	return engine.WriteState(ctx, journal.Change{Key: l.key, Result: true})
}

// Text is a key of the state that holds a text, such as a file. Of a change
// only what is new is written. Of several branches that write it the last one
// in the order of the journal wins, as with [State].
type Text struct{ key string }

// NewText returns the text of a key.
func NewText(key string) Text { return Text{key} }

// Get returns the text, "" if there is none.
func (t Text) Get(ctx context.Context) (string, error) { return State[string](t).Get(ctx) }

// Lookup returns the text and whether there is one.
func (t Text) Lookup(ctx context.Context) (string, bool, error) {
	return State[string](t).Lookup(ctx)
}

// Delete removes the text.
func (t Text) Delete(ctx context.Context) error { return State[string](t).Delete(ctx) }

// Set writes the text. What it shares with the one before at the beginning and
// at the end is not written again.
func (t Text) Set(ctx context.Context, text string) error {
	return engine.SetText(ctx, t.key, text)
}

// Replace replaces every old by new and returns how many there were. Only the
// replacements are written.
func (t Text) Replace(ctx context.Context, old, new string) (int, error) {
	return engine.ReplaceText(ctx, t.key, old, new)
}
