// Package lifecycle begins, forks, cancels, retries and erases threads, and tells
// parents how their children end. It may import internal/threads and what that
// imports.
package lifecycle

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/internal/tree"
)

// Control begins, forks, cancels, retries and erases the threads of a tenant.
type Control struct {
	threads    *threads.Threads
	tenant     *threads.Tenant
	maxQueue   int                                                   // how many inputs may wait on a thread
	checkInput func(flow string, input any) (json.RawMessage, error) // returns the JSON of an input, if the flow accepts it
	objects    Objects                                               // of archived threads; nil if there is no archive
	workers    Workers                                               // of this process; nil to leave runs to whoever finds them
}

// Workers are the workers of this process. One that has room for a run claims
// it in the commit that queues it.
type Workers interface {
	// Reserve reserves room for a run on the named thread. It returns nil if no
	// worker has room for the flow.
	Reserve(flow, name string) Room
}

// Room is a worker's room for one run. Either Execute or Leave is called, once.
type Room interface {
	// Claim returns the claim of a run that is queued at a sequence.
	Claim(t *journal.Thread, run uint64) threads.Line
	// Execute begins to execute the run that was claimed by the last of the
	// entries. The thread belongs to the worker from then on.
	Execute(o *threads.Opened, entries []journal.Entry)
	// Leave gives the room back. After an error the run may have been claimed all the same.
	Leave(err error)
}

// New returns the control of a tenant's threads.
func New(t *threads.Tenant, maxQueue int, checkInput func(flow string, input any) (json.RawMessage, error)) *Control {
	return &Control{threads: t.All, tenant: t, maxQueue: maxQueue, checkInput: checkInput}
}

// With lets workers of this process claim the runs that are started.
func (r *Control) With(w Workers) *Control {
	r.workers = w
	return r
}

// WithArchive tells where the objects of archived threads are.
func (r *Control) WithArchive(o Objects) *Control {
	r.objects = o
	return r
}

// Cancel cancels a run.
func (r *Control) Cancel(ctx context.Context, thread, run string, n Note) error {
	return r.changeRun(ctx, thread, run, &n, func(t *journal.Thread, run *journal.Run) ([]threads.Line, []string, error) {
		if run.Cancelled && !stuck(run) && !run.Held {
			return nil, nil, threads.ErrNothing
		}
		if run.Status.Final() {
			return nil, nil, fmt.Errorf("%w: run %s is %s", fault.ErrNothingToDo, run.ID, run.Status)
		}
		lines, flows, err := r.cancelLines(ctx, t, run, &n)
		return lines, append(flows, threads.OtherFlows(t, run)...), err // its end may let them continue
	})
}

// CanCancel reports whether there is something to cancel: the run has not ended, and
// was not told to.
func CanCancel(run *journal.Run) bool {
	return !run.Status.Final() && (!run.Cancelled || stuck(run) || run.Held)
}

// cancelLines returns the lines that cancel a run. A stuck run ends with them,
// and its children are cancelled first: their ends advance the thread, so the
// note's sequence is checked before that and then cleared.
func (r *Control) cancelLines(ctx context.Context, t *journal.Thread, run *journal.Run, n *Note) ([]threads.Line, []string, error) {
	if err := fault.CheckSeq(t, t.ID, n.IfSeq); err != nil {
		return nil, nil, err
	}
	lines := []threads.Line{{Kind: journal.Cancel, Run: run.N, Body: journal.Body{By: n.By, Reason: n.Reason}}}
	if stuck(run) {
		if open := run.OpenChildren(); len(open) > 0 {
			name, err := r.tenant.Find(ctx, t.ID)
			if err == nil {
				err = r.CancelChildren(ctx, name, t, run, open)
			}
			if err != nil {
				return nil, nil, err
			}
			n.IfSeq = 0
		}
		lines = append(lines, threads.Line{Kind: journal.Ended, Run: run.N,
			Body: journal.Body{Status: string(journal.StatusCancelled), Unknown: UnknownOutcomes(run)}})
	}
	return lines, []string{run.Flow}, nil
}

