package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"strconv"
	"strings"

	"github.com/perdure/perdure/internal/strict"
)

// Normalize brings the arguments of a tool into the form in which it uses them:
// "//notes/a" becomes "/notes/a". Everything that looks at a call looks at that
// form: predicates, the person who is asked, rules, callbacks and the function;
// edited arguments are normalised too. Without it a call can be spelled so that
// a predicate does not recognise what the tool will do.
//
// Fn looks at its argument only: it is called again on resume. Its error is
// told to the model as wrong arguments. What it returns fits the tool's schema.
// A tool that is given it twice applies both, in their order.
func Normalize[A any](fn func(args A) (A, error)) ToolOption {
	return func(t *tool) {
		before := t.normal
		t.normal = func(raw json.RawMessage) (json.RawMessage, error) {
			if before != nil {
				var err error
				if raw, err = before(raw); err != nil {
					return nil, err
				}
			}
			var args A
			if err := json.Unmarshal(raw, &args); err != nil {
				return nil, err
			}
			old, err := json.Marshal(args)
			if err != nil {
				return nil, err
			}
			if args, err = fn(args); err != nil {
				return nil, err
			}
			return changeMembers(raw, old, args)
		}
	}
}

// changeMembers makes those changes to arguments that lead from the encoding of
// a Go value to that of another. All else stays as it was written, such as
// numbers that the Go type rounds.
func changeMembers(raw, before json.RawMessage, after any) (json.RawMessage, error) {
	encoded, err := json.Marshal(after)
	if err != nil || bytes.Equal(before, encoded) {
		return raw, err
	}
	var members, old, now map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(raw, &members), json.Unmarshal(before, &old), json.Unmarshal(encoded, &now)); err != nil {
		return nil, err
	}
	maps.DeleteFunc(members, func(name string, _ json.RawMessage) bool { _, was := old[name]; return was && now[name] == nil })
	for name, value := range now {
		if !bytes.Equal(old[name], value) {
			members[name] = value
		}
	}
	if raw, err = json.Marshal(members); err != nil {
		return nil, err
	}
	return canonical(raw)
}

// misspelled reports whether JSON has members that a Go type reads under another
// spelling of their names: encoded is what it made of them. A tool that is not
// written in Go would not read them.
func misspelled(raw, encoded any) bool {
	switch raw := raw.(type) {
	case map[string]any:
		read, ok := encoded.(map[string]any)
		if !ok {
			return false
		}
		names := map[string]bool{}
		for name := range read {
			names[strict.Fold(name)] = true
		}
		for name, v := range raw {
			if inner, exact := read[name]; exact && misspelled(v, inner) || !exact && names[strict.Fold(name)] {
				return true
			}
		}
	case []any:
		read, ok := encoded.([]any)
		for i := range raw {
			if ok && i < len(read) && misspelled(raw[i], read[i]) {
				return true
			}
		}
	}
	return false
}

// wholeNumbers returns JSON in which integers that are written as 1.0 or 1e0
// are written as 1, as far as that changes nothing.
func wholeNumbers(raw json.RawMessage) json.RawMessage {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return raw
	}
	var whole func(v any) any
	whole = func(v any) any {
		switch v := v.(type) {
		case json.Number:
			n, err := v.Float64()
			if err == nil && strings.ContainsAny(v.String(), ".eE") && n == math.Trunc(n) && math.Abs(n) < 1<<53 {
				return json.Number(strconv.FormatInt(int64(n), 10))
			}
		case []any:
			for i := range v {
				v[i] = whole(v[i])
			}
		case map[string]any:
			for name := range v {
				v[name] = whole(v[name])
			}
		}
		return v
	}
	if raw, err := json.Marshal(whole(v)); err == nil {
		if raw, err = canonical(raw); err == nil {
			return raw
		}
	}
	return raw
}
