package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/threads"
)

// view is the state as a frame sees it: what the frames around it saw when it
// began, and the changes that it has passed since.
type view struct {
	outer *view
	base  map[string]journal.Item  // in the outermost view: the state at the run's start
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
	seen := map[string]bool{} // an inner view overrides an outer one
	add := func(key string, there bool) {
		if _, fact := IsFact(key); fact || seen[key] || !strings.HasPrefix(key, prefix) {
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

// StateKeys returns the keys of the state that begin with a prefix, in order.
func StateKeys(ctx context.Context, prefix string) ([]string, error) {
	f, err := inside(ctx)
	if err != nil {
		return nil, err
	}
	f.pass.mu.Lock()
	defer f.pass.mu.Unlock()
	return f.view.keys(prefix), nil
}

// WriteState changes the state in a leaf step.
func WriteState(ctx context.Context, c journal.Change) error {
	if err := threads.CheckKey(c.Key); err != nil {
		return err
	}
	return change(ctx, fmt.Sprintf("state %q", c.Key), func(f *frame) error {
		f.pending.changes = append(f.pending.changes, c)
		if !c.Result { // the result is not known yet
			f.view.apply([]journal.Change{c}) // a leaf has its own view
		}
		return nil
	})
}

// ReadState returns the value of a key, and whether there is one.
func ReadState(ctx context.Context, key string) (json.RawMessage, bool, error) {
	raw, _, ok, err := readItem(ctx, key)
	return raw, ok, err
}

// ReadBackward yields the values of a list, newest first. It reads appended
// values one by one as they are asked for, and the value that they were
// appended to only when it gets there. Shared values must not be changed: the next
// reader of the list in this process gets the same ones, without decoding them.
func ReadBackward[T any](ctx context.Context, key string, shared bool) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		f, item, ok, err := findItem(ctx, key)
		if err != nil {
			yield(nil, err)
		}
		if err != nil || !ok {
			return
		}
		tail := item.Tail
		for ; tail != nil && !item.Text; tail = tail.Prev {
			v, ok := tail.Kept().Value.(*T)
			if !ok || !shared {
				v, err = readLink[T](ctx, f, key, tail)
			}
			if err == nil && shared && !ok {
				tail.Keep(journal.Read{JSON: tail.Kept().JSON, Value: v})
			}
			if !yield(v, err) || err != nil {
				return
			}
		}
		item.Tail = tail // not nil for a text, which is not a list
		raw, err := patient(f.pass, f, func() (json.RawMessage, error) { return f.pass.engine.threads.Item(f.pass.io, f.pass.name, item) })
		if err == nil && raw == nil {
			return
		}
		var base []json.RawMessage
		if err == nil {
			base, err = RecordedAs[[]json.RawMessage](ctx, "state", key, raw)
		}
		if err != nil {
			yield(nil, err)
			return
		}
		for _, raw := range slices.Backward(base) {
			v, err := RecordedAs[T](ctx, "state", key, raw)
			if !yield(&v, err) || err != nil {
				return
			}
		}
	}
}

// readLink returns the value of a link.
func readLink[T any](ctx context.Context, f *frame, key string, l *journal.Link) (*T, error) {
	raw, err := patient(f.pass, f, func() (json.RawMessage, error) { return f.pass.engine.threads.LoadLink(f.pass.io, f.pass.name, l) })
	if err != nil {
		return nil, err
	}
	v, err := RecordedAs[T](ctx, "state", key, raw)
	return &v, err
}

// findItem returns the item that a frame sees under a key, and whether there is
// one.
func findItem(ctx context.Context, key string) (f *frame, item journal.Item, ok bool, err error) {
	if f, err = inside(ctx); err == nil {
		err = threads.CheckKey(key)
	}
	if err != nil {
		return nil, item, false, err
	}
	f.pass.mu.Lock()
	defer f.pass.mu.Unlock()
	item, ok = f.view.get(key)
	return f, item, ok, nil
}

// readItem is ReadState that also returns the item that the value was read
// from.
func readItem(ctx context.Context, key string) (raw json.RawMessage, item journal.Item, ok bool, err error) {
	f, item, ok, err := findItem(ctx, key)
	if err != nil || !ok {
		return nil, item, false, err
	}
	raw, err = patient(f.pass, f, func() (json.RawMessage, error) { return f.pass.engine.threads.Item(f.pass.io, f.pass.name, item) })
	return raw, item, err == nil, err
}

// FactPrefix is the prefix of the state keys of facts.
const FactPrefix = "fact/"

// IsFact reports whether a state key is that of a fact, and returns the fact's
// key.
func IsFact(key string) (string, bool) { return strings.CutPrefix(key, FactPrefix) }
