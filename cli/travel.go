package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/cli/internal/link"
	"github.com/perdure/perdure/cli/internal/render"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/linediff"
	"github.com/perdure/perdure/internal/safe"
	"github.com/perdure/perdure/internal/terminal"
	"github.com/spf13/cobra"
)

func forkCommand(a *app) *cobra.Command {
	var resume bool
	c := operate(a, "fork THREAD", "  perdure fork trip-7\n  perdure fork trip-7 --at 12 --as trip-8 --resume\n  perdure fork trip-7 --at 2 --input '\"another question\"' --state tone=friendly",
		api.ThreadsFork, func(ctx context.Context, l *link.Link, f *perdure.Fork) error { return a.forked(ctx, l, f, resume) })
	c.Flags().BoolVar(&resume, "resume", false, "continue the runs that had not ended there")
	return c
}

func rewindCommand(a *app) *cobra.Command {
	c := operation(a, "rewind THREAD TO", "  perdure rewind trip-7 12 --reason \"wrong customer\"", api.ThreadsRewind, func(a *app, r *perdure.Rewound) error {
		a.term.Printf("thread %s is as it was at %d\n", safe.Label(r.Thread), r.To)
		a.outside(r.Outside, r.More)
		return nil
	})
	c.Use = "rewind THREAD SEQ"
	c.Long += "\n\nNothing is deleted. No run may have been in progress at that sequence; use fork for\nother points."
	return c
}

func diffCommand(a *app) *cobra.Command {
	c := operation(a, "diff THREAD FROM [TO]", "  perdure diff trip-7 12 40\n  perdure diff trip-7 12 0 --with trip-8", api.DiffGet, (*app).difference)
	c.Long += "\n\nThe points are sequences, as perdure events shows them; 0 means now."
	return c
}

// forked describes a fork, and resumes its runs if requested.
func (a *app) forked(ctx context.Context, l *link.Link, f *perdure.Fork, resume bool) error {
	t, err := l.Client.GetPage(ctx, f.Thread, perdure.RunPage{Limit: 1}) // and all that have not ended
	if err != nil {
		return err
	}
	if a.term.JSON {
		err = a.term.PrintJSON(f)
	} else {
		a.term.PrintName(f.Thread)
	}
	if err != nil {
		return err
	}
	a.outside(f.Outside, f.More)
	for _, r := range t.Runs {
		switch {
		case r.Status != perdure.Paused:
		case resume:
			if err := l.Client.Resume(ctx, t.ID, r.ID, perdure.Note{}); err != nil {
				return err
			}
			a.hint("run %s continues: %s", safe.Label(r.ID), a.command("events", "-f", t.ID))
			a.idle(ctx, l)
		default:
			a.hint("run %s is paused: %s", safe.Label(r.ID), a.command("resume", "", t.ID, r.ID))
		}
	}
	return nil
}

// outside lists what is not undone.
func (a *app) outside(effects []perdure.Effect, more bool) {
	if len(effects) == 0 {
		return
	}
	a.hint("what was done after that point is not undone:")
	for i, e := range effects {
		if i == 10 {
			more = true
			break
		}
		a.hint("  %d %s %s", e.Seq, safe.Label(e.Kind), safe.Cut(safe.Line(e.Path), a.term.Room(40)))
	}
	if more {
		a.hint("  and more")
	}
}

// difference prints what changed, with + and -.
func (a *app) difference(d *perdure.Difference) error {
	a.term.Printf("%s at %d → %s at %d", safe.Label(d.From.Thread), d.From.Seq, safe.Label(d.To.Thread), d.To.Seq)
	if d.Common != min(d.From.Seq, d.To.Seq) || d.From.Thread != d.To.Thread {
		a.term.Printf(", the same up to %d", d.Common)
	}
	a.term.Printf("\n")
	empty := true
	title := func(text string) {
		empty = false
		a.term.Printf("\n%s\n", a.term.Style(terminal.Bold, text))
	}
	styles := map[byte]string{'-': terminal.Red, '+': terminal.Green}
	printSigned := func(sign byte, parts ...any) {
		text := strings.TrimSpace(fmt.Sprintln(parts...))
		a.term.Printf("%s\n", a.term.Style(styles[sign], string(sign)+" "+safe.Cut(safe.Line(text), a.term.Room(2))))
	}
	for _, group := range []struct {
		name string
		keys []perdure.KeyDiff
	}{{"state", d.State}, {"fact", d.Facts}, {"dep", d.Deps}} {
		for _, k := range group.keys {
			title(group.name + " " + safe.Cut(safe.Line(k.Key), a.term.Room(8)))
			for _, line := range linediff.Short(readable(k.Key, k.Before), readable(k.Key, k.After)) {
				for _, part := range safe.Wrap(safe.Text(strings.ReplaceAll(line[2:], "\t", "    ")), a.term.WrapAt(2)) {
					a.term.Printf("%s\n", a.term.Style(styles[line[0]], strings.Replace(line[:2], "  ", safe.Bar, 1)+part))
				}
			}
		}
	}
	if len(d.Runs) > 0 {
		title("runs")
		for _, r := range d.Runs {
			if r.Before != "" {
				printSigned('-', r.Run, r.Before)
			}
			if r.After != "" {
				printSigned('+', r.Run, fmt.Sprintf("%s, %+d steps", r.After, r.Steps))
			}
		}
	}
	if len(d.Opened)+len(d.Closed) > 0 {
		title("open asks")
		for _, k := range d.Closed {
			printSigned('-', render.AskID(k.ID), k.Prompt)
		}
		for _, k := range d.Opened {
			printSigned('+', render.AskID(k.ID), k.Prompt)
		}
	}
	if len(d.Left)+len(d.Events) > 0 {
		title("events")
		for _, e := range d.Left {
			printSigned('-', e.Seq, e.Kind, e.Path)
		}
		for _, e := range d.Events {
			printSigned('+', e.Seq, e.Kind, e.Path)
		}
	}
	if empty {
		a.term.Printf("there is no difference\n")
	}
	return nil
}

