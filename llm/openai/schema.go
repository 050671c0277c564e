package openai

import (
	"encoding/json"
	"maps"
	"slices"
)

// strict reports whether OpenAI can hold a model to a schema exactly. It refuses
// to, with an error, unless every object requires all its properties and allows
// no others. A model only tends to follow other schemas.
func strict(schema json.RawMessage) bool {
	var v map[string]any
	if json.Unmarshal(schema, &v) != nil || v["type"] != "object" {
		return false
	}
	return strictValue(v)
}

// plain are the keywords that strict schemas may have.
var plain = map[string]bool{
	"type": true, "title": true, "description": true, "properties": true, "required": true,
	"additionalProperties": true, "items": true, "enum": true, "const": true, "anyOf": true,
	"$ref": true, "$defs": true, "definitions": true, "$schema": true,
	"pattern": true, "format": true, "minItems": true, "maxItems": true,
	"minimum": true, "maximum": true, "exclusiveMinimum": true, "exclusiveMaximum": true, "multipleOf": true,
}

func strictValue(v map[string]any) bool {
	for key := range v {
		if !plain[key] {
			return false
		}
	}
	if v["type"] == nil && v["$ref"] == nil && v["anyOf"] == nil && v["enum"] == nil && v["const"] == nil {
		return false
	}
	properties, _ := v["properties"].(map[string]any)
	types, _ := v["type"].([]any)
	if v["type"] == "object" || slices.Contains(types, any("object")) || properties != nil {
		required, _ := v["required"].([]any)
		for name := range properties {
			if !slices.Contains(required, any(name)) {
				return false
			}
		}
		if v["additionalProperties"] != false {
			return false
		}
	}
	loose := func(v any) bool {
		sub, ok := v.(map[string]any)
		return !ok || !strictValue(sub)
	}
	for _, key := range []string{"properties", "$defs", "definitions"} {
		all, _ := v[key].(map[string]any)
		if slices.ContainsFunc(slices.Collect(maps.Values(all)), loose) {
			return false
		}
	}
	if items, there := v["items"]; there && loose(items) {
		return false
	}
	anyOf, _ := v["anyOf"].([]any)
	return !slices.ContainsFunc(anyOf, loose)
}
