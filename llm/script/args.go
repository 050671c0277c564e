package script

import (
	"encoding/json"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// args makes the arguments of a call: a text is taken as it is, a mapping
// becomes JSON whose keys keep their order.
func (p *parser) args(n *yaml.Node, groups *regexp.Regexp) text {
	if n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null" {
		return p.text(n, "args", groups)
	}
	if n.Kind != yaml.MappingNode {
		p.errorf(n, "args is %s; write a mapping, or a text to be sent as it is", kind(n))
		return nil
	}
	var parts []text
	p.json(n, groups, &parts)
	return func(v *values) (string, error) {
		var b strings.Builder
		for _, part := range parts {
			s, err := part(v)
			if err != nil {
				return "", err
			}
			b.WriteString(s)
		}
		return b.String(), nil
	}
}

// json appends what stands for a node in JSON.
func (p *parser) json(n *yaml.Node, groups *regexp.Regexp, parts *[]text) {
	lit := func(s string) {
		*parts = append(*parts, func(*values) (string, error) { return s, nil })
	}
	switch n.Kind {
	case yaml.MappingNode:
		seen := map[string]bool{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			if key.Kind != yaml.ScalarNode || key.ShortTag() == "!!merge" {
				p.errorf(key, "a key of args is %s; write a text", kind(key))
				continue
			}
			if seen[key.Value] {
				p.errorf(key, "args has the key %q twice", key.Value)
			}
			seen[key.Value] = true
			lit(map[bool]string{true: "{", false: ","}[i == 0] + toJSON(key.Value) + ":")
			p.json(n.Content[i+1], groups, parts)
		}
		if len(n.Content) == 0 {
			lit("{")
		}
		lit("}")
	case yaml.SequenceNode:
		lit("[")
		for i, e := range n.Content {
			if i > 0 {
				lit(",")
			}
			p.json(e, groups, parts)
		}
		lit("]")
	case yaml.ScalarNode:
		p.scalar(n, groups, parts, lit)
	default:
		p.errorf(n, "scripts have no aliases; write the value out")
	}
}

func (p *parser) scalar(n *yaml.Node, groups *regexp.Regexp, parts *[]text, lit func(string)) {
	switch tag := n.ShortTag(); tag {
	case "!!null":
		lit("null")
	case "!!bool":
		lit(strings.ToLower(n.Value))
	case "!!int", "!!float":
		// Not converted, so that large numbers stay as they are.
		if !json.Valid([]byte(n.Value)) {
			p.errorf(n, "the number %s is not written as JSON does; write it so, or in quotes if it is a text", n.Value)
		}
		lit(n.Value)
	case "!!str", "!!timestamp":
		if t := p.text(n, "args", groups); t != nil {
			*parts = append(*parts, func(v *values) (string, error) {
				s, err := t(v)
				return toJSON(s), err
			})
		}
	default:
		p.errorf(n, "args has a value of the type %s; JSON has none", tag)
	}
}