// readable returns a value of the state for people: for messages, what was said.
func readable(key string, value json.RawMessage) string {
	said, err := agent.Transcript(map[string]json.RawMessage{key: value})
	if err != nil || len(said) == 0 {
		return render.Value(value)
	}
	var all []string
	for i := range said {
		m := said[i].Said()
		all = append(all, string(m.Role)+": "+strings.ReplaceAll(render.Message(m), "\n", "\n  "))
	}
	return strings.Join(all, "\n")
}

// stateCommand is state THREAD [KEY].
func stateCommand(a *app) *cobra.Command {
	var at uint64
	c := &cobra.Command{
		Use:     "state THREAD [KEY]",
		Short:   api.StateGet.Title,
		Long:    capital(api.StateGet.Title) + ".\n\nWith KEY, only the value of that key is printed.",
		Example: "  perdure state trip-7\n  perdure state trip-7 --at 12\n  perdure state trip-7 notes --json",
		Args:    arguments(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			return a.linked(c.Context(), func(ctx context.Context, l *link.Link) error {
				s, err := client.Do(ctx, l.Client, api.StateGet, api.AtThread{Thread: args[0], At: at})
				if err != nil {
					return err
				}
				if len(args) == 2 {
					return a.stateKey(s, args[1])
				}
				if a.term.JSON {
					return a.term.PrintJSON(s)
				}
				return a.state(s)
			})
		},
	}
	c.Flags().Uint64Var(&at, "at", 0, "as it was at this sequence; by default now")
	return c
}

// stateKey prints the value of a key.
func (a *app) stateKey(s *api.State, key string) error {
	for _, values := range []map[string]json.RawMessage{s.State, s.Facts, s.Deps} {
		if v, ok := values[key]; ok {
			if a.term.JSON {
				return a.term.PrintJSON(v)
			}
			a.term.PrintValue(render.Value(v))
			return nil
		}
	}
	return &exit.Error{Code: exit.NotFound, Err: fmt.Errorf("there is no key %q in the state at %d", key, s.Seq), Next: a.command("state", "", s.Thread.ID) + " lists them"}
}

// state prints the state of a thread.
func (a *app) state(s *api.State) error {
	a.term.Printf("thread %s at %d, %s, %s\n", safe.Label(s.Thread.ID), s.Seq, a.term.When(s.Time), safe.Label(string(s.Thread.Status)))
	if s.Step != "" {
		a.term.Printf("newest step %s\n", safe.Cut(safe.Line(s.Step), a.term.Room(12)))
	}
	for _, group := range []struct {
		name   string
		values map[string]json.RawMessage
	}{{"state", s.State}, {"facts", s.Facts}, {"deps", s.Deps}} {
		if len(group.values) == 0 {
			continue
		}
		a.term.Printf("\n%s\n", a.term.Style(terminal.Bold, group.name))
		for _, key := range slices.Sorted(maps.Keys(group.values)) {
			name := safe.Cut(safe.Line(key), 48)
			a.term.Printf("  %s = %s\n", name, safe.Cut(render.Brief(group.values[key]), a.term.Room(safe.Cells(name)+5)))
		}
	}
	if len(s.Todos) > 0 {
		a.term.Printf("\n%s\n", a.term.Style(terminal.Bold, "todos"))
		for _, t := range s.Todos {
			a.term.Printf("  %s\n", safe.Cut(render.Todo(t), a.term.Room(2)))
		}
	}
	for i := range s.Asks {
		a.term.Print("\n" + a.askLine(&s.Asks[i]))
	}
	return nil
}
