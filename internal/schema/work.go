package schema

import (
	"maps"
	"reflect"
	"slices"
)

// work is the budget that is left for a check. It is computed before the check by
// following which subschemas are tried on each value, and how often. That costs
// far less than the check, since no subschema is visited twice for one value.
type work struct{ left int64 }

// visits is how often a subschema is tried on a value, and inside how many
// others at most.
type visits struct{ n, depth int64 }

// tries is what is tried on one value.
type tries map[*node]visits

func (t tries) add(to []*node, v visits) {
	for _, n := range to {
		old := t[n]
		t[n] = visits{old.n + v.n, max(old.depth, v.depth+1)}
	}
}

// visit subtracts the cost of these tries on a value, and reports whether enough
// is left.
func (w *work) visit(on tries, value any) bool {
	size := sizeOf(value)
	names, members := tries{}, map[string]tries{}
	var elements []tries
	for _, n := range inOrder(on) {
		v := on[n]
		if v.n == 0 {
			continue // of a node whose type does not fit
		}
		// An error shows the value, and names at each level all those below.
		cost := 256 + size + n.fixed + int64(len(n.path)+16)*v.depth*v.depth/2
		switch value.(type) {
		case string:
			cost += n.program * size
		case map[string]any:
			for _, p := range n.pats {
				cost += p.program * size
			}
			cost += 16 * int64(len(n.props))
		}
		if v.n > w.left/cost {
			return false
		}
		w.left -= v.n * cost
		on.add(n.ref, v)
		if !n.fits(value) {
			continue
		}
		on.add(n.same, v)
		switch value := value.(type) {
		case map[string]any:
			names.add(n.names, v)
			n.enter(members, value, v)
		case []any:
			if elements == nil && len(n.first)+len(n.rest)+len(n.each) > 0 {
				elements = make([]tries, len(value))
			}
			for i := range elements {
				if elements[i] == nil {
					elements[i] = tries{}
				}
				elements[i].add(n.each, v)
				if i < len(n.first) {
					elements[i].add(n.first[i:i+1], v)
				} else {
					elements[i].add(n.rest, v)
				}
			}
		}
	}
	switch value := value.(type) {
	case map[string]any:
		for key := range value {
			if len(names) > 0 && !w.visit(maps.Clone(names), key) {
				return false
			}
		}
		for key, on := range members {
			if !w.visit(on, value[key]) {
				return false
			}
		}
	case []any:
		for i, on := range elements {
			if !w.visit(on, value[i]) {
				return false
			}
		}
	}
	return true
}

// enter adds what n tries on the members of an object.
func (n *node) enter(members map[string]tries, object map[string]any, v visits) {
	add := func(key string, to ...*node) {
		if len(to) > 0 {
			if members[key] == nil {
				members[key] = tries{}
			}
			members[key].add(to, v)
		}
	}
	for key, to := range n.props {
		if _, ok := object[key]; ok {
			add(key, to)
		}
	}
	if len(n.pats)+len(n.other) == 0 {
		return
	}
	for key := range object {
		for _, p := range n.pats {
			if p.re.MatchString(key) {
				add(key, p.to)
			}
		}
		if n.props[key] == nil {
			add(key, n.other...)
		}
	}
}

// fits reports whether the value is of a type that n takes; if not, only its
// references are tried.
func (n *node) fits(value any) bool {
	types := n.s.Types
	if n.s.Type != "" {
		types = []string{n.s.Type}
	}
	if len(types) == 0 {
		return true
	}
	return slices.ContainsFunc(typeNames[reflect.ValueOf(value).Kind()], func(t string) bool { return slices.Contains(types, t) })
}

// typeNames are what schemas call the types of values.
var typeNames = map[reflect.Kind][]string{
	reflect.Invalid: {"null"}, reflect.Bool: {"boolean"}, reflect.Float64: {"number", "integer"},
	reflect.String: {"string"}, reflect.Slice: {"array"}, reflect.Map: {"object"},
}

// inOrder returns all that may be tried on a value, each before what it leads
// to.
func inOrder(on tries) []*node {
	var all []*node
	seen := map[*node]bool{}
	var add func(n *node)
	add = func(n *node) {
		if !seen[n] {
			seen[n] = true
			all = append(all, n)
			for _, to := range slices.Concat(n.ref, n.same) {
				add(to)
			}
		}
	}
	for n := range on {
		add(n)
	}
	slices.SortFunc(all, func(a, b *node) int { return b.order - a.order })
	return all
}

// sizeOf returns about how many bytes a value has as text.
func sizeOf(value any) int64 {
	size := int64(16)
	switch value := value.(type) {
	case string:
		size += int64(len(value))
	case []any:
		for _, v := range value {
			size += sizeOf(v)
		}
	case map[string]any:
		for key, v := range value {
			size += int64(len(key)) + sizeOf(v)
		}
	}
	return size
}
