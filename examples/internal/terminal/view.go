package terminal

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
)

// view shows what happens on a thread.
type view struct {
	out   io.Writer
	shown map[string]string // what was shown of a reply on its way, by path
	last  string            // path of the reply whose line is not ended
	tail  string            // a piece of JSON that ends inside an escape
}

// delta shows a piece of a reply.
func (v *view) delta(d *perdure.DeltaEvent) {
	var piece llm.Delta
	if d.Offset == 0 { // the step begins, perhaps anew
		v.endLine()
		v.shown[d.Path] = ""
	}
	if json.Unmarshal(d.Data, &piece) != nil || piece.Text == "" && piece.Call == nil {
		return
	}
	if d.Path != v.last {
		v.endLine()
		v.last = d.Path
	}
	if piece.Call != nil {
		if piece.Call.Name != "" {
			fmt.Fprintf(v.out, "\n  %s ", piece.Call.Name)
			v.tail = ""
		}
		piece.Text = v.unescape(piece.Call.Args)
	} else {
		v.shown[d.Path] += piece.Text
	}
	fmt.Fprint(v.out, piece.Text)
}

// unescape makes a piece of JSON readable.
func (v *view) unescape(s string) string {
	s = v.tail + s
	v.tail = ""
	if n := len(s) - len(strings.TrimRight(s, `\`)); n%2 == 1 {
		s, v.tail = s[:len(s)-1], `\`
	}
	return strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\n`, "\n").Replace(s)
}

func (v *view) endLine() {
	if v.last != "" {
		fmt.Fprintln(v.out)
		v.last = ""
	}
}

func (v *view) say(format string, args ...any) {
	v.endLine()
	fmt.Fprintf(v.out, format+"\n", args...)
}

// event shows what is recorded.
func (v *view) event(e *perdure.Event) {
	switch e.Kind {
	case "claimed":
		v.say("-- at work")
	case "step":
		v.step(e)
	case "attempt":
		v.say("  %s failed, and is tried again: %s", e.Path, e.Error)
	case "planned":
		v.say("-- the plan: %s", strings.Join(e.Plan, ", "))
	case "answered":
		v.say("  %s answered: %s", person(e.By), strings.TrimSpace(e.Decision+" "+string(e.Value)))
	case "expired":
		v.say("  nobody answered %s in time", e.Path)
	case "blocked", "quarantined":
		v.say("-- %s: %s", e.Kind, e.Reason+e.Error+e.Diff)
	case "emitted":
		v.say("  %s: %s", e.Path, e.Value)
	}
}

func person(by string) string {
	if by == "" {
		return "a person"
	}
	return by
}

func (v *view) step(e *perdure.Event) {
	if e.Error != "" {
		v.say("  %s failed: %s", e.Path, e.Error)
		return
	}
	var r agent.Record
	if json.Unmarshal(e.Value, &r) != nil || r.ID == "" {
		return // it is no message: it holds other steps, or another one says the same
	}
	switch r.Message.Role {
	case llm.RoleUser:
		v.say("%s is asked: %s", r.Agent, r.Message.Text())
	case llm.RoleAssistant:
		if text := r.Message.Text(); v.shown[e.Path] != text { // not all of it was seen on its way
			v.say("%s", text)
		}
		v.endLine()
		delete(v.shown, e.Path)
	case llm.RoleTool:
		for _, p := range r.Message.Parts {
			if p.Result != nil {
				v.say("  done %s: %s", p.Result.Name, brief(p.Result.Text))
			}
		}
	}
}

// brief returns the first line of a text, if it is not too long.
func brief(text string) string {
	line, rest, _ := strings.Cut(text, "\n")
	if r := []rune(line); len(r) > 100 {
		return string(r[:100]) + "…"
	}
	if rest != "" {
		line += " …"
	}
	return line
}
