package perduretest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/blob"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/linediff"
	"github.com/perdure/perdure/internal/tree"
	"github.com/perdure/perdure/store"
)

// result is the result of one run of the flows.
type result struct {
	err     error    // why it has no outcome
	crashes []string // where they were
	took    time.Duration
	appends int // entries of the journals, but those of kinds that mostly go along with others

	outcome  string
	events   map[string][]string // by thread, run and path
	effects  map[string]tally    // by place and name
	problems []string            // that are wrong without a comparison
	trace    string
}

// tally counts one effect at one place.
type tally struct {
	once  bool
	n     int
	lost  int  // of them in attempts without an outcome
	loose bool // outside any step
}

// collect reads what the journals hold.
func (r *result) collect(ctx context.Context, s store.Store, w *sweep) error {
	all, err := recordings(ctx, s)
	if err != nil {
		return err
	}
	r.events, r.effects = map[string][]string{}, map[string]tally{}
	var outcome, trace strings.Builder
	byID := map[string]*recording{}
	for _, rec := range all {
		byID[rec.thread.ID] = rec
		for _, e := range rec.entries {
			switch e.Kind {
			case journal.Took, journal.Created, journal.Suspended:
			default:
				r.appends++
			}
		}
		fmt.Fprintf(&trace, "thread %s\n%s", rec.label, rec)
		outcome.WriteString(w.Same(rec.names.replace(rec.outcome(ctx, s))))
		r.keep(ctx, s, rec, w.Same)
		for _, run := range rec.thread.Runs {
			if w.Want != "" && string(run.Status) != string(w.Want) {
				r.problems = append(r.problems, fmt.Sprintf("a run of flow %s on thread %s is %s, want %s", run.Flow, rec.label, run.Status, w.Want))
			}
		}
	}
	r.outcome, r.trace = outcome.String(), trace.String()

	w.Effects.mu.Lock()
	defer w.Effects.mu.Unlock()
	for _, e := range w.Effects.all {
		label := e.name + " outside any step"
		if e.of != nil {
			label = fmt.Sprintf("%s at %s", e.name, e.of.Path)
			if rec := byID[e.of.Thread]; rec != nil {
				label += " of " + rec.names.replace(e.of.Run) + " of thread " + rec.label
			}
		}
		t := r.effects[label]
		t.loose = e.of == nil
		t.n++
		t.once = t.once || e.once
		if e.of != nil && e.of.lost {
			t.lost++
		}
		r.effects[label] = t
	}
	return nil
}

// outcome describes how the runs of a thread ended and what is left of them.
func (rec *recording) outcome(ctx context.Context, s store.Store) string {
	var b strings.Builder
	t := rec.thread
	fmt.Fprintf(&b, "thread %s%s%s\n", rec.label, list(" titled", t.Title), list(" with", t.Meta))
	value := func(v journal.Value) string { return rec.value(ctx, s, v, 0) }
	for _, run := range slices.Concat(t.Runs, t.Inbox) {
		fmt.Fprintf(&b, "  %s of flow %s: %s %s", run.ID, run.Flow, run.Status, rec.value(ctx, s, run.Output, run.Ref))
		if run.Fail != nil {
			fmt.Fprintf(&b, " %s%s", run.Fail.Msg, list(" codes", run.Fail.Codes))
		}
		b.WriteString(list("", run.Diff) + list(" unknown", run.Unknown) + list(" spent", run.Spent))
		for _, path := range slices.Sorted(maps.Keys(run.Waits)) {
			b.WriteString(" waits at " + tree.Names(path))
		}
		b.WriteByte('\n')
	}
	for _, key := range slices.Sorted(maps.Keys(t.State)) {
		item := t.State[key]
		if item.Tail == nil || item.Text {
			fmt.Fprintf(&b, "  state %s: %s %v\n", key, value(item.Base), item.Values())
			continue
		}
		var all []string
		var base []json.RawMessage
		if json.Unmarshal([]byte(value(item.Base)), &base) != nil {
			all = append(all, value(item.Base))
		}
		for _, v := range base {
			all = append(all, string(v))
		}
		for _, v := range item.Values() {
			all = append(all, value(v))
		}
		// Branches append in any order; names are not the same in each run.
		for i := range all {
			all[i] = rec.names.replace(all[i])
		}
		fmt.Fprintf(&b, "  state %s: %s\n", key, slices.Sorted(slices.Values(all)))
	}
	for _, key := range slices.Sorted(maps.Keys(t.Deps)) {
		fmt.Fprintf(&b, "  dep %s: %s\n", key, value(t.Deps[key]))
	}
	for _, p := range t.Signals {
		fmt.Fprintf(&b, "  signal %s: %s\n", p.Name, value(p.Value))
	}
	return b.String()
}

// list returns a value preceded by a label, or nothing if it is empty.
func list(what string, v any) string {
	text := fmt.Sprint(v)
	if text == "" || text == "[]" || text == "map[]" {
		return ""
	}
	return what + " " + text
}

