// Package strict checks JSON from outside before anything decodes it. What two
// readers could understand differently is refused: names that stand twice in an
// object, or differ in case only, texts that are not Unicode, and what follows a
// value.
package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxDepth is how deep values may be nested.
const MaxDepth = 64

// Check returns what is wrong with a JSON value.
func Check(data []byte) error {
	if err := Text(data); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	type level struct {
		object bool
		key    bool              // a name is next
		seen   map[string]string // nil until there is a name
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
				stack = append(stack, level{object: v == '{', key: v == '{'})
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
				if stack[top].seen == nil {
					stack[top].seen = map[string]string{}
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

// Text returns an error if a text in JSON is not Unicode: bytes that are not
// UTF-8, or half of a surrogate pair as an escape. Decoders put U+FFFD in their
// place, which makes different texts one.
func Text(data []byte) error {
	if !utf8.Valid(data) {
		return errors.New("it is not UTF-8")
	}
	for i := 0; ; {
		next := bytes.IndexByte(data[i:], '\\')
		if next < 0 {
			return nil
		}
		i += next
		first := unit(data[i:])
		switch {
		case !utf16.IsSurrogate(first):
			i += min(2, len(data)-i)
		case utf16.DecodeRune(first, unit(data[i+6:])) == utf8.RuneError:
			return fmt.Errorf("the escape %s in a text is half of a surrogate pair", data[i:i+6])
		default:
			i += 12
		}
	}
}

// unit returns the UTF-16 code unit that data begins with as an escape, -1 if it
// begins with something else.
func unit(data []byte) rune {
	if len(data) < 6 || data[0] != '\\' || data[1] != 'u' {
		return -1
	}
	n, err := strconv.ParseUint(string(data[2:6]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(n)
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
