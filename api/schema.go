package api

import (
	"reflect"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// InputSchema returns the JSON Schema of an object that has all fields of the
// operation's input, wherever a request has them. Name returns the name of a field in
// the object, or "" to leave the field out. A run may be omitted, which means the
// newest.
func (i *Info) InputSchema(name func(Field) string) (*jsonschema.Schema, error) {
	s := newSchemas("#/$defs/")
	object := &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{}, AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}}}
	for _, f := range i.Fields() {
		key := name(f)
		if key == "" {
			continue
		}
		schema, err := s.schemaOf(f.Type)
		if err != nil {
			return nil, err
		}
		schema = notNull(schema)
		schema.Description = f.Tag.Get("jsonschema")
		object.Properties[key] = schema
		object.PropertyOrder = append(object.PropertyOrder, key)
		if f.Where == InPath && f.Key != "run" || f.Where == InBody && !strings.Contains(f.Tag.Get("json"), ",omit") {
			object.Required = append(object.Required, key)
		}
	}
	object.Defs = s.components
	return object, nil
}

// OutputSchema returns the JSON Schema of the operation's output, or nil if it has none.
// The schema refers to the returned definitions as #/$defs/NAME.
func (i *Info) OutputSchema() (schema *jsonschema.Schema, defs map[string]*jsonschema.Schema, err error) {
	if i.Out == nil {
		return nil, nil, nil
	}
	s := newSchemas("#/$defs/")
	schema, err = s.schemaOf(i.Out)
	return schema, s.components, err
}

// SchemaOf returns the JSON Schema of a struct that contains types of the API.
func SchemaOf[T any]() (*jsonschema.Schema, error) {
	s := newSchemas("#/$defs/")
	t := reflect.TypeFor[T]()
	if err := s.add(t); err != nil {
		return nil, err
	}
	root := s.components[s.names[t]]
	delete(s.components, s.names[t])
	root.Defs = s.components
	return root, nil
}
