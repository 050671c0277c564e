package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/cli/internal/link"
	"github.com/perdure/perdure/cli/internal/render"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/safe"
	"github.com/perdure/perdure/internal/terminal"
	"github.com/perdure/perdure/store"
	"github.com/spf13/cobra"
)

func showCommand(a *app) *cobra.Command {
	var messages bool
	var most int
	c := &cobra.Command{
		Use:   "show THREAD [RUN]",
		Short: "show a thread: its runs, and their steps as a tree",
		Long: `Show a thread: its owner and status, then each run with the tree of its steps: how
and when they ended, how long they took, how many attempts they needed, which worker
ran them, what the run waits for, and where a worker was lost. Of a thread with many
runs it shows the newest ones, back to the oldest that has not ended.

With --json it prints the thread as the API returns it.`,
		Example: "  perdure show trip-7\n  perdure show trip-7 newest\n  perdure show trip-7 --messages",
		Args:    arguments(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			return a.linked(c.Context(), func(ctx context.Context, l *link.Link) error {
				run := ""
				if len(args) > 1 {
					if run = args[1]; run == "" {
						return exit.Usage(errors.New("no run is given: its id is empty"))
					}
				}
				if messages {
					return a.transcript(ctx, l, args[0])
				}
				if most < 0 {
					return exit.Usage(errors.New("--runs is how many of the newest runs to show, or 0 for all"))
				}
				return a.show(ctx, l, args[0], run, most)
			})
		},
	}
	c.Flags().IntVar(&most, "runs", 20, "how many of the newest runs to show; 0 means all")
	c.Flags().BoolVar(&messages, "messages", false, "print the messages instead")
	return c
}

// show prints a thread with the newest of its runs, or one run of it.
func (a *app) show(ctx context.Context, l *link.Link, thread, run string, most int) error {
	if run != "" {
		most = 1
	}
	t, err := l.Client.GetPage(ctx, thread, perdure.RunPage{Limit: most})
	if err != nil {
		return err
	}
	runs := t.Runs
	if run != "" {
		one, err := l.Client.GetRun(ctx, thread, run)
		if err != nil {
			return err
		}
		runs = []*perdure.Run{one}
	}
	if a.term.JSON {
		if run != "" {
			return a.term.PrintJSON(runs[0])
		}
		return a.term.PrintJSON(t)
	}
	h := &render.History{}
	events := perdure.EventOptions{Replay: true}
	if len(runs) > 0 && t.Earlier > 0 {
		events.After, events.Life = runs[0].Seq-1, t.Life
	}
	for e, err := range l.Client.Events(ctx, thread, events) {
		if err != nil {
			return err
		}
		h.Add(&e)
	}
	a.head(t)
	a.storeWarns(ctx, l, t)
	if t.Earlier > 0 && run == "" {
		a.term.Print("\n" + a.term.Style(terminal.Dim, terminal.Count(t.Earlier, "earlier run", "earlier runs")+"; "+a.command("show", "--runs 0", t.ID)+" shows all") + "\n")
	}
	for _, r := range runs {
		a.term.Printf("\n")
		if h.PrintRun(a.term, r) && t.Moved == "" {
			a.runNext(r)
		}
	}
	if gone := h.Runs - len(t.Runs); gone > 0 && run == "" && t.Earlier == 0 {
		a.term.Print("\n" + a.term.Style(terminal.Dim, terminal.Count(gone, "run was", "runs were")+" rewound; "+a.command("events", "", t.ID)+" shows them") + "\n")
	}
	if t.Moved != "" {
		a.hint("the thread continues in %s; connect to that store", safe.Line(t.Moved))
	}
	for i, w := range h.Workers {
		if i == 0 {
			a.term.Printf("\n")
		}
		a.term.Printf("w%d is worker %s\n", i+1, safe.Label(w))
	}
	return nil
}

// whyUntil says when a thread that does not move does so by itself.
func (a *app) whyUntil(w *perdure.Why) string {
	if w.Until.IsZero() {
		return ""
	}
	what := "until"
	switch w.State {
	case perdure.WhyPerson:
		what = "expires"
	case perdure.WhyRetry:
		what = "next attempt at"
	}
	return " (" + what + " " + a.term.When(w.Until) + ")"
}

