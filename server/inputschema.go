package server

import (
	"bytes"
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/api"
)

// inputSchema returns the JSON Schema of what encoding/json decodes into a type, or
// nil if nothing is known about it.
func inputSchema(t reflect.Type) json.RawMessage {
	known := map[reflect.Type]*jsonschema.Schema{}
	formOf(t, known)
	if t != reflect.TypeFor[json.RawMessage]() && t != reflect.TypeFor[time.Time]() && decodes[json.Unmarshaler](t) {
		return nil
	}
	schema, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: known})
	if err != nil {
		return nil
	}
	optional(schema)
	data, err := json.Marshal(schema)
	if err != nil {
		return nil
	}
	return data
}

// optional lets all members of objects be left out: they are zero values then.
func optional(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	s.Required = nil
	for _, inner := range s.Properties {
		optional(inner)
	}
	optional(s.Items)
	optional(s.AdditionalProperties)
}

// checkInput refuses an input with a member that the flow does not have, which would be
// left out without a word. What else is wrong with it, the start finds out. Inputs that
// are stored, such as those of schedules, are not checked again: they may be older than
// the flow.
func (s *Server) checkInput(name string, input json.RawMessage) error {
	flow, ok := s.rt.Flow(name)
	if !ok || len(input) == 0 || flow.Input() == reflect.TypeFor[agent.Content]() {
		return nil
	}
	switch flow.Input().Kind() {
	case reflect.Struct, reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
	default:
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(input))
	d.DisallowUnknownFields()
	if err := d.Decode(reflect.New(flow.Input()).Interface()); err != nil && strings.HasPrefix(err.Error(), "json: unknown field") {
		return api.Invalid("the input of flow %s has the %s, which the flow does not have; GET /v1/flows, or perdure flows --json, describes its input", name, strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// anything is the schema of any value. It lists the types, since a pointer to what
// has none would be null only.
func anything() *jsonschema.Schema {
	return &jsonschema.Schema{Types: []string{"null", "boolean", "number", "string", "array", "object"}}
}

// formOf collects the schemas of types in t whose JSON does not follow from their
// kind. A type that is being looked at has none yet.
func formOf(t reflect.Type, known map[reflect.Type]*jsonschema.Schema) {
	if _, seen := known[t]; seen {
		return
	}
	switch {
	case t == reflect.TypeFor[time.Time]():
		known[t] = &jsonschema.Schema{Type: "string", Format: "date-time"}
	case t == reflect.TypeFor[json.Number]():
		known[t] = &jsonschema.Schema{Type: "number"}
	case t == reflect.TypeFor[json.RawMessage](), decodes[json.Unmarshaler](t):
		known[t] = anything()
	case decodes[encoding.TextUnmarshaler](t):
		known[t] = &jsonschema.Schema{Type: "string"}
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 && !custom(t.Elem()):
		known[t] = &jsonschema.Schema{Types: []string{"null", "string"}, ContentEncoding: "base64"}
	case t.Kind() == reflect.Struct:
		known[t] = nil
		for f := range t.Fields() {
			if _, options, _ := strings.Cut(f.Tag.Get("json"), ","); f.IsExported() && strings.Contains(","+options+",", ",string,") {
				known[t] = anything() // numbers in quotes, which no kind tells
				return
			}
			if f.IsExported() || f.Anonymous {
				formOf(f.Type, known)
			}
		}
	case t.Kind() == reflect.Pointer, t.Kind() == reflect.Slice, t.Kind() == reflect.Array, t.Kind() == reflect.Map:
		known[t] = nil
		formOf(t.Elem(), known)
	}
}

// custom reports whether a type decodes itself.
func custom(t reflect.Type) bool {
	return decodes[json.Unmarshaler](t) || decodes[encoding.TextUnmarshaler](t)
}

func decodes[I any](t reflect.Type) bool {
	return t.Kind() != reflect.Pointer && t.Kind() != reflect.Interface && reflect.PointerTo(t).Implements(reflect.TypeFor[I]())
}
