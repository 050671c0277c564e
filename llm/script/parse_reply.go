package script

import (
	"regexp"

	"github.com/perdure/perdure/llm"
	"go.yaml.in/yaml/v3"
)

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
	if n := f["chunks"]; n != nil {
		y.Chunks = p.count(n, "chunks")
	}
	if n := f["wait"]; n != nil {
		y.Wait = p.duration(n, "wait")
	}
	if n := f["delay"]; n != nil {
		y.Delay = p.duration(n, "delay")
	}
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
		y.Calls = append([]llm.Call(nil), y.Calls...)
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

// text reads a template. It returns one that is empty if it is wrong.
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
	args := func(*values) (string, error) { return "{}", nil }
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

var kinds = []struct {
	name string
	err  error
}{
	{"rate-limited", llm.ErrRateLimited},
	{"overloaded", llm.ErrOverloaded},
	{"interrupted", llm.ErrInterrupted},
	{"too-long", llm.ErrTooLong},
	{"refused", llm.ErrRefused},
	{"auth", llm.ErrAuth},
	{"invalid", llm.ErrInvalid},
}

// failure reads an error, its kind alone or with more about it, and after how
// many pieces it comes.
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
			p.errorf(n, "the error has no kind; write kind: %s", kinds[0].name)
			return 0, e
		}
		if n := f["message"]; n != nil {
			e.Message, _ = p.str(n, "message")
		}
		if n := f["code"]; n != nil {
			e.Code, _ = p.str(n, "code")
		}
		if n := f["status"]; n != nil {
			e.Status = int(p.number(n, "status"))
		}
		if n := f["retry_after"]; n != nil {
			e.RetryAfter = p.duration(n, "retry_after")
		}
		if n := f["after"]; n != nil {
			after = int(min(p.number(n, "after"), 1e6))
		}
	}
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.name
	}
	name := p.oneOf(kind, "the kind of an error", names...)
	for _, k := range kinds {
		if k.name == name {
			e.Kind = k.err
		}
	}
	return after, e
}
