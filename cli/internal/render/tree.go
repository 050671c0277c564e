package render

import (
	"fmt"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/safe"
	"github.com/perdure/perdure/internal/terminal"
)

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

// appendRows adds the rows of a node and of those below it.
func appendRows(t *terminal.Terminal, rows []row, n *node, depth int) []row {
	name := safe.Line(n.name)
	for n.kind == "" && len(n.children) == 1 { // a name that holds a single other one needs no line
		n = n.children[0]
		name += "/" + safe.Line(n.name)
	}
	r := row{mark: "·", name: safe.Cut(strings.Repeat("  ", min(depth, 12))+name, 48), style: terminal.Dim}
	switch n.status {
	case "done":
		r.mark, r.style = "✓", terminal.Green
	case "failed":
		r.mark, r.style = "✗", terminal.Red
	case "retry":
		r.mark, r.style = "↻", terminal.Amber
	case "waits":
		r.mark, r.style = "?", terminal.Amber
	case "unknown":
		r.mark, r.style = "…", terminal.Amber
	}
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
