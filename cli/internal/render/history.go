package render

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/safe"
	"github.com/perdure/perdure/internal/terminal"
)

// History is what happened on a thread, folded from its events: runs, each with its
// steps as a tree. The zero value is empty.
type History struct {
	Runs    int      // how many there are, including those that were rewound
	Workers []string // in the order of their first claim

	runs map[string]*runTree // by id
}

// runTree is a run.
type runTree struct {
	begun         bool // input is set
	input, output json.RawMessage
	passes        []*pass
	notes         []note // what people did, and workers that were lost
	root          node
	fresh         bool // a worker took over and has recorded nothing yet
}

// pass is one call of the flow by a worker.
type pass struct {
	worker     int // index into History.Workers
	begin, end time.Time
	how        string // it ended: suspended, ended, released, lost; "": it has not
}

// note is something that happened to a run from outside.
type note struct {
	at   time.Time
	text string
}

// node is a step or another verb, or a name that holds some.
type node struct {
	name     string
	kind     string // of its newest event; "" if it has none
	status   string // done, failed, retry, waits, unknown; "": nothing is recorded
	at       time.Time
	took     time.Duration
	attempts int // recorded ones
	worker   int // that recorded it, an index into History.Workers; -1: none
	note     string
	err      string
	ask      string // id of an open one
	child    string // id of its thread
	resumed  bool   // it is the first outcome after a worker was lost
	children []*node
}

// find returns the node of a path and makes it if necessary.
func (n *node) find(path string) *node {
	for name := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		i := slices.IndexFunc(n.children, func(c *node) bool { return c.name == name })
		if i < 0 {
			i = len(n.children)
			n.children = append(n.children, &node{name: name, worker: -1})
		}
		n = n.children[i]
	}
	return n
}

// giveUp marks what still waits in a run that has ended.
func (n *node) giveUp() {
	if n.status == "waits" {
		n.status, n.note = "", "given up: "+n.note
	}
	for _, c := range n.children {
		c.giveUp()
	}
}

// Add takes the next event of the thread.
func (h *History) Add(e *perdure.Event) {
	if e.Run == "" {
		return
	}
	r := h.runs[e.Run]
	if r == nil {
		if h.runs == nil {
			h.runs = map[string]*runTree{}
		}
		r = &runTree{}
		h.runs[e.Run] = r
		h.Runs++
	}
	if !h.run(r, e) && e.Path != "" {
		h.step(r, e)
	}
}

// run takes an event about the run as a whole, and reports whether it was one.
func (h *History) run(r *runTree, e *perdure.Event) bool {
	switch e.Kind {
	case "queued":
		if !r.begun {
			r.begun, r.input = true, e.Value
		}
	case "claimed":
		p := &pass{worker: h.worker(e.Worker), begin: e.Time}
		if lost := r.open(); lost != nil {
			lost.end, lost.how = e.Time, "lost"
			r.notes = append(r.notes, note{e.Time, fmt.Sprintf("w%d was lost, and w%d took over", lost.worker+1, p.worker+1)})
			r.fresh = true
		}
		r.passes = append(r.passes, p)
	case "suspended", "released", "blocked", "quarantined", "ended":
		if p := r.open(); p != nil {
			p.end, p.how = e.Time, e.Kind
		}
		if e.Kind == "ended" {
			r.output = e.Value
		}
	case "cancel":
		r.notes = append(r.notes, note{e.Time, "cancelled" + author(e)})
	case "paused", "resumed", "retried":
		r.notes = append(r.notes, note{e.Time, e.Kind + author(e)})
	case "planned":
	default:
		return false
	}
	return true
}

// open returns the pass that has not ended, if any.
func (r *runTree) open() *pass {
	if n := len(r.passes); n > 0 && r.passes[n-1].how == "" {
		return r.passes[n-1]
	}
	return nil
}

