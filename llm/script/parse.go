package script

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/perdure/perdure/llm"
	"go.yaml.in/yaml/v3"
)

// Parse reads a script in YAML or JSON. Its errors say the name, the line and what to
// write instead.
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
	r.times = int64(p.count(f["times"], "times"))
	c := &conditions{}
	if f["when"] != nil {
		c = p.when(f["when"])
	} else if r.times == 0 {
		p.errorf(n, "the rule has no when, so that it fits always; say when, or write the reply under default:")
	}
	r.when = c.hold
	r.reply = p.reply(n, f, cmp.Or(c.last.regexp, c.system.regexp)) // whose groups templates see
	return r
}

func (p *parser) when(n *yaml.Node) *conditions {
	c := &conditions{}
	f := p.fields(n, "when", "last", "system", "role", "turn", "replies", "tool", "has")
	if f != nil && len(n.Content) == 0 {
		p.errorf(n, "when is empty, so that the rule fits always; say when, or write the reply under default:")
	}
	add := func(ok func(*values) bool) { c.others = append(c.others, ok) }
	c.last, c.system = p.match(f["last"], "last"), p.match(f["system"], "system")
	if n := f["role"]; n != nil {
		role := llm.Role(p.oneOf(n, "role", "user", "assistant", "tool"))
		add(func(v *values) bool { return v.role == role })
	}
	if n := f["turn"]; n != nil {
		in := p.span(n, "turn")
		add(func(v *values) bool { return in(v.turn) })
	}
	if n := f["replies"]; n != nil {
		in := p.span(n, "replies")
		add(func(v *values) bool { return in(v.replies) })
	}
	if n := f["tool"]; n != nil {
		name, _ := p.str(n, "tool")
		add(func(v *values) bool {
			return slices.ContainsFunc(v.results, func(r llm.Result) bool { return r.Name == name })
		})
	}
	if n := f["has"]; n != nil {
		name, _ := p.str(n, "has")
		add(func(v *values) bool {
			return slices.ContainsFunc(v.request.Tools, func(t llm.Tool) bool { return t.Name == name })
		})
	}
	return c
}

