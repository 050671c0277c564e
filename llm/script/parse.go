package script

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/perdure/perdure/llm"
	"go.yaml.in/yaml/v3"
)

// Parse reads a script in YAML or JSON. The name stands in errors, which say
// the line and what to write instead.
func Parse(name string, data []byte) (*Model, error) {
	p := &parser{file: name}
	m := &Model{name: "script", file: name}
	if top := p.document(data); top != nil {
		p.script(m, top)
	}
	if len(p.errs) > 0 {
		return nil, errors.Join(p.errs...)
	}
	return m, nil
}

func (p *parser) script(m *Model, top *yaml.Node) {
	f := p.fields(top, "a script", "model", "rules", "default")
	if f == nil {
		return
	}
	if n := f["model"]; n != nil {
		m.name, _ = p.str(n, "model")
	}
	if n := f["rules"]; n != nil {
		for _, n := range p.list(n, "rules") {
			if r := p.rule(n); r != nil {
				m.rules = append(m.rules, r)
			}
		}
	}
	if n := f["default"]; n != nil {
		always := &conditions{}
		if f := p.fields(n, "default", replyKeys...); f != nil {
			m.rules = append(m.rules, &rule{name: "default", when: always.hold, reply: p.reply(n, f, nil)})
		}
	}
	if f["rules"] == nil && f["default"] == nil {
		p.errorf(top, "the script says nothing; write rules: and a list, or default: and a reply")
	}
}

var replyKeys = []string{"text", "reasoning", "calls", "chunks", "wait", "delay", "usage", "stop", "error"}

func (p *parser) rule(n *yaml.Node) *rule {
	f := p.fields(n, "a rule", append([]string{"name", "when", "times"}, replyKeys...)...)
	if f == nil {
		return nil
	}
	r := &rule{name: fmt.Sprintf("line %d", n.Line)}
	if n := f["name"]; n != nil {
		s, _ := p.str(n, "name")
		r.name = fmt.Sprintf("%s (%s)", s, r.name)
	}
	if n := f["times"]; n != nil {
		r.times = int64(p.count(n, "times"))
	}
	c := &conditions{}
	if f["when"] != nil {
		c = p.when(f["when"])
	} else if r.times == 0 {
		p.errorf(n, "the rule has no when, so that it fits always; say when, or write the reply under default:")
	}
	r.when = c.hold
	r.reply = p.reply(n, f, c.groups())
	return r
}

func (p *parser) when(n *yaml.Node) *conditions {
	c := &conditions{}
	f := p.fields(n, "when", "last", "system", "role", "turn", "replies", "tool", "has")
	if f != nil && len(n.Content) == 0 {
		p.errorf(n, "when is empty, so that the rule fits always; say when, or write the reply under default:")
	}
	add := func(ok func(*view) bool) { c.others = append(c.others, ok) }
	if n := f["last"]; n != nil {
		c.last = p.match(n, "last")
	}
	if n := f["system"]; n != nil {
		c.system = p.match(n, "system")
	}
	if n := f["role"]; n != nil {
		role := llm.Role(p.oneOf(n, "role", "user", "assistant", "tool"))
		add(func(v *view) bool { return v.role == role })
	}
	if n := f["turn"]; n != nil {
		in := p.span(n, "turn")
		add(func(v *view) bool { return in(v.turn) })
	}
	if n := f["replies"]; n != nil {
		in := p.span(n, "replies")
		add(func(v *view) bool { return in(v.replies) })
	}
	if n := f["tool"]; n != nil {
		name, _ := p.str(n, "tool")
		add(func(v *view) bool {
			return slices.ContainsFunc(v.results, func(r llm.Result) bool { return r.Name == name })
		})
	}
	if n := f["has"]; n != nil {
		name, _ := p.str(n, "has")
		add(func(v *view) bool {
			return slices.ContainsFunc(v.r.Tools, func(t llm.Tool) bool { return t.Name == name })
		})
	}
	return c
}

// match reads a condition on a text: the text is contained, or it is said how
// it has to fit.
func (p *parser) match(n *yaml.Node, what string) *match {
	m := &match{}
	if n.Kind == yaml.ScalarNode {
		m.contains, _ = p.str(n, what)
		return m
	}
	f := p.fields(n, what, "equals", "contains", "regexp")
	if f != nil && len(n.Content) == 0 {
		p.errorf(n, "%s is empty; write a text that it contains, or equals:, contains: or regexp:", what)
	}
	if n := f["equals"]; n != nil {
		s, _ := p.str(n, "equals")
		m.equals = &s
	}
	if n := f["contains"]; n != nil {
		m.contains, _ = p.str(n, "contains")
	}
	if n := f["regexp"]; n != nil {
		s, ok := p.str(n, "regexp")
		re, err := regexp.Compile(s)
		if ok && err != nil {
			p.errorf(n, "the regexp %s is wrong: %s", quote(s), strings.TrimPrefix(err.Error(), "error parsing regexp: "))
		}
		m.regexp = re
	}
	return m
}

// span reads a number, or one with a + for it and all above.
func (p *parser) span(n *yaml.Node, what string) func(int) bool {
	digits, open := strings.CutSuffix(n.Value, "+")
	from, err := strconv.Atoi(digits)
	if n.Kind != yaml.ScalarNode || err != nil || from < 0 {
		p.errorf(n, "%s is %s; write a number such as 2, or 2+ for two and more", what, kind(n))
	}
	return func(i int) bool { return i == from || open && i > from }
}
