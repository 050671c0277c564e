package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
	"unicode"
)

// MemoryList says which values a list shows.
type MemoryList struct {
	Query string // only those in whose key or texts all of its words are, whatever their case
	After string // cursor: that of the last item seen
	Limit int    // at most so many; 0 is all
}

// List yields what is kept in a namespace and below it, in an order that stays
// the same but says nothing. An error is the last thing yielded.
func (m *Memory) List(ctx context.Context, ns Namespace, o MemoryList) iter.Seq2[*MemoryItem, error] {
	return func(yield func(*MemoryItem, error) bool) {
		ns, err := m.check(ctx, ns)
		if err != nil {
			yield(nil, err)
			return
		}
		words := wordsOf(o.Query)
		n := 0
		for item, err := range m.shelf.List(ctx, ns, o.After) {
			if err != nil {
				yield(nil, memoryError(ns, "", err))
				return
			}
			if found(words, item.Key, item.Value) < len(words) {
				continue
			}
			if !yield(memoryItem(item), nil) {
				return
			}
			if n++; n == o.Limit {
				return
			}
		}
	}
}

// maxScan is how many values a search looks at.
const maxScan = 10_000

// Search returns the values of a namespace and below it that fit a query best:
// those with most of its words in their key or texts, newer ones first where
// they are equal. Without words it returns the newest.
func (m *Memory) Search(ctx context.Context, ns Namespace, query string, limit int) ([]*MemoryItem, error) {
	type hit struct {
		*MemoryItem
		words int
	}
	var hits []hit
	words := wordsOf(query)
	seen := 0
	for item, err := range m.List(ctx, ns, MemoryList{}) {
		if err != nil {
			return nil, err
		}
		if seen++; seen > maxScan {
			return nil, fmt.Errorf("agent: more than %d values to search; use a narrower namespace", maxScan)
		}
		if n := found(words, item.Key, item.Value); n > 0 || len(words) == 0 {
			hits = append(hits, hit{item, n})
		}
	}
	slices.SortFunc(hits, func(a, b hit) int {
		return cmp.Or(cmp.Compare(b.words, a.words), b.Updated.Compare(a.Updated), cmp.Compare(a.Cursor, b.Cursor))
	})
	if limit > 0 && len(hits) > limit {
		hits = hits[:limit]
	}
	items := make([]*MemoryItem, len(hits))
	for i, h := range hits {
		items[i] = h.MemoryItem
	}
	return items, nil
}

// wordsOf returns the words of a query: its letters and digits, without what
// stands between them.
func wordsOf(query string) []string {
	words := strings.FieldsFunc(strings.ToLower(query), func(c rune) bool {
		return !unicode.In(c, unicode.Letter, unicode.Digit, unicode.Mark)
	})
	slices.Sort(words)
	return slices.Compact(words)
}

// found returns how many of the words are in a key or in the texts of a value.
func found(words []string, key string, value json.RawMessage) int {
	if len(words) == 0 {
		return 0
	}
	var v any
	_ = json.Unmarshal(value, &v) // what cannot be read has no texts
	var b strings.Builder
	b.WriteString(key)
	gather(&b, v)
	text := strings.ToLower(b.String())
	n := 0
	for _, w := range words {
		if strings.Contains(text, w) {
			n++
		}
	}
	return n
}

// gather writes the texts, names and numbers of a value, each on a line.
func gather(b *strings.Builder, v any) {
	switch v := v.(type) {
	case map[string]any:
		for name, v := range v {
			b.WriteString("\n" + name)
			gather(b, v)
		}
	case []any:
		for _, v := range v {
			gather(b, v)
		}
	case nil:
	default:
		fmt.Fprintf(b, "\n%v", v)
	}
}