// match reads a condition on a text: a text that it contains, or a mapping that
// says how it has to fit.
func (p *parser) match(n *yaml.Node, what string) (m match) {
	if n == nil || n.Kind == yaml.ScalarNode {
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
	m.contains, _ = p.str(f["contains"], "contains")
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

// span reads a number, or one with a + that stands for it and all above.
func (p *parser) span(n *yaml.Node, what string) func(int) bool {
	digits, open := strings.CutSuffix(n.Value, "+")
	from, err := strconv.Atoi(digits)
	if n.Kind != yaml.ScalarNode || err != nil || from < 0 {
		p.errorf(n, "%s is %s; write a number such as 2, or 2+ for two and more", what, kind(n))
	}
	return func(i int) bool { return i == from || open && i > from }
}

// reply reads what a rule says.
func (p *parser) reply(n *yaml.Node, f map[string]*yaml.Node, groups *regexp.Regexp) func(*values) (Reply, error) {
	if f["text"] == nil && f["reasoning"] == nil && f["calls"] == nil && f["error"] == nil && f["stop"] == nil {
		p.errorf(n, "the reply says nothing; write text:, calls:, reasoning: or error:")
	}
	var y Reply
	var fill []func(*values, *Reply) error
	set := func(t text, to func(*Reply) *string) {
		fill = append(fill, func(v *values, y *Reply) (err error) {
			*to(y), err = t(v)
			return err
		})
	}
	if n := f["text"]; n != nil && n.Kind == yaml.SequenceNode {
		y.Pieces = make([]string, len(n.Content))
		for i, n := range n.Content {
			set(p.text(n, "a chunk of text", groups), func(y *Reply) *string { return &y.Pieces[i] })
		}
		if f["chunks"] != nil {
			p.errorf(f["chunks"], "text is a list, whose elements are the chunks; take chunks out, or write text as one text")
		}
	} else if n != nil {
		set(p.text(n, "text", groups), func(y *Reply) *string { return &y.Text })
	}
	if n := f["reasoning"]; n != nil {
		set(p.text(n, "reasoning", groups), func(y *Reply) *string { return &y.Reasoning })
	}
	if n := f["calls"]; n != nil {
		for i, n := range p.list(n, "calls") {
			p.call(n, groups, func(t text, to func(*llm.Call) *string) {
				set(t, func(y *Reply) *string { return to(&y.Calls[i]) })
			})
			y.Calls = append(y.Calls, llm.Call{})
		}
	}
	y.Chunks = p.count(f["chunks"], "chunks")
	y.Wait, y.Delay = p.duration(f["wait"], "wait"), p.duration(f["delay"], "delay")
	if n := f["usage"]; n != nil {
		y.Usage = p.usage(n)
	}
	if n := f["stop"]; n != nil {
		y.Stop = llm.Stop(p.oneOf(n, "stop", "end", "calls", "length", "refused", "other", "none"))
		if y.Stop == "none" {
			y.Stop, y.Cut = "", true
		}
	}
	if n := f["error"]; n != nil {
		y.After, y.Err = p.failure(n)
		if f["stop"] != nil {
			p.errorf(f["stop"], "a reply that ends with an error has no stop; take one of them out")
		}
	}
	return func(v *values) (Reply, error) {
		y := y
		y.Calls = slices.Clone(y.Calls)
		if y.Pieces != nil {
			y.Pieces = make([]string, len(y.Pieces))
		}
		for _, f := range fill {
			if err := f(v, &y); err != nil {
				return Reply{}, err
			}
		}
		return y, nil
	}
}

// text reads a template.
func (p *parser) text(n *yaml.Node, what string, groups *regexp.Regexp) text {
	s, _ := p.str(n, what)
	t, err := compile(s, groups)
	if err != nil {
		p.errorf(n, "the template of %s is wrong: %v", what, err)
	}
	return t
}

func (p *parser) call(n *yaml.Node, groups *regexp.Regexp, set func(text, func(*llm.Call) *string)) {
	f := p.fields(n, "a call", "name", "args", "id")
	if f == nil {
		return
	}
	if f["name"] == nil {
		p.errorf(n, "the call has no name; write name: and that of the tool")
	} else {
		set(p.text(f["name"], "name", groups), func(c *llm.Call) *string { return &c.Name })
	}
	if n := f["id"]; n != nil {
		set(p.text(n, "id", groups), func(c *llm.Call) *string { return &c.ID })
	}
	args := literal("{}")
	if n := f["args"]; n != nil {
		args = p.args(n, groups)
	}
	set(args, func(c *llm.Call) *string { return &c.Args })
}

func (p *parser) usage(n *yaml.Node) *llm.Usage {
	var u llm.Usage
	to := map[string]*int64{"input": &u.Input, "output": &u.Output, "cache_read": &u.CacheRead, "cache_write": &u.CacheWrite, "reasoning": &u.Reasoning}
	for key, n := range p.fields(n, "usage", "input", "output", "cache_read", "cache_write", "reasoning") {
		*to[key] = p.number(n, key)
	}
	return &u
}

// The kinds of errors, and what they stand for.
var (
	kindNames  = []string{"rate-limited", "overloaded", "interrupted", "too-long", "refused", "auth", "invalid"}
	kindErrors = []error{llm.ErrRateLimited, llm.ErrOverloaded, llm.ErrInterrupted, llm.ErrTooLong, llm.ErrRefused, llm.ErrAuth, llm.ErrInvalid}
)

// failure reads an error, as a kind or a mapping, and how many pieces come before
// it.
func (p *parser) failure(n *yaml.Node) (int, error) {
	e := &llm.Error{Kind: llm.ErrInvalid, Provider: "script", Message: "as the script says"}
	after := 0
	kind := n
	if n.Kind != yaml.ScalarNode {
		f := p.fields(n, "error", "kind", "message", "code", "status", "retry_after", "after")
		if f == nil {
			return 0, e
		}
		if kind = f["kind"]; kind == nil {
			p.errorf(n, "the error has no kind; write kind: %s", kindNames[0])
			return 0, e
		}
		if message, ok := p.str(f["message"], "message"); ok {
			e.Message = message
		}
		e.Code, _ = p.str(f["code"], "code")
		e.Status = int(p.number(f["status"], "status"))
		e.RetryAfter = p.duration(f["retry_after"], "retry_after")
		after = int(min(p.number(f["after"], "after"), 1e6))
	}
	if i := slices.Index(kindNames, p.oneOf(kind, "the kind of an error", kindNames...)); i >= 0 {
		e.Kind = kindErrors[i]
	}
	return after, e
}