// step takes an event of a verb.
func (h *History) step(r *runTree, e *perdure.Event) {
	switch e.Kind {
	case "dumped", "nudge":
		return
	}
	n := r.root.find(e.Path)
	n.kind, n.at = e.Kind, e.Time
	outside := slices.Contains([]string{"answered", "expired", "progress", "fired", "signal"}, e.Kind)
	if p := r.open(); p != nil && !outside {
		n.worker, n.resumed, r.fresh = p.worker, n.resumed || r.fresh, false
	}
	switch e.Kind {
	case "step":
		n.status, n.err, n.took, n.note = "done", e.Error, time.Duration(e.TookUS)*time.Microsecond, Brief(e.Value)
		if e.Error != "" {
			n.status = "failed"
		}
		n.attempts++
	case "attempt":
		n.status, n.err = "retry", e.Error
		n.attempts++
	case "closed":
		n.status, n.err = "failed", e.Error
	case "intent":
		n.status = "unknown"
	case "asked":
		n.status, n.ask, n.note = "waits", e.Ask, e.Name
	case "answered":
		n.status, n.ask, n.note = "done", "", strings.TrimSpace(strings.Join([]string{"answered", e.Decision, Brief(e.Value)}, " "))+author(e)
	case "expired":
		n.status, n.ask, n.note = "done", "", "nobody answered in time"
	case "progress":
		n.status, n.note = "waits", "news: "+Brief(e.Value)
	case "timer":
		n.status = "waits"
		n.note = "until " + e.Due.Format(time.RFC3339)
	case "waiting":
		n.status, n.note, n.child = "waits", "for the signal "+e.Name, e.Child
		if e.Child != "" {
			n.note = "for its child"
		}
	case "fired":
		n.status, n.note = "done", ""
	case "received", "signal":
		n.status, n.note, n.err = "done", "", e.Error
		if e.Status == perdure.Failed || e.Status == perdure.Cancelled {
			n.status, n.note = "failed", "the child "+string(e.Status)
		}
	case "spawned":
		n.status, n.child, n.note = "done", e.Child, "flow "+e.Name
	case "emitted":
		n.status, n.note = "done", Brief(e.Value)
	case "problem":
		n.err = e.Error + e.Reason
	default:
		n.status = "done"
	}
}

// worker returns the index of a worker.
func (h *History) worker(id string) int {
	i := slices.Index(h.Workers, id)
	if i < 0 {
		i = len(h.Workers)
		h.Workers = append(h.Workers, id)
	}
	return i
}

// author says who did something, and why.
func author(e *perdure.Event) string {
	text := ""
	if e.By != "" {
		text = " by " + safe.Line(e.By)
	}
	if e.Reason != "" {
		text += ": " + safe.Line(e.Reason)
	}
	return text
}

