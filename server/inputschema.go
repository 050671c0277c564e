package server

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
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
	data, err := json.Marshal(schema)
	if err != nil {
		return nil
	}
	return data
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
