package arguments

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/strict"
)

// Pattern is what a rule says about arguments, see agent.Rule.
type Pattern struct{ members map[string]any }

// maxPattern is the size of a pattern, in bytes.
const maxPattern = 16 << 10

// ParsePattern reads a pattern. It is nil if there is none: nothing, or null.
func ParsePattern(raw json.RawMessage) (*Pattern, error) {
	if len(raw) > maxPattern {
		return nil, fmt.Errorf("the pattern has %d bytes, and at most %d are allowed", len(raw), maxPattern)
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil, nil
	}
	v, err := readStrict(raw)
	if err != nil {
		return nil, fmt.Errorf("the pattern: %w", err)
	}
	switch v := v.(type) {
	case nil:
		return nil, nil
	case map[string]any:
		return &Pattern{v}, nil
	}
	return nil, errors.New("the pattern is neither an object nor null")
}

// Canonical returns the pattern as it is kept: the same for all ways to write
// it.
func (p *Pattern) Canonical() json.RawMessage {
	raw, _ := strict.Marshal(exactNumbers(p.members)) // it was read from JSON
	return raw
}

// Fits reports whether arguments fit.
func (p *Pattern) Fits(args json.RawMessage) bool {
	v, err := readStrict(args)
	if err != nil {
		return false
	}
	object, ok := v.(map[string]any)
	if !ok {
		return false
	}
	for name, want := range p.members {
		got, there := object[name]
		if !there || !fit(want, got) {
			return false
		}
	}
	return true
}

func fit(want, got any) bool {
	switch want := want.(type) {
	case string:
		got, ok := got.(string)
		return ok && fitText(want, got)
	case json.Number:
		got, ok := got.(json.Number)
		return ok && parseNumber(want) == parseNumber(got)
	case []any:
		got, ok := got.([]any)
		return ok && slices.EqualFunc(want, got, fit)
	case map[string]any:
		got, ok := got.(map[string]any)
		return ok && maps.EqualFunc(want, got, fit)
	}
	return want == got // true, false, null
}

// fitText reports whether a text fits one with stars.
func fitText(want, got string) bool {
	p := pieces(want)
	if len(p) == 1 {
		return p[0] == got
	}
	first, middle, last := p[0], p[1:len(p)-1], p[len(p)-1]
	if len(got) < len(first)+len(last) || !strings.HasPrefix(got, first) || !strings.HasSuffix(got, last) {
		return false
	}
	got = got[len(first) : len(got)-len(last)]
	// The leftmost place of each piece leaves most room for the others.
	for _, piece := range middle {
		i := strings.Index(got, piece)
		if i < 0 {
			return false
		}
		got = got[i+len(piece):]
	}
	return true
}

// pieces returns what stands between the stars of a text.
func pieces(s string) []string {
	var all []string
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '*':
			all = append(all, b.String())
			b.Reset()
		case '\\':
			if i+1 < len(s) && (s[i+1] == '*' || s[i+1] == '\\') {
				i++
			}
			b.WriteByte(s[i])
		default:
			b.WriteByte(s[i])
		}
	}
	return append(all, b.String())
}
