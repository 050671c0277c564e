package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/cli/internal/link"
	"github.com/perdure/perdure/cli/internal/render"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/safe"
	"github.com/perdure/perdure/internal/terminal"
	"github.com/spf13/cobra"
)

func eventsCommand(a *app) *cobra.Command {
	var follow, deltas bool
	var o client.FollowOptions
	var after string
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
				return a.follow(ctx, l, args[0], o)
			}
			return a.events(ctx, l, args[0], o)
		})
	}
	return c
}

// events prints the events that are there.
func (a *app) events(ctx context.Context, l *link.Link, thread string, o client.FollowOptions) error {
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
	}
	return ctx.Err()
}

// follow prints events as they come.
func (a *app) follow(ctx context.Context, l *link.Link, thread string, o client.FollowOptions) error {
	for u, err := range l.Client.Follow(ctx, thread, o) {
		if err == nil {
			err = a.printUpdate(u)
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// printUpdate prints news of a thread. In JSON the kind tells what it is.
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

// said is what an event says, in a line.
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
