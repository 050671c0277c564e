// Package arguments brings the arguments of tool calls, as JSON, into one form,
// and compares them with the patterns of rules. It may import internal/strict.
package arguments

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/perdure/perdure/internal/strict"
)

// maxNesting is how deep patterns and arguments may be nested.
const maxNesting = 100

// Canonical returns JSON in one form: sorted keys, each once, and numbers as they
// are written. It refuses texts that would change.
func Canonical(raw json.RawMessage) (json.RawMessage, error) {
	if err := strict.Text(raw); err != nil {
		return nil, fmt.Errorf("they are no JSON: %w", err)
	}
	v, rest, err := decode(raw)
	if err != nil {
		return nil, fmt.Errorf("they are no JSON: %w", err)
	}
	if rest {
		return nil, errors.New("they are more than one JSON value")
	}
	if strict.Depth(raw) > maxNesting {
		return nil, fmt.Errorf("they are nested more than %d deep", maxNesting)
	}
	return strict.Marshal(v)
}

// readStrict reads one JSON value of valid UTF-8 in which no object has two
// members of one name, case aside, and no text has a character that stands for
// others.
func readStrict(raw json.RawMessage) (any, error) {
	if err := strict.Text(raw); err != nil {
		return nil, err
	}
	if strict.Depth(raw) > maxNesting {
		return nil, fmt.Errorf("it is nested more than %d deep", maxNesting)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	v, err := readValue(d)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("it is more than one JSON value")
	}
	return v, nil
}

func readValue(d *json.Decoder) (any, error) {
	t, err := d.Token()
	if err != nil {
		return nil, fmt.Errorf("it is not JSON: %w", err)
	}
	switch t {
	case json.Delim('['):
		list := []any{}
		for d.More() {
			v, err := readValue(d)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := d.Token()
		return list, err
	case json.Delim('{'):
		object := map[string]any{}
		names := map[string]bool{}
		for d.More() {
			t, err := d.Token()
			if err != nil {
				return nil, err
			}
			name, _ := t.(string)
			if folded := strict.Fold(name); names[folded] || strings.ContainsRune(name, utf8.RuneError) {
				return nil, fmt.Errorf("two members are called %.40q, or it is no good name", name)
			} else {
				names[folded] = true
			}
			if object[name], err = readValue(d); err != nil {
				return nil, err
			}
		}
		_, err := d.Token()
		return object, err
	}
	// A lone surrogate is read as this one too.
	if s, ok := t.(string); ok && strings.ContainsRune(s, utf8.RuneError) {
		return nil, errors.New("a text in it has the replacement character")
	}
	return t, nil
}

// decode reads a value with numbers as they are written, and reports whether
// something follows it.
func decode(raw json.RawMessage) (v any, rest bool, err error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, false, err
	}
	_, err = d.Token()
	return v, err != io.EOF, nil
}

// Exact returns JSON in the form in which whole arguments are compared: that of
// Canonical, with one way to write each number. It refuses what readers could
// understand in different ways.
func Exact(raw json.RawMessage) (json.RawMessage, error) {
	v, err := readStrict(raw)
	if err != nil {
		return nil, fmt.Errorf("the arguments: %w", err)
	}
	one, err := strict.Marshal(exactNumbers(v))
	if len(one) >= maxPattern {
		return nil, fmt.Errorf("the arguments have %d bytes, and at most %d are allowed", len(one)+1, maxPattern)
	}
	return one, err
}

// WholeNumbers returns arguments in which integers that are written as 1.0 or
// 1e0 are written as 1, as far as that changes nothing.
func WholeNumbers(raw json.RawMessage) json.RawMessage {
	v, _, err := decode(raw)
	if err != nil {
		return raw
	}
	whole := mapNumbers(v, func(n json.Number) json.Number {
		f, err := n.Float64()
		if err == nil && strings.ContainsAny(n.String(), ".eE") && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
			return json.Number(strconv.FormatInt(int64(f), 10))
		}
		return n
	})
	if changed, err := strict.Marshal(whole); err == nil {
		return changed
	}
	return raw
}

// mapNumbers returns a value with its numbers changed.
func mapNumbers(v any, change func(json.Number) json.Number) any {
	switch v := v.(type) {
	case json.Number:
		return change(v)
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = mapNumbers(v[i], change)
		}
		return list
	case map[string]any:
		object := make(map[string]any, len(v))
		for name, v := range v {
			object[name] = mapNumbers(v, change)
		}
		return object
	}
	return v
}

// Change makes those changes to arguments that lead from the encoding of a Go
// value to another Go value. All else stays as it was written, such as numbers
// that the Go type rounds.
func Change(raw, before json.RawMessage, after any) (json.RawMessage, error) {
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
	return Canonical(raw)
}

// Decode reads arguments into what v points to, and reports whether that is all
// they can mean: a reader that is not written in Go does not read a name in
// another case, and does not agree about which of two counts.
func Decode(raw json.RawMessage, v any) bool {
	tree, err := readStrict(raw)
	if err != nil || json.Unmarshal(raw, v) != nil {
		return false
	}
	var read any
	encoded, err := json.Marshal(v)
	return err == nil && json.Unmarshal(encoded, &read) == nil && !misspelled(tree, read)
}

// misspelled reports whether JSON has members that a Go type reads under another
// spelling of their names: encoded is what it made of them.
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
