package arguments

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/perdure/perdure/internal/strict"
)

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
		return nil, fmt.Errorf("it is no JSON: %w", err)
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
