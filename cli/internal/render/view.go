package render

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/safe"
	"github.com/perdure/perdure/internal/terminal"
	"github.com/perdure/perdure/llm"
)

// View shows a run while it is executed: what is recorded in lines that stay, and
// what is in progress in a block below them.
type View struct {
	Screen *terminal.Screen
	Quiet  bool         // show only what goes wrong
	Last   string       // what the agent said last
	Seq    uint64       // of the newest event
	Waits  string       // what the run waits for, if that is known
	Todos  []agent.Todo // to be shown in the block

	term  *terminal.Terminal
	width int
	chat  bool // show only what is said, and what goes wrong
	begin time.Time
	turns int // of the spinner

	current string              // path of what is under way, as far as is known
	frame   string              // of the plan
	plan    []string            // names
	at      int                 // index of the step of the plan that is under way
	writing map[string]*writing // by path
	newest  string              // path of the newest of them
	over    map[string]bool     // paths whose step is recorded: deltas are void
	working bool                // a worker has it
}

// writing is what is being written, and not recorded yet.
type writing struct {
	pass    uint64
	attempt int
	next    int64 // offset of the delta that continues the text
	text    string
}

// NewView returns a view on the terminal's standard error. That of a chat shows only
// what is said, and what goes wrong.
func NewView(t *terminal.Terminal, chat bool) *View {
	return &View{
		Screen: &terminal.Screen{Out: t.Err, Live: t.Live(t.Err)},
		width:  t.Room(0),
		term:   t, chat: chat, begin: t.Clock(),
		writing: map[string]*writing{}, over: map[string]bool{},
	}
}

// CallLines is how many lines of a call's arguments are shown at first.
const CallLines = 9

// Update takes news of the run, and reports whether the todos may have changed.
func (v *View) Update(u client.Update) bool {
	switch {
	case u.Delta != nil:
		v.delta(u.Delta)
	case u.Event != nil:
		return v.event(u.Event)
	}
	return false
}

// delta takes a piece of what is being written. It is void once its step is
// recorded, or a later attempt or pass begins.
func (v *View) delta(d *perdure.DeltaEvent) {
	w := v.writing[d.Path]
	if v.over[d.Path] || w != nil && (d.Pass < w.pass || d.Pass == w.pass && d.Attempt < w.attempt) {
		return
	}
	if w == nil || d.Pass > w.pass || d.Attempt > w.attempt {
		w = &writing{pass: d.Pass, attempt: d.Attempt}
		v.writing[d.Path] = w
	}
	whole := d.Offset == w.next
	if whole {
		w.next++
	}
	v.newest, v.current, v.Waits = d.Path, d.Path, ""
	var piece llm.Delta
	switch {
	case json.Unmarshal(d.Data, &piece) != nil:
		w.text = Brief(d.Data)
	case !whole: // some are missing: the rest comes with the event
	case piece.Call != nil:
		if piece.Call.Name != "" {
			w.text += "\n→ " + piece.Call.Name + " "
		}
		w.text += piece.Call.Args
	default:
		w.text += piece.Text + piece.Reasoning
	}
}

// event takes what is recorded.
func (v *View) event(e *perdure.Event) (todos bool) {
	v.Seq = e.Seq
	v.Waits = v.waitsFor(e)
	switch e.Kind {
	case "planned":
		v.plan, v.frame, v.at = e.Plan, strings.TrimSuffix(e.Path, "#plan"), 0
		v.detail("", "", "plan: "+strings.Join(e.Plan, ", "))
		return false
	case "claimed":
		if v.working {
			v.note(terminal.Amber, "!", "the worker was lost, and another one goes on")
		}
		v.working = true
		return false
	case "suspended", "released", "ended", "blocked", "quarantined":
		v.working = false
	}
	if e.Path != "" {
		v.current = e.Path
		v.progress(e)
	}
	switch e.Kind {
	case "step":
		delete(v.writing, e.Path)
		v.over[e.Path] = true
		return v.step(e)
	case "attempt":
		delete(v.writing, e.Path)
		v.note(terminal.Amber, "↻", e.Path+" failed; "+v.Waits)
	case "asked":
		v.detail(terminal.Amber, "?", e.Name)
		if _, args := Call(e.Value); len(args) > 0 && !v.chat && !v.Quiet {
			text, hidden := v.term.Frame("  ", Value(args), CallLines)
			if v.Screen.Print(text); hidden > 0 {
				v.Screen.Print(fmt.Sprintf("  and %s", terminal.Count(hidden, "more line", "more lines")))
			}
		}
	case "answered":
		v.detail(terminal.Green, "✓", "answered "+e.Decision+" "+Brief(e.Value)+author(e))
	case "expired":
		v.note(terminal.Amber, "!", "nobody answered "+e.Path+" in time")
	case "emitted":
		if !v.Quiet {
			v.note("", "", e.Path+": "+Brief(e.Value))
		}
	case "spawned":
		v.detail(terminal.Green, "✓", e.Path+": child "+e.Child)
	case "timer":
		v.detail(terminal.Amber, "…", e.Path+" waits until "+v.term.When(e.Due))
	case "waiting":
		v.detail(terminal.Amber, "…", e.Path+" waits for "+e.Name+" "+e.Child)
	case "paused", "resumed", "retried", "cancel":
		v.note(terminal.Amber, "!", e.Kind+author(e))
	case "blocked", "quarantined", "problem":
		v.note(terminal.Red, "!", e.Kind+": "+e.Error+e.Reason)
	}
	return false
}

