package perdure

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/exact"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/threads"
)

// view is the state as a frame sees it: what the frames around it saw when it
// began, and what has been passed inside it since.
type view struct {
	outer *view
	base  map[string]journal.Item  // of the outermost: the state at the run's start
	own   map[string]*journal.Item // nil: deleted
}

func newView(outer *view) *view { return &view{outer: outer} }

func (v *view) get(key string) (journal.Item, bool) {
	for ; v != nil; v = v.outer {
		if item, ok := v.own[key]; ok {
			if item == nil {
				return journal.Item{}, false
			}
			return *item, true
		}
		if v.outer == nil {
			item, ok := v.base[key]
			return item, ok
		}
	}
	return journal.Item{}, false
}

// keys returns the keys with a prefix, in order.
func (v *view) keys(prefix string) []string {
	var keys []string
	seen := map[string]bool{} // what an inner view says of a key counts
	add := func(key string, there bool) {
		if _, fact := isFact(key); fact || seen[key] || !strings.HasPrefix(key, prefix) {
			return
		}
		if seen[key] = true; there {
			keys = append(keys, key)
		}
	}
	for ; v != nil; v = v.outer {
		for key, item := range v.own {
			add(key, item != nil)
		}
		if v.outer == nil {
			for key := range v.base {
				add(key, true)
			}
		}
	}
	slices.Sort(keys)
	return keys
}

func (v *view) apply(changes []journal.Change) {
	if len(changes) > 0 && v.own == nil {
		v.own = map[string]*journal.Item{}
	}
	for _, c := range changes {
		old, _ := v.get(c.Key)
		if item, ok := c.Next(old); ok {
			v.own[c.Key] = &item
		} else {
			v.own[c.Key] = nil
		}
	}
}

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
	raw, ok, err := readState(ctx, s.key)
	if err != nil || !ok {
		return zero, false, err
	}
	v, err := recordedAs[T](ctx, "state", s.key, raw)
	return v, err == nil, err
}

// Set writes the value. Of several branches that write it, the last one in the
// order of the journal wins.
func (s State[T]) Set(ctx context.Context, v T) error {
	raw, err := exact.Encode(v, reflect.TypeFor[T]())
	if err != nil {
		return fmt.Errorf("state %q: %w", s.key, err)
	}
	return writeState(ctx, journal.Change{Key: s.key, Set: &journal.Value{JSON: raw}})
}

// Delete removes the value.
func (s State[T]) Delete(ctx context.Context) error {
	return writeState(ctx, journal.Change{Key: s.key, Delete: true})
}

// StateKeys returns the keys of the state that begin with a prefix, in order:
// of [State], [Text], [Counter] and [List]. Like a value it can be read anywhere
// in a run, and is stable in replay.
func StateKeys(ctx context.Context, prefix string) ([]string, error) {
	f, err := inside(ctx)
	if err != nil {
		return nil, err
	}
	f.pass.mu.Lock()
	defer f.pass.mu.Unlock()
	return f.view.keys(prefix), nil
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
	return writeState(ctx, journal.Change{Key: c.key, Add: &n})
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
	return writeState(ctx, c)
}

// AppendResult adds what the step returns to its end, when the step succeeds.
// It is written once, as the step's result, and has to fit T.
func (l List[T]) AppendResult(ctx context.Context) error {
	return writeState(ctx, journal.Change{Key: l.key, Result: true})
}

func writeState(ctx context.Context, c journal.Change) error {
	if err := threads.CheckKey(c.Key); err != nil {
		return err
	}
	return change(ctx, fmt.Sprintf("state %q", c.Key), func(f *frame) error {
		f.pending.changes = append(f.pending.changes, c)
		if !c.Result { // which is not known yet
			f.view.apply([]journal.Change{c}) // a leaf has a view of its own
		}
		return nil
	})
}

func readState(ctx context.Context, key string) (json.RawMessage, bool, error) {
	raw, _, ok, err := readItem(ctx, key)
	return raw, ok, err
}

// readItem also returns what the value was read from.
func readItem(ctx context.Context, key string) (raw json.RawMessage, item journal.Item, ok bool, err error) {
	f, err := inside(ctx)
	if err != nil {
		return nil, item, false, err
	}
	if err := threads.CheckKey(key); err != nil {
		return nil, item, false, err
	}
	f.pass.mu.Lock()
	item, ok = f.view.get(key)
	f.pass.mu.Unlock()
	if !ok {
		return nil, item, false, nil
	}
	raw, err = f.pass.patient(f, func() (json.RawMessage, error) { return f.pass.rt.threads.Item(f.pass.io, f.pass.name, item) })
	return raw, item, err == nil, err
}
