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
	"github.com/perdure/perdure/client"
	"github.com/spf13/cobra"
)

func init() {
	register(
		func(a *app) *cobra.Command {
			var resume bool
			c := operate(a, "fork THREAD", api.ThreadsFork, func(ctx context.Context, l *link, f *perdure.Fork) error {
				return a.forked(ctx, l, f, resume)
			})
			c.Flags().BoolVar(&resume, "resume", false, "let the runs go on that had not ended there")
			c.Example = "  perdure fork trip-7\n  perdure fork trip-7 --at 12 --as trip-8 --resume\n  perdure fork trip-7 --at 2 --input '\"another question\"' --state tone=friendly"
			return c
		},
		func(a *app) *cobra.Command {
			c := operation(a, "rewind THREAD TO", api.ThreadsRewind, func(a *app, r *perdure.Rewound) error {
				a.printf("thread %s is as it was at %d\n", label(r.Thread), r.To)
				a.outside(r.Outside, r.More)
				return nil
			})
			c.Use = "rewind THREAD SEQ"
			c.Long += "\n\nNothing is deleted. The sequence has to be one at which no run was under way; for\neverything else there is fork."
			c.Example = "  perdure rewind trip-7 12 --reason \"wrong customer\""
			return c
		},
		func(a *app) *cobra.Command {
			c := operation(a, "diff THREAD FROM [TO]", api.DiffGet, (*app).difference)
			c.Long += "\n\nThe points are sequences, as perdure events shows them; 0 is now."
			c.Example = "  perdure diff trip-7 12 40\n  perdure diff trip-7 12 0 --with trip-8"
			return c
		},
		stateCommand,
	)
}

// forked tells what a fork is, and lets its runs go on if that is wanted.
func (a *app) forked(ctx context.Context, l *link, f *perdure.Fork, resume bool) error {
	t, err := l.Get(ctx, f.Thread)
	if err != nil {
		return err
	}
	if a.json {
		err = a.printJSON(f)
	} else {
		a.printName(f.Thread)
	}
	if err != nil {
		return err
	}
	a.outside(f.Outside, f.More)
	for _, r := range t.Runs {
		switch {
		case r.Status != perdure.Paused:
		case resume:
			if err := l.Resume(ctx, t.ID, r.ID, perdure.Note{}); err != nil {
				return err
			}
			a.hint("run %s goes on: %s", label(r.ID), a.command("events", "-f", t.ID))
			l.idle(ctx, a)
		default:
			a.hint("run %s is paused: %s", label(r.ID), a.command("resume", "", t.ID, r.ID))
		}
	}
	return nil
}

// outside lists what is not undone.
func (a *app) outside(effects []perdure.Effect, more bool) {
	if len(effects) == 0 {
		return
	}
	a.hint("what was done behind that point is not undone:")
	for i, e := range effects {
		if i == 10 {
			more = true
			break
		}
		a.hint("  %d %s %s", e.Seq, label(e.Kind), cut(oneLine(e.Path), a.short(40)))
	}
	if more {
		a.hint("  and more")
	}
}

// difference prints what changed, with + and -.
func (a *app) difference(d *perdure.Difference) error {
	a.printf("%s at %d → %s at %d", label(d.From.Thread), d.From.Seq, label(d.To.Thread), d.To.Seq)
	if d.Common != min(d.From.Seq, d.To.Seq) || d.From.Thread != d.To.Thread {
		a.printf(", the same up to %d", d.Common)
	}
	a.printf("\n")
	empty := true
	title := func(text string) {
		empty = false
		a.printf("\n%s\n", a.style(bold, text))
	}
	minus := func(text string) { a.printf("%s\n", a.style(red, "- "+cut(oneLine(text), a.short(2)))) }
	plus := func(text string) { a.printf("%s\n", a.style(green, "+ "+cut(oneLine(text), a.short(2)))) }
	for _, group := range []struct {
		name string
		keys []perdure.KeyDiff
	}{{"state", d.State}, {"fact", d.Facts}, {"dep", d.Deps}} {
		for _, k := range group.keys {
			title(group.name + " " + cut(oneLine(k.Key), a.short(8)))
			for _, line := range lineDiff(readable(k.Key, k.Before), readable(k.Key, k.After)) {
				style := map[byte]string{'-': red, '+': green}[line[0]]
				for _, part := range wrap(printable(strings.ReplaceAll(line[2:], "\t", "    ")), a.left(2)) {
					a.printf("%s\n", a.style(style, strings.Replace(line[:2], "  ", frameLeft, 1)+part))
				}
			}
		}
	}
	if len(d.Runs) > 0 {
		title("runs")
		for _, r := range d.Runs {
			if r.Before != "" {
				minus(fmt.Sprintf("%s %s", oneLine(r.Run), r.Before))
			}
			if r.After != "" {
				plus(fmt.Sprintf("%s %s, %+d steps", oneLine(r.Run), r.After, r.Steps))
			}
		}
	}
	if len(d.Opened)+len(d.Closed) > 0 {
		title("open asks")
		for _, k := range d.Closed {
			minus(shortAsk(k.ID) + " " + oneLine(k.Prompt))
		}
		for _, k := range d.Opened {
			plus(shortAsk(k.ID) + " " + oneLine(k.Prompt))
		}
	}
	if len(d.Left)+len(d.Events) > 0 {
		title("events")
		for _, e := range d.Left {
			minus(strings.TrimSpace(fmt.Sprintf("%d %s %s", e.Seq, oneLine(e.Kind), oneLine(e.Path))))
		}
		for _, e := range d.Events {
			plus(strings.TrimSpace(fmt.Sprintf("%d %s %s", e.Seq, oneLine(e.Kind), oneLine(e.Path))))
		}
	}
	if empty {
		a.printf("there is no difference\n")
	}
	return nil
}

