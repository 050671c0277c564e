package api

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent/memory"
)

// OpenAPI returns the OpenAPI 3.1 document of the operations.
func OpenAPI(version string) (json.RawMessage, error) {
	s := newSchemas("#/components/schemas/")
	paths := map[string]map[string]any{}
	for _, op := range registry {
		o, err := s.operation(op)
		if err != nil {
			return nil, fmt.Errorf("api: %s: %w", op.Name, err)
		}
		path := strings.ReplaceAll(op.Path, "...}", "}")
		if paths[path] == nil {
			paths[path] = map[string]any{}
		}
		paths[path][strings.ToLower(op.Method)] = o
	}
	if _, err := s.schemaOf(reflect.TypeFor[Problem]()); err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{
		"openapi": "3.1.0",
		"info": map[string]any{
			"title":       "Perdure",
			"version":     cmp.Or(version, "0"),
			"summary":     "A durable runtime for AI agents.",
			"description": "Threads, runs and their events. A run never depends on a connection.",
			"license":     map[string]any{"name": "Apache-2.0", "identifier": "Apache-2.0"},
		},
		"servers":  []any{map[string]any{"url": "/", "description": "the server that serves this document"}},
		"security": []any{map[string]any{"token": []string{}}},
		"paths":    paths,
		"components": map[string]any{
			"schemas":         s.components,
			"securitySchemes": map[string]any{"token": map[string]any{"type": "http", "scheme": "bearer"}},
			"responses": map[string]any{"Problem": map[string]any{
				"description": "What went wrong.",
				"content":     map[string]any{TypeProblem: map[string]any{"schema": s.ref("Problem")}},
			}},
		},
	})
}

// operation describes one operation.
func (s *schemas) operation(op *Info) (map[string]any, error) {
	tag, _, _ := strings.Cut(op.Name, ".")
	o := map[string]any{"operationId": op.Name, "summary": op.Title, "tags": []string{tag}, "x-scope": op.Scope}
	if op.Doc != "" {
		o["description"] = op.Doc
	}
	if op.Scope == ScopeNone {
		o["security"] = []any{}
	}
	params := []any{}
	for _, f := range op.Fields() {
		if f.Where == InBody {
			continue
		}
		schema, err := s.schemaOf(f.Type)
		if err != nil {
			return nil, err
		}
		key := strings.TrimSuffix(f.Key, "...")
		if f.Where == InPath || f.Where == InHeader {
			schema = &jsonschema.Schema{Type: "string"}
		} else {
			schema = notNull(schema)
		}
		p := map[string]any{"name": key, "in": string(f.Where), "schema": schema, "description": f.Tag.Get("jsonschema")}
		if f.Where == InPath {
			p["required"] = true
		}
		params = append(params, p)
	}
	if len(params) > 0 {
		o["parameters"] = params
	}
	switch {
	case op.Takes != "":
		o["requestBody"] = map[string]any{"required": true, "content": map[string]any{op.Takes: map[string]any{}}}
	case op.HasBody():
		schema, err := s.schemaOf(op.In)
		if err != nil {
			return nil, err
		}
		needed := slices.ContainsFunc(op.Fields(), func(f Field) bool {
			return f.Where == InBody && !strings.Contains(f.Tag.Get("json"), ",omit")
		})
		o["requestBody"] = map[string]any{"required": needed, "content": map[string]any{TypeJSON: map[string]any{"schema": schema}}}
	}
	problem := map[string]any{"$ref": "#/components/responses/Problem"}
	success := map[string]any{"description": http.StatusText(op.Status)}
	if op.Out != nil {
		schema, err := s.schemaOf(op.Out)
		if err != nil {
			return nil, err
		}
		content := map[string]any{}
		for _, media := range op.Gives {
			content[media] = map[string]any{}
		}
		if op.Out == reflect.TypeFor[json.RawMessage]() {
			schema = &jsonschema.Schema{Type: "object"}
		}
		if _, also := content[TypeJSON]; also || len(content) == 0 {
			content[TypeJSON] = map[string]any{"schema": schema}
		}
		success["content"] = content
	}
	responses := map[string]any{strconv.Itoa(op.Status): success, "4XX": problem, "5XX": problem}
	if content, _ := success["content"].(map[string]any); op.Status != http.StatusOK && content[TypeEvents] != nil {
		delete(content, TypeEvents) // a stream has begun, whatever it is about
		responses["200"] = map[string]any{"description": http.StatusText(http.StatusOK), "content": map[string]any{TypeEvents: map[string]any{}}}
	}
	if op.Name == EventsList.Name {
		responses["204"] = map[string]any{"description": "the stream ended at the given id, and nothing follows it"}
	}
	o["responses"] = responses
	return o, nil
}

