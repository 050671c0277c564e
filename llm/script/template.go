package script

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"
)

// groupOf finds a group of a regexp by its number or name.
func groupOf(re *regexp.Regexp, group any) (int, error) {
	if re == nil {
		return 0, errors.New("the rule has no regexp whose groups .Match could be; write last: {regexp: …}")
	}
	switch g := group.(type) {
	case int:
		if g >= 0 && g <= re.NumSubexp() {
			return g, nil
		}
	case string:
		if i := re.SubexpIndex(g); i >= 0 {
			return i, nil
		}
	}
	return 0, fmt.Errorf("the regexp %q has no group %v", re, group)
}

// text is a text of a script, filled in for a request.
type text func(*values) (string, error)

func literal(s string) text {
	return func(*values) (string, error) { return s, nil }
}

// joined returns texts one after the other.
func joined(texts []text) text {
	return func(v *values) (string, error) {
		var b strings.Builder
		for _, t := range texts {
			s, err := t(v)
			if err != nil {
				return "", err
			}
			b.WriteString(s)
		}
		return b.String(), nil
	}
}

var functions = template.FuncMap{"json": toJSON}

// toJSON writes a string as JSON does.
func toJSON(s string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string can always be encoded
	return strings.TrimSuffix(b.String(), "\n")
}

// compile turns a template into a text. It finds wrong names here, where the line
// is known, rather than in the middle of a demonstration.
func compile(s string, groups *regexp.Regexp) (text, error) {
	if !strings.Contains(s, "{{") {
		return literal(s), nil
	}
	const hint = `; for two braces as they are, write {{"{{"}}`
	t, err := template.New("text").Funcs(functions).Parse(s)
	if err != nil {
		return nil, fmt.Errorf("%s%s", strings.TrimPrefix(err.Error(), "template: text:"), hint)
	}
	if len(t.Templates()) > 1 || t.Tree == nil {
		return nil, errors.New("a template has values and {{if}}, but no {{define}} or {{block}}" + hint)
	}
	if err := check(t.Root, groups); err != nil {
		return nil, err
	}
	return func(v *values) (string, error) {
		var b strings.Builder
		if err := t.Execute(&b, v); err != nil {
			for u := errors.Unwrap(err); u != nil; u = errors.Unwrap(u) {
				err = u // a value's own error reads better alone
			}
			return "", err
		}
		return b.String(), nil
	}, nil
}

// check refuses what is not a value or an {{if}}, and values that do not exist.
func check(n parse.Node, groups *regexp.Regexp) error {
	var below []parse.Node
	switch n := n.(type) {
	case *parse.ListNode:
		if n != nil {
			below = n.Nodes
		}
	case *parse.ActionNode:
		below = append(below, n.Pipe)
	case *parse.IfNode:
		below = append(below, n.Pipe, n.List)
		if n.ElseList != nil {
			below = append(below, n.ElseList)
		}
	case *parse.PipeNode:
		for _, c := range n.Cmds {
			below = append(below, c)
		}
	case *parse.CommandNode:
		if f, ok := n.Args[0].(*parse.FieldNode); ok && f.Ident[0] == "Match" && len(n.Args) == 2 {
			if err := checkGroup(n.Args[1], groups); err != nil {
				return err
			}
		}
		below = n.Args
	case *parse.FieldNode:
		if known := []string{"Last", "Match", "Result", "System", "Turn", "User"}; len(n.Ident) != 1 || !slices.Contains(known, n.Ident[0]) {
			return fmt.Errorf("there is no %s in a template; there are .%s", n, strings.Join(known, ", ."))
		}
	case *parse.RangeNode, *parse.WithNode, *parse.TemplateNode, *parse.ChainNode, *parse.BreakNode, *parse.ContinueNode:
		return fmt.Errorf("a template has values and {{if}}, but no %s", n)
	}
	for _, b := range below {
		if err := check(b, groups); err != nil {
			return err
		}
	}
	return nil
}

func checkGroup(n parse.Node, groups *regexp.Regexp) error {
	var group any
	switch n := n.(type) {
	case *parse.NumberNode:
		group = int(n.Int64)
	case *parse.StringNode:
		group = n.Text
	default:
		return nil
	}
	_, err := groupOf(groups, group)
	return err
}
