package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/safe"
	"github.com/perdure/perdure/internal/terminal"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/client"
	"github.com/spf13/cobra"
)

func init() {
	register(func(a *app) *cobra.Command {
		var messages bool
		c := &cobra.Command{
			Use:   "show THREAD [RUN]",
			Short: "show a thread: its runs, and their steps as a tree",
			Long: `Show a thread: who owns it and how it is, then each run with the tree of its
steps: how they ended, when, how long they took, how often they were tried and
which worker did them, what it waits for, and where a worker was lost.

With --json it is the thread as the API gives it.`,
			Example: "  perdure show trip-7\n  perdure show trip-7 newest\n  perdure show trip-7 --messages",
			Args:    arguments(1, 2),
			RunE: func(c *cobra.Command, args []string) error {
				return a.linked(c.Context(), func(ctx context.Context, l *link) error {
					run := ""
					if len(args) > 1 {
						if run = args[1]; run == "" {
							return usage(errors.New("no run is given: its id is empty"))
						}
					}
					if messages {
						return a.transcript(ctx, l, args[0])
					}
					return a.show(ctx, l, args[0], run)
				})
			},
		}
		c.Flags().BoolVar(&messages, "messages", false, "print what was said instead")
		return c
	})
}

// show prints a thread, or one run of it.
func (a *app) show(ctx context.Context, l *link, thread, run string) error {
	t, err := l.Get(ctx, thread)
	if err != nil {
		return err
	}
	runs := t.Runs
	if run != "" {
		i := slices.IndexFunc(runs, func(r *perdure.Run) bool { return r.ID == run })
		if run == api.Newest {
			i = len(runs) - 1
		}
		if i < 0 {
			return fmt.Errorf("%w: %s", perdure.ErrRunNotFound, run)
		}
		runs = runs[i : i+1]
	}
	if a.term.JSON {
		if run != "" {
			return a.term.PrintJSON(runs[0])
		}
		return a.term.PrintJSON(t)
	}
	h := &history{}
	for e, err := range l.Events(ctx, thread, perdure.EventOptions{Replay: true}) {
		if err != nil {
			return err
		}
		h.add(&e)
	}
	a.head(t)
	for _, r := range runs {
		a.term.Printf("\n")
		a.runTree(h, h.byID[r.ID], r)
	}
	if gone := len(h.runs) - len(t.Runs); gone > 0 && run == "" {
		a.term.Print("\n" + a.term.Style(terminal.Dim, terminal.Count(gone, "run was", "runs were")+" rewound; "+a.command("events", "", t.ID)+" shows them") + "\n")
	}
	for i, w := range h.workers {
		if i == 0 {
			a.term.Printf("\n")
		}
		a.term.Printf("w%d is worker %s\n", i+1, safe.Label(w))
	}
	return nil
}

// head prints what is known about a thread as a whole.
func (a *app) head(t *perdure.Thread) {
	line := func(name, value string) {
		if value != "" {
			a.term.Printf("%-8s %s\n", name, value)
		}
	}
	line("thread", a.term.Style(terminal.Bold, safe.Label(t.ID)))
	line("title", safe.Cut(safe.Line(t.Title), a.term.Room(9)))
	line("owner", safe.Cut(safe.Line(t.User), a.term.Room(9)))
	status := safe.Label(string(t.Status))
	line("status", a.term.Style(styleOf(status), status))
	line("created", a.term.When(t.Created))
	line("updated", fmt.Sprintf("%s, at sequence %d", a.term.When(t.Updated), t.Seq))
	line("spent", safe.Cut(amounts(t.Spent), a.term.Room(9)))
	if t.Parent != nil {
		line("child of", safe.Label(t.Parent.Thread)+" "+safe.Label(t.Parent.Path))
	}
	if t.Fork != nil {
		line("fork of", fmt.Sprintf("%s at %d", safe.Label(t.Fork.Thread), t.Fork.Seq))
	}
	if t.Import != nil {
		line("imported", imported(t.Import))
	}
	line("foreign", safe.Cut(safe.Line(t.Foreign), a.term.Room(9)))
	var meta []string
	for k, v := range t.Metadata {
		meta = append(meta, k+"="+v)
	}
	slices.Sort(meta)
	line("metadata", safe.Cut(safe.Line(strings.Join(meta, " ")), a.term.Room(9)))
}

// imported tells where an imported thread comes from, and who vouches for it.
func imported(i *perdure.ImportInfo) string {
	if i.Signer == "" {
		return fmt.Sprintf("%s up to %d, not signed by a trusted key", safe.Label(i.Thread), i.Seq)
	}
	return fmt.Sprintf("%s up to %d, signed by %s", safe.Label(i.Thread), i.Seq, safe.Label(i.Signer))
}

