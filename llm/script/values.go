package script

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/perdure/perdure/llm"
)

// values are what rules and templates see of a request.
type values struct {
	request *llm.Request
	last    string // text of the last message
	role    llm.Role
	turn    int          // messages of an assistant since the last one of a user
	replies int          // messages of an assistant in all
	results []llm.Result // since the last message of an assistant, if the last message is a tool's

	groups []string // of the rule's regexp
	regexp *regexp.Regexp
}

func valuesOf(r *llm.Request) *values {
	v := &values{request: r}
	for _, m := range r.Messages {
		switch m.Role {
		case llm.RoleUser:
			v.turn = 0
		case llm.RoleAssistant:
			v.turn++
			v.replies++
		}
	}
	n := len(r.Messages)
	if n == 0 {
		return v
	}
	v.role, v.last = r.Messages[n-1].Role, r.Messages[n-1].Text()
	if v.role != llm.RoleTool {
		return v
	}
	// It makes no difference whether results share a message or have one each.
	from := n - 1
	for from > 0 && r.Messages[from-1].Role == llm.RoleTool {
		from--
	}
	var texts []string
	for _, m := range r.Messages[from:] {
		for _, p := range m.Parts {
			if p.Result != nil {
				v.results = append(v.results, *p.Result)
				texts = append(texts, p.Result.Text)
			}
		}
	}
	v.last = strings.Join(texts, "\n")
	return v
}

// Last is the text of the last message.
func (v *values) Last() string { return v.last }

// System is the system text.
func (v *values) System() string { return v.request.System }

// Turn is how many messages of an assistant come after the last one of a user.
func (v *values) Turn() int { return v.turn }

// User is the text of the last message of a user.
func (v *values) User() string {
	for _, m := range slices.Backward(v.request.Messages) {
		if m.Role == llm.RoleUser {
			return m.Text()
		}
	}
	return ""
}

// Match is a group of the regexp, by number or name.
func (v *values) Match(group any) (string, error) {
	i, err := groupOf(v.regexp, group)
	if err != nil {
		return "", err
	}
	return v.groups[i], nil
}

// Result is the text of the latest result of a tool.
func (v *values) Result(tool string) (string, error) {
	for _, m := range slices.Backward(v.request.Messages) {
		for _, p := range slices.Backward(m.Parts) {
			if p.Result != nil && p.Result.Name == tool {
				return p.Result.Text, nil
			}
		}
	}
	return "", fmt.Errorf("the request holds no result of the tool %q", tool)
}

// String says what rules can match, for the error that none matches.
func (v *values) String() string {
	if v.role == "" {
		return "it has no messages"
	}
	s := fmt.Sprintf("last: %s, role: %s, turn: %d", quote(v.last), v.role, v.turn)
	for _, res := range v.results {
		s += ", tool: " + res.Name
	}
	if v.request.System != "" {
		s += ", system: " + quote(v.request.System)
	}
	return s
}

// Last returns the text of a request's last message as rules see it: for a tool
// message, the texts of all results since the last assistant message, one per line.
func Last(r *llm.Request) string { return valuesOf(r).last }

// Turn returns how many assistant messages a request has after the last user message.
func Turn(r *llm.Request) int { return valuesOf(r).turn }

// LastContains returns a condition: the text of the last message contains s.
func LastContains(s string) func(*llm.Request) bool {
	return func(r *llm.Request) bool { return strings.Contains(Last(r), s) }
}

// SystemContains returns a condition: the system text contains s.
func SystemContains(s string) func(*llm.Request) bool {
	return func(r *llm.Request) bool { return strings.Contains(r.System, s) }
}
