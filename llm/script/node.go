package script

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// parser reads a script and collects its mistakes.
type parser struct {
	file string
	errs []error
}

// most is how many mistakes are reported at once.
const most = 10

func (p *parser) errorf(n *yaml.Node, format string, args ...any) {
	if len(p.errs) < most {
		p.errs = append(p.errs, fmt.Errorf("script: %s:%d: %s", p.file, max(n.Line, 1), fmt.Sprintf(format, args...)))
	}
}

var yamlLine = regexp.MustCompile(`(?s)^yaml: (?:line (\d+): )?(.*)$`)

// document returns the top of a script. JSON is not read as YAML, which lacks some
// of it: tabs and some escapes.
func (p *parser) document(data []byte) *yaml.Node {
	if json.Valid(data) {
		r := &jsonReader{data: data, dec: json.NewDecoder(bytes.NewReader(data)), line: 1}
		r.dec.UseNumber()
		return r.value(r.next())
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	err := dec.Decode(&doc)
	if err == nil {
		var second yaml.Node
		if again := dec.Decode(&second); again == nil {
			p.errorf(&second, "a script is one document; take out the line ---")
			return nil
		} else if !errors.Is(again, io.EOF) {
			err = again
		}
	}
	switch {
	case errors.Is(err, io.EOF):
		p.errorf(&doc, "the script is empty; write rules: and a list, or default: and a reply")
	case err != nil:
		n := &yaml.Node{}
		text := err.Error()
		if m := yamlLine.FindStringSubmatch(text); m != nil {
			n.Line, _ = strconv.Atoi(m[1])
			text = m[2]
		}
		p.errorf(n, "%s; texts with signs such as : # { } ? go into quotes", text)
	case doc.Kind == yaml.DocumentNode && len(doc.Content) == 1:
		return doc.Content[0]
	default:
		p.errorf(&doc, "this is not a script")
	}
	return nil
}

// jsonReader reads valid JSON into nodes, with the lines on which they end.
type jsonReader struct {
	data []byte
	dec  *json.Decoder
	line int
	at   int // offset of the end of what was counted
}

func (r *jsonReader) next() json.Token {
	tok, _ := r.dec.Token() // the data is valid
	end := int(r.dec.InputOffset())
	r.line += bytes.Count(r.data[r.at:end], []byte("\n"))
	r.at = end
	return tok
}

func (r *jsonReader) value(tok json.Token) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: r.line}
	switch tok := tok.(type) {
	case json.Delim:
		n.Kind = yaml.SequenceNode
		if tok == '{' {
			n.Kind = yaml.MappingNode
		}
		for {
			tok := r.next()
			if d, ok := tok.(json.Delim); ok && (d == '}' || d == ']') {
				return n
			}
			n.Content = append(n.Content, r.value(tok))
		}
	case string:
		n.Tag, n.Value = "!!str", tok
	case json.Number:
		n.Tag, n.Value = "!!int", tok.String()
		if strings.ContainsAny(n.Value, ".eE") {
			n.Tag = "!!float"
		}
	case bool:
		n.Tag, n.Value = "!!bool", strconv.FormatBool(tok)
	default:
		n.Tag = "!!null"
	}
	return n
}

// fields returns the values of a mapping by their keys, and reports keys that are
// not allowed.
func (p *parser) fields(n *yaml.Node, what string, allowed ...string) map[string]*yaml.Node {
	if n.Kind != yaml.MappingNode {
		p.errorf(n, "%s is %s; write a mapping with %s", what, kind(n), strings.Join(allowed, ", "))
		return nil
	}
	got := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch name := key.Value; {
		case key.Kind != yaml.ScalarNode:
			p.errorf(key, "a key of %s is %s; write one of %s", what, kind(key), strings.Join(allowed, ", "))
		case !slices.Contains(allowed, name):
			end := "."
			if near := nearest(name, allowed); near != "" {
				end = fmt.Sprintf("; is %s meant?", near)
			}
			p.errorf(key, "%s has no key %q%s It takes %s", what, name, end, strings.Join(allowed, ", "))
		case got[name] != nil:
			p.errorf(key, "%s has the key %q twice; its first one is in line %d", what, name, got[name].Line)
		case value.Kind == yaml.AliasNode:
			p.errorf(value, "scripts have no aliases; write %s out", name)
		default:
			got[name] = value
		}
	}
	return got
}

// list returns the elements of a list.
func (p *parser) list(n *yaml.Node, what string) []*yaml.Node {
	if n.Kind != yaml.SequenceNode {
		p.errorf(n, "%s is %s; write a list, each element after a -", what, kind(n))
		return nil
	}
	return n.Content
}

// str returns a scalar as it is written. Like the methods below, it takes nil for a
// value that was left out.
func (p *parser) str(n *yaml.Node, what string) (string, bool) {
	switch {
	case n == nil:
	case n.Kind != yaml.ScalarNode:
		p.errorf(n, "%s is %s; write a text", what, kind(n))
	case n.ShortTag() == "!!null":
		p.errorf(n, `%s has no value; write a text, or "" for an empty one`, what)
	default:
		return n.Value, true
	}
	return "", false
}

// number returns a whole number, not below zero.
func (p *parser) number(n *yaml.Node, what string) int64 {
	if n == nil {
		return 0
	}
	if n.Kind == yaml.ScalarNode {
		if i, err := strconv.ParseInt(n.Value, 10, 64); err == nil && i >= 0 {
			return i
		}
	}
	p.errorf(n, "%s is %s; write a whole number from 0 on", what, kind(n))
	return 0
}

// count returns a number that is at least 1, and small enough to count to.
func (p *parser) count(n *yaml.Node, what string) int {
	i := p.number(n, what)
	if n != nil && (i < 1 || i > 1e6) {
		p.errorf(n, "%s is from 1 to a million", what)
		return 1
	}
	return int(i)
}

func (p *parser) duration(n *yaml.Node, what string) time.Duration {
	if n == nil {
		return 0
	}
	if n.Kind == yaml.ScalarNode {
		if d, err := time.ParseDuration(n.Value); err == nil && d >= 0 {
			return d
		}
	}
	p.errorf(n, "%s is %s; write a duration such as 200ms or 1.5s", what, kind(n))
	return 0
}

// oneOf returns a scalar that is one of a few words.
func (p *parser) oneOf(n *yaml.Node, what string, words ...string) string {
	s, ok := p.str(n, what)
	if ok && !slices.Contains(words, s) {
		p.errorf(n, "%s is %s; write one of %s", what, kind(n), strings.Join(words, ", "))
		return ""
	}
	return s
}

// kind says what a node is.
func kind(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias, which scripts do not have"
	}
	if n.ShortTag() == "!!null" {
		return "empty"
	}
	return quote(n.Value)
}

// nearest returns the word that a mistyped one most likely stands for.
func nearest(s string, words []string) string {
	best, dist := "", 3
	for _, w := range words {
		if d := distance(s, w); d < dist && d < len(w) {
			best, dist = w, d
		}
	}
	return best
}

// distance counts the letters to insert, delete or change.
func distance(a, b string) int {
	if len(a) > 2*len(b)+3 {
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