// runTree prints a run with its steps. Tree is nil of one that has no events
// here.
func (a *app) runTree(h *history, tree *runTree, r *perdure.Run) {
	status := safe.Cut(safe.Label(string(r.Status)), 12)
	more := []string{}
	if !r.Started.IsZero() {
		more = append(more, "started "+a.term.When(r.Started))
		if !r.Ended.IsZero() {
			more = append(more, "took "+terminal.Length(r.Ended.Sub(r.Started)))
		}
	}
	if r.Retries > 0 {
		more = append(more, terminal.Count(r.Retries, "retry", "retries"))
	}
	if spent := amounts(r.Spent); spent != "" {
		more = append(more, "spent "+spent)
	}
	used := safe.Cells(safe.Label(r.ID)+safe.Label(r.Flow)+status) + 10
	a.term.Printf("%s %s  %s  %s  %s\n", a.term.Style(terminal.Bold, "run"), safe.Label(r.ID), safe.Label(r.Flow), a.term.Style(styleOf(status), status), a.term.Style(terminal.Dim, safe.Cut(strings.Join(more, ", "), a.term.Room(used))))
	if tree == nil {
		return
	}
	if len(tree.input) > 0 {
		a.term.Printf("  input   %s\n", safe.Cut(brief(tree.input), a.term.Room(10)))
	}
	for i, step := range r.Plan {
		if !step.Done {
			a.term.Printf("  plan    step %d of %d: %s\n", i+1, len(r.Plan), safe.Cut(safe.Line(step.Name), a.term.Room(24)))
			break
		}
	}
	for i, p := range tree.passes {
		end := a.term.When(p.end)
		how := p.how
		switch {
		case how == "":
			end, how = "now", "at work"
		case how == "lost":
			how = a.term.Style(terminal.Red, "lost")
		}
		a.term.Printf("  pass %-2d w%d, %s to %s, %s\n", i+1, p.worker+1, a.term.When(p.begin), end, how)
	}
	for _, n := range tree.notes {
		a.term.Printf("  %s %s\n", a.term.Style(terminal.Dim, a.term.When(n.at)), safe.Cut(n.text, a.term.Room(22)))
	}
	if r.Status.Final() {
		tree.root.giveUp()
	}
	var rows []row
	for _, c := range tree.root.children {
		rows = a.rows(rows, c, 0)
	}
	width := 0
	for _, row := range rows {
		width = max(width, safe.Cells(row.name))
	}
	for _, row := range rows {
		line := fmt.Sprintf("  %s %s  ", row.mark, safe.Pad(row.name, width))
		rest := strings.TrimRight(row.rest, " ")
		a.term.Printf("%s\n", strings.TrimRight(a.term.Style(row.style, line)+safe.Cut(rest, a.term.Room(safe.Cells(line))), " "))
	}
	if len(tree.output) > 0 && r.Status.Final() {
		a.term.Printf("  output  %s\n", safe.Cut(brief(tree.output), a.term.Room(10)))
	}
	if text := r.Error; text != "" {
		a.term.Printf("  %s   %s\n", a.term.Style(terminal.Red, "error"), a.term.Paragraph("  error   ", text, ""))
	}
	if r.Diff != "" {
		a.term.Printf("%s\n", a.term.Framed("          ", r.Diff))
	}
	for _, f := range r.Failed {
		a.term.Printf("  %s  %s\n", a.term.Style(terminal.Red, "failed"), a.term.Paragraph("  failed  ", "branch "+f.Branch+": "+f.Error, ""))
	}
	if r.Idle != "" && len(r.Asks) == 0 { // else it waits for a person first
		a.term.Printf("  idle    %s\n", a.term.Paragraph("  idle    ", r.Idle, ""))
	}
	if do := map[perdure.Status]string{
		perdure.Blocked:     "let code that fits work on it (perdure.Added, Dropped and Renamed say what changed on purpose), then",
		perdure.Quarantined: "find out why it takes its workers down, then",
		perdure.Failed:      "let it go on with",
		perdure.Paused:      "let it go on with",
	}[r.Status]; do != "" {
		verb := "retry"
		if r.Status == perdure.Paused {
			verb = "resume"
		}
		a.term.Print(fmt.Sprintf("  %s    %s\n            %s\n", a.term.Style(terminal.Amber, "next"), strings.Join(safe.Wrap(do, a.term.WrapAt(10)), "\n          "), a.command(verb, "", r.Thread, r.ID)))
	}
	for i := range r.Asks {
		a.term.Print("  " + a.askLine(&r.Asks[i]))
	}
	for _, w := range r.Waits {
		if w.Kind == "signal" {
			a.term.Print("  waits for a signal: " + a.command("signal", "", r.Thread, w.Signal) + "\n")
		}
	}
}

// askLine are lines that say how an ask is answered.
func (a *app) askLine(ask *perdure.AskInfo) string {
	return fmt.Sprintf("%s %s\n            %s\n", a.term.Style(terminal.Amber, "waits for"), safe.Cut(safe.Line(ask.Prompt), a.term.Room(12)), a.command("answer", "", shortAsk(ask.ID)))
}

// row is a line of the tree.
type row struct{ mark, name, rest, style string }

// rows lists a node and what is below it.
func (a *app) rows(rows []row, n *node, depth int) []row {
	name := safe.Line(n.name)
	for n.kind == "" && len(n.children) == 1 { // a name that holds one other needs no line
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
	add(a.term.When(n.at))
	if n.worker >= 0 {
		took := ""
		if n.took > 0 {
			took = terminal.Length(n.took)
		}
		add(fmt.Sprintf("%6s", took)) // a column, also where there is nothing to tell
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
		add("ask " + shortAsk(n.ask))
	}
	add(safe.Line(n.err))
	r.rest = strings.Join(rest, "  ")
	rows = append(rows, r)
	for _, c := range n.children {
		rows = a.rows(rows, c, depth+1)
	}
	return rows
}

// transcript prints what was said on a thread.
func (a *app) transcript(ctx context.Context, l *link, thread string) error {
	list, err := client.Do(ctx, l.Client, api.MessagesList, api.AtThread{Thread: thread})
	if err != nil {
		return err
	}
	if a.term.JSON {
		return a.term.PrintJSON(list)
	}
	for i := range list.Messages {
		r := &list.Messages[i]
		who := string(r.Message.Role)
		if r.Message.Role == "assistant" && r.Agent != "" {
			who = r.Agent
		}
		a.term.Printf("%s\n%s\n", a.term.Style(terminal.Bold, safe.Label(who)), a.term.Framed("  ", spoken(r.Said())))
	}
	return nil
}
