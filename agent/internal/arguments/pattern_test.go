package arguments

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestPatternsFitAsTheySay(t *testing.T) {
	deep := strings.Repeat("[", 200) + strings.Repeat("]", 200)
	tests := []struct {
		pattern, args string
		want          bool
	}{
		{`{}`, `{"a":1}`, true}, {`{}`, `[]`, false}, {`{}`, `null`, false}, {`{}`, ``, false},
		{`{"a":1}`, `{"a":1,"free":2}`, true}, {`{"a":1}`, `{}`, false}, {`{"a":1}`, `{"A":1}`, false},
		{`{"a":null}`, `{"a":null}`, true}, {`{"a":null}`, `{}`, false}, {`{"a":false}`, `{"a":null}`, false},

		// Numbers are compared exactly.
		{`{"a":1}`, `{"a":1.0}`, true}, {`{"a":1}`, `{"a":10e-1}`, true}, {`{"a":0}`, `{"a":-0.0}`, true},
		{`{"a":9007199254740993}`, `{"a":9007199254740992}`, false}, {`{"a":0.1}`, `{"a":0.10000000000000000001}`, false},
		{`{"a":1}`, `{"a":"1"}`, false}, {`{"a":"1"}`, `{"a":1}`, false}, {`{"a":-1}`, `{"a":1}`, false},
		{`{"a":1e999999999999}`, `{"a":1e999999999998}`, false}, {`{"a":1e99999999999999999999}`, `{"a":1e99999999999999999999}`, true},
		{`{"a":100}`, `{"a":1e2}`, true}, {`{"a":0.001}`, `{"a":1e-3}`, true},

		// Stars.
		{`{"a":"*"}`, `{"a":""}`, true}, {`{"a":"*"}`, `{"a":1}`, false}, {`{"a":"/tmp/*"}`, `{"a":"/tmp/x/y\nz"}`, true},
		{`{"a":"/tmp/*"}`, `{"a":"/tmp"}`, false}, {`{"a":"*@x.org"}`, `{"a":"ann@x.org"}`, true}, {`{"a":"*@x.org"}`, `{"a":"ann@x.org.evil"}`, false},
		{`{"a":"a*a"}`, `{"a":"a"}`, false}, {`{"a":"a*b*c"}`, `{"a":"abbc"}`, true}, {`{"a":"a*bc*c"}`, `{"a":"abc"}`, false},
		{`{"a":"a**b"}`, `{"a":"ab"}`, true}, {`{"a":"\\*"}`, `{"a":"*"}`, true}, {`{"a":"\\*"}`, `{"a":"x"}`, false},
		{`{"a":"\\\\*"}`, `{"a":"\\x"}`, true}, {`{"a":"C:\\t"}`, `{"a":"C:\\t"}`, true}, {`{"a":"\\"}`, `{"a":"\\"}`, true},
		{`{"*":"x"}`, `{"y":"x"}`, false}, {`{"a":"x"}`, `{"a":"x*"}`, false},

		// Depth: all members count inside.
		{`{"a":{"b":"x*"}}`, `{"a":{"b":"xy"}}`, true}, {`{"a":{"b":1}}`, `{"a":{"b":1,"c":2}}`, false}, {`{"a":{}}`, `{"a":{"c":2}}`, false},
		{`{"a":[1,"*"]}`, `{"a":[1,"q"]}`, true}, {`{"a":[1]}`, `{"a":[1,1]}`, false}, {`{"a":[]}`, `{"a":[]}`, true}, {`{"a":[]}`, `{"a":{}}`, false},

		// Arguments that readers understand in different ways.
		{`{"a":1}`, `{"a":1,"a":1000}`, false}, {`{"a":1}`, `{"a":1000,"a":1}`, false}, {`{"a":1}`, `{"a":1,"A":1000}`, false},
		{`{"k":1}`, `{"k":1,"` + "\u212a" + `":1000}`, false}, {`{"a":1}`, `{"a":1,"b":{"c":1,"C":2}}`, false},
		{`{"a":1}`, `{"a":1} {"a":2}`, false}, {`{"a":1}`, `{"a":1}x`, false}, {`{"a":1}`, "{\"a\":1,\"b\":\"\xff\"}", false},
		{`{"a":"*"}`, `{"a":"\ud800"}`, false}, {`{"a":1}`, `{"a":1,"b":` + deep + `}`, false}, {`{"a":1}`, `[{"a":1}]`, false},
	}
	for _, tt := range tests {
		p, err := ParsePattern(json.RawMessage(tt.pattern))
		if err != nil {
			t.Errorf("pattern %s: %v", tt.pattern, err)
			continue
		}
		again, err := ParsePattern(p.Canonical())
		if err != nil {
			t.Errorf("pattern %s as %s: %v", tt.pattern, p.Canonical(), err)
			continue
		}
		if got, same := p.Fits(json.RawMessage(tt.args)), again.Fits(json.RawMessage(tt.args)); got != tt.want || same != got {
			t.Errorf("pattern %s, arguments %s: %v, and as it is kept %v, want %v", tt.pattern, tt.args, got, same, tt.want)
		}
	}
}

