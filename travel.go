package perdure

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Checkpoint is a thread as it was at a sequence.
type Checkpoint struct {
	Seq    uint64                     `json:"seq"`
	Time   time.Time                  `json:"time"`
	Thread *Thread                    `json:"thread"`
	State  map[string]json.RawMessage `json:"state,omitempty"` // without facts
	Facts  map[string]json.RawMessage `json:"facts,omitempty"` // see NewFact
	Deps   map[string]json.RawMessage `json:"deps,omitempty"`  // newest dump of each
	Asks   []AskInfo                  `json:"asks,omitempty"`  // open
	Step   string                     `json:"step,omitempty"`  // newest outcome of the run that was active
}

// StateAt returns a thread as it was at a sequence, 0 for now.
func (r *Runtime) StateAt(ctx context.Context, thread string, seq uint64) (*Checkpoint, error) {
	name, err := r.find(ctx, thread)
	if err != nil {
		return nil, err
	}
	o := emptyThread(name)
	err = r.readMore(ctx, o, seq)
	t := o.thread
	switch {
	case err != nil && !(errors.Is(err, ErrCorrupt) && seq != 0 && t.Seq >= seq):
		return nil, err
	case t.Seq == 0:
		return nil, fmt.Errorf("%w: %q", ErrNoThread, thread)
	case seq > t.Seq:
		return nil, fmt.Errorf("%w: thread %s ends at %d, there is no %d", ErrInvalid, thread, t.Seq, seq)
	}
	c := &Checkpoint{Seq: t.Seq, Time: stamp(t.Time), State: map[string]json.RawMessage{}, Facts: map[string]json.RawMessage{}, Deps: map[string]json.RawMessage{}}
	if c.Thread, err = r.threadInfo(ctx, o); err != nil {
		return nil, err
	}
	for _, run := range c.Thread.Runs {
		c.Asks = append(c.Asks, run.Asks...)
		if run.Last != "" && !run.Status.Final() {
			c.Step = run.Last
		}
	}
	for key, item := range t.State {
		raw, err := r.item(ctx, name, item)
		if err != nil {
			return nil, err
		}
		if fact, ok := isFact(key); ok {
			c.Facts[fact] = raw
		} else {
			c.State[key] = raw
		}
	}
	for key, v := range t.Deps {
		if c.Deps[key], err = r.load(ctx, name, v); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Difference is what changed between two checkpoints.
type Difference struct {
	From   uint64     `json:"from"`
	To     uint64     `json:"to"`
	State  []KeyDiff  `json:"state,omitempty"`
	Facts  []KeyDiff  `json:"facts,omitempty"`
	Deps   []KeyDiff  `json:"deps,omitempty"`
	Runs   []RunDiff  `json:"runs,omitempty"`
	Opened []AskInfo  `json:"opened,omitempty"` // asks
	Closed []AskInfo  `json:"closed,omitempty"`
	Events []EventRef `json:"events,omitempty"` // what happened between
}

// KeyDiff is one key that changed; a missing side is nil.
type KeyDiff struct {
	Key    string          `json:"key"`
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
}

// RunDiff is one run that changed.
type RunDiff struct {
	Run    string `json:"run"`
	Before Status `json:"before,omitempty"`
	After  Status `json:"after"`
	Steps  int    `json:"steps"` // outcomes that were added
}

// EventRef names an event.
type EventRef struct {
	Seq  uint64 `json:"seq"`
	Kind string `json:"kind"`
	Path string `json:"path,omitempty"`
}

// Diff returns what changed in a thread between two sequences.
func (r *Runtime) Diff(ctx context.Context, thread string, from, to uint64) (*Difference, error) {
	if from == 0 || to != 0 && to < from {
		return nil, fmt.Errorf("%w: from %d to %d", ErrInvalid, from, to)
	}
	a, err := r.StateAt(ctx, thread, from)
	if err != nil {
		return nil, err
	}
	b, err := r.StateAt(ctx, thread, to)
	if err != nil {
		return nil, err
	}
	d := &Difference{From: a.Seq, To: b.Seq, State: diffKeys(a.State, b.State), Facts: diffKeys(a.Facts, b.Facts), Deps: diffKeys(a.Deps, b.Deps)}
	before := map[string]*Run{}
	for _, run := range a.Thread.Runs {
		before[run.ID] = run
	}
	for _, run := range b.Thread.Runs {
		old := before[run.ID]
		if old == nil {
			old = &Run{}
		}
		if old.Status != run.Status || old.Steps != run.Steps {
			d.Runs = append(d.Runs, RunDiff{Run: run.ID, Before: old.Status, After: run.Status, Steps: run.Steps - old.Steps})
		}
	}
	d.Opened, d.Closed = missing(b.Asks, a.Asks), missing(a.Asks, b.Asks)
	for e, err := range r.Events(ctx, thread, EventOptions{After: a.Seq, Replay: true}) {
		if err != nil {
			return nil, err
		}
		if e.Seq > b.Seq {
			break
		}
		d.Events = append(d.Events, EventRef{Seq: e.Seq, Kind: e.Kind, Path: e.Path})
	}
	return d, nil
}

func diffKeys(a, b map[string]json.RawMessage) []KeyDiff {
	keys := map[string]bool{}
	for k := range a {
		keys[k] = true
	}
	for k := range b {
		keys[k] = true
	}
	var diff []KeyDiff
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		if !bytes.Equal(a[k], b[k]) {
			diff = append(diff, KeyDiff{Key: k, Before: a[k], After: b[k]})
		}
	}
	return diff
}

// missing returns the asks of a that are not in b.
func missing(a, b []AskInfo) []AskInfo {
	var list []AskInfo
	for _, x := range a {
		if !slices.ContainsFunc(b, func(y AskInfo) bool { return x.ID == y.ID }) {
			list = append(list, x)
		}
	}
	return list
}
