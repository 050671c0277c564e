package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

// StartChild makes sure that a child's thread exists and that its run is
// queued, and returns the thread's name. Trace is the trace context of the run.
func (r *Control) StartChild(ctx context.Context, parent string, t *journal.Thread, run *journal.Run, child *journal.Child, trace string) (string, error) {
	// Usually everything exists already, so look before writing.
	if name, err := r.tenant.Find(ctx, child.ID); err == nil {
		begun, err := r.threads.Begun(ctx, threads.JournalKey(name))
		if begun || err != nil {
			return name, err
		}
	} else if errors.Is(err, fault.ErrArchived) {
		return "", nil // it has ended, and its parent knows
	} else if !errors.Is(err, fault.ErrNoThread) {
		return "", err
	}
	name, lines, err := r.childLines(ctx, parent, t, run, child, trace)
	if err != nil {
		return "", err
	}
	_, _, err = r.threads.Change(ctx, name, func(t *journal.Thread) ([]threads.Line, []string, error) {
		if t.Seq != 0 {
			return nil, nil, threads.ErrNothing
		}
		return lines, []string{child.Flow}, nil
	})
	if threads.IsGone(err) {
		return name, r.childLost(ctx, name, originOf(parent, t, run, child), child)
	}
	return name, err
}

// childLost handles a child that was erased before it was known to have
// started: it removes what was written for it, and tells the parent not to
// wait.
func (r *Control) childLost(ctx context.Context, name string, from *journal.Origin, child *journal.Child) error {
	if err := r.abandon(ctx, child.ID, name); err != nil && !errors.Is(err, errBegun) {
		return err
	}
	return r.tellErased(ctx, &threads.Opened{Name: name, Thread: &journal.Thread{ID: child.ID, Parent: from}})
}

func originOf(parent string, t *journal.Thread, run *journal.Run, child *journal.Child) *journal.Origin {
	return &journal.Origin{Name: parent, Thread: t.ID, Run: run.N, RunID: run.ID, Path: child.Path, Depth: Depth(t) + 1}
}

// childLines makes the cells of a child's thread, and its first entries.
func (r *Control) childLines(ctx context.Context, parent string, t *journal.Thread, run *journal.Run, child *journal.Child, trace string) (string, []threads.Line, error) {
	// The pin comes before the summary: if the parent is being erased, pinning
	// fails and no summary is left behind.
	name, err := r.createAs(ctx, threads.Summary{ID: child.ID, User: t.User, Parent: t.ID}, func(name string) error {
		return r.pinOrAbandon(ctx, parent, child.ID, name)
	})
	if err != nil {
		return "", nil, err
	}
	in, err := r.threads.Load(ctx, parent, child.Input)
	if err != nil {
		return "", nil, err
	}
	value, err := r.threads.Value(ctx, name, in)
	if err != nil {
		return "", nil, err
	}
	return name, []threads.Line{
		{Kind: journal.Created, Body: journal.Body{Thread: child.ID, Tenant: r.tenant.Name, User: t.User, From: originOf(parent, t, run, child)}},
		{Kind: journal.Queued, Body: journal.Body{ID: r.threads.ChildRunID(child.ID), Flow: child.Flow, Policy: journal.PolicyEnqueue,
			Budget: child.Budget, Trace: trace, Value: value}},
	}, nil
}

// CancelChildren cancels the children whose end a run does not know. A child
// that was not started yet is created cancelled, so that a worker that was
// about to start it finds it there. A child that has ended by itself reports
// its end instead.
func (r *Control) CancelChildren(ctx context.Context, parent string, t *journal.Thread, run *journal.Run, open []*journal.Child) error {
	for _, child := range open {
		if err := r.cancelChild(ctx, parent, t, run, child); err != nil {
			return fmt.Errorf("child %s: %w", child.ID, err)
		}
	}
	return nil
}

