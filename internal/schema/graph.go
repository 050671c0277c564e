package schema

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// node is a subschema and where it leads.
type node struct {
	s       *jsonschema.Schema
	path    string
	fixed   int64 // bytes of enum and const, with which a value is compared
	program int64 // instructions of pattern

	ref   []*node // of $ref and $dynamicRef: tried on the same value before all else
	same  []*node // tried on the same value
	props map[string]*node
	pats  []pattern // for members whose name matches
	other []*node   // for members that props lacks
	names []*node   // for names of members
	first []*node   // for the first elements
	rest  []*node   // for those after them
	each  []*node   // for all elements

	visits int64 // of it and all that it leads to on the same value; 0 until known
	order  int   // greater than that of all that it leads to on the same value
}

type pattern struct {
	re      *regexp.Regexp
	program int64
	to      *node
}

// graph is all subschemas of a schema.
type graph struct {
	nodes   []*node // in the order in which they are found, the root first
	paths   map[string]*node
	anchors map[string]*node
	program int64
	ordered int
}

// add adds a schema and everything inside it. For a nil schema, which Resolve
// refuses, it returns nil.
func (g *graph) add(s *jsonschema.Schema, path string) (_ *node, err error) {
	if s == nil {
		return nil, nil
	}
	n := &node{s: s, path: path}
	g.nodes = append(g.nodes, n)
	g.paths[path] = n
	for _, name := range []string{s.Anchor, s.DynamicAnchor} {
		if name == "" {
			continue
		}
		if g.anchors[name] != nil {
			return nil, fmt.Errorf("two subschemas have the anchor %q", name)
		}
		g.anchors[name] = n
	}
	if s.Enum != nil || s.Const != nil {
		b, _ := json.Marshal([]any{s.Enum, s.Const})
		n.fixed = int64(len(b))
	}
	n.fixed += int64(32 * len(s.Required))
	for _, names := range s.DependentRequired {
		n.fixed += int64(32 * len(names))
	}
	if n.program, err = g.measure(s.Pattern); err != nil {
		return nil, err
	}

	sub := func(name string, s *jsonschema.Schema, to *[]*node) {
		if c, e := g.add(s, path+"/"+name); e != nil {
			err = e
		} else if c != nil && to != nil {
			*to = append(*to, c)
		}
	}
	list := func(name string, all []*jsonschema.Schema, to *[]*node) {
		for i, s := range all {
			sub(name+"/"+strconv.Itoa(i), s, to)
		}
	}
	named := func(name string, all map[string]*jsonschema.Schema, to *[]*node) {
		for key, s := range all {
			sub(name+"/"+escape(key), s, to)
		}
	}
	named("$defs", s.Defs, nil)
	named("definitions", s.Definitions, nil)
	sub("contentSchema", s.ContentSchema, nil)
	list("allOf", s.AllOf, &n.same)
	list("anyOf", s.AnyOf, &n.same)
	list("oneOf", s.OneOf, &n.same)
	sub("not", s.Not, &n.same)
	sub("if", s.If, &n.same)
	sub("then", s.Then, &n.same)
	sub("else", s.Else, &n.same)
	named("dependentSchemas", s.DependentSchemas, &n.same)
	named("dependencies", s.DependencySchemas, &n.same)
	sub("items", s.Items, &n.rest)
	list("items", s.ItemsArray, &n.first)
	list("prefixItems", s.PrefixItems, &n.first)
	sub("additionalItems", s.AdditionalItems, &n.rest)
	sub("unevaluatedItems", s.UnevaluatedItems, &n.rest)
	sub("contains", s.Contains, &n.each)
	sub("additionalProperties", s.AdditionalProperties, &n.other)
	sub("unevaluatedProperties", s.UnevaluatedProperties, &n.other)
	sub("propertyNames", s.PropertyNames, &n.names)
	if err != nil {
		return nil, err
	}
	n.props = map[string]*node{}
	for key, s := range s.Properties {
		if n.props[key], err = g.add(s, path+"/properties/"+escape(key)); err != nil {
			return nil, err
		}
	}
	for text, s := range s.PatternProperties {
		p := pattern{}
		if p.program, err = g.measure(text); err != nil {
			return nil, err
		}
		if p.to, err = g.add(s, path+"/patternProperties/"+escape(text)); err != nil {
			return nil, err
		}
		if p.re, err = regexp.Compile(text); err != nil {
			return nil, fmt.Errorf("pattern %q: %w", text, err)
		}
		n.pats = append(n.pats, p)
	}
	return n, nil
}

// measure returns how many instructions a pattern has.
func (g *graph) measure(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	re, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return 0, fmt.Errorf("pattern %q: %w", text, err)
	}
	p, err := syntax.Compile(re.Simplify())
	if err != nil {
		return 0, fmt.Errorf("pattern %q: %w", text, err)
	}
	n := int64(len(p.Inst))
	if g.program += n; g.program > maxProgram {
		return 0, fmt.Errorf("%w: the patterns of the schema are too large; {n,m} repeats the expression before it", ErrCost)
	}
	return n, nil
}

// link follows the references and refuses those that never end.
func (g *graph) link(id string) error {
	refs := false
	for _, n := range g.nodes {
		for _, ref := range []string{n.s.Ref, n.s.DynamicRef} {
			if ref == "" {
				continue
			}
			refs = true
			to := g.find(id, ref)
			if to == nil {
				return fmt.Errorf("the reference %q does not point into the schema itself, as #/$defs/name does", ref)
			}
			n.ref = append(n.ref, to)
		}
	}
	for _, n := range g.nodes {
		if refs && n.path != "" && n.s.ID != "" {
			return fmt.Errorf("%s has an $id, which is not supported in a schema with references", n.path)
		}
		if err := g.count(n, map[*node]bool{}); err != nil {
			return err
		}
	}
	return nil
}

// find returns the subschema that a reference means.
func (g *graph) find(id, ref string) *node {
	u, err := url.Parse(strings.TrimPrefix(ref, id))
	if err != nil {
		return nil
	}
	name := u.Fragment
	if u.Fragment, u.RawFragment = "", ""; u.String() != "" {
		return nil
	}
	if name != "" && name[0] != '/' {
		return g.anchors[name]
	}
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = escape(strings.NewReplacer("~1", "/", "~0", "~").Replace(p))
	}
	return g.paths[strings.Join(parts, "/")]
}

// count computes how many subschemas are tried if n is tried on a value, and the
// position of n in the order.
func (g *graph) count(n *node, from map[*node]bool) error {
	if from[n] {
		return fmt.Errorf("%w: %s of the schema refers to itself without descending into the value", ErrCost, n)
	}
	if n.visits > 0 {
		return nil
	}
	from[n] = true
	visits := int64(1)
	for _, to := range slices.Concat(n.ref, n.same) {
		if err := g.count(to, from); err != nil {
			return err
		}
		if visits += to.visits; visits > maxVisits {
			return fmt.Errorf("%w: %s of the schema has more than %d branches", ErrCost, n, maxVisits)
		}
	}
	delete(from, n)
	g.ordered++
	n.visits, n.order = visits, g.ordered
	return nil
}

// String returns where in the schema the node is.
func (n *node) String() string { return "#" + n.path }

func escape(key string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
}
