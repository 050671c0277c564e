package journal

import (
	"iter"
	"maps"
)

// table is a map that only grows, whose clones share what has been in it for long.
type table[V any] struct {
	past map[string]V // never changed
	own  map[string]V // newer, and in place of what past has under the same key
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

// clone returns a table that is changed independently of t.
func (t *table[V]) clone() table[V] { return table[V]{t.past, maps.Clone(t.own)} }

// rest lets the clones from now on share what is in the table, if that is worth a
// copy of all: each value is copied some 64 times in the life of a long table.
func (t *table[V]) rest() {
	if len(t.own) > 64+len(t.past)/64 {
		past := make(map[string]V, len(t.past)+len(t.own))
		maps.Copy(past, t.past)
		maps.Copy(past, t.own)
		t.past, t.own = past, nil
	}
}
