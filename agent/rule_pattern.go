package agent

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"unicode/utf8"

	"github.com/perdure/perdure/internal/strict"
)

// pattern is what a rule says about arguments, see [Rule]. A nil tree fits all.
type pattern struct{ tree map[string]any }

// maxPattern is how large a pattern may be.
const maxPattern = 16 << 10

// maxNesting is how deep patterns and arguments may be nested.
const maxNesting = 100

func parsePattern(raw json.RawMessage) (*pattern, error) {
	if len(raw) > maxPattern {
		return nil, fmt.Errorf("the pattern has %d bytes, and at most %d are allowed", len(raw), maxPattern)
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		return &pattern{}, nil
	}
	v, err := readStrict(raw)
	if err != nil {
		return nil, fmt.Errorf("the pattern: %w", err)
	}
	switch v := v.(type) {
	case nil:
		return &pattern{}, nil
	case map[string]any:
		return &pattern{v}, nil
	}
	return nil, errors.New("the pattern is neither an object nor null")
}

// canonical returns the pattern as it is kept: the same for all ways to write
// it.
func (p *pattern) canonical() json.RawMessage {
	if p.tree == nil {
		return nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(normal(p.tree)) // it was read from JSON
	return bytes.TrimSpace(b.Bytes())
}

// normal returns a value with its numbers in one way of writing.
func normal(v any) any {
	switch v := v.(type) {
	case json.Number:
		return json.Number(parseNumber(v).String())
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = normal(v[i])
		}
		return list
	case map[string]any:
		object := make(map[string]any, len(v))
		for name, v := range v {
			object[name] = normal(v)
		}
		return object
	}
	return v
}

// fits reports whether arguments fit.
func (p *pattern) fits(args json.RawMessage) bool {
	if p.tree == nil {
		return len(bytes.TrimSpace(args)) == 0 || json.Valid(args)
	}
	v, err := readStrict(args)
	if err != nil {
		return false
	}
	object, ok := v.(map[string]any)
	if !ok {
		return false
	}
	for name, want := range p.tree {
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

// exactly returns a JSON value in the one form in which it is compared whole.
func exactly(raw json.RawMessage) (json.RawMessage, error) {
	v, err := readStrict(raw)
	if err != nil {
		return nil, fmt.Errorf("the arguments: %w", err)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(normal(v)); err != nil {
		return nil, err
	}
	if b.Len() > maxPattern {
		return nil, fmt.Errorf("the arguments have %d bytes, and at most %d are allowed", b.Len(), maxPattern)
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// number is a decimal number in the one form 0.DIGITS × 10^exp, without zeros
// at either end of the digits; or, where its exponent is too large to compute
// with, its text.
type number struct {
	negative bool
	digits   string
	exp      int64
	text     string
}

func parseNumber(n json.Number) number {
	s := n.String()
	mantissa, e, _ := strings.Cut(strings.ToLower(s), "e")
	exp := int64(0)
	if e != "" {
		var err error
		if exp, err = strconv.ParseInt(e, 10, 64); err != nil || exp > 1<<40 || exp < -1<<40 {
			return number{text: s}
		}
	}
	mantissa, negative := strings.CutPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := whole + fraction
	exp += int64(len(whole))
	trimmed := strings.TrimLeft(digits, "0")
	exp -= int64(len(digits) - len(trimmed))
	if trimmed = strings.TrimRight(trimmed, "0"); trimmed == "" {
		return number{} // also -0
	}
	return number{negative: negative, digits: trimmed, exp: exp}
}

// String returns the number as JSON, a short integer without an exponent.
func (n number) String() string {
	sign := ""
	if n.negative {
		sign = "-"
	}
	zeros := n.exp - int64(len(n.digits))
	switch {
	case n.text != "":
		return n.text
	case n.digits == "":
		return "0"
	case zeros >= 0 && zeros < 20:
		return sign + n.digits + strings.Repeat("0", int(zeros))
	}
	return sign + n.digits + "e" + strconv.FormatInt(zeros, 10)
}

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

// hashed returns a name for bytes of any length.
func hashed(what string, raw []byte) string {
	sum := sha256.Sum256(append([]byte(what+"\n"), raw...))
	return hex.EncodeToString(sum[:16])
}