// schemas makes schemas from Go types. Named structs are components.
type schemas struct {
	place      string // where references find components
	components map[string]*jsonschema.Schema
	names      map[reflect.Type]string
}

func newSchemas(place string) *schemas {
	return &schemas{place: place, components: map[string]*jsonschema.Schema{}, names: map[reflect.Type]string{}}
}

func (s *schemas) ref(name string) *jsonschema.Schema {
	return &jsonschema.Schema{Ref: s.place + name}
}

// plain holds types with a predefined schema.
var plain = map[reflect.Type]*jsonschema.Schema{
	reflect.TypeFor[json.RawMessage](): {},
	reflect.TypeFor[[]byte]():          {Type: "string", ContentEncoding: "base64"},
	reflect.TypeFor[time.Time]():       {Type: "string", Format: "date-time"},
	reflect.TypeFor[perdure.Status](): {Type: "string", Enum: []any{"", perdure.Queued, perdure.Running, perdure.Suspended, perdure.Paused,
		perdure.Blocked, perdure.Quarantined, perdure.Succeeded, perdure.Failed, perdure.Cancelled, perdure.Damaged, perdure.Idle}},
	reflect.TypeFor[perdure.WhyState](): {Type: "string", Enum: []any{perdure.WhyWorking, perdure.WhyQueued, perdure.WhyPerson, perdure.WhySignal, perdure.WhySleep, perdure.WhyRetry,
		perdure.WhyChild, perdure.WhyNoWorker, perdure.WhyLease, perdure.WhyPaused, perdure.WhyBlocked, perdure.WhyQuarantined, perdure.WhyFailed, perdure.WhyDone, perdure.WhyIdle, perdure.WhyMoved}},
	reflect.TypeFor[perdure.Policy](): {Type: "string", Enum: []any{"", perdure.Enqueue, perdure.Reject, perdure.Interrupt, perdure.Steer, perdure.Beside}},
	reflect.TypeFor[Scope]():          {Type: "string", Enum: []any{ScopeRead, ScopeRun, ScopeAnswer, ScopeAdmin}},
}

// published holds the components that are not named after their Go type.
var published = map[reflect.Type]string{reflect.TypeFor[memory.Item](): "MemoryItem"}

// schemaOf returns the schema of a type, a reference if the type is a component.
func (s *schemas) schemaOf(t reflect.Type) (*jsonschema.Schema, error) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if err := s.add(t); err != nil {
		return nil, err
	}
	if name, ok := s.names[t]; ok {
		return s.ref(name), nil
	}
	return jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: s.known(nil)})
}

// add makes components of a type and of the types in it.
func (s *schemas) add(t reflect.Type) error {
	if plain[t] != nil || s.names[t] != "" {
		return nil
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return s.add(t.Elem())
	case reflect.Struct:
	default:
		return nil
	}
	name := cmp.Or(published[t], t.Name())
	for other, taken := range s.names {
		if taken == name && other != t {
			name = capital(t.PkgPath()[strings.LastIndex(t.PkgPath(), "/")+1:]) + name
			break
		}
	}
	s.names[t] = name
	var embedded []reflect.Type
	for _, f := range reflect.VisibleFields(t) {
		if f.Tag.Get("json") == "-" {
			continue
		}
		if f.Anonymous {
			embedded = append(embedded, f.Type)
			continue
		}
		if err := s.add(f.Type); err != nil {
			return err
		}
	}
	schema, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: s.known(append(embedded, t))})
	if err != nil {
		return err
	}
	for key, p := range schema.Properties {
		schema.Properties[key] = notNull(p)
	}
	s.components[name] = schema
	return nil
}

// known returns the schemas of known types, except those that are needed in full.
func (s *schemas) known(without []reflect.Type) map[reflect.Type]*jsonschema.Schema {
	known := maps.Clone(plain)
	for t, name := range s.names {
		if !slices.Contains(without, t) {
			known[t] = s.ref(name)
		}
	}
	return known
}

// notNull removes null from a schema: the API omits members instead.
func notNull(s *jsonschema.Schema) *jsonschema.Schema {
	c := *s
	switch {
	case s.Ref != "":
		c.Types = nil
	case len(s.Types) == 2 && s.Types[0] == "null":
		c.Type, c.Types = s.Types[1], nil
	}
	if s.Items != nil {
		c.Items = notNull(s.Items)
	}
	if s.AdditionalProperties != nil {
		c.AdditionalProperties = notNull(s.AdditionalProperties)
	}
	return &c
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
