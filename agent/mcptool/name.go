package mcptool

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"strings"
	"unicode/utf8"
)

const maxName = 64

var (
	plainName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	odd       = regexp.MustCompile(`[^a-zA-Z0-9_-]`)
)

// toolName returns what models call a tool. A name that is too long ends with a
// hash of the whole, so that two that begin alike stay two.
func (s *Server) toolName(tool string) string {
	name := tool
	if !s.opts.NoPrefix {
		prefix := s.opts.Prefix
		if prefix == "" {
			prefix = s.name
		}
		name = prefix + "_" + tool
	}
	plain := odd.ReplaceAllString(name, "_")
	if len(plain) > maxName {
		sum := sha256.Sum256([]byte(name))
		plain = plain[:maxName-9] + "_" + hex.EncodeToString(sum[:4])
	}
	return plain
}

// matches reports whether a name matches a pattern, in which * is any text.
func matches(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == name
	}
	rest, ok := strings.CutPrefix(name, parts[0])
	if !ok {
		return false
	}
	last := parts[len(parts)-1]
	for _, p := range parts[1 : len(parts)-1] {
		i := strings.Index(rest, p)
		if i < 0 {
			return false
		}
		rest = rest[i+len(p):]
	}
	return strings.HasSuffix(rest, last)
}

func matchesAny(patterns []string, name string) bool {
	for _, p := range patterns {
		if matches(p, name) {
			return true
		}
	}
	return false
}

func never(json.RawMessage) bool { return false }

// clip makes a text of a server fit for an error: valid and at most n bytes.
func clip(text string, n int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "…"
}
