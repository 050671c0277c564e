package natsstore

import (
	"encoding/hex"
	"strings"
)

// The subjects of a store with the prefix P:
//
//	P.j.NAME  the appends of a journal, one message each, or its tombstone
//	P.d.NAME  marks a dropped journal, so that a listing need not look at tombstones
//	P.c.NAME  a cell, or the marker of a deleted one
//
// The stream has these. Two more are never stored:
//
//	P.n       tells other handles what was written
//	P.m.TOPIC carries the messages of a topic
const (
	kindJournal = "j"
	kindDropped = "d"
	kindCell    = "c"
)

// Tokens are what the server can filter by, so a listing with a prefix asks only for
// subjects with its whole tokens. A name is cut after each of its first slashes, which
// end what names are listed by, such as due/, and after chunk bytes without one.
const (
	chunk   = 16
	slashes = 4
)

// cut returns how many bytes of the rest of a name make its n-th token, 0 for the last
// one. It depends on no bytes after them, so that a prefix is cut like its names.
func cut(rest string, n int) int {
	whole := rest[:min(len(rest), chunk)]
	if i := strings.IndexByte(whole, '/'); i >= 0 && n < slashes {
		return i + 1
	}
	if len(whole) < chunk {
		return 0
	}
	return chunk
}

// encode returns the tokens of a name: the whole ones, and one for the rest, which
// begins with a dash and may have nothing else.
func encode(name string) string {
	var b strings.Builder
	rest := tokens(&b, name)
	b.WriteByte('-')
	escape(&b, rest)
	return b.String()
}

// common returns a filter for the tokens of all names with a prefix, and of some others.
func common(prefix string) string {
	var b strings.Builder
	tokens(&b, prefix)
	b.WriteByte('>')
	return b.String()
}

// tokens writes the whole tokens of a name and returns the rest.
func tokens(b *strings.Builder, name string) string {
	for n := 0; ; n++ {
		end := cut(name, n)
		if end == 0 {
			return name
		}
		escape(b, name[:end])
		b.WriteByte('.')
		name = name[end:]
	}
}

// escape writes bytes as characters that have no meaning in a subject: letters and
// digits as they are, and others as = and two hexadecimal digits.
func escape(b *strings.Builder, s string) {
	const digits = "0123456789abcdef"
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_':
			b.WriteByte(c)
		default:
			b.Write([]byte{'=', digits[c>>4], digits[c&15]})
		}
	}
}

// decode returns the name with these tokens.
func decode(tokens string) (string, bool) {
	var name []byte
	for {
		token, rest, more := strings.Cut(tokens, ".")
		if !more {
			var ok bool
			if token, ok = strings.CutPrefix(token, "-"); !ok {
				return "", false
			}
		}
		for i := 0; i < len(token); i++ {
			if token[i] != '=' {
				name = append(name, token[i])
				continue
			}
			if i+3 > len(token) {
				return "", false
			}
			c, err := hex.DecodeString(token[i+1 : i+3])
			if err != nil {
				return "", false
			}
			name = append(name, c[0])
			i += 2
		}
		if !more {
			return string(name), len(name) > 0
		}
		tokens = rest
	}
}
