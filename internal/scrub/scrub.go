// Package scrub removes known secrets from texts: plain, with ASCII letters in any
// case, escaped for JSON, Go, HTML and URLs, in hex and in base64, even if they are
// only a part of the encoded text, as in Basic auth. It imports the standard
// library only.
//
// It does not find a secret that is split, for example over lines or deltas,
// compressed, encrypted, hashed, reversed or spelled differently, nor one of less
// than four bytes.
package scrub

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"html"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Mark replaces a secret.
const Mark = "[redacted]"

// Min is the minimum length of a secret that is removed, in bytes. Shorter ones
// occur in many texts by chance.
const Min = 4

// Set holds the secrets that were handed out. It is safe for concurrent use; a
// nil Set is empty.
type Set struct {
	outer *Set

	mu      sync.Mutex
	secrets map[string]bool
	forms   []form
	longest int
}

// form is one way to write a secret, with its ASCII letters in lower case.
type form struct {
	text        string
	left, right int // characters of base64 that hold bits of the secret, and others
}

type key struct{}

// With returns a context with a new set inside those of ctx.
func With(ctx context.Context) (context.Context, *Set) {
	s := &Set{outer: From(ctx)}
	return context.WithValue(ctx, key{}, s), s
}

// From returns the innermost set of a context, nil if it has none.
func From(ctx context.Context) *Set {
	s, _ := ctx.Value(key{}).(*Set)
	return s
}

// Add adds secrets.
func (s *Set) Add(secrets ...string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, secret := range secrets {
		if len(secret) < Min || s.secrets[secret] {
			continue
		}
		if s.secrets == nil {
			s.secrets = map[string]bool{}
		}
		s.secrets[secret] = true
		for _, f := range formsOf(secret) {
			if !slices.Contains(s.forms, f) {
				s.forms, s.longest = append(s.forms, f), max(s.longest, len(f.text)+f.left+f.right)
			}
		}
	}
}

// formsOf returns the ways to write a secret.
func formsOf(secret string) []form {
	quoted := []string{secret, inJSON(secret, true), inJSON(secret, false), inner(strconv.Quote(secret)), inner(strconv.QuoteToASCII(secret)),
		strings.ToUpper(secret), strings.ToLower(secret), url.QueryEscape(secret), url.PathEscape(secret),
		url.UserPassword("", secret).String()[1:], hex.EncodeToString([]byte(secret)), percent(secret)}
	for _, text := range []string{inJSON(secret, true), inJSON(secret, false), inner(strconv.QuoteToASCII(secret))} {
		quoted = append(quoted, strings.ReplaceAll(text, "/", `\/`)) // as PHP does
	}
	for _, quote := range []string{`"`, "&#34;", "&quot;", "&#x22;"} {
		for _, apostrophe := range []string{"'", "&#39;", "&apos;", "&#x27;"} {
			quoted = append(quoted, strings.NewReplacer("&#34;", quote, "&#39;", apostrophe).Replace(html.EscapeString(secret)))
		}
	}
	var texts []string
	for _, text := range quoted {
		texts = append(texts, text, inJSON(text, true), inJSON(text, false)) // also inside a text in JSON
	}
	var forms []form
	for _, text := range texts {
		forms = append(forms, form{text: fold(text)})
	}
	// Three bytes are four characters. Behind k other bytes, the characters in
	// the middle depend on the secret alone, and one at either end on its
	// neighbours too.
	for k := range 3 {
		bits := 8 * (k + len(secret))
		for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			f := form{left: min(k, 1), right: min(bits%6, 1)}
			f.text = fold(enc.EncodeToString([]byte("\x00\x00"[:k] + secret))[(8*k+5)/6 : bits/6])
			forms = append(forms, f)
		}
	}
	return forms
}

// percent escapes every byte for a URL.
func percent(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		b.WriteString("%" + hex.EncodeToString([]byte{c}))
	}
	return b.String()
}

func inner(quoted string) string { return quoted[1 : len(quoted)-1] }

func inJSON(s string, escapeHTML bool) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(escapeHTML)
	if enc.Encode(s) != nil {
		return s
	}
	return inner(strings.TrimSuffix(b.String(), "\n"))
}

// fold turns ASCII letters into lower case and leaves all positions as they are.
func fold(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// all returns the forms of the set and those around it, and the length of the
// longest.
func (s *Set) all() (forms []form, longest int) {
	for ; s != nil; s = s.outer {
		s.mu.Lock()
		forms, longest = append(forms, s.forms...), max(longest, s.longest)
		s.mu.Unlock()
	}
	return forms, longest
}

// span is a part of a text.
type span struct{ from, to int }

// Text returns a text without the secrets. Its cost is linear in the text.
func (s *Set) Text(text string) string {
	forms, _ := s.all()
	return without(text, forms, Mark)
}

// Limited returns the beginning of a text without secrets, and without parts of
// secrets that the limit cuts. It may be a little longer or shorter than limit.
func (s *Set) Limited(text string, limit int) string {
	forms, longest := s.all()
	if len(forms) > 0 && len(text) > limit+longest {
		// A secret at the end may be cut: what can be part of one goes.
		text = without(text[:limit+longest], forms, Mark)
		return text[:max(0, len(text)-longest)]
	}
	return without(text, forms, Mark)
}

// JSON returns a JSON value without the secrets. If more than strings would
// change, the whole value becomes the mark.
func (s *Set) JSON(raw json.RawMessage) json.RawMessage {
	forms, _ := s.all()
	if len(forms) == 0 {
		return raw
	}
	if clean := json.RawMessage(without(string(raw), forms, Mark)); json.Valid(clean) {
		return clean
	}
	return json.RawMessage(`"` + Mark + `"`)
}

// Replace returns a text with a mark in place of secrets, for those that are in
// no set.
func Replace(text, mark string, secrets ...string) string {
	var s Set
	s.Add(secrets...)
	return without(text, s.forms, mark)
}

func without(text string, forms []form, mark string) string {
	if len(forms) == 0 || len(text) < Min {
		return text
	}
	folded := fold(text)
	var found []span
	for _, f := range forms {
		for at := 0; ; {
			i := strings.Index(folded[at:], f.text)
			if i < 0 {
				break
			}
			hit := span{at + i, at + i + len(f.text)}
			at = hit.to
			if f.left > 0 && hit.from > 0 && isBase64(text[hit.from-1]) {
				hit.from--
			}
			if f.right > 0 && hit.to < len(text) && isBase64(text[hit.to]) {
				hit.to++
			}
			if n := len(found); n > 0 && found[n-1].to >= hit.from && found[n-1].from <= hit.from {
				found[n-1].to = max(found[n-1].to, hit.to)
			} else {
				found = append(found, hit)
			}
		}
	}
	if len(found) == 0 {
		return text
	}
	slices.SortFunc(found, func(a, b span) int { return a.from - b.from })
	var out strings.Builder
	end := 0
	for i, hit := range found {
		if hit.from > end || i == 0 {
			out.WriteString(text[end:hit.from])
			out.WriteString(mark)
		}
		end = max(end, hit.to)
	}
	out.WriteString(text[end:])
	return out.String()
}

func isBase64(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("+/-_", c) >= 0
}
