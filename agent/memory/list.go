package memory

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

// ListOptions of [Memory.List].
type ListOptions struct {
	Query string // only values with all of these words in their key or texts, ignoring case
	After string // cursor of the last item seen
	Limit int    // maximum number; 0 means all
}

// List yields the values in a namespace and below it, in a stable but arbitrary order.
// Nothing follows an error.
func (m *Memory) List(ctx context.Context, ns Namespace, o ListOptions) iter.Seq2[*Item, error] {
	return func(yield func(*Item, error) bool) {
		ns, err := m.enter(ctx, ns)
		if err != nil {
			yield(nil, err)
			return
		}
		words := queryWords(o.Query)
		n := 0
		for item, err := range m.shelf.List(ctx, ns, o.After) {
			if err != nil {
				yield(nil, shelfError(ns, "", err))
				return
			}
			if countWords(words, item.Key, item.Value) < len(words) {
				continue
			}
			if !yield(newItem(item), nil) {
				return
			}
			if n++; n == o.Limit {
				return
			}
		}
	}
}

// maxScan is the number of values that a search looks at.
const maxScan = 10_000

// Search returns the values in a namespace and below it that fit a query best: those
// with the most of its words in their key or texts and, among equals, newer ones first.
// If the query has no words, it returns the newest.
func (m *Memory) Search(ctx context.Context, ns Namespace, query string, limit int) ([]*Item, error) {
	type hit struct {
		*Item
		words int
	}
	var hits []hit
	words := queryWords(query)
	seen := 0
	for item, err := range m.List(ctx, ns, ListOptions{}) {
		if err != nil {
			return nil, err
		}
		if seen++; seen > maxScan {
			return nil, fmt.Errorf("agent: more than %d values to search; use a narrower namespace", maxScan)
		}
		if n := countWords(words, item.Key, item.Value); n > 0 || len(words) == 0 {
			hits = append(hits, hit{item, n})
		}
	}
	slices.SortFunc(hits, func(a, b hit) int {
		return cmp.Or(cmp.Compare(b.words, a.words), b.Updated.Compare(a.Updated), cmp.Compare(a.Cursor, b.Cursor))
	})
	if limit > 0 && len(hits) > limit {
		hits = hits[:limit]
	}
	items := make([]*Item, len(hits))
	for i, h := range hits {
		items[i] = h.Item
	}
	return items, nil
}

// queryWords returns the words of a query: runs of letters and digits.
func queryWords(query string) []string {
	words := strings.FieldsFunc(strings.ToLower(query), func(c rune) bool {
		return !unicode.In(c, unicode.Letter, unicode.Digit, unicode.Mark)
	})
	slices.Sort(words)
	return slices.Compact(words)
}

// countWords returns how many of the words are in a key or in the texts of a value.
func countWords(words []string, key string, value json.RawMessage) int {
	if len(words) == 0 {
		return 0
	}
	var v any
	_ = json.Unmarshal(value, &v) // a value that cannot be read has no texts
	var b strings.Builder
	b.WriteString(key)
	writeTexts(&b, v)
	text := strings.ToLower(b.String())
	n := 0
	for _, w := range words {
		if strings.Contains(text, w) {
			n++
		}
	}
	return n
}

// writeTexts writes the texts, names and numbers of a value, each on a line.
func writeTexts(b *strings.Builder, v any) {
	switch v := v.(type) {
	case map[string]any:
		for name, v := range v {
			b.WriteString("\n" + name)
			writeTexts(b, v)
		}
	case []any:
		for _, v := range v {
			writeTexts(b, v)
		}
	case nil:
	default:
		fmt.Fprintf(b, "\n%v", v)
	}
}
