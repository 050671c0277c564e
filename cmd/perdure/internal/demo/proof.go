package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
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
	if again == 0 {
		return fmt.Sprintf("All %d steps ran once: none was in progress at the kill.", len(deeds))
	}
	return fmt.Sprintf("%d steps ran once. %s in progress at the kill and ran again. Nothing else did.", len(deeds)-again, terminal.Count(again, "was", "were"))
}

// hints suggests what to look at next.
func (d *demo) hints() {
	d.say("", "")
	d.say(terminal.Bold, "Look around")
	before := uint64(0) // a sequence before the person decided
	if i := slices.IndexFunc(d.events, func(e perdure.Event) bool { return e.Kind == "suspended" }); i >= 0 {
		before = d.events[i].Seq
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

// deed is a step and who ran it, according to two independent records: the journal
// and the log of the workers.
type deed struct {
	path string
	pids []int // processes that began it, in order
	note string
	bad  bool // it contradicts the story
}

// compareDeeds compares the log of the workers with the journal. Entries up to the
// sequence cut were written by the process that was killed, later ones by the other.
// A step recorded before the cut must have run once, in the first process. A later
// one may have begun there, and then ran once in the second. Steps that hold other
// steps are left out: they are code, which runs in every pass.
func compareDeeds(events []perdure.Event, starts []begunStep, dead, other int, cut uint64) (deeds []deed, ok bool) {
	holds := map[string]bool{}
	hold := func(path string) {
		for i := strings.LastIndexByte(path, '/'); i > 0; i = strings.LastIndexByte(path[:i], '/') {
			holds[path[:i]] = true
		}
	}
	by := map[string][]int{}
	var order []string
	for _, s := range starts {
		hold(s.Path)
		if by[s.Path] == nil {
			order = append(order, s.Path)
		}
		by[s.Path] = append(by[s.Path], s.PID)
	}
	done := map[string]int{}
	for _, e := range events {
		hold(e.Path)
		if e.Kind == "step" {
			done[e.Path]++
		}
	}
	ok = true
	add := func(d deed) {
		deeds = append(deeds, d)
		ok = ok && !d.bad
	}
	for _, e := range events {
		if e.Kind != "step" || holds[e.Path] {
			continue
		}
		d := deed{path: e.Path, pids: by[e.Path]}
		before := e.Seq <= cut
		switch {
		case done[e.Path] > 1:
			d.bad, d.note = true, fmt.Sprintf("recorded %d times", done[e.Path])
		case len(d.pids) == 0:
			d.bad, d.note = true, "recorded, but not run"
		case before && slices.Equal(d.pids, []int{dead}), !before && slices.Equal(d.pids, []int{other}):
		case !before && slices.Equal(d.pids, []int{dead, other}):
			d.note = "in progress at the kill, so run again"
		default:
			d.bad, d.note = true, "REPEATED"
		}
		add(d)
	}
	for _, path := range order {
		if !holds[path] && done[path] == 0 {
			add(deed{path: path, pids: by[path], note: "run, but not recorded", bad: true})
		}
	}
	return deeds, ok
}

// table prints the deeds in columns.
func (d *demo) table(deeds []deed) error {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  step\tprocess\ttimes run\t")
	for _, x := range deeds {
		var pids []string
		for _, pid := range x.pids {
			pids = append(pids, strconv.Itoa(pid))
		}
		fmt.Fprintf(w, "  %s\t%s\t%d\t%s\n", safe.Text(x.path), strings.Join(pids, ", "), len(x.pids), x.note)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(text.String()) {
		d.term.Printf("%s\n", strings.TrimRight(line, " \n"))
	}
	return nil
}