// storeWarns says that the store has no space left, or little, if that may be why a
// thread does not move.
func (a *app) storeWarns(ctx context.Context, l *link.Link, t *perdure.Thread) {
	if t.Status != perdure.Running && t.Status != perdure.Queued {
		return
	}
	stats, err := client.Do(ctx, l.Client, api.StatsGet, api.Nothing{})
	if err != nil {
		return // it may not be for this caller
	}
	for _, w := range stats.Warnings {
		if w.Kind == store.WarnSpace {
			a.term.Printf("%-8s %s\n", "store", a.term.Style(terminal.Amber, safe.Line(w.Detail)+"; "+safe.Line(w.Fix)))
		}
	}
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
	line("status", a.term.Style(render.StatusStyle(status), status))
	if w := t.Why; w != nil && w.State != perdure.WhyDone && w.State != perdure.WhyIdle && w.State != perdure.WhyMoved {
		until := a.whyUntil(w)
		line("why", safe.Cut(safe.Line(w.Text), a.term.Room(9+len(until)))+until)
	}
	line("created", a.term.When(t.Created))
	line("updated", fmt.Sprintf("%s, at sequence %d", a.term.When(t.Updated), t.Seq))
	line("spent", safe.Cut(render.Amounts(t.Spent), a.term.Room(9)))
	if t.Parent != nil {
		line("child of", safe.Label(t.Parent.Thread)+" "+safe.Label(t.Parent.Path))
	}
	if t.Fork != nil {
		line("fork of", fmt.Sprintf("%s at %d", safe.Label(t.Fork.Thread), t.Fork.Seq))
	}
	if i := t.Import; i != nil {
		signed := "not signed by a trusted key"
		if i.Signer != "" {
			signed = "signed by " + safe.Label(i.Signer)
		}
		line("imported", fmt.Sprintf("%s up to %d, %s", safe.Label(i.Thread), i.Seq, signed))
	}
	line("moved to", safe.Cut(safe.Line(t.Moved), a.term.Room(9)))
	line("foreign", safe.Cut(safe.Line(t.Foreign), a.term.Room(9)))
	var meta []string
	for k, v := range t.Metadata {
		meta = append(meta, k+"="+v)
	}
	slices.Sort(meta)
	line("metadata", safe.Cut(safe.Line(strings.Join(meta, " ")), a.term.Room(9)))
}