func (r *Control) cancelChild(ctx context.Context, parent string, t *journal.Thread, run *journal.Run, child *journal.Child) error {
	name, err := r.tenant.Find(ctx, child.ID)
	begun := false
	if err == nil {
		begun, err = r.threads.Begun(ctx, threads.JournalKey(name))
	}
	if errors.Is(err, fault.ErrArchived) {
		return nil // it has ended
	}
	if err != nil && !errors.Is(err, fault.ErrNoThread) {
		return err
	}
	var first []threads.Line
	if !begun {
		if name, first, err = r.childLines(ctx, parent, t, run, child, run.Trace); err != nil {
			return err
		}
	}
	why := Note{Reason: "its parent has ended"}
	if child.Doomed {
		why.Reason = "a branch beside that of its parent failed"
	}
	o, _, err := r.threads.Change(ctx, name, func(t *journal.Thread) ([]threads.Line, []string, error) {
		own := t.RunByID(r.threads.ChildRunID(child.ID))
		switch {
		case t.Seq == 0:
			return append(first[:2:2], threads.Line{Kind: journal.Cancel, Run: 2, Body: journal.Body{Name: journal.ParentEnded, Reason: why.Reason}}), nil, nil
		case own == nil || own.Status.Final() || own.Cancelled && !stuck(own):
			return nil, nil, threads.ErrNothing
		}
		lines, flows, err := r.cancelLines(ctx, t, own, &why)
		if err == nil {
			lines[0].Body.Name = journal.ParentEnded
		}
		return lines, append(flows, threads.OtherFlows(t, own)...), err
	})
	switch {
	case threads.IsGone(err):
		if err := r.abandon(ctx, child.ID, name); !errors.Is(err, errBegun) {
			return err
		}
		return nil
	case errors.Is(err, fault.ErrCorrupt):
		r.threads.Log.Warn("a child cannot be cancelled", "child", child.ID, "error", err)
		return nil // nobody can execute it either
	case err != nil:
		return err
	}
	if own := o.Thread.RunByID(r.threads.ChildRunID(child.ID)); own != nil && own.Status.Final() && own.Status != journal.StatusCancelled {
		return r.TellParent(ctx, o) // a retry of the parent can use its result
	}
	return nil
}

func stuck(run *journal.Run) bool {
	return run.Status == journal.StatusBlocked || run.Status == journal.StatusQuarantined
}

// EndKey returns the key of the signal that reports an end of a child. A child
// that was retried has several ends.
func EndKey(child string, end uint64) string {
	return journal.ChildSignal(child) + "@" + strconv.FormatUint(end, 10)
}

// RetryChild retries a failed child if possible. It reports whether the child
// has, or will have, an end that the parent has not heard of.
func (r *Control) RetryChild(ctx context.Context, parent string, child *journal.Child, heard func(key string) bool) (bool, error) {
	name, err := r.tenant.Find(ctx, child.ID)
	if errors.Is(err, fault.ErrNoThread) || errors.Is(err, fault.ErrArchived) {
		return false, nil // restore it first to retry it too
	}
	if err != nil {
		return false, err
	}
	again, ended := false, false
	o, _, err := r.threads.Change(ctx, name, func(t *journal.Thread) ([]threads.Line, []string, error) {
		again, ended = false, false
		own := t.RunByID(r.threads.ChildRunID(child.ID))
		if own == nil || t.Parent == nil || threads.Self(t.Parent.Name) != threads.Self(parent) { // it reports its end to the thread that this one was forked from
			return nil, nil, threads.ErrNothing
		}
		if again = !own.Status.Final() || !heard(EndKey(child.ID, own.EndSeq)); again {
			ended = own.Status.Final()
			return nil, nil, threads.ErrNothing
		}
		lines, flows, err := retryLines(t, own, Note{Reason: "its parent was retried"})
		if errors.Is(err, fault.ErrNothingToDo) {
			return nil, nil, threads.ErrNothing
		}
		again = err == nil
		return lines, flows, err
	})
	if threads.IsGone(err) {
		return false, nil
	}
	if err == nil && ended {
		// When that end was reported, the parent had ended, or it has been
		// rewound since.
		err = r.TellParent(ctx, o)
	}
	return again, err
}

// TellParent reports the end of the run that a parent spawned, by a signal in
// the parent's journal. It does nothing if the thread is not a child, if the
// run has not ended, or if the parent no longer needs to know.
func (c *Control) TellParent(ctx context.Context, o *threads.Opened) error {
	from := o.Thread.Parent
	if from == nil || o.Thread.Foreign != "" || o.Thread.Moved != "" {
		return nil
	}
	run := o.Thread.RunByID(c.threads.ChildRunID(o.Thread.ID))
	if run == nil || !run.Status.Final() {
		return nil
	}
	b := journal.Body{Name: journal.ChildSignal(o.Thread.ID), Key: EndKey(o.Thread.ID, run.EndSeq), Status: string(run.Status)}
	known := false // the body is complete
	return c.tellOrigin(ctx, from, &b, func(parent string) error {
		if known {
			return nil
		}
		known = true
		return c.childOutcome(ctx, o, run, parent, &b)
	}, run)
}

// tellErased tells the parent of an erased child that an end it has not heard
// of will never come.
func (c *Control) tellErased(ctx context.Context, o *threads.Opened) error {
	from := o.Thread.Parent
	if from == nil {
		return nil
	}
	b := journal.Body{Name: journal.ChildSignal(o.Thread.ID), Key: journal.ChildSignal(o.Thread.ID) + "@erased"}
	run := o.Thread.RunByID(c.threads.ChildRunID(o.Thread.ID))
	if run == nil {
		run = &journal.Run{}
	} else if run.Status.Final() {
		b.Key = EndKey(o.Thread.ID, run.EndSeq)
	}
	b.Fail = childFailure(*fault.Failure(fault.ErrErased))
	return c.tellOrigin(ctx, from, &b, func(string) error { return nil }, run)
}

