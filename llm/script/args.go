package script

import (
	"encoding/json"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// args reads the arguments of a call: a text is used as it is, a mapping becomes
// JSON whose keys keep their order.
func (p *parser) args(n *yaml.Node, groups *regexp.Regexp) text {
	switch {
	case n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null":
		return p.text(n, "args", groups)
	case n.Kind == yaml.MappingNode:
		return p.json(n, groups)
	}
	p.errorf(n, "args is %s; write a mapping, or a text to be sent as it is", kind(n))
	return nil
}

// json returns a node as JSON.
func (p *parser) json(n *yaml.Node, groups *regexp.Regexp) text {
	var parts []text
	switch n.Kind {
	case yaml.MappingNode:
		seen := map[string]bool{}
		comma := "{"
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
			parts = append(parts, literal(comma+toJSON(key.Value)+":"), p.json(n.Content[i+1], groups))
			comma = ","
		}
		if len(n.Content) == 0 {
			return literal("{}")
		}
		return joined(append(parts, literal("}")))
	case yaml.SequenceNode:
		comma := "["
		for _, e := range n.Content {
			parts = append(parts, literal(comma), p.json(e, groups))
			comma = ","
		}
		if len(n.Content) == 0 {
			return literal("[]")
		}
		return joined(append(parts, literal("]")))
	case yaml.ScalarNode:
		return p.scalar(n, groups)
	}
	p.errorf(n, "scripts have no aliases; write the value out")
	return nil
}

func (p *parser) scalar(n *yaml.Node, groups *regexp.Regexp) text {
	switch tag := n.ShortTag(); tag {
	case "!!null":
		return literal("null")
	case "!!bool":
		return literal(strings.ToLower(n.Value))
	case "!!int", "!!float":
		// Not converted, so that large numbers keep their digits.
		if !json.Valid([]byte(n.Value)) {
			p.errorf(n, "the number %s is not written as JSON does; write it so, or in quotes if it is a text", n.Value)
		}
		return literal(n.Value)
	case "!!str", "!!timestamp":
		t := p.text(n, "args", groups)
		return func(v *values) (string, error) {
			s, err := t(v)
			return toJSON(s), err
		}
	default:
		p.errorf(n, "args has a value of the type %s; JSON has none", tag)
		return nil
	}
}
