package journal

import (
	"iter"
	"maps"
)

// table is a map without deletion. Clones of it share its older part.
type table[V any] struct {
	past map[string]V // never changed
	own  map[string]V // overrides past
}

func (t *table[V]) get(key string) V {
	if v, ok := t.own[key]; ok {
		return v
	}
	return t.past[key]
}

func (t *table[V]) set(key string, v V) {
	if t.own == nil {
		t.own = map[string]V{}
	}
	t.own[key] = v
}

// all yields each key with its value.
func (t *table[V]) all() iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for key, v := range t.own {
			if !yield(key, v) {
				return
			}
		}
		for key, v := range t.past {
			if _, newer := t.own[key]; !newer && !yield(key, v) {
				return
			}
		}
	}
}

// clone returns a copy of t that can be changed independently.
func (t *table[V]) clone() table[V] { return table[V]{t.past, maps.Clone(t.own)} }

// rest moves own to past, so that later clones share it, if own is large enough to
// be worth a copy of past. In a long table a value is copied about 64 times.
func (t *table[V]) rest() {
	if len(t.own) > 64+len(t.past)/64 {
		past := make(map[string]V, len(t.past)+len(t.own))
		maps.Copy(past, t.past)
		maps.Copy(past, t.own)
		t.past, t.own = past, nil
	}
}
