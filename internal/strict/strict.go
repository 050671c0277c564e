// Package strict reads JSON from outside. It refuses whatever two decoders
// could understand differently: names that occur twice in an object or differ
// only in case, strings that are not valid Unicode, and data after the value.
// It imports only the standard library.
package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxDepth is how deeply a value from outside may be nested.
const MaxDepth = 64

// Depth returns how deeply arrays and objects are nested in valid JSON. It only
// scans the bytes, and its result means nothing for other data.
func Depth(data []byte) (most int) {
	open := 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			i = closing(data, i)
		case '{', '[':
			open++
			most = max(most, open)
		case '}', ']':
			open--
		}
	}
	return most
}

// closing returns the index of the quote that closes the string beginning at
// index at, or len(data) if there is none.
func closing(data []byte, at int) int {
	for i := at + 1; ; i++ {
		next := bytes.IndexByte(data[i:], '"')
		if next < 0 {
			return len(data)
		}
		i += next
		slashes := 0
		for data[i-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return i
		}
	}
}

// Text returns an error if JSON contains text that is not valid Unicode: bytes
// that are not UTF-8, or an escaped half of a surrogate pair. Decoders replace
// them with U+FFFD, so different strings would become equal.
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

// unit returns the UTF-16 code unit if data begins with a \u escape, -1
// otherwise.
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

// Fold maps all strings that differ only in case to the same string.
func Fold(s string) string {
	return strings.Map(func(c rune) rune {
		least := c
		for r := unicode.SimpleFold(c); r != c; r = unicode.SimpleFold(r) {
			least = min(least, r)
		}
		return least
	}, s)
}

// Seen reports whether every character of a name is visible: it has no control
// or format characters, such as those that change the direction of text, none
// without a width, and none without a meaning. New names must pass; things
// named earlier keep their names.
func Seen(name string) bool {
	return utf8.ValidString(name) && !strings.ContainsFunc(name, func(c rune) bool {
		return unicode.In(c, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp,
			unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector, unicode.Noncharacter_Code_Point)
	})
}

// Quote returns the JSON of an ASCII string that needs no escapes, nil for any
// other string.
func Quote(s string) []byte {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	i := 0
	for ; i+8 <= len(s); i += 8 {
		w := word(s[i : i+8])
		quote, slash := w^'"'*ones, w^'\\'*ones // a byte is zero where s has that character
		if (w|(w-' '*ones)&^w|(quote-ones)&^quote|(slash-ones)&^slash)&tops != 0 {
			return nil
		}
	}
	for ; i < len(s); i++ {
		if c := s[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' {
			return nil
		}
	}
	b := append(make([]byte, 0, len(s)+2), '"')
	return append(append(b, s...), '"')
}

// word returns eight bytes as a little-endian number.
func word(s string) uint64 {
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// Marshal is json.Marshal without the escapes for HTML.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// Replaced reports whether Marshal replaced invalid UTF-8: it writes that
// replacement character as an escape, and one that was in the string literally.
func Replaced(raw []byte) bool {
	escape := []byte(`\ufffd`)
	return bytes.Contains(raw, escape) && bytes.Contains(bytes.ReplaceAll(raw, []byte(`\\`), nil), escape)
}

// Encode returns the JSON of a value, or an error if JSON would silently change
// a string in it.
func Encode(v any) (json.RawMessage, error) {
	raw, err := Marshal(v)
	if err != nil {
		return nil, err
	}
	if _, given := v.(json.RawMessage); !given && Replaced(raw) {
		return nil, errors.New("a text in it is not valid UTF-8")
	}
	return raw, Text(raw)
}
