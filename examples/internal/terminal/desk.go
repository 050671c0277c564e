package terminal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/perdure/perdure"
)

// desk is where a person answers what is asked.
type desk struct {
	*Program
	rt     *perdure.Runtime
	asked  map[string]bool  // paths of open asks
	ask    *perdure.AskInfo // that is shown, until it is answered
	lines  []string         // that were typed and are not used
	closed bool             // nothing more will be typed
}

// show shows the first open ask, if it is not shown already, and answers it if
// there is something to answer it with.
func (d *desk) show(ctx context.Context, run *perdure.Run) error {
	if d.ask != nil && !d.asked[d.ask.Path] { // somebody else, or nobody in time
		d.ask = nil
	}
	if d.ask == nil && len(d.asked) > 0 {
		run, err := d.rt.GetRun(ctx, run.Thread, run.ID)
		if err != nil {
			return err
		}
		for _, ask := range run.Asks {
			if d.asked[ask.Path] {
				d.ask = &ask
				d.prompt(run)
				break
			}
		}
	}
	if d.ask != nil && d.Yes {
		line := "yes"
		if len(d.ask.Decisions) > 0 {
			line = d.ask.Decisions[0]
		}
		d.lines = []string{line}
		fmt.Fprintln(d.Out, line)
	}
	for d.ask != nil && len(d.lines) > 0 {
		line := d.lines[0]
		d.lines = d.lines[1:]
		if err := d.answer(ctx, line); err != nil {
			return err
		}
	}
	if d.ask != nil && d.closed {
		return fmt.Errorf("nobody is there to answer, and the question stays open: %w", io.EOF)
	}
	return nil
}

// prompt shows the ask, and how far the run is.
func (d *desk) prompt(run *perdure.Run) {
	done := 0
	for _, step := range run.Plan {
		if step.Done {
			done++
		}
	}
	if done < len(run.Plan) {
		fmt.Fprintf(d.Out, "-- step %d of %d: %s\n", done+1, len(run.Plan), run.Plan[done].Name)
	}
	fmt.Fprintf(d.Out, "? %s\n", d.ask.Prompt)
	var call struct{ Args json.RawMessage }
	if json.Unmarshal(d.ask.Data, &call) == nil && call.Args != nil {
		fmt.Fprintf(d.Out, "  %s\n", call.Args)
	}
	fmt.Fprintf(d.Out, "  %s> ", choices(d.ask))
}

// choices says what can be typed, and as whom.
func choices(ask *perdure.AskInfo) string {
	text := "your answer"
	switch {
	case len(ask.Decisions) > 0:
		// Those that need a value are left to better clients than this one.
		all := slices.DeleteFunc(slices.Clone(ask.Decisions), func(s string) bool { return s == "edit" || s == "respond" })
		text = strings.Join(all, ", ")
	case ask.Want == "boolean":
		text = "yes or no"
	}
	if len(ask.Who) > 0 {
		text += ", as " + ask.Who[0]
	}
	return text
}

// answer takes what was typed as the answer of the ask that is shown: a decision
// and perhaps a remark, or yes and no, or a text.
func (d *desk) answer(ctx context.Context, line string) error {
	var a perdure.Answer
	if len(d.ask.Who) > 0 {
		a.By = d.ask.Who[0] // the one in front of the terminal plays everybody
	}
	word, remark, _ := strings.Cut(strings.TrimSpace(line), " ")
	switch {
	case len(d.ask.Decisions) > 0:
		a.Decision, a.Message = word, strings.TrimSpace(remark)
	case d.ask.Want == "boolean":
		a.Value = slices.Contains([]string{"y", "yes", "true"}, word)
	default:
		a.Value = line
	}
	err := d.rt.Answer(ctx, perdure.AskAnswer{Ask: d.ask.ID, Answer: a})
	switch {
	case errors.Is(err, perdure.ErrAnswer) && !d.Yes:
		fmt.Fprintf(d.Out, "  %v\n  %s> ", err, choices(d.ask))
		return nil
	case errors.Is(err, perdure.ErrAnswered), errors.Is(err, perdure.ErrAskOver):
		fmt.Fprintf(d.Out, "  too late: %v\n", err)
	case err != nil:
		return err
	}
	delete(d.asked, d.ask.Path)
	d.ask = nil
	return nil
}
