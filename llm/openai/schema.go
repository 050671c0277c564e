package openai

import (
	"encoding/json"
	"slices"
)

// strict reports whether OpenAI can hold a model to a schema word for word. It
// refuses to, with an error, unless every object lists all its properties as
// required and allows no others. Without it a schema is a wish.
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
		required := map[string]bool{}
		names, _ := v["required"].([]any)
		for _, name := range names {
			if name, ok := name.(string); ok {
				required[name] = true
			}
		}
		for name := range properties {
			if !required[name] {
				return false
			}
		}
		if v["additionalProperties"] != false {
			return false
		}
	}
	for _, key := range []string{"properties", "$defs", "definitions"} {
		if all, ok := v[key].(map[string]any); ok {
			for _, sub := range all {
				if sub, ok := sub.(map[string]any); !ok || !strictValue(sub) {
					return false
				}
			}
		}
	}
	if items, there := v["items"]; there {
		if items, ok := items.(map[string]any); !ok || !strictValue(items) {
			return false
		}
	}
	if list, there := v["anyOf"].([]any); there {
		for _, sub := range list {
			if sub, ok := sub.(map[string]any); !ok || !strictValue(sub) {
				return false
			}
		}
	}
	return true
}
