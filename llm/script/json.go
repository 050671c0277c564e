package script

import (
	"bytes"
	"encoding/json"
	"strings"

	"go.yaml.in/yaml/v3"
)

// fromJSON reads valid JSON into nodes, with the lines at which they end.
func fromJSON(data []byte) *yaml.Node {
	r := &jsonReader{data: data, dec: json.NewDecoder(bytes.NewReader(data)), line: 1}
	r.dec.UseNumber()
	return r.value(r.next())
}

type jsonReader struct {
	data []byte
	dec  *json.Decoder
	line int
	at   int // offset up to which lines are counted
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
		n.Tag, n.Value = "!!bool", "false"
		if tok {
			n.Value = "true"
		}
	default:
		n.Tag = "!!null"
	}
	return n
}