func TestBadPatternsAreRefused(t *testing.T) {
	for _, raw := range []string{
		`[]`, `"*"`, `1`, `true`, `{`, `{} {}`, `{"a":1,"a":1}`, `{"a":1,"A":1}`, "{\"a\":\"\xff\"}", `{"a":"\udc00"}`,
		`{"a":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`, `{"a":"` + strings.Repeat("x", maxPattern) + `"}`,
	} {
		if p, err := ParsePattern(json.RawMessage(raw)); err == nil {
			t.Errorf("%.60s is taken as %s", raw, p.Canonical())
		}
	}
}

func TestOnePatternHasOneForm(t *testing.T) {
	for _, raw := range []string{`{"a":1,"b":["x"]}`, `{ "b": ["x"], "a": 1.0 }`, `{"b":["\u0078"],"a":10e-1}`} {
		p, err := ParsePattern(json.RawMessage(raw))
		if err != nil || string(p.Canonical()) != `{"a":1,"b":["x"]}` {
			t.Errorf("%s is kept as %s (%v)", raw, p.Canonical(), err)
		}
	}
	for _, raw := range []string{`null`, ``, ` null `} {
		if p, err := ParsePattern(json.RawMessage(raw)); err != nil || p != nil {
			t.Errorf("%q is the pattern %v (%v)", raw, p, err)
		}
	}
}

// FuzzPattern checks that a pattern means the same in the form that it is kept
// in, and that the pattern of some arguments fits these and none that differ.
func FuzzPattern(f *testing.F) {
	for _, seed := range [][3]string{
		{`{"a":"x*"}`, `{"a":"xy"}`, `{"a":"x"}`}, {`{"a":[1,{"b":null}]}`, `{"a":[1.0,{"b":null}]}`, `{"a":1e400}`},
		{`null`, `{"a":"\\*"}`, `{"a":"*"}`}, {`{"a":"**\\*"}`, `{"a":"\u0000*"}`, `{"A":1,"a":1}`},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, pattern, args, other string) {
		if p, err := ParsePattern(json.RawMessage(pattern)); err == nil && p != nil {
			kept, err := ParsePattern(p.Canonical())
			if err != nil {
				t.Fatalf("%q is kept as %q: %v", pattern, p.Canonical(), err)
			}
			if got, want := kept.Fits(json.RawMessage(args)), p.Fits(json.RawMessage(args)); got != want {
				t.Fatalf("%q fits %q: %v, and as it is kept: %v", pattern, args, want, got)
			}
		}
		exact, err := Exact(json.RawMessage(args))
		if err != nil {
			return
		}
		fits := func(args json.RawMessage) bool {
			got, err := Exact(args)
			return err == nil && string(got) == string(exact)
		}
		if !fits(json.RawMessage(args)) || !fits(exact) {
			t.Fatalf("%q does not fit itself, or as it is kept: %q", args, exact)
		}
		if !fits(json.RawMessage(other)) {
			return
		}
		// What fits is the same to any reader.
		var a, b any
		if json.Unmarshal([]byte(args), &a) != nil || json.Unmarshal([]byte(other), &b) != nil {
			return // a number that is no float64
		}
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("%q fits exactly %q", other, args)
		}
	})
}
