package script

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/perdure/perdure/llm"
)

func TestMistakesSayTheLineAndWhatToWrite(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{``, `s:1: the script is empty; write rules:`},
		{`hello`, `s:1: a script is "hello"; write a mapping with model, rules, default`},
		{"a: 1\n---\nb: 2", `s:2: a script is one document; take out the line ---`},
		{`{}`, `the script says nothing; write rules:`},
		{"rules:\n  - a\n", `s:2: a rule is "a"; write a mapping`},
		{`rules: {}`, `rules is a mapping; write a list`},
		{"rules:\n- text: a", `s:2: the rule has no when, so that it fits always; say when, or write the reply under default:`},
		{"rules:\n- {when: {}, text: a}", `when is empty`},
		{"rules:\n- {when: {last: {}}, text: a}", `last is empty`},
		{"rules:\n- {when: {last: }, text: a}", `last has no value; write a text, or "" for an empty one`},
		{"rules:\n- {when: {role: boss}, text: a}", `role is "boss"; write one of user, assistant, tool`},
		{"rules:\n- {when: {turn: x}, text: a}", `turn is "x"; write a number such as 2, or 2+`},
		{"rules:\n- {when: {turn: 1}, times: 0, text: a}", `times is from 1 to a million`},
		{"default: {txet: a}", `default has no key "txet"; is text meant?`},
		{"default: {frobnicate: a}", `default has no key "frobnicate". It takes text`},
		{"default: {text: a, text: b}", `default has the key "text" twice; its first one is in line 1`},
		{"default: {text: {}}", `text is a mapping; write a text`},
		{"default: {text: [a], chunks: 2}", `take chunks out`},
		{"default: {text: a, delay: 5}", `delay is "5"; write a duration such as 200ms or 1.5s`},
		{"default: {text: a, wait: -5s}", `wait is "-5s"; write a duration`},
		{"default: {text: a, stop: now}", `stop is "now"; write one of end, calls, length, refused, other, none`},
		{"default: {text: a, stop: end, error: auth}", `a reply that ends with an error has no stop`},
		{"default: {error: bad}", `the kind of an error is "bad"; write one of rate-limited, overloaded`},
		{"default: {error: {message: a}}", `the error has no kind; write kind: rate-limited`},
		{"default: {usage: {inputs: 1}, text: a}", `usage has no key "inputs"; is input meant?`},
		{"default: {usage: {input: -1}, text: a}", `input is "-1"; write a whole number`},
		{"default: {calls: [{args: {}}]}", `the call has no name; write name:`},
		{"default: {calls: [{name: a, args: [1]}]}", `args is a list; write a mapping, or a text`},
		{"default: {calls: [{name: a, args: {n: 0x10}}]}", `the number 0x10 is not written as JSON does`},
		{"default: {calls: [{name: a, args: {n: .inf}}]}", `the number .inf is not written as JSON does`},
		{"default: {calls: [{name: a, args: {n: 1, n: 2}}]}", `args has the key "n" twice`},
		{"default: {calls: [{name: a, args: {n: !!binary aGk=}}]}", `args has a value of the type !!binary`},
		{"default: {calls: [{name: a, args: {b: &x [1], c: *x}}]}", `scripts have no aliases`},
		{"rules: &x []\ndefault: *x", `s:2: scripts have no aliases; write default out`},
		{`default: {text: '{{.Match 1}}'}`, `the rule has no regexp whose groups .Match could be`},
		{`rules: [{when: {last: {regexp: '(a)'}}, text: '{{.Match 2}}'}]`, `the regexp "(a)" has no group 2`},
		{`rules: [{when: {last: {regexp: '(?P<a>a)'}}, text: '{{.Match "b"}}'}]`, `has no group b`},
		{`default: {text: '{{.Foo}}'}`, `there is no .Foo in a template; there are .Last`},
		{`default: {text: '{{foo}}'}`, `function "foo" not defined; for two braces as they are, write {{"{{"}}`},
		{`default: {text: '{{range 5}}{{end}}'}`, `a template has values and {{if}}, but no`},
		{`default: {text: '{{define "a"}}{{end}}x'}`, `but no {{define}}`},
		{"default:\n  text: [", `s:`},
		{"default:\n  text: a: b", `s:2: mapping values are not allowed in this context; texts with signs such as`},
	} {
		_, err := Parse("s", []byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "script: s:") {
			t.Errorf("%s\n got: %v\nwant: %s", c.text, err, c.want)
		}
	}
}

func TestMistakesAreToldTogetherAndNotWithoutEnd(t *testing.T) {
	_, err := Parse("s", []byte("default:\n  a: 1\n  b: 2\n  text: x\n"))
	if err == nil || strings.Count(err.Error(), "script: s:") != 2 {
		t.Error(err)
	}
	_, err = Parse("s", []byte("rules:\n"+strings.Repeat("- a\n", 100)))
	if err == nil || strings.Count(err.Error(), "script: s:") != most {
		t.Error(err)
	}
}

func TestAMissingFileIsAnError(t *testing.T) {
	if _, err := Load("testdata/missing.yaml"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	defer func() {
		if recover() == nil {
			t.Error("Must does not panic")
		}
	}()
	Must(Load("testdata/missing.yaml"))
}

// FuzzParse tries scripts: those that are accepted give a reply or an error to
// each request, and the same one again.
func FuzzParse(f *testing.F) {
	desk, err := os.ReadFile("testdata/desk.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(desk)
	for _, s := range []string{
		`{"default": {"text": "a"}}`,
		"default: {text: '{{.Last}}{{json .User}}', chunks: 3, stop: none}",
		"default: {calls: [{name: a, args: {b: [1, x, ~, 1e5], c: {d: '{{.Last}}'}}}, {name: b, args: '{{{'}]}",
		"rules: [{times: 1, error: {kind: auth, after: 2}, text: [a, b, c]}]",
		"a: &a [*a, *a]\nb: <<",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Parse("fuzz", data)
		if err != nil {
			if m != nil || !strings.HasPrefix(err.Error(), "script: fuzz:") {
				t.Fatalf("%v, %v", m, err)
			}
			return
		}
		for _, rule := range m.rules {
			rule.times = 0
			reply := rule.reply
			rule.reply = func(v *values) (Reply, error) {
				y, err := reply(v)
				y.Wait, y.Delay = 0, 0
				return y, err
			}
		}
		if strings.Contains(string(data), "printf") {
			return // a script may ask for a billion spaces
		}
		r := &llm.Request{Messages: []llm.Message{llm.User("refund order 7"), llm.Assistant("x"), results("lookup=\"amount\": 1")}}
		one, err1 := llm.Collect(m.Generate(t.Context(), r))
		two, err2 := llm.Collect(m.Generate(t.Context(), r))
		if (err1 == nil) != (err2 == nil) || err1 != nil && err1.Error() != err2.Error() {
			t.Fatalf("%v, then %v", err1, err2)
		}
		if err1 == nil && one.Message.Text() != two.Message.Text() {
			t.Fatalf("%v, then %v", one, two)
		}
	})
}
