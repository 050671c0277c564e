package perdure

import (
	"context"
	"fmt"
	"iter"
	"reflect"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/exact"
	"github.com/perdure/perdure/internal/journal"
)

// State is one key of the thread's state, which outlives runs. It can be read
// anywhere in a run and is written in leaf steps; a change commits with the
// step's outcome. What a flow reads is stable in replay: the state that all runs
// had committed when this run started, plus the changes of the steps passed so
// far.
//
//	var tone = perdure.NewState[string]("tone")
type State[T any] struct{ key string }

// NewState returns the state of a key. Always use a key with the same one of State,
// Text, Counter and List.
func NewState[T any](key string) State[T] { return State[T]{key} }

// Get returns the value, or the zero T if there is none.
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

// Set writes the value. If several branches write it, the last write in the
// journal wins.
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

// StateKeys returns the keys of the state that begin with prefix, in order: those
// of [State], [Text], [Counter] and [List]. Like a value it can be read anywhere
// in a run and is stable in replay.
func StateKeys(ctx context.Context, prefix string) ([]string, error) {
	return engine.StateKeys(ctx, prefix)
}

// Counter is a key of the state that is only ever added to, so that branches do
// not overwrite each other's changes.
type Counter struct{ key string }

// NewCounter returns the counter of a key.
func NewCounter(key string) Counter { return Counter{key} }

// Get returns the count.
func (c Counter) Get(ctx context.Context) (int64, error) {
	return State[int64](c).Get(ctx)
}

// Add adds n to the count.
func (c Counter) Add(ctx context.Context, n int64) error {
	return engine.WriteState(ctx, journal.Change{Key: c.key, Add: &n})
}

// List is a key of the state that is only ever appended to, so that branches do
// not overwrite each other's changes. Only new values are written.
type List[T any] struct{ key string }

// NewList returns the list of a key.
func NewList[T any](key string) List[T] { return List[T]{key} }

// Get returns the whole list.
func (l List[T]) Get(ctx context.Context) ([]T, error) {
	return State[[]T](l).Get(ctx)
}

// Backward yields the values of the list, newest first. It reads only the values
// that are asked for.
func (l List[T]) Backward(ctx context.Context) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for v, err := range engine.ReadBackward[T](ctx, l.key, false) {
			if err != nil {
				v = new(T)
			}
			if !yield(*v, err) || err != nil {
				return
			}
		}
	}
}

// Append adds values to the end of the list.
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

// AppendResult adds the step's result to the end of the list if the step
// succeeds. The value is written only once, as the result, and has to fit T.
func (l List[T]) AppendResult(ctx context.Context) error {
	return engine.WriteState(ctx, journal.Change{Key: l.key, Result: true})
}

// Text is a key of the state that holds a text, such as a file. Only the changed part
// is written. If several branches write it, the last write in the journal wins, as with
// [State].
type Text struct{ key string }

// NewText returns the text of a key.
func NewText(key string) Text { return Text{key} }

// Get returns the text, or "" if there is none.
func (t Text) Get(ctx context.Context) (string, error) { return State[string](t).Get(ctx) }

// Lookup returns the text and whether there is one.
func (t Text) Lookup(ctx context.Context) (string, bool, error) {
	return State[string](t).Lookup(ctx)
}

// Delete removes the text.
func (t Text) Delete(ctx context.Context) error { return State[string](t).Delete(ctx) }

// Set writes the text. The prefix and suffix that it shares with the previous text
// are not written again.
func (t Text) Set(ctx context.Context, text string) error {
	return engine.SetText(ctx, t.key, text)
}

// Replace replaces all occurrences of old with new and returns how many there
// were. Only the replacements are written.
func (t Text) Replace(ctx context.Context, old, new string) (int, error) {
	return engine.ReplaceText(ctx, t.key, old, new)
}