// runNext says what a run waits for and how it continues.
func (a *app) runNext(r *perdure.Run) {
	if do := map[perdure.Status]string{
		perdure.Blocked:     "start a worker with code that fits (perdure.Added, Dropped and Renamed declare intended changes); one of another version tries it by itself, and otherwise",
		perdure.Quarantined: "find out why it kills its workers, then",
		perdure.Failed:      "continue it with",
		perdure.Paused:      "continue it with",
	}[r.Status]; do != "" {
		verb := "retry"
		if r.Status == perdure.Paused {
			verb = "resume"
		}
		a.term.Print(fmt.Sprintf("  %s    %s\n            %s\n", a.term.Style(terminal.Amber, "next"), strings.Join(safe.Wrap(do, a.term.WrapAt(10)), "\n          "), a.command(verb, "", r.Thread, r.ID)))
		if r.Status != perdure.Paused {
			a.term.Print("            " + a.command("postmortem", "", r.Thread, r.ID) + "\n")
		}
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

// askLine returns lines that say how to answer an ask.
func (a *app) askLine(ask *perdure.AskInfo) string {
	return fmt.Sprintf("%s %s\n            %s\n", a.term.Style(terminal.Amber, "waits for"), safe.Cut(safe.Line(ask.Prompt), a.term.Room(12)), a.command("answer", "", render.AskID(ask.ID)))
}

// transcript prints what was said on a thread.
func (a *app) transcript(ctx context.Context, l *link.Link, thread string) error {
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
		a.term.Printf("%s\n%s\n", a.term.Style(terminal.Bold, safe.Label(who)), a.term.Framed("  ", render.Message(r.Said())))
	}
	return nil
}

func eventsCommand(a *app) *cobra.Command {
	var follow, deltas bool
	var o client.FollowOptions
	var after string
	var limit int
	c := &cobra.Command{
		Use:   "events THREAD",
		Short: "list a thread's events, or follow them",
		Long: `List a thread's events: sequence, time, kind, path and value. With -f it keeps
running and shows each new event once, even across restarts of the server; with
--run it ends with that run.

With --json each event is a line of JSON.`,
		Example: "  perdure events trip-7\n  perdure events trip-7 -f --after 40\n  perdure events trip-7 -f --run newest --json | jq .kind",
		Args:    arguments(1, 1),
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "keep running, and show new ones")
	c.Flags().BoolVar(&deltas, "deltas", false, "with -f: also show what is being written, before it is recorded")
	c.Flags().StringVar(&after, "after", "", "only events after this `sequence`")
	c.Flags().StringVar(&o.Run, "run", "", "only events of this run, or of the newest")
	c.Flags().IntVar(&limit, "limit", 0, "how many to show; 0 means all")
	c.RunE = func(c *cobra.Command, args []string) error {
		o.NoDeltas = !deltas
		if after != "" {
			var err error
			if o.After, o.Life, _, err = api.EventID(after).Parse(); err != nil {
				return fmt.Errorf("--after: %w", err)
			}
		}
		return a.linked(c.Context(), func(ctx context.Context, l *link.Link) error {
			if follow {
				return a.follow(ctx, l, args[0], o, limit)
			}
			return a.events(ctx, l, args[0], o, limit)
		})
	}
	return c
}

// events prints the events that are there, up to a limit unless that is 0.
func (a *app) events(ctx context.Context, l *link.Link, thread string, o client.FollowOptions, limit int) error {
	if o.Run != "" {
		run, err := l.Client.GetRun(ctx, thread, o.Run)
		if err != nil {
			return err
		}
		o.Run = run.ID
	}
	for e, err := range l.Client.Events(ctx, thread, perdure.EventOptions{After: o.After, Life: o.Life, Run: o.Run, Replay: true}) {
		if err != nil {
			return err
		}
		if err := a.event(&e); err != nil {
			return err
		}
		if limit--; limit == 0 {
			break
		}
	}
	return ctx.Err()
}

// follow prints events as they arrive, up to a limit unless that is 0.
func (a *app) follow(ctx context.Context, l *link.Link, thread string, o client.FollowOptions, limit int) error {
	for u, err := range l.Client.Follow(ctx, thread, o) {
		if err == nil {
			err = a.printUpdate(u)
		}
		if err != nil {
			return err
		}
		if u.Event == nil {
			continue
		}
		if limit--; limit == 0 {
			break
		}
	}
	return ctx.Err()
}

// printUpdate prints an update of a thread. In JSON, kind says what it is.
func (a *app) printUpdate(u client.Update) error {
	switch {
	case u.Event != nil:
		return a.event(u.Event)
	case u.Delta != nil && a.term.JSON:
		return a.term.PrintLine(struct {
			Kind string `json:"kind"`
			*perdure.DeltaEvent
		}{"delta", u.Delta})
	case u.Delta != nil:
		line := fmt.Sprintf("%6s  %-8s  %-9s  %s  ", "", "", "delta", safe.Cut(safe.Line(u.Delta.Path), 48))
		a.term.Printf("%s\n", a.term.Style(terminal.Dim, line+safe.Cut(render.Brief(u.Delta.Data), a.term.Room(safe.Cells(line)))))
	case u.Done != nil && a.term.JSON:
		return a.term.PrintLine(struct {
			Kind string `json:"kind"`
			*api.Done
		}{"done", u.Done})
	}
	return nil
}

// event prints an event in a line.
func (a *app) event(e *perdure.Event) error {
	if a.term.JSON {
		return a.term.PrintLine(e)
	}
	line := fmt.Sprintf("%6d  %-8s  %-9s  %s", e.Seq, a.term.When(e.Time), safe.Line(e.Kind), safe.Line(e.Path))
	rest := a.said(e)
	style := ""
	switch {
	case e.Error != "":
		style = terminal.Red
	case e.Kind == "asked":
		style = terminal.Amber
	case e.Kind == "claimed", e.Kind == "released", e.Kind == "dumped", e.Kind == "nudge":
		style = terminal.Dim
	}
	if rest != "" {
		if e.Path != "" {
			line += "  "
		}
		line += safe.Cut(rest, a.term.Room(safe.Cells(line)))
	}
	return a.term.PrintClipped(style, strings.TrimRight(line, " "))
}

// said returns what an event says, in one line.
func (a *app) said(e *perdure.Event) string {
	var parts []string
	add := func(format, text string) {
		if text != "" {
			parts = append(parts, fmt.Sprintf(format, safe.Line(text)))
		}
	}
	add("%s", e.Name)
	add("%s", string(e.Status))
	if e.Attempt > 0 {
		add("attempt %s", fmt.Sprint(e.Attempt))
	}
	add("%s", e.Decision)
	add("%s", strings.Join(e.Plan, ", "))
	add("%s", render.Brief(e.Value))
	if e.ValueOf > 0 {
		add("as in %s", fmt.Sprint(e.ValueOf))
	}
	add("%s", e.Error)
	add("child %s", e.Child)
	if e.Ask != "" {
		add("ask %s", render.AskID(e.Ask))
	}
	if !e.Due.IsZero() {
		add("due %s", a.term.When(e.Due))
	}
	add("worker %s", e.Worker)
	add("by %s", e.By)
	add("(%s)", e.Reason)
	add("%s", e.Diff)
	return strings.Join(parts, "  ")
}