// waitsFor is what a run waits for since an event, as far as that tells; what it
// waited for before, if it goes on doing so.
func (v *View) waitsFor(e *perdure.Event) string {
	switch e.Kind {
	case "attempt":
		of := ""
		if e.Attempts > 0 && e.Attempts < 1000 {
			of = fmt.Sprintf(" of %d", e.Attempts)
		}
		at := ""
		if !e.Due.IsZero() {
			at = " at " + v.term.When(e.Due)
		}
		return safe.Line(fmt.Sprintf("attempt %d%s%s: %s", e.Attempt+1, of, at, e.Error))
	case "timer":
		return safe.Line(e.Path) + " is due at " + v.term.When(e.Due)
	case "waiting":
		return safe.Line(e.Path + " waits for " + e.Name + " " + e.Child)
	case "asked":
		return "waiting for an answer"
	case "suspended", "released":
		return v.Waits
	}
	return ""
}

// step shows the outcome of a step.
func (v *View) step(e *perdure.Event) (todos bool) {
	if e.Error != "" {
		v.note(terminal.Red, "✗", e.Path+": "+e.Error)
		return false
	}
	var r agent.Record
	if len(e.Value) == 0 || e.Value[0] != '{' || json.Unmarshal(e.Value, &r) != nil || r.ID == "" || r.Message.Role == "" {
		v.detail(terminal.Green, "✓", e.Path+"  "+Brief(e.Value))
		return false
	}
	for _, p := range r.Said().Parts {
		switch {
		case r.Message.Role == llm.RoleUser, v.Quiet:
		case p.Text != "":
			v.Last = p.Text
			v.Screen.Print(v.term.Framed("", p.Text))
		case p.Call != nil:
			v.Screen.Print(safe.Cut("  → "+safe.Line(p.Call.Name+" "+p.Call.Args), v.width))
		case p.Result != nil:
			v.Screen.Print(safe.Cut("  ← "+safe.Line(p.Result.Name+": "+p.Result.Text), v.width))
			todos = todos || p.Result.Name == "write_todos"
		}
	}
	return todos
}

// progress finds out which step of the plan is under way.
func (v *View) progress(e *perdure.Event) {
	for i := v.at; i < len(v.plan); i++ {
		path := v.frame + v.plan[i]
		switch {
		case e.Path == path && e.Kind != "asked" && e.Kind != "waiting" && e.Kind != "timer" && e.Kind != "attempt":
			v.at = i + 1
		case e.Path == path || strings.HasPrefix(e.Path, path+"/"):
			v.at = i
		}
	}
}

// note prints a line that stays: a sign, if there is one, and a text.
func (v *View) note(style, sign, text string) {
	text = strings.Join(safe.Wrap(safe.Line(text), v.term.WrapAt(4)), "\n  "+safe.Bar)
	if sign != "" {
		if v.Screen.Live {
			sign = "\x1b[" + style + "m" + sign + "\x1b[0m"
		}
		text = sign + " " + text
	}
	v.Screen.Print(text)
}

// detail prints a line that is no part of a conversation, and is cut where the
// terminal ends.
func (v *View) detail(style, sign, text string) {
	if !v.chat && !v.Quiet {
		v.note(style, sign, safe.Cut(safe.Line(text), v.width-4))
	}
}

// Draw draws what is in progress.
func (v *View) Draw() {
	if !v.Screen.Live {
		return
	}
	v.turns++
	width := v.width - 1
	var lines []string
	if w := v.writing[v.newest]; w != nil {
		text := strings.Split(v.term.Framed("", strings.TrimLeft(w.text, "\n")), "\n")
		lines = append(lines, text[max(0, len(text)-10):]...)
	}
	for i, t := range v.Todos {
		if i == 8 {
			lines = append(lines, fmt.Sprintf("  and %d more", len(v.Todos)-i))
			break
		}
		lines = append(lines, safe.Cut("  "+Todo(t), width))
	}
	spinner := []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
	status := string(spinner[v.turns%len(spinner)])
	switch {
	case v.Waits != "":
		status += " " + v.Waits + " ·"
	case !v.working:
		status += " waiting for a worker"
	}
	if len(v.plan) > 0 {
		at := min(v.at, len(v.plan)-1)
		status += fmt.Sprintf(" step %d of %d: %s ·", at+1, len(v.plan), safe.Line(v.plan[at]))
	}
	status += " " + safe.Line(v.current)
	if took := v.term.Clock().Sub(v.begin).Truncate(time.Second); took > 0 {
		status += "  " + strings.Replace(terminal.Length(took), ".0s", "s", 1)
	}
	v.Screen.Draw(append(lines, safe.Cut(status, width)))
}
