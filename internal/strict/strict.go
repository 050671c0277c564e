// Package strict checks JSON from outside before anything decodes it. What two
// readers could understand differently is refused: names that stand twice in an
// object, or differ in case only, texts that are not UTF-8, and what follows a
// value.
package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxDepth is how deep values may be nested.
const MaxDepth = 64

// Check returns what is wrong with a JSON value.
func Check(data []byte) error {
	if !utf8.Valid(data) {
		return errors.New("it is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	type level struct {
		object bool
		key    bool // a name is next
		seen   map[string]string
	}
	var stack []level
	for {
		tok, err := d.Token()
		if err != nil {
			if errors.Is(err, io.EOF) {
				return errors.New("it ends too early")
			}
			return err
		}
		top := len(stack) - 1
		switch v := tok.(type) {
		case json.Delim:
			switch v {
			case '{', '[':
				if len(stack) == MaxDepth {
					return fmt.Errorf("it is nested deeper than %d", MaxDepth)
				}
				if top >= 0 {
					stack[top].key = stack[top].object
				}
				stack = append(stack, level{object: v == '{', key: v == '{', seen: map[string]string{}})
				continue
			default:
				stack = stack[:top]
			}
		case string:
			if top >= 0 && stack[top].key {
				f := Fold(v)
				if other, twice := stack[top].seen[f]; twice {
					if other == v {
						return fmt.Errorf("the name %q stands twice in an object", v)
					}
					return fmt.Errorf("the names %q and %q in an object differ in case only", other, v)
				}
				stack[top].seen[f] = v
				stack[top].key = false
				continue
			}
			if top >= 0 {
				stack[top].key = stack[top].object
			}
		default:
			if top >= 0 {
				stack[top].key = stack[top].object
			}
		}
		if len(stack) == 0 {
			break
		}
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the value")
	}
	return nil
}

// Fold returns a text that is the same for all texts that differ in case only.
func Fold(s string) string {
	return strings.Map(func(c rune) rune {
		least := c
		for r := unicode.SimpleFold(c); r != c; r = unicode.SimpleFold(r) {
			least = min(least, r)
		}
		return least
	}, s)
}
