package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/safe"
	"github.com/perdure/perdure/internal/terminal"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/llm"
)

// view shows a run as it goes: what is recorded in lines that stay, and what is
// under way in a block below them.
type view struct {
	screen *terminal.Screen
	width  int
	a      *app
	chat   bool   // only what is said, and what goes wrong
	quiet  bool   // only what goes wrong
	last   string // what the agent said last
	seq    uint64 // of the newest event
	begin  time.Time
	turns  int // of the spinner

	current string   // path of what is under way, as far as is known
	frame   string   // of the plan
	plan    []string // names
	at      int      // index of the step of the plan that is under way
	todos   []agent.Todo
	writing map[string]*writing // by path
	newest  string              // path of the newest of them
	over    map[string]bool     // paths whose step is recorded: deltas are void
	working bool                // a worker has it
	waits   string              // what it waits for, if that is known
}

// writing is what is being written, and not recorded yet.
type writing struct {
	pass    uint64
	attempt int
	next    int64 // offset of the delta that continues the text
	text    string
}

func (a *app) newView(chat bool) *view {
	return &view{
		screen: &terminal.Screen{Out: a.term.Err, Live: a.term.Live(a.term.Err)},
		width:  a.term.Room(0),
		a:      a, chat: chat, begin: a.term.Clock(),
		writing: map[string]*writing{}, over: map[string]bool{},
	}
}

// update takes news of the run, and reports whether the todos may have changed.
func (v *view) update(u client.Update) bool {
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
func (v *view) delta(d *perdure.DeltaEvent) {
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
	v.newest, v.current, v.waits = d.Path, d.Path, ""
	var piece llm.Delta
	switch {
	case json.Unmarshal(d.Data, &piece) != nil:
		w.text = brief(d.Data)
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
func (v *view) event(e *perdure.Event) (todos bool) {
	v.seq = e.Seq
	v.waits = v.waitsFor(e)
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
		v.note(terminal.Amber, "↻", e.Path+" failed; "+v.waits)
	case "asked":
		v.detail(terminal.Amber, "?", e.Name)
		if _, args := called(e.Value); len(args) > 0 && !v.chat && !v.quiet {
			text, hidden := v.a.term.Frame("  ", pretty(args), callLines)
			if v.screen.Print(text); hidden > 0 {
				v.screen.Print(fmt.Sprintf("  and %s", terminal.Count(hidden, "more line", "more lines")))
			}
		}
	case "answered":
		v.detail(terminal.Green, "✓", "answered "+e.Decision+" "+brief(e.Value)+by(e))
	case "expired":
		v.note(terminal.Amber, "!", "nobody answered "+e.Path+" in time")
	case "emitted":
		if !v.quiet {
			v.note("", "", e.Path+": "+brief(e.Value))
		}
	case "spawned":
		v.detail(terminal.Green, "✓", e.Path+": child "+e.Child)
	case "timer":
		v.detail(terminal.Amber, "…", e.Path+" waits until "+v.a.term.When(e.Due))
	case "waiting":
		v.detail(terminal.Amber, "…", e.Path+" waits for "+e.Name+" "+e.Child)
	case "paused", "resumed", "retried", "cancel":
		v.note(terminal.Amber, "!", e.Kind+by(e))
	case "blocked", "quarantined", "problem":
		v.note(terminal.Red, "!", e.Kind+": "+e.Error+e.Reason)
	}
	return false
}

// waitsFor is what a run waits for since an event, as far as that tells; what it
// waited for before, if it goes on doing so.
func (v *view) waitsFor(e *perdure.Event) string {
	switch e.Kind {
	case "attempt":
		of := ""
		if e.Attempts > 0 && e.Attempts < 1000 {
			of = fmt.Sprintf(" of %d", e.Attempts)
		}
		at := ""
		if !e.Due.IsZero() {
			at = " at " + v.a.term.When(e.Due)
		}
		return safe.Line(fmt.Sprintf("attempt %d%s%s: %s", e.Attempt+1, of, at, e.Error))
	case "timer":
		return safe.Line(e.Path) + " is due at " + v.a.term.When(e.Due)
	case "waiting":
		return safe.Line(e.Path + " waits for " + e.Name + " " + e.Child)
	case "asked":
		return "waiting for an answer"
	case "suspended", "released":
		return v.waits
	}
	return ""
}

// step shows the outcome of a step.
func (v *view) step(e *perdure.Event) (todos bool) {
	if e.Error != "" {
		v.note(terminal.Red, "✗", e.Path+": "+e.Error)
		return false
	}
	var r agent.Record
	if len(e.Value) == 0 || e.Value[0] != '{' || json.Unmarshal(e.Value, &r) != nil || r.ID == "" || r.Message.Role == "" {
		v.detail(terminal.Green, "✓", e.Path+"  "+brief(e.Value))
		return false
	}
	for _, p := range r.Said().Parts {
		switch {
		case r.Message.Role == llm.RoleUser, v.quiet:
		case p.Text != "":
			v.last = p.Text
			v.screen.Print(v.a.term.Framed("", p.Text))
		case p.Call != nil:
			v.screen.Print(safe.Cut("  → "+safe.Line(p.Call.Name+" "+p.Call.Args), v.width))
		case p.Result != nil:
			v.screen.Print(safe.Cut("  ← "+safe.Line(p.Result.Name+": "+p.Result.Text), v.width))
			todos = todos || p.Result.Name == "write_todos"
		}
	}
	return todos
}

// progress finds out which step of the plan is under way.
func (v *view) progress(e *perdure.Event) {
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
func (v *view) note(style, sign, text string) {
	text = strings.Join(safe.Wrap(safe.Line(text), v.a.term.WrapAt(4)), "\n  "+safe.Bar)
	if sign != "" {
		if v.screen.Live {
			sign = "\x1b[" + style + "m" + sign + "\x1b[0m"
		}
		text = sign + " " + text
	}
	v.screen.Print(text)
}

// detail prints a line that is no part of a conversation, and is cut where the
// terminal ends.
func (v *view) detail(style, sign, text string) {
	if !v.chat && !v.quiet {
		v.note(style, sign, safe.Cut(safe.Line(text), v.width-4))
	}
}

// block draws what is under way.
func (v *view) block() {
	if !v.screen.Live {
		return
	}
	v.turns++
	width := v.width - 1
	var lines []string
	if w := v.writing[v.newest]; w != nil {
		text := strings.Split(v.a.term.Framed("", strings.TrimLeft(w.text, "\n")), "\n")
		lines = append(lines, text[max(0, len(text)-10):]...)
	}
	for i, t := range v.todos {
		if i == 8 {
			lines = append(lines, fmt.Sprintf("  and %d more", len(v.todos)-i))
			break
		}
		lines = append(lines, safe.Cut("  "+todoLine(t), width))
	}
	spinner := []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
	status := string(spinner[v.turns%len(spinner)])
	switch {
	case v.waits != "":
		status += " " + v.waits + " ·"
	case !v.working:
		status += " waiting for a worker"
	}
	if len(v.plan) > 0 {
		at := min(v.at, len(v.plan)-1)
		status += fmt.Sprintf(" step %d of %d: %s ·", at+1, len(v.plan), safe.Line(v.plan[at]))
	}
	status += " " + safe.Line(v.current)
	if took := v.a.term.Clock().Sub(v.begin).Truncate(time.Second); took > 0 {
		status += "  " + strings.Replace(terminal.Length(took), ".0s", "s", 1)
	}
	v.screen.Draw(append(lines, safe.Cut(status, width)))
}
