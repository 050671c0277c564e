package journal

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/perdure/perdure/internal/blob"
)

func str[T ~string](c *codec, v *T) {
	switch {
	case c.err != nil:
	case c.mode != reading:
		c.data = quote(c.data, string(*v))
	default:
		end := -1
		if c.peek() == '"' {
			end = unquote(c.data, c.at)
		}
		if end < 0 {
			c.fail("at byte %d there is no string", c.at)
			return
		}
		quoted := c.data[c.at : end+1]
		s := string(quoted[1 : len(quoted)-1])
		if bytes.IndexByte(quoted, '\\') >= 0 {
			s = unescape(s)
		}
		if !bytes.Equal(quote(nil, s), quoted) {
			c.fail("the string at byte %d is not spelled as it should be", c.at)
			return
		}
		*v, c.at = T(s), end+1
	}
}

// quote appends a JSON string that holds the bytes of s as they are, but for
// those that JSON has escaped.
func quote(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		switch ch := s[i]; {
		case ch == '"' || ch == '\\':
			b = append(b, '\\', ch)
		case ch < ' ':
			b = fmt.Appendf(b, `\u%04x`, ch)
		default:
			b = append(b, ch)
		}
	}
	return append(b, '"')
}

// unescape undoes what quote escapes. Of other escapes it makes anything.
func unescape(s string) string {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		ch := s[i]
		if ch == '\\' && i+1 < len(s) {
			i++
			ch = s[i]
			if n, err := strconv.ParseUint(s[i+1:min(i+5, len(s))], 16, 8); ch == 'u' && err == nil {
				ch, i = byte(n), i+4
			}
		}
		b = append(b, ch)
	}
	return string(b)
}

func num[T ~int | ~int64 | ~uint64](c *codec, v *T) {
	spell := func(b []byte) []byte {
		if ^T(0) < 0 {
			return strconv.AppendInt(b, int64(*v), 10)
		}
		return strconv.AppendUint(b, uint64(*v), 10)
	}
	switch {
	case c.err != nil:
	case c.mode != reading:
		c.data = spell(c.data)
	default:
		end := c.at
		for end < len(c.data) && (c.data[end] == '-' || '0' <= c.data[end] && c.data[end] <= '9') {
			end++
		}
		digits := string(c.data[c.at:end])
		if n, err := strconv.ParseInt(digits, 10, 64); err == nil {
			*v = T(n)
		} else if n, err := strconv.ParseUint(digits, 10, 64); err == nil {
			*v = T(n)
		}
		if string(spell(nil)) != digits {
			c.fail("at byte %d there is no such number", c.at)
			return
		}
		c.at = end
	}
}

func yes(c *codec, v *bool) {
	if c.mode == reading {
		*v = c.peek() == 't'
	}
	c.mark(strconv.FormatBool(*v))
}

func digest(c *codec, v *Hash) {
	s := v.String()
	str(c, &s)
	if c.mode == reading && c.err == nil {
		var h Hash
		if n, err := base64.RawURLEncoding.Decode(h[:], []byte(s[:min(len(s), hashSize)])); err != nil || n != len(h) || h.String() != s {
			c.fail("%q is no hash", s)
		}
		*v = h
	}
}

// raw is a JSON value in brackets, as entries have it; they are empty for none.
func raw(c *codec, v *json.RawMessage) {
	start, end := c.at, -1
	switch {
	case c.err != nil:
		return
	case c.mode != reading:
		start = len(c.data)
		c.data = append(append(append(c.data, '['), *v...), ']')
		end = len(c.data)
	case c.peek() == '[':
		end = span(c.data, start)
	}
	if end < 0 || !json.Valid(c.data[start:end]) {
		c.fail("the value at byte %d is no JSON", start)
		return
	}
	inner := c.data[start+1 : end-1 : end-1]
	if len(bytes.TrimSpace(inner)) != len(inner) {
		c.fail("the value at byte %d has space around it", start)
		return
	}
	if c.mode == reading {
		if c.at = end; len(inner) > 0 {
			*v = json.RawMessage(inner)
		}
	}
}

func value(c *codec, v *Value) {
	if c.mode == naming || c.mode == reading && c.peek() == '{' {
		v.Blob = new(blob.Ref)
	}
	if v.Blob == nil {
		raw(c, &v.JSON)
		return
	}
	c.object(func() {
		field(c, "hash", &v.Blob.Hash, str)
		field(c, "size", &v.Blob.Size, num)
	})
}
