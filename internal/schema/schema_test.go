package schema_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/schema"
)

// laughs returns definitions of which each tries the next one twice.
func laughs(levels int, twice string) string {
	var b strings.Builder
	b.WriteString(`{"properties":{"a":{"$ref":"#/$defs/d0"}},"$defs":{`)
	for i := range levels {
		next := fmt.Sprintf(`{"$ref":"#/$defs/d%d"}`, i+1)
		fmt.Fprintf(&b, `"d%d":%s,`, i, fmt.Sprintf(twice, next, next))
	}
	fmt.Fprintf(&b, `"d%d":{"type":"string"}}}`, levels)
	return b.String()
}

// TestHostileSchemasAreRefused: each of them takes the stack or forever on a
// value of a few bytes.
func TestHostileSchemasAreRefused(t *testing.T) {
	for name, raw := range map[string]string{
		"itself":        `{"$ref":"#"}`,
		"definition":    `{"properties":{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"$ref":"#/$defs/x"}}}`,
		"two":           `{"$ref":"#/$defs/x","$defs":{"x":{"$ref":"#/$defs/y"},"y":{"$ref":"#/$defs/x"}}}`,
		"escaped":       `{"$ref":"#/$defs/a~1b%25","$defs":{"a/b%":{"allOf":[{"$ref":"#/%24defs/a~1b%25"}]}}}`,
		"anyOf":         `{"$defs":{"x":{"anyOf":[{"type":"string"},{"$ref":"#/$defs/x"}]}},"$ref":"#/$defs/x"}`,
		"not":           `{"not":{"$ref":"#"}}`,
		"if":            `{"if":{"$ref":"#"}}`,
		"then":          `{"if":true,"then":{"$ref":"#"}}`,
		"dependent":     `{"dependentSchemas":{"a":{"$ref":"#"}}}`,
		"dependencies":  `{"$schema":"http://json-schema.org/draft-07/schema#","dependencies":{"a":{"$ref":"#"}}}`,
		"anchor":        `{"$defs":{"x":{"$anchor":"a","oneOf":[{"$ref":"#a"}]}},"$ref":"#a"}`,
		"dynamic":       `{"$dynamicAnchor":"a","allOf":[{"$dynamicRef":"#a"}]}`,
		"by id":         `{"$id":"https://example.com/s","allOf":[{"$ref":"https://example.com/s#"}]}`,
		"inner id":      `{"$defs":{"x":{"$id":"https://example.com/s","allOf":[{"$ref":"#"}]}},"$ref":"https://example.com/s"}`,
		"into items":    `{"items":{"$ref":"#/items"}}`,
		"into names":    `{"propertyNames":{"$ref":"#/propertyNames"}}`,
		"remote":        `{"$ref":"https://example.com/other"}`,
		"allOf doubles": laughs(40, `{"allOf":[%s,%s]}`),
		"anyOf doubles": laughs(40, `{"anyOf":[%s,%s]}`),
		"if doubles":    laughs(40, `{"if":%s,"else":%s}`),
		"deep":          strings.Repeat(`{"not":`, 9000) + `{}` + strings.Repeat(`}`, 9000),
		"patterns":      `{"allOf":[` + strings.Repeat(`{"pattern":"[a-z]{1000}"},`, 1000) + `{}]}`,
		"nil":           `{"allOf":[null]}`,
		"bad pattern":   `{"patternProperties":{"(":{}}}`,
	} {
		if _, err := schema.Parse([]byte(raw)); err == nil {
			t.Errorf("%s: taken", name)
		} else if len(err.Error()) > 1000 {
			t.Errorf("%s: an error of %d bytes", name, len(err.Error()))
		}
	}
}

// TestChecksEnd: a schema that goes into the value may try its parts more often
// the deeper they are. Values that would take it forever are refused, others
// are checked.
func TestChecksEnd(t *testing.T) {
	in := func(open, mid, end string, n int) string {
		return strings.Repeat(open, n) + mid + strings.Repeat(end, n)
	}
	text := func(n int) string { return `"` + strings.Repeat("a", n) + `"` }
	list := func(item string, n int) string { return "[" + strings.Repeat(item+",", n) + item + "]" }
	const (
		tree  = `{"type":"object","properties":{"a":{"$ref":"#"},"b":{"$ref":"#"}},"additionalProperties":false}`
		twice = `{"properties":{"a":{"$ref":"#"}},"patternProperties":{"a":{"$ref":"#"}}}`
		json  = `{"anyOf":[{"type":["string","number","boolean","null"]},{"type":"array","items":{"$ref":"#"}},{"type":"object","additionalProperties":{"$ref":"#"}}]}`
	)
	for name, c := range map[string]struct {
		schema, value string
		want          string // "", "fit" or "cost"
	}{
		"tree":                {tree, in(`{"b":{},"a":`, `{}`, `}`, 50), "fit"},
		"tree does not fit":   {tree, in(`{"b":{},"a":`, `{"c":1}`, `}`, 50), ""},
		"any JSON":            {json, list(`{"a":[1,"b",null,{"c":{}}]}`, 2000), "fit"},
		"any JSON, deep":      {json, in(`[`, `{"a":1}`, `]`, 100), "fit"},
		"long text":           {`{"properties":{"text":{"type":"string","pattern":"^[a-z]+$"}}}`, `{"text":` + text(1<<20) + `}`, "fit"},
		"many":                {`{"type":"array","items":{"type":"string","maxLength":9}}`, list(`"abc"`, 100_000), "fit"},
		"tuple":               {`{"prefixItems":[{"$ref":"#"}],"items":{"$ref":"#"}}`, in(`[`, ``, `]`, 60), "fit"},
		"members twice":       {twice, in(`{"a":`, `1`, `}`, 60), "cost"},
		"members twice, flat": {twice, in(`{"a":`, `1`, `}`, 8), "fit"},
		"items and contains":  {`{"items":{"$ref":"#"},"contains":{"$ref":"#"}}`, in(`[`, `1`, `]`, 60), "cost"},
		"unevaluated":         {`{"allOf":[{"items":{"$ref":"#"}}],"unevaluatedItems":{"$ref":"#"}}`, in(`[`, `1`, `]`, 60), "cost"},
		"union":               {`{"anyOf":[{"properties":{"a":{"$ref":"#"}}},{"properties":{"a":{"$ref":"#"}}}]}`, in(`{"a":`, `1`, `}`, 60), "cost"},
		"deep":                {`{"items":{"$ref":"#"}}`, in(`[`, ``, `]`, 9000), "cost"},
		"pattern":             {`{"pattern":"^(.?){1000}$"}`, text(4 << 20), "cost"},
		"names":               {`{"propertyNames":{"pattern":"^(.?){1000}$"}}`, `{` + text(4<<20) + `:1}`, "cost"},
		"enum of many":        {`{"items":{"enum":` + list(`"abc"`, 10_000) + `}}`, list(`"x"`, 100_000), "cost"},
	} {
		s, err := schema.Parse([]byte(c.schema))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		err = s.Check([]byte(c.value))
		if got := map[bool]string{true: "fit"}[err == nil]; errors.Is(err, schema.ErrCost) != (c.want == "cost") || c.want != "cost" && got != c.want {
			t.Errorf("%s: %.300v, want %q", name, err, c.want)
		}
	}
}
