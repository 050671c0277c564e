package schema_test

import (
	"testing"

	"github.com/perdure/perdure/internal/schema"
)

// TestPlain says what is wrong with a value in words.
func TestPlain(t *testing.T) {
	s, err := schema.Parse([]byte(`{"type": "object", "required": ["id"], "additionalProperties": false, "properties": {
		"id": {"type": "string", "minLength": 1}, "amount": {"type": "number", "maximum": 500.5},
		"items": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]string{
		`{"id": "a", "amount": 9999}`:                "amount: 9999 is greater than 500.5",
		`{"id": "a", "amount": 1e3}`:                 "amount: 1000 is greater than 500.5",
		`{"id": "a", "amount": 500.75}`:              "amount: 500.75 is greater than 500.5",
		`{"id": "a", "items": [{"n": 1}, {"n": 0}]}`: "items[].n: 0 is less than 1",
		`{"id": 7}`:               `id: 7 has type "integer", want "string"`,
		`{"id": ""}`:              `id: "" contains 0 Unicode code points, fewer than 1`,
		`{}`:                      `missing properties: ["id"]`,
		`{"id": "a", "total": 1}`: `unexpected additional properties ["total"]`,
		`5`:                       `5 has type "integer", want "object"`,
		`{} {}`:                   "it is more than one JSON value",
	} {
		if err := schema.Plain(s.Check([]byte(value))); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", value, err, want)
		}
	}
	if err := schema.Plain(s.Check([]byte(`{"id": "a"}`))); err != nil {
		t.Error(err)
	}
}
