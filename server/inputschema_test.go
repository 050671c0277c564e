package server

import (
	"encoding/json"
	"math/big"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
)

type level int

func (l *level) UnmarshalJSON([]byte) error { return nil }

type node struct {
	Next *node `json:"next,omitempty"`
}

// TestInputSchema checks that the schema of a flow's input allows what
// encoding/json decodes into it, and no other shape.
func TestInputSchema(t *testing.T) {
	type inner struct {
		Raw  json.RawMessage              `json:"raw,omitempty"`
		Rest *json.RawMessage             `json:"rest,omitempty"`
		Data []byte                       `json:"data,omitempty"`
		Sum  json.Number                  `json:"sum,omitempty"`
		At   *time.Time                   `json:"at,omitempty"`
		Host netip.Addr                   `json:"host,omitzero"`
		Big  *big.Int                     `json:"big,omitempty"`
		L    level                        `json:"l,omitempty"`
		Four [4]byte                      `json:"four,omitzero"`
		Map  map[string][]json.RawMessage `json:"map,omitempty"`
	}
	type outer struct {
		N int `json:"n"`
	}
	type quoted struct {
		N int `json:"n,string"`
	}
	for _, c := range []struct {
		in        any
		good, bad []string
	}{
		{json.RawMessage{}, []string{`{"a":1}`, `12`, `null`, `"x"`, `[]`}, nil},
		{[]byte{}, []string{`"AQI="`, `null`}, []string{`{}`, `1`}},
		{json.Number(""), []string{`12`, `1.5`}, []string{`{}`, `[]`}},
		{time.Time{}, []string{`"2026-01-02T03:04:05Z"`}, []string{`1`}},
		{netip.Addr{}, []string{`"::1"`}, []string{`1`}},
		{struct{}{}, []string{`{}`}, []string{`1`}},
		{inner{}, []string{
			`{}`, `{"raw":{"a":1},"rest":[1]}`, `{"raw":5,"rest":null}`, `{"data":"AQI="}`, `{"sum":12}`, `{"at":"2026-01-02T03:04:05Z"}`, `{"at":null}`,
			`{"host":"127.0.0.1"}`, `{"big":123456789012345678901}`, `{"l":"high"}`, `{"l":{"any":1}}`, `{"four":[1,2,3,4]}`, `{"map":{"a":[1,"x",{}]}}`,
		}, []string{`{"data":{}}`, `{"at":1}`, `{"host":1}`, `{"four":"x"}`, `{"map":1}`}},
		{struct {
			A string           `json:"a"`
			B []outer          `json:"b"`
			C map[string]outer `json:"c"`
		}{}, []string{`{}`, `{"a":"x","b":[{}],"c":{"k":{}}}`, `{"b":[{"n":1}]}`}, []string{`{"x":1}`, `{"a":1}`, `{"b":[{"x":1}]}`, `{"c":{"k":{"x":1}}}`}},
		{struct{ Q quoted }{}, []string{`{"Q":{"n":"12"}}`}, nil},
	} {
		in := reflect.TypeOf(c.in)
		var schema jsonschema.Schema
		if err := json.Unmarshal(inputSchema(in), &schema); err != nil {
			t.Fatalf("%v: %v", in, err)
		}
		resolved, err := schema.Resolve(nil)
		if err != nil {
			t.Fatalf("%v: %v", in, err)
		}
		check := func(text string) (decoded, fits error) {
			var value any
			if err := json.Unmarshal([]byte(text), &value); err != nil {
				t.Fatal(err)
			}
			d := json.NewDecoder(strings.NewReader(text))
			d.DisallowUnknownFields()
			return d.Decode(reflect.New(in).Interface()), resolved.Validate(value)
		}
		for _, text := range c.good {
			if decoded, fits := check(text); decoded != nil || fits != nil {
				t.Errorf("%v from %s: decoding: %v; the schema: %v", in, text, decoded, fits)
			}
		}
		for _, text := range c.bad {
			if decoded, fits := check(text); decoded == nil || fits == nil {
				t.Errorf("%v takes %s: decoding: %v; the schema: %v", in, text, decoded, fits)
			}
		}
	}
	for _, in := range []any{level(0), node{}, map[int]string{}} {
		if got := inputSchema(reflect.TypeOf(in)); got != nil {
			t.Errorf("%T, whose form is its own, has the schema %s", in, got)
		}
	}
}
