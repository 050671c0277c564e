package script

import (
	"fmt"
	"strings"

	"github.com/perdure/perdure/llm"
)

// view is what rules see of a request.
type view struct {
	r       *llm.Request
	last    string // text of the last message
	role    llm.Role
	turn    int          // messages of an assistant since the last one of a user
	replies int          // messages of an assistant in all
	results []llm.Result // since the last message of an assistant, if the last message is a tool's
}

func look(r *llm.Request) *view {
	v := &view{r: r}
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
	// Results may come in one message or in one each: that makes no difference.
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

// String says what rules can match, for the error that none does.
func (v *view) String() string {
	if v.role == "" {
		return "it has no messages"
	}
	s := fmt.Sprintf("last: %s, role: %s, turn: %d", quote(v.last), v.role, v.turn)
	for _, res := range v.results {
		s += ", tool: " + res.Name
	}
	if v.r.System != "" {
		s += ", system: " + quote(v.r.System)
	}
	return s
}

// Last returns the text of a request's last message as rules see it: of a
// tool's, the texts of all results since the last message of an assistant, a
// line each.
func Last(r *llm.Request) string { return look(r).last }

// Turn returns how many messages of an assistant a request holds since the last
// one of a user.
func Turn(r *llm.Request) int { return look(r).turn }

// LastContains holds if the text of the last message contains s.
func LastContains(s string) func(*llm.Request) bool {
	return func(r *llm.Request) bool { return strings.Contains(Last(r), s) }
}

// SystemContains holds if the system text contains s.
func SystemContains(s string) func(*llm.Request) bool {
	return func(r *llm.Request) bool { return strings.Contains(r.System, s) }
}