// childOutcome fills in what the parent is told about a child's end.
func (c *Control) childOutcome(ctx context.Context, o *threads.Opened, run *journal.Run, parent string, b *journal.Body) error {
	switch run.Status {
	case journal.StatusCancelled:
		b.Fail = childFailure(journal.Failure{Msg: fault.ErrChildCancelled.Error(), Codes: fault.Failure(fault.ErrChildCancelled).Codes})
		return nil
	case journal.StatusFailed:
		b.Fail = childFailure(*run.Fail)
		b.Fail.Msg = fault.Clip(fault.ErrChild.Error()+": "+run.Fail.Msg, fault.MaxMessage)
		return nil
	}
	raw, err := c.threads.Output(ctx, o, run)
	if errors.Is(err, fault.ErrCorrupt) || errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrNotFound) {
		b.Fail = childFailure(journal.Failure{Msg: fault.Clip("perdure: the output of the child cannot be read: "+err.Error(), fault.MaxMessage)})
		return nil
	}
	if err == nil {
		b.Value, err = c.threads.Value(ctx, parent, raw)
	}
	return err
}

// childFailure returns a child's failure as its parent sees it.
func childFailure(fail journal.Failure) *journal.Failure {
	fail.Codes = slices.Clone(fail.Codes)
	fault.AddCodes(&fail, fault.Failure(fault.ErrChild).Codes...)
	return &fail
}

// tellOrigin appends the end of a child to its parent's journal, addressed to
// the run that spawned it and to a Join if one is waiting. No Join is waiting
// for a child that this very run has cancelled at its end.
func (c *Control) tellOrigin(ctx context.Context, from *journal.Origin, b *journal.Body, fill func(parent string) error, own *journal.Run) error {
	err := c.tellNamed(ctx, from.Name, from, b, fill, own)
	if threads.IsGone(err) {
		// A parent that is archived has ended; one that was restored has another name.
		here, hereErr := c.threads.Here(ctx, from.Name)
		if hereErr != nil && !errors.Is(hereErr, fault.ErrArchived) && !threads.IsGone(hereErr) {
			return hereErr
		}
		if hereErr != nil || here == from.Name {
			return nil
		}
		err = c.tellNamed(ctx, here, from, b, fill, own)
	}
	if threads.IsGone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reporting the end of a child to its parent, thread %s: %w", from.Thread, err)
	}
	return nil
}

// tellNamed is tellOrigin for the name that the parent has now.
func (c *Control) tellNamed(ctx context.Context, parent string, from *journal.Origin, b *journal.Body, fill func(parent string) error, own *journal.Run) error {
	_, _, err := c.threads.Change(ctx, parent, func(t *journal.Thread) ([]threads.Line, []string, error) {
		run, child := Awaits(t, from, b.Name, b.Key)
		if child == nil || child.Joined && b.Status == "" { // an erased child's known end stays
			return nil, nil, threads.ErrNothing
		}
		if err := fill(parent); err != nil {
			return nil, nil, err
		}
		b.Spend = nil
		for unit, n := range own.Spent {
			if n -= child.Spent[unit]; n > 0 {
				if b.Spend == nil {
					b.Spend = map[string]int64{}
				}
				b.Spend[unit] = n
			}
		}
		l := threads.Line{Kind: journal.Signal, Run: run.N, Body: *b}
		oldest := uint64(0)
		for _, path := range slices.Sorted(maps.Keys(run.Waits)) {
			if w := run.Waits[path]; w.Signal == b.Name && !own.Orphan && (oldest == 0 || w.Seq < oldest) {
				l.Path, oldest = path, w.Seq
			}
		}
		if oldest == 0 {
			return []threads.Line{l}, nil, nil
		}
		return []threads.Line{l}, []string{run.Flow}, nil
	})
	return err
}

// A parent and its child are two journals, and nothing is appended to both at
// once. What must happen in one follows from an entry that is already in the
// other: the parent's `spawned` says that the child is to be started, and the
// child's `ended` that the parent is to be told. Both can be repeated, and
// whoever comes next does so: the first on the way to the parent's next entry,
// the second before the child's hint is settled.

// Awaits returns the run and the child in a parent's thread for which a signal
// with this name and key is news, nil if there are none.
func Awaits(t *journal.Thread, from *journal.Origin, name, key string) (*journal.Run, *journal.Child) {
	run := t.Run(from.Run)
	if run == nil || run.ID != from.RunID || run.Status.Final() || t.Heard(key) {
		return nil, nil
	}
	child := run.Child(name)
	if child == nil || child.Stale {
		return nil, nil
	}
	return run, child
}

// Depth returns how many ancestors a thread has.
func Depth(t *journal.Thread) int {
	if t.Parent == nil {
		return 0
	}
	return t.Parent.Depth
}
