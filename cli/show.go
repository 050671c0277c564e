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
	"github.com/spf13/cobra"
)

func showCommand(a *app) *cobra.Command {
	var messages bool
	c := &cobra.Command{
		Use:   "show THREAD [RUN]",
		Short: "show a thread: its runs, and their steps as a tree",
		Long: `Show a thread: its owner and status, then each run with the tree of its steps: how
and when they ended, how long they took, how many attempts they needed, which worker
ran them, what the run waits for, and where a worker was lost.

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
				return a.show(ctx, l, args[0], run)
			})
		},
	}
	c.Flags().BoolVar(&messages, "messages", false, "print the messages instead")
	return c
}

// show prints a thread, or one run of it.
func (a *app) show(ctx context.Context, l *link.Link, thread, run string) error {
	t, err := l.Client.Get(ctx, thread)
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
	h := &render.History{}
	for e, err := range l.Client.Events(ctx, thread, perdure.EventOptions{Replay: true}) {
		if err != nil {
			return err
		}
		h.Add(&e)
	}
	a.head(t)
	for _, r := range runs {
		a.term.Printf("\n")
		if h.PrintRun(a.term, r) {
			a.runNext(r)
		}
	}
	if gone := h.Runs - len(t.Runs); gone > 0 && run == "" {
		a.term.Print("\n" + a.term.Style(terminal.Dim, terminal.Count(gone, "run was", "runs were")+" rewound; "+a.command("events", "", t.ID)+" shows them") + "\n")
	}
	for i, w := range h.Workers {
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
	line("status", a.term.Style(render.StatusStyle(status), status))
	line("created", a.term.When(t.Created))
	line("updated", fmt.Sprintf("%s, at sequence %d", a.term.When(t.Updated), t.Seq))
	line("spent", safe.Cut(render.Amounts(t.Spent), a.term.Room(9)))
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

// runNext says what a run waits for and how it continues.
func (a *app) runNext(r *perdure.Run) {
	if do := map[perdure.Status]string{
		perdure.Blocked:     "start a worker with code that fits (perdure.Added, Dropped and Renamed declare intended changes), then",
		perdure.Quarantined: "find out why it kills its workers, then",
		perdure.Failed:      "continue it with",
		perdure.Paused:      "continue it with",
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
