package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/safe"
	"github.com/perdure/perdure/internal/terminal"
)

// prove shows that the story is true, and returns an error if it is not.
func (d *demo) prove(ctx context.Context) error {
	other := d.worker.pid()
	err := d.worker.stop(ctx)
	d.worker = nil
	if err != nil {
		return err
	}
	run, err := d.rt.GetRun(ctx, thread, "")
	if err != nil {
		return err
	}
	if run.Status != perdure.Succeeded {
		return fmt.Errorf("the run is %s: %s; look at it with: %s", run.Status, run.Error, d.command("show "+thread))
	}
	d.say(terminal.Green, "  The run has succeeded.")

	starts, err := readSteps(d.log())
	if err != nil {
		return err
	}
	deeds, ok := compareDeeds(d.events, starts, d.dead, other, d.cut)
	d.head("6", "Who did what")
	d.say("", fmt.Sprintf("  The workers logged each step that they began, outside the journal. Process %d was\n  killed.", d.dead))
	d.say("", "")
	if err := d.table(deeds); err != nil {
		return err
	}
	d.say("", "")
	var wrong []string
	if ok {
		d.say(terminal.Green, "  "+deedsInWords(deeds))
	} else {
		wrong = append(wrong, "a step was repeated, or is missing from one of the records")
	}

	v, err := d.rt.Verify(ctx, thread)
	switch {
	case err != nil:
		return err
	case !v.OK():
		wrong = append(wrong, "the journal does not verify: "+v.Problem)
	default:
		d.say(terminal.Green, fmt.Sprintf("  The chain of hashes over %d journal entries is intact: %.16s…", v.Entries, v.Head))
	}
	for _, w := range wrong {
		d.say(terminal.Red, "  WRONG: "+safe.Text(w))
	}
	d.hints()
	if len(wrong) > 0 {
		return errors.New("the story is not true; see WRONG above")
	}
	return nil
}

// deedsInWords sums up the table.
func deedsInWords(deeds []deed) string {
	again := 0
	for _, x := range deeds {
		if len(x.pids) > 1 {
			again++
		}
	}
	switch again {
	case 0:
		return fmt.Sprintf("All %d steps ran once: none was in progress at the kill.", len(deeds))
	case 1:
		return fmt.Sprintf("%d steps ran once. 1 was in progress at the kill and ran again. Nothing else did.", len(deeds)-again)
	}
	return fmt.Sprintf("%d steps ran once. %d were in progress at the kill and ran again. Nothing else did.", len(deeds)-again, again)
}

// hints suggests what to look at next.
func (d *demo) hints() {
	d.say("", "")
	d.say(terminal.Bold, "Look around")
	before := uint64(0) // a sequence before the person decided
	for _, e := range d.events {
		if e.Kind == "suspended" && before == 0 {
			before = e.Seq
		}
	}
	for _, x := range []struct{ what, command string }{
		{"the tree of steps", "show " + thread},
		{"the journal", "events " + thread},
		{"return to the point before the decision, on a branch", fmt.Sprintf("fork %s --at %d --as other --resume", thread, before)},
	} {
		d.say(terminal.Dim, "  # "+x.what)
		d.say("", "  "+d.command(x.command))
	}
	d.say(terminal.Dim, fmt.Sprintf("It took %.0f s. Remove %s when you are done.", time.Since(d.began).Seconds(), d.folder))
}