// Pause stops a run before its next step.
func (r *Control) Pause(ctx context.Context, thread, run string, n Note) error {
	return r.changeRun(ctx, thread, run, &n, func(_ *journal.Thread, run *journal.Run) ([]threads.Line, []string, error) {
		switch {
		case run.Status.Final() || run.Cancelled:
			return nil, nil, fmt.Errorf("%w: run %s is %s", fault.ErrNothingToDo, run.ID, run.Status)
		case run.PausedAt != 0:
			return nil, nil, threads.ErrNothing
		}
		return []threads.Line{{Kind: journal.Paused, Run: run.N, Body: journal.Body{By: n.By, Reason: n.Reason}}}, nil, nil
	})
}

// Resume lifts a pause.
func (r *Control) Resume(ctx context.Context, thread, run string, n Note) error {
	return r.changeRun(ctx, thread, run, &n, func(_ *journal.Thread, run *journal.Run) ([]threads.Line, []string, error) {
		if run.PausedAt == 0 || run.Status.Final() {
			return nil, nil, fmt.Errorf("%w: run %s is not paused but %s", fault.ErrNothingToDo, run.ID, run.Status)
		}
		return []threads.Line{{Kind: journal.Resumed, Run: run.N, Body: journal.Body{By: n.By, Reason: n.Reason}}}, []string{run.Flow}, nil
	})
}

// Retry lets a failed, blocked or quarantined run continue.
func (r *Control) Retry(ctx context.Context, thread, run string, n Note) error {
	return r.changeRun(ctx, thread, run, &n, func(t *journal.Thread, run *journal.Run) ([]threads.Line, []string, error) {
		return retryLines(t, run, n)
	})
}

// CanRetry returns an error that says why a run cannot be retried, nil if it can.
func CanRetry(t *journal.Thread, run *journal.Run) error {
	_, _, err := retryLines(t, run, Note{})
	return err
}

func retryLines(t *journal.Thread, run *journal.Run, n Note) ([]threads.Line, []string, error) {
	switch run.Status {
	case journal.StatusBlocked, journal.StatusQuarantined:
	case journal.StatusFailed:
		if run.Cleaning {
			return nil, nil, fmt.Errorf("%w: run %s has already cleaned up; start a new run", fault.ErrNothingToDo, run.ID)
		}
		for _, later := range t.Runs {
			if later.Start > run.Start && later.Begun() {
				return nil, nil, fmt.Errorf("%w: run %s has begun since run %s failed; start a new run", fault.ErrNothingToDo, later.ID, run.ID)
			}
		}
	default:
		return nil, nil, fmt.Errorf("%w: run %s is %s; only failed, blocked and quarantined runs can be retried", fault.ErrNothingToDo, run.ID, run.Status)
	}
	return []threads.Line{{Kind: journal.Retried, Run: run.N, Body: journal.Body{By: n.By, Reason: n.Reason}}}, []string{run.Flow}, nil
}

// changeRun appends what decide returns for one of a thread's runs.
func (r *Control) changeRun(ctx context.Context, thread, run string, n *Note, decide func(*journal.Thread, *journal.Run) ([]threads.Line, []string, error)) error {
	if err := n.Check(); err != nil {
		return err
	}
	o, _, err := r.tenant.ChangeID(ctx, thread, func(t *journal.Thread) ([]threads.Line, []string, error) {
		found, err := threads.PickRun(t, run)
		if err != nil {
			return nil, nil, err
		}
		if t.Run(found.N) == nil {
			return nil, nil, fmt.Errorf("%w: input %s steers another run", fault.ErrNothingToDo, found.ID)
		}
		lines, flows, err := decide(t, found)
		if err == nil {
			err = fault.CheckSeq(t, thread, n.IfSeq)
		}
		return lines, flows, err
	})
	if err == nil {
		_ = r.TellParent(ctx, o) // of its end; a worker would too, if there is one
	}
	return err
}

// UnknownOutcomes lists the at-most-once steps of a run whose outcome is
// unknown.
func UnknownOutcomes(run *journal.Run) []string {
	var paths []string
	for p := range run.Intents {
		paths = append(paths, tree.Names(p))
	}
	slices.Sort(paths)
	return paths
}
