package main

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// print prints the figures, the ratios, what was expected, and the notes.
func (t *table) print() {
	fmt.Printf("%s, %s/%s, %d CPUs, %s, load %s at the beginning; %d rounds, medians shown; steps with results of %d bytes.\n\n",
		time.Now().UTC().Format(time.DateOnly), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), t.load, *rounds, len(result))
	head := []string{""}
	for _, m := range measures {
		head = append(head, m.name)
	}
	figures, ratios := [][]string{append(slices.Clone(head), "of 800 ÷ of 50", "syncs/step")}, [][]string{head}
	for _, r := range t.rows {
		line, ratio := []string{r.title()}, []string{r.title()}
		for i := range measures {
			line = append(line, r.figure(i))
			ratio = append(ratio, t.ratio(r, i))
		}
		growth := "-"
		if a, b := median(r.values[bytes50]), median(r.values[bytes800]); a > 0 && b > 0 {
			growth = short(b / a)
		}
		figures = append(figures, append(line, growth, r.syncs))
		if r != t.rows[0] {
			ratios = append(ratios, ratio)
		}
	}
	printMarkdown(figures)
	fmt.Print("\nHow many times better Perdure is (above 1) or worse (below 1), medians of the rounds' ratios:\n\n")
	printMarkdown(ratios)
	fmt.Print("\nWhat is expected of Perdure:\n\n")
	t.expect()
	fmt.Print(`
Steps: from the first step's function to the last one's, a step being durable before the next begins. Bytes: passed to write calls, over the steps of 16 runs of 50 or one of 800. Runs: of one step, from the start to the result. Resume: a run waits after 800 steps and its process ends; in a new process, from opening the store to the function of the next step. How long a peer takes to notice that a process died is not part of it. Syncs: fsync, fdatasync and the like, counted by strace in runs of 50 and 150 steps. Every measurement has a process and a folder of its own, and 100 steps before it.

`)
	for _, r := range t.rows {
		fmt.Printf("- **%s**: %s", r.title(), r.notes)
		if r.setting != "" {
			fmt.Printf(" Setting: %s.", r.setting)
		}
		if r.problem != "" {
			fmt.Printf(" FAILED, and was not measured further: %s", r.problem)
		}
		fmt.Println()
	}
}

func (r *row) title() string { return strings.TrimSpace(r.name + " " + r.version) }

func (r *row) figure(i int) string {
	if v := median(r.values[i]); v > 0 {
		return short(v)
	}
	return "-"
}

// better returns how many times better Perdure is than a peer, in each round.
func (t *table) better(r *row, i int) (each []float64) {
	own := t.rows[0].values[i]
	for k := range min(len(own), len(r.values[i])) {
		a, b := own[k], r.values[i][k]
		if measures[i].less {
			a, b = b, a
		}
		if a > 0 && b > 0 {
			each = append(each, a/b)
		}
	}
	return each
}

func (t *table) ratio(r *row, i int) string {
	if each := t.better(r, i); len(each) > 0 {
		return short(median(each))
	}
	return "-"
}

// expect prints what is expected beside what was measured.
func (t *table) expect() {
	for _, r := range t.rows {
		atLeast := func(i int, least float64) {
			if each := t.better(r, i); len(each) > 0 {
				verdict(fmt.Sprintf("Perdure ÷ %s, %s", r.name, cmp.Or(measures[i].full, measures[i].name)), median(each), "least", least)
			}
		}
		switch {
		case r == t.rows[0]:
			if median(r.values[bytes50]) > 0 {
				verdict("bytes of a step in runs of 800 ÷ of 50", median(r.values[bytes800])/median(r.values[bytes50]), "most", 1.1)
			}
		case r.name == "dbos-postgres":
			atLeast(steps800, 1.6)
			atLeast(steps50, 5)
			atLeast(clients1, 1)
			atLeast(clients1+2, 2)
		case r.name == "dbos":
			atLeast(steps800, 2.5)
			atLeast(steps50, 7)
			for i, least := range []float64{1.5, 3, 5} {
				atLeast(clients1+i, least)
			}
		case strings.HasPrefix(r.name, "langgraph"):
			atLeast(steps800, 30)
			atLeast(steps50, 30)
		}
	}
}

func verdict(what string, got float64, bound string, limit float64) {
	says := "as expected"
	if bound == "least" && got < limit || bound == "most" && got > limit {
		says = "NOT REACHED"
	}
	fmt.Printf("- %s: %s (at %s %g: %s)\n", what, short(got), bound, limit, says)
}

// printMarkdown prints rows of cells, the first as the head.
func printMarkdown(rows [][]string) {
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	for n, row := range rows {
		for i, cell := range row {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				fmt.Print("| ", cell, pad, " |")
			} else {
				fmt.Print(" ", pad, cell, " |")
			}
		}
		fmt.Println()
		if n == 0 {
			for i := range row {
				if i == 0 {
					fmt.Print("|")
				}
				rule := strings.Repeat("-", width[i])
				if i > 0 {
					rule += ":"
				} else {
					rule += "-"
				}
				fmt.Print("-", rule, "|")
			}
			fmt.Println()
		}
	}
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// short prints a figure with three digits, or all before the point.
func short(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// load is the machine's load of the last minute, where the system says it.
func load() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(data), " ")
	return first
}
