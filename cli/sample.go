package cli

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/client"
)

// sample returns an input that a flow takes, as JSON: "Hello", unless its schema wants
// something else.
func (a *app) sample(ctx context.Context, rt *perdure.Runtime, flow string) json.RawMessage {
	if l, err := a.conn.Inside(rt, func() {}); err == nil {
		defer l.Close()
		if all, err := client.Do(ctx, l.Client, api.FlowsList, api.Nothing{}); err == nil {
			for _, f := range all.Flows {
				schema := new(jsonschema.Schema)
				if f.Name != flow || len(f.Input) == 0 || json.Unmarshal(f.Input, schema) != nil {
					continue
				}
				if value := sampleOf(schema); value != "" {
					data, _ := json.Marshal(value)
					return data
				}
			}
		}
	}
	return json.RawMessage(`"Hello"`)
}

// sampleOf returns a value that fits a schema of a flow's input, which holds no other
// keywords than these.
func sampleOf(s *jsonschema.Schema) any {
	types := append(slices.Clone(s.Types), s.Type)
	if i := slices.IndexFunc(types, func(one string) bool { return one != "null" && one != "" }); i >= 0 && !slices.Contains(types, "string") {
		switch types[i] {
		case "object":
			members := map[string]any{}
			for name, inner := range s.Properties {
				members[name] = sampleOf(inner)
			}
			return members
		case "array":
			return []any{}
		case "boolean":
			return false
		case "integer", "number":
			return 0
		}
	}
	switch {
	case s.Format == "date-time":
		return "2026-01-31T12:00:00Z"
	case s.ContentEncoding == "base64":
		return "SGVsbG8="
	}
	return ""
}
