package perdure

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/threads"
)

// Checkpoint is a thread as it was at a sequence.
type Checkpoint struct {
	Seq    uint64                     `json:"seq"`
	Time   time.Time                  `json:"time"`
	Thread *Thread                    `json:"thread"`
	State  map[string]json.RawMessage `json:"state,omitempty"` // without facts
	Facts  map[string]json.RawMessage `json:"facts,omitempty"` // see NewFact
	Deps   map[string]json.RawMessage `json:"deps,omitempty"`  // newest dump of each
	Asks   []AskInfo                  `json:"asks,omitempty"`  // open ones
	Step   string                     `json:"step,omitempty"`  // path of the newest outcome of the run that was active
}

// StateAt returns a thread as it was at a sequence; 0 means now.
func (r *Runtime) StateAt(ctx context.Context, thread string, seq uint64) (*Checkpoint, error) {
	name, err := r.tenant.Find(ctx, thread)
	if err != nil {
		return nil, err
	}
	if err := r.core.threads.CheckErased(ctx, name); err != nil {
		return nil, err
	}
	o, err := r.core.threads.ReadAt(ctx, name, seq)
	t := o.Thread
	switch {
	case err != nil:
		return nil, err
	case t.Seq == 0:
		return nil, fmt.Errorf("%w: %q", fault.ErrNoThread, thread)
	case seq > t.Seq:
		return nil, fmt.Errorf("%w: thread %s ends at %d, so there is no %d", fault.ErrInvalid, thread, t.Seq, seq)
	}
	t.ID = thread // also within the past that a fork shares
	c := &Checkpoint{Seq: t.Seq, Time: clock.Stamp(t.Time), State: map[string]json.RawMessage{}, Facts: map[string]json.RawMessage{}, Deps: map[string]json.RawMessage{}}
	if c.Thread, err = r.threadInfo(ctx, o, RunPage{}); err != nil {
		return nil, err
	}
	for _, run := range c.Thread.Runs {
		run.Idle = "" // it describes the present
		c.Asks = append(c.Asks, run.Asks...)
		if run.Last != "" && !run.Status.Final() {
			c.Step = run.Last
		}
	}
	for key, item := range t.State {
		raw, err := r.core.threads.Item(ctx, name, item)
		if err != nil {
			return nil, err
		}
		if fact, ok := engine.IsFact(key); ok {
			c.Facts[fact] = bytes.Clone(raw)
		} else {
			c.State[key] = bytes.Clone(raw)
		}
	}
	for key, v := range t.Deps {
		raw, err := r.core.threads.Load(ctx, name, v)
		if err != nil {
			return nil, err
		}
		c.Deps[key] = bytes.Clone(raw)
	}
	return c, nil
}

// Point is a thread at a sequence; 0 means now.
type Point struct {
	Thread string `json:"thread"`
	Seq    uint64 `json:"seq"`
}

// Difference is what changed from one point to another.
type Difference struct {
	From   Point      `json:"from"`
	To     Point      `json:"to"`
	Common uint64     `json:"common"` // the last sequence that both share
	State  []KeyDiff  `json:"state,omitempty"`
	Facts  []KeyDiff  `json:"facts,omitempty"`
	Deps   []KeyDiff  `json:"deps,omitempty"`
	Runs   []RunDiff  `json:"runs,omitempty"`
	Opened []AskInfo  `json:"opened,omitempty"` // asks
	Closed []AskInfo  `json:"closed,omitempty"`
	Events []EventRef `json:"events,omitempty"` // from the common sequence to To
	Left   []EventRef `json:"left,omitempty"`   // from the common sequence to From, if that is on another branch
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
	After  Status `json:"after,omitempty"` // "" if the run does not exist there
	Steps  int    `json:"steps"`           // number of outcomes added, or negative if some are missing
}

// EventRef identifies an event.
type EventRef struct {
	Seq  uint64 `json:"seq"`
	Kind string `json:"kind"`
	Path string `json:"path,omitempty"`
}

// Diff returns what changed from one point to another, of the same thread or of
// two branches, such as a thread and its fork. Asks that are open in both branches
// count as opened and closed, since their ids differ.
func (r *Runtime) Diff(ctx context.Context, from, to Point) (*Difference, error) {
	if from.Thread == to.Thread && (from.Seq == 0 || to.Seq != 0 && to.Seq < from.Seq) {
		return nil, fmt.Errorf("%w: from %d to %d: within a thread, from must be at least 1 and not after to", fault.ErrInvalid, from.Seq, to.Seq)
	}
	a, err := r.StateAt(ctx, from.Thread, from.Seq)
	if err != nil {
		return nil, err
	}
	b, err := r.StateAt(ctx, to.Thread, to.Seq)
	if err != nil {
		return nil, err
	}
	from.Seq, to.Seq = a.Seq, b.Seq
	d := &Difference{From: from, To: to, State: diffKeys(a.State, b.State), Facts: diffKeys(a.Facts, b.Facts), Deps: diffKeys(a.Deps, b.Deps)}
	var left, events []threads.EventRef
	if d.Common, left, events, err = r.tenant.Between(ctx, threads.Point(from), threads.Point(to)); err != nil {
		return nil, err
	}
	ref := func(e threads.EventRef) EventRef { return EventRef(e) }
	d.Left, d.Events = each(left, ref), each(events, ref)
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
		delete(before, run.ID)
	}
	for _, run := range a.Thread.Runs {
		if before[run.ID] != nil {
			d.Runs = append(d.Runs, RunDiff{Run: run.ID, Before: run.Status, Steps: -run.Steps})
		}
	}
	d.Opened, d.Closed = missing(b.Asks, a.Asks), missing(a.Asks, b.Asks)
	return d, nil
}

func diffKeys(a, b map[string]json.RawMessage) []KeyDiff {
	keys := map[string]json.RawMessage{}
	maps.Copy(keys, a)
	maps.Copy(keys, b)
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
