package foreign

import (
	"encoding/json"
	"testing"
)

func TestLenientJSON(t *testing.T) {
	for in, want := range map[string]string{
		`{"a":1,}`:              `{"a":1 }`,
		"{\"a\":[1,\n],\n\t}":   "{\"a\":[1 \n] \n\t}",
		`{"a":",}",}`:           `{"a":",}" }`,
		`{"a":"\",}",}`:         `{"a":"\",}" }`,
		`{,}`:                   `{,}`,
		`{"a":,}`:               `{"a":,}`,
		`[1,,]`:                 `[1,,]`,
		`{"a":{"b":{},},"c":2}`: `{"a":{"b":{} },"c":2}`,
		`,}`:                    `,}`,
		`"`:                     `"`,
		``:                      ``,
	} {
		if got := string(withoutCommas([]byte(in))); got != want {
			t.Errorf("%s became %s, want %s", in, got, want)
		}
	}
	m := Object{"a_b": json.RawMessage(`1`), "cD": json.RawMessage(`null`)}
	if got, err := m.Get("aB"); err != nil || string(got) != "1" {
		t.Errorf("aB is %s, %v", got, err)
	}
	if got, err := m.Get("cD"); err != nil || got != nil {
		t.Errorf("cD is %s, %v", got, err)
	}
	m["aB"] = json.RawMessage(`2`)
	if _, err := m.Get("aB"); err == nil {
		t.Error("aB and a_b differ, and one of them was taken")
	}
}

// What is overlooked never changes what valid JSON means.
func FuzzLenientJSON(f *testing.F) {
	for _, seed := range []string{`{"a":[1,2,],}`, `{"a":",}"}`, `[[],[]]`, `"\\"`, "{\"\\u0022\":1 , }"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		out := withoutCommas([]byte(in))
		if json.Valid([]byte(in)) && string(out) != in {
			t.Errorf("%q became %q", in, out)
		}
		if len(out) != len(in) {
			t.Errorf("%q has another length than %q", out, in)
		}
	})
}
