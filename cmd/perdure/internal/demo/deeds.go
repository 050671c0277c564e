package demo

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/safe"
)

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
