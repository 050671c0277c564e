// Package foreign reads what clients of other systems send to the faces of a
// server: JSON objects that are less strict than the API's own, and answers to
// asks. It may import package server and what that imports.
package foreign

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"unicode"

	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/strict"
	"github.com/perdure/perdure/server"
)

// Object holds the members of a JSON object from a client of another system, which
// may have unknown members and spell them sessionId or session_id.
type Object map[string]json.RawMessage

// Read reads the body of a request to a face: an object, or nothing. It accepts
// trailing commas, since examples that people copy have them.
func Read(w http.ResponseWriter, r *http.Request, c *server.Call) (Object, error) {
	data, err := c.Body(w, r)
	if err != nil {
		return nil, err
	}
	data = bytes.TrimSpace(data)
	if len(data) == 0 || string(data) == "null" {
		return Object{}, nil
	}
	if err := Check(data); err != nil {
		return nil, err
	}
	m, ok := ParseObject(withoutCommas(data))
	if !ok {
		var v json.RawMessage
		if err := json.Unmarshal(data, &v); err != nil {
			return nil, fmt.Errorf("%w: %v", api.ErrBody, err)
		}
		return nil, fmt.Errorf("%w: it must be a JSON object", api.ErrBody)
	}
	return m, nil
}

// Check refuses JSON that is not Unicode or is nested too deep.
func Check(data []byte) error {
	if err := strict.Text(data); err != nil {
		return fmt.Errorf("%w: %w", api.ErrBody, err)
	}
	if strict.Depth(data) > strict.MaxDepth {
		return fmt.Errorf("%w: it is nested deeper than %d", api.ErrBody, strict.MaxDepth)
	}
	return nil
}

// withoutCommas replaces trailing commas of objects and lists with spaces.
func withoutCommas(data []byte) []byte {
	out, quoted := bytes.Clone(data), false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == '}' || c == ']'):
			before, found := bytes.CutSuffix(bytes.TrimSpace(out[:i]), []byte(","))
			before = bytes.TrimSpace(before)
			if found && len(before) > 0 && !strings.ContainsRune("{[,:", rune(before[len(before)-1])) {
				out[bytes.LastIndexByte(out[:i], ',')] = ' '
			}
		}
	}
	return out
}

// ParseObject parses a JSON object.
func ParseObject(raw json.RawMessage) (Object, bool) {
	var m Object
	return m, json.Unmarshal(raw, &m) == nil && m != nil
}

// Get returns a member by its name in camelCase, nil if it is missing or null. If
// it is there in both spellings, both must be equal.
func (m Object) Get(name string) (json.RawMessage, error) {
	a, b := m[name], m[snake(name)]
	switch {
	case a != nil && b != nil && !bytes.Equal(a, b):
		return nil, fmt.Errorf("%w: %s and %s differ", api.ErrBody, name, snake(name))
	case a == nil:
		a = b
	}
	if string(a) == "null" {
		return nil, nil
	}
	return a, nil
}

// Decode decodes a member into what v points to, which is unchanged if there is
// none.
func (m Object) Decode(name string, v any) error {
	raw, err := m.Get(name)
	if err != nil || raw == nil {
		return err
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("%w: the member %s: %v", api.ErrBody, name, err)
	}
	return nil
}

// Object returns a member that is an object, nil if there is none.
func (m Object) Object(name string) (Object, error) {
	raw, err := m.Get(name)
	if err != nil || raw == nil {
		return nil, err
	}
	o, ok := ParseObject(raw)
	if !ok {
		return nil, fmt.Errorf("%w: the member %s must be an object", api.ErrBody, name)
	}
	return o, nil
}

// snake returns a name in camelCase as snake_case.
func snake(name string) string {
	var b strings.Builder
	for _, c := range name {
		if unicode.IsUpper(c) {
			b.WriteByte('_')
			c = unicode.ToLower(c)
		}
		b.WriteRune(c)
	}
	return b.String()
}
