// Package strict reads JSON from outside. What two readers could understand
// differently is refused: names that occur twice in an object, or differ in case
// only, texts that are not Unicode, and what follows a value. It imports only the
// standard library.
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

// MaxDepth is how deep a value from outside may be nested.
const MaxDepth = 64

// Depth returns how many arrays and objects of JSON are inside each other. It
// needs no more than a look at each byte, and tells nothing of what is no JSON.
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

// closing returns where the quote is that closes the text which begins at a
// place, the end if there is none.
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

// Seen reports whether a name is displayed as it is: it has no control or format
// characters, such as those that change the direction of text, none without a
// width, and none without a meaning. Names of new things have to be; things that
// were named before keep their names.
func Seen(name string) bool {
	return utf8.ValidString(name) && !strings.ContainsFunc(name, func(c rune) bool {
		return unicode.In(c, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp,
			unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector, unicode.Noncharacter_Code_Point)
	})
}

// Quote returns the JSON of a text of which JSON escapes nothing, nil if it does
// or the text is not ASCII.
func Quote(s string) []byte {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	i := 0
	for ; i+8 <= len(s); i += 8 {
		w := word(s[i : i+8])
		quote, slash := w^'"'*ones, w^'\\'*ones // with a zero byte where one is
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

// word returns eight bytes as one number.
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

// Replaced reports whether Marshal wrote a replacement character for invalid
// UTF-8: it escapes that one, and leaves one that was there as it is.
func Replaced(raw []byte) bool {
	escape := []byte(`\ufffd`)
	return bytes.Contains(raw, escape) && bytes.Contains(bytes.ReplaceAll(raw, []byte(`\\`), nil), escape)
}

// Encode returns the JSON of a value. A text that JSON would silently change is
// an error.
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
