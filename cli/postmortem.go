package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/cli/internal/render"
	"github.com/perdure/perdure/internal/safe"
	"github.com/perdure/perdure/internal/terminal"
	"github.com/spf13/cobra"
)

func postMortemCommand(a *app) *cobra.Command {
	c := operation(a, "postmortem THREAD [RUN]", "  perdure postmortem trip-7\n  perdure postmortem trip-7 RUN --json", api.RunsPostMortem, (*app).postMortem)
	c.Long += "\n\nWithout RUN, it is about the thread's newest run."
	return c
}

// postMortem prints what is known about a run that went wrong.
func (a *app) postMortem(m *perdure.PostMortem) error {
	line := func(name, value string) {
		if value != "" {
			a.term.Printf("%-8s %s\n", name, value)
		}
	}
	status := safe.Label(string(m.Status))
	line("run", a.term.Style(terminal.Bold, safe.Label(m.Run))+" of thread "+safe.Label(m.Thread))
	line("flow", safe.Label(m.Flow))
	line("status", a.term.Style(render.StatusStyle(status), status))
	line("codes", safe.Cut(safe.Line(strings.Join(m.Codes, " ")), a.term.Room(9)))
	u := &m.Usage
	line("took", fmt.Sprintf("%s: queued %s, worked %s, waited %s, lost %s", span(u.TotalUS), span(u.QueuedUS), span(u.WorkedUS), span(u.WaitedUS), span(u.LostUS)))
	line("steps", fmt.Sprintf("%d, %s, %s by people", u.Steps, terminal.Count(u.Failed, "failed attempt", "failed attempts"), terminal.Count(u.Retries, "retry", "retries")))
	line("spent", safe.Cut(render.Amounts(u.Spent), a.term.Room(9)))
	line("budget", safe.Cut(render.Amounts(u.Budget), a.term.Room(9)))
	title := func(name string, left int) {
		if left > 0 {
			name += fmt.Sprintf(" (%d earlier)", left)
		}
		a.term.Printf("\n%s\n", a.term.Style(terminal.Bold, name))
	}
	clipped := func(format string, args ...any) {
		a.term.Printf("  %s\n", safe.Cut(safe.Line(fmt.Sprintf(format, args...)), a.term.Room(2)))
	}
	if m.Error != "" {
		title("error", 0)
		a.term.Printf("%s\n", a.term.Framed("  ", m.Error))
	}
	if m.Stack != "" {
		title("stack", 0)
		a.term.Printf("%s\n", a.term.Framed("  ", m.Stack))
	}
	if m.Diff != "" {
		title("does not fit the code", 0)
		a.term.Printf("%s\n", a.term.Framed("  ", m.Diff))
	}
	if len(m.Failures) > 0 {
		title("failures", m.Left.Failures)
		for _, f := range m.Failures {
			attempt := ""
			if f.Attempt > 0 {
				attempt = fmt.Sprintf(" attempt %d", f.Attempt)
			}
			clipped("%d  %s  %s%s  %s  %s", f.Seq, a.term.When(f.Time), f.Kind, attempt, f.Path, f.Error)
			if f.Stack != "" && f.Stack != m.Stack {
				a.term.Printf("%s\n", a.term.Framed("    ", f.Stack))
			}
		}
	}
	if len(m.Effects) > 0 {
		title("may have happened outside", m.Left.Effects)
		for _, e := range m.Effects {
			clipped("%d  %s", e.Seq, strings.TrimSpace(fmt.Sprintf(map[string]string{
				"unknown": "%s was started at most once, and its outcome is not known",
				"failed":  "%s failed, perhaps after it had acted",
				"lost":    "%s was the last thing on record when a worker was lost; steps that had begun are not",
			}[e.Kind], orRun(e.Path))))
		}
	}
	if len(m.Passes) > 0 {
		title("workers", m.Left.Passes)
		for _, p := range m.Passes {
			end := p.End
			if end == "" {
				end = "has not ended"
			}
			clipped("%d  %s  %s  code %s  %s", p.Seq, a.term.When(p.Begun), p.Worker, p.Version, end)
		}
	}
	if len(m.Children) > 0 {
		title("children", 0)
		for _, c := range m.Children {
			clipped("%s  thread %s, flow %s, joined: %v", c.Path, c.Thread, c.Flow, c.Joined)
		}
	}
	if len(m.Events) > 0 {
		title("last events", m.Left.Events)
		for _, e := range m.Events {
			clipped("%d  %s  %s", e.Seq, e.Kind, e.Path)
		}
	}
	if len(m.Next) > 0 {
		title("what can be done", 0)
		for _, n := range m.Next {
			clipped("%s: %s", n.Do, n.Why)
			a.term.Print("    " + a.nextCommand(m, n) + "\n")
		}
	}
	return nil
}

// nextCommand returns the command for something that can be done about a run.
func (a *app) nextCommand(m *perdure.PostMortem, n perdure.NextStep) string {
	switch n.Do {
	case "answer":
		return a.command("answer", "", render.AskID(n.Ask))
	case "fork":
		return a.command("fork", fmt.Sprintf("--at %d --resume", n.At), m.Thread)
	case "again":
		return a.command("run", "--thread "+safe.Quote(m.Thread), m.Flow, "INPUT")
	}
	return a.command(n.Do, "", m.Thread, m.Run)
}

// orRun returns a path, or the run as a whole.
func orRun(path string) string {
	if path == "" {
		return "the run"
	}
	return path
}

// span returns a time in microseconds for people.
func span(us int64) string {
	d := time.Duration(us) * time.Microsecond
	if d >= time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(100 * time.Microsecond).String()
}
