package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/perdure/perdure"
)

// deed is a step and who did it, as two records tell that know nothing of each
// other: the journal and the log of the workers.
type deed struct {
	path string
	pids []int // of the processes that began it, in order
	note string
	bad  bool // it is not as it has to be
}

// compareDeeds puts the log of the workers beside the journal. Up to the sequence cut
// the journal is the work of the process that was killed, behind it that of the
// other one. What is recorded before the cut must have run once, there; what is
// not may have begunStep there and then ran again, once. Steps that hold other steps
// are left out: they are code, which runs in every pass.
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
			d.bad, d.note = true, "recorded, but nobody ran it"
		case before && slices.Equal(d.pids, []int{dead}), !before && slices.Equal(d.pids, []int{other}):
		case !before && slices.Equal(d.pids, []int{dead, other}):
			d.note = "under way at the kill, so run again"
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
		fmt.Fprintf(w, "  %s\t%s\t%d\t%s\n", printable(x.path), strings.Join(pids, ", "), len(x.pids), x.note)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(text.String()) {
		d.printf("%s\n", strings.TrimRight(line, " \n"))
	}
	return nil
}