// readable is a value of the state as people read it: of messages what was said.
func readable(key string, value json.RawMessage) string {
	said, err := agent.Transcript(map[string]json.RawMessage{key: value})
	if err != nil || len(said) == 0 {
		return pretty(value)
	}
	var all []string
	for i := range said {
		m := said[i].Said()
		all = append(all, string(m.Role)+": "+strings.ReplaceAll(spoken(m), "\n", "\n  "))
	}
	return strings.Join(all, "\n")
}

// stateCommand is state THREAD [KEY].
func stateCommand(a *app) *cobra.Command {
	var at uint64
	c := &cobra.Command{
		Use:     "state THREAD [KEY]",
		Short:   api.StateGet.Title,
		Long:    capital(api.StateGet.Title) + ".\n\nWith a KEY it is only the value of that key.",
		Example: "  perdure state trip-7\n  perdure state trip-7 --at 12\n  perdure state trip-7 notes --json",
		Args:    arguments(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			return a.linked(c.Context(), func(ctx context.Context, l *link) error {
				s, err := client.Do(ctx, l.Client, api.StateGet, api.AtThread{Thread: args[0], At: at})
				if err != nil {
					return err
				}
				if len(args) == 2 {
					return a.stateKey(s, args[1])
				}
				if a.json {
					return a.printJSON(s)
				}
				return a.state(s)
			})
		},
	}
	c.Flags().Uint64Var(&at, "at", 0, "as it was at this sequence; now if not given")
	return c
}

// stateKey prints the value of a key.
func (a *app) stateKey(s *api.State, key string) error {
	for _, values := range []map[string]json.RawMessage{s.State, s.Facts, s.Deps} {
		if v, ok := values[key]; ok {
			if a.json {
				return a.printJSON(v)
			}
			a.data(pretty(v))
			return nil
		}
	}
	return &exitError{code: exitNotFound, err: fmt.Errorf("there is no key %q in the state at %d", key, s.Seq), next: a.command("state", "", s.Thread.ID) + " lists them"}
}

// state prints the state of a thread.
func (a *app) state(s *api.State) error {
	a.printf("thread %s at %d, %s, %s\n", label(s.Thread.ID), s.Seq, a.when(s.Time), label(string(s.Thread.Status)))
	if s.Step != "" {
		a.printf("newest step %s\n", cut(oneLine(s.Step), a.short(12)))
	}
	for _, group := range []struct {
		name   string
		values map[string]json.RawMessage
	}{{"state", s.State}, {"facts", s.Facts}, {"deps", s.Deps}} {
		if len(group.values) == 0 {
			continue
		}
		a.printf("\n%s\n", a.style(bold, group.name))
		for _, key := range slices.Sorted(maps.Keys(group.values)) {
			name := cut(oneLine(key), 48)
			a.printf("  %s = %s\n", name, cut(brief(group.values[key]), a.short(cells(name)+5)))
		}
	}
	if len(s.Todos) > 0 {
		a.printf("\n%s\n", a.style(bold, "todos"))
		for _, t := range s.Todos {
			a.printf("  %s\n", cut(todoLine(t), a.short(2)))
		}
	}
	for i := range s.Asks {
		a.print("\n" + a.askLine(&s.Asks[i]))
	}
	return nil
}