// value returns the JSON of a value, or of the entry that holds it.
func (rec *recording) value(ctx context.Context, s store.Store, v journal.Value, ref uint64) string {
	for range rec.entries {
		if ref == 0 || ref > uint64(len(rec.bodies)) {
			break
		}
		v, ref = rec.bodies[ref-1].Value, rec.bodies[ref-1].Ref
	}
	if v.Blob == nil {
		return string(v.JSON)
	}
	raw, err := blob.Bytes(ctx, s, "blob/"+rec.name+"/", *v.Blob)
	if err != nil {
		return "unreadable blob: " + err.Error()
	}
	return string(raw)
}

// keep keeps the events that are the same however often the run was interrupted:
// what happened, not which worker held it when.
func (r *result) keep(ctx context.Context, s store.Store, rec *recording, same func(string) string) {
	once := map[string]bool{}  // places of at-most-once steps, whose unknown outcomes are decided on the way
	again := map[string]bool{} // places of retried steps; the waits between attempts do not matter
	for _, e := range rec.entries {
		switch e.Kind {
		case journal.Intent:
			once[fmt.Sprint(e.Run, e.Path)] = true
		case journal.Attempt:
			again[fmt.Sprint(e.Run, e.Path)] = true
		}
	}
	for i, e := range rec.entries {
		b := rec.bodies[i]
		kind := string(e.Kind)
		switch e.Kind {
		case journal.Claimed, journal.Suspended, journal.Released, journal.Dumped, journal.Nudge, journal.Intent, journal.Waiting:
			continue
		case journal.Signal:
			if e.Path == "" {
				continue // it arrived before its receiver: its receipt is an entry too
			}
			kind = string(journal.Received)
		case journal.Problem:
			if b.Fail != nil && strings.Contains(b.Fail.Msg, "changed outside a leaf step") {
				r.problems = append(r.problems, b.Fail.Msg)
			}
			continue
		}
		at := fmt.Sprint(e.Run, e.Path)
		if once[at] && e.Kind != journal.Step || again[at] && e.Kind == journal.Fired {
			continue
		}
		ref := b.Ref
		if e.Kind == journal.Received || e.Kind == journal.Took {
			ref = 0 // what was taken, not from where
		}
		text := rec.value(ctx, s, b.Value, ref)
		// The rest has one form, wherever its value is stored.
		b.Ref, b.Due, b.Deps, b.Value, b.Name, b.Of = 0, 0, nil, journal.Value{}, "", ""
		if e.Kind == journal.Signal || e.Kind == journal.Received {
			b.By, b.Spend = "", nil // the entry of the signal holds them
		}
		if rec.thread.Parent != nil || e.Kind == journal.Spawned {
			b.Budget = nil // what was left of the parent's at that moment
		}
		rest := rec.body(e, b)
		where := fmt.Sprintf("%s %s %s", rec.label, rec.names.small("run", fmt.Sprint(e.Run)), tree.Names(e.Path))
		line := same(rec.names.replace(fmt.Sprintf("%s %s %s", kind, text, rest)))
		lines := r.events[where]
		if e.Kind == journal.Progress && slices.Contains(lines, line) {
			continue // news that the outside repeats after a crash
		}
		r.events[where] = append(lines, line)
	}
}

// faults says what is wrong with a run, by itself and compared with the
// undisturbed one.
func (r *result) faults(want *result) []string {
	var faults []string
	add := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if r.err != nil {
		add("%v", r.err)
	}
	for _, p := range r.problems {
		add("%s", p)
	}
	for _, label := range slices.Sorted(maps.Keys(r.effects)) {
		if t := r.effects[label]; t.once && t.n > 1 {
			add("the effect %s may happen once at most and happened %d times", label, t.n)
		}
	}
	if want == nil || r.err != nil {
		return faults
	}
	if r.outcome != want.outcome {
		add("the outcome differs:\n%s\n", strings.Join(linediff.Lines(want.outcome, r.outcome), "\n"))
	}
	if d := diffEvents(want.events, r.events); d != "" {
		add("the events differ:\n%s", d)
	}
	labels := maps.Clone(r.effects)
	maps.Copy(labels, want.effects)
	for _, label := range slices.Sorted(maps.Keys(labels)) {
		got, undisturbed := r.effects[label], want.effects[label]
		switch {
		case got.n < undisturbed.n:
			add("the effect %s happened %d times, undisturbed %d times: it was lost", label, got.n, undisturbed.n)
		case got.once || undisturbed.once:
		case got.n > undisturbed.n+got.lost:
			why := "although the outcome of its step was recorded, or its step is a composite"
			if got.loose {
				why = "since flow code runs again when a run is resumed: put it into a step"
			}
			add("the effect %s happened %d times, undisturbed %d times, %s", label, got.n, undisturbed.n, why)
		}
	}
	return faults
}

func diffEvents(want, got map[string][]string) string {
	var b strings.Builder
	places := maps.Clone(want)
	maps.Copy(places, got)
	for _, p := range slices.Sorted(maps.Keys(places)) {
		if !slices.Equal(want[p], got[p]) {
			fmt.Fprintf(&b, "at %s\n%s\n", p, strings.Join(linediff.Lines(strings.Join(want[p], "\n"), strings.Join(got[p], "\n")), "\n"))
		}
	}
	return b.String()
}
