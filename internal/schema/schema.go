// Package schema checks values against untrusted JSON Schemas, such as those of
// MCP servers. Checking follows references and tries every branch of anyOf, so a
// small schema can take forever or exhaust the stack. New refuses a schema that
// could do so on any value, and Check refuses a value whose check would take too
// long.
//
// It imports the JSON Schema library and internal/strict.
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/perdure/perdure/internal/strict"
)

// The limits of schemas and checks.
const (
	maxDepth   = 256     // levels of JSON that a schema has
	maxProgram = 1 << 17 // instructions of all its patterns together
	maxVisits  = 1 << 16 // subschemas, each as often as it is tried on one value
	maxWork    = 1 << 30 // of one check, about in bytes copied and compared
)

// ErrCost reports a schema or value whose check would take too long.
var ErrCost = errors.New("checking would take too long")

// Schema is a JSON Schema, ready to check values.
type Schema struct {
	raw      json.RawMessage
	resolved *jsonschema.Resolved
	root     *node
}

// Parse parses a schema.
func Parse(raw []byte) (*Schema, error) {
	if strict.Depth(raw) > maxDepth {
		return nil, fmt.Errorf("%w: the schema is nested more than %d levels deep", ErrCost, maxDepth)
	}
	s := new(jsonschema.Schema)
	if err := json.Unmarshal(raw, s); err != nil {
		return nil, err
	}
	return newSchema(s, bytes.Clone(raw))
}

// New returns a schema, which must not change afterwards.
func New(s *jsonschema.Schema) (*Schema, error) {
	raw, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	return newSchema(s, raw)
}

func newSchema(s *jsonschema.Schema, raw json.RawMessage) (*Schema, error) {
	g := &graph{paths: map[string]*node{}, anchors: map[string]*node{}}
	root, err := g.add(s, "")
	if err != nil {
		return nil, err
	}
	r, err := s.Resolve(nil)
	if err != nil {
		return nil, err
	}
	if err := g.link(s.ID); err != nil {
		return nil, err
	}
	return &Schema{raw, r, root}, nil
}

// JSON returns the schema as it was given, nil for a nil schema.
func (s *Schema) JSON() json.RawMessage {
	if s == nil {
		return nil
	}
	return s.raw
}

// Source returns the schema from which s was made.
func (s *Schema) Source() *jsonschema.Schema { return s.resolved.Schema() }

// Check returns an error unless the JSON is one value that fits the schema. A nil
// schema accepts everything.
func (s *Schema) Check(raw []byte) error {
	if s == nil {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	var v any
	if err := d.Decode(&v); err != nil {
		return fmt.Errorf("it is not JSON: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("it is more than one JSON value")
	}
	w := work{left: maxWork}
	if !w.visit(map[*node]visits{s.root: {n: 1}}, v) {
		return fmt.Errorf("%w: it is too large or too deeply nested for its schema, which has many branches; send less at a time", ErrCost)
	}
	return s.resolved.Validate(v)
}