// PrintRun prints a run with its steps, and reports whether the history has it:
// otherwise it prints a line only.
func (h *History) PrintRun(t *terminal.Terminal, r *perdure.Run) bool {
	tree := h.runs[r.ID]
	status := safe.Cut(safe.Label(string(r.Status)), 12)
	more := []string{}
	if !r.Started.IsZero() {
		more = append(more, "started "+t.When(r.Started))
		if !r.Ended.IsZero() {
			more = append(more, "took "+terminal.Length(r.Ended.Sub(r.Started)))
		}
	}
	if r.Retries > 0 {
		more = append(more, terminal.Count(r.Retries, "retry", "retries"))
	}
	if spent := Amounts(r.Spent); spent != "" {
		more = append(more, "spent "+spent)
	}
	used := safe.Cells(safe.Label(r.ID)+safe.Label(r.Flow)+status) + 10
	t.Printf("%s %s  %s  %s  %s\n", t.Style(terminal.Bold, "run"), safe.Label(r.ID), safe.Label(r.Flow), t.Style(StatusStyle(status), status), t.Style(terminal.Dim, safe.Cut(strings.Join(more, ", "), t.Room(used))))
	if tree == nil {
		return false
	}
	if len(tree.input) > 0 {
		t.Printf("  input   %s\n", safe.Cut(Brief(tree.input), t.Room(10)))
	}
	for i, step := range r.Plan {
		if !step.Done {
			t.Printf("  plan    step %d of %d: %s\n", i+1, len(r.Plan), safe.Cut(safe.Line(step.Name), t.Room(24)))
			break
		}
	}
	for i, p := range tree.passes {
		end := t.When(p.end)
		how := p.how
		switch {
		case how == "":
			end, how = "now", "at work"
		case how == "lost":
			how = t.Style(terminal.Red, "lost")
		}
		t.Printf("  pass %-2d w%d, %s to %s, %s\n", i+1, p.worker+1, t.When(p.begin), end, how)
	}
	for _, n := range tree.notes {
		t.Printf("  %s %s\n", t.Style(terminal.Dim, t.When(n.at)), safe.Cut(n.text, t.Room(22)))
	}
	if r.Status.Final() {
		tree.root.giveUp()
	}
	var rows []row
	for _, c := range tree.root.children {
		rows = appendRows(t, rows, c, 0)
	}
	width := 0
	for _, row := range rows {
		width = max(width, safe.Cells(row.name))
	}
	for _, row := range rows {
		line := fmt.Sprintf("  %s %s  ", row.mark, safe.Pad(row.name, width))
		rest := strings.TrimRight(row.rest, " ")
		t.Printf("%s\n", strings.TrimRight(t.Style(row.style, line)+safe.Cut(rest, t.Room(safe.Cells(line))), " "))
	}
	if len(tree.output) > 0 && r.Status.Final() {
		t.Printf("  output  %s\n", safe.Cut(Brief(tree.output), t.Room(10)))
	}
	if text := r.Error; text != "" {
		t.Printf("  %s   %s\n", t.Style(terminal.Red, "error"), t.Paragraph("  error   ", text, ""))
	}
	if r.Diff != "" {
		t.Printf("%s\n", t.Framed("          ", r.Diff))
	}
	for _, f := range r.Failed {
		t.Printf("  %s  %s\n", t.Style(terminal.Red, "failed"), t.Paragraph("  failed  ", "branch "+f.Branch+": "+f.Error, ""))
	}
	if r.Idle != "" && len(r.Asks) == 0 { // else it waits for a person first
		t.Printf("  idle    %s\n", t.Paragraph("  idle    ", r.Idle, ""))
	}
	return true
}

// row is a line of the tree.
type row struct{ mark, name, rest, style string }

// signs are the marks of a node by its status, and their styles.
var signs = map[string]struct{ mark, style string }{
	"":        {"·", terminal.Dim},
	"done":    {"✓", terminal.Green},
	"failed":  {"✗", terminal.Red},
	"retry":   {"↻", terminal.Amber},
	"waits":   {"?", terminal.Amber},
	"unknown": {"…", terminal.Amber},
}

// appendRows adds the rows of a node and of those below it.
func appendRows(t *terminal.Terminal, rows []row, n *node, depth int) []row {
	name := safe.Line(n.name)
	for n.kind == "" && len(n.children) == 1 { // a name that holds a single other one needs no line
		n = n.children[0]
		name += "/" + safe.Line(n.name)
	}
	sign := signs[n.status]
	r := row{mark: sign.mark, name: safe.Cut(strings.Repeat("  ", min(depth, 12))+name, 48), style: sign.style}
	var rest []string
	add := func(text string) {
		if text != "" {
			rest = append(rest, text)
		}
	}
	add(t.When(n.at))
	if n.worker >= 0 {
		took := ""
		if n.took > 0 {
			took = terminal.Length(n.took)
		}
		add(fmt.Sprintf("%6s", took)) // a column even if it is empty
		add(fmt.Sprintf("w%d", n.worker+1))
	}
	if n.attempts > 1 || n.status == "retry" {
		add(terminal.Count(n.attempts, "attempt", "attempts"))
	}
	if n.resumed {
		add("first after a worker was lost")
	}
	if n.status == "unknown" {
		add("begun; nobody knows whether it happened")
	}
	add(safe.Line(n.note))
	if n.child != "" {
		add("child " + safe.Line(n.child))
	}
	if n.ask != "" {
		add("ask " + AskID(n.ask))
	}
	add(safe.Line(n.err))
	r.rest = strings.Join(rest, "  ")
	rows = append(rows, r)
	for _, c := range n.children {
		rows = appendRows(t, rows, c, depth+1)
	}
	return rows
}
