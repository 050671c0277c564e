package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

// Wait waits until a run has ended or cannot continue without input, see
// perdure.Runtime.Wait, and returns it with its thread.
func (s *Staff) Wait(ctx context.Context, t *threads.Tenant, thread, run string) (*threads.Opened, *journal.Run, error) {
	f := &family{staff: s, tenant: t, known: map[string]*threads.Opened{}, pause: 10 * time.Millisecond}
	return s.wait(ctx, t, thread, run, func(run *journal.Run) (bool, time.Duration) {
		if s.stands(run) {
			return true, 0
		}
		return f.stand(ctx, run)
	})
}

// WaitEnd waits until a run has ended.
func (s *Staff) WaitEnd(ctx context.Context, t *threads.Tenant, thread, run string) (*threads.Opened, *journal.Run, error) {
	return s.wait(ctx, t, thread, run, func(run *journal.Run) (bool, time.Duration) { return run.Status.Final(), 0 })
}

// wait waits until it is enough. That is asked when the thread has changed, and
// after a time if one is returned.
func (s *Staff) wait(ctx context.Context, t *threads.Tenant, thread, run string, enough func(*journal.Run) (bool, time.Duration)) (*threads.Opened, *journal.Run, error) {
	// While a pass goes on, the id leads to its thread, unless that was erased, in which
	// case the pass leaves nothing.
	if pass := s.engine.ExecutingID(t.Name, thread); pass != nil && pass.Run == run && !pass.Closing() && (t.Owner == nil || *t.Owner == pass.User) {
		awaitPass(ctx, pass) // before it is over, nothing is
		if left := pass.Left(); left != nil {
			found := left.RunByID(run)
			if done, _ := enough(found); done {
				return threads.Seen(pass.Name, left), found, nil
			}
		}
	}
	name, err := t.Find(ctx, thread)
	if err != nil {
		return nil, nil, err
	}
	o := s.threads.Nearest(ctx, name)
	var pause time.Duration
	last := time.Now()
	for range store.Watch(ctx, s.threads.Store, threads.JournalKey(name)) {
		for {
			if o, err = s.threads.ReadOn(ctx, o); err != nil {
				return nil, nil, err
			}
			found, err := threads.PickRun(o.Thread, run)
			if err != nil {
				return nil, nil, err
			}
			if taker := o.Thread.Run(found.Taken); taker != nil {
				found = taker // the input became part of that run
			}
			run = found.ID
			done, again := enough(found)
			if done && (o.Thread.Moved == "" || found.Status.Final()) {
				return o, found, nil
			}
			if o.Thread.Foreign != "" {
				return nil, nil, fmt.Errorf("%w: thread %s: %s", fault.ErrNewer, thread, o.Thread.Foreign)
			}
			if o.Thread.Moved != "" {
				return nil, nil, &fault.MovedError{Thread: thread, To: o.Thread.Moved}
			}
			// A busy run appends all the time. Reading each entry as it comes
			// would take from what it gets done, and its pass tells its end.
			if pass := s.engine.Executing(name); pass != nil {
				awaitPass(ctx, pass)
				if ctx.Err() == nil {
					continue
				}
			}
			// Of one that runs elsewhere the first entries are read at once.
			if pause = min(2*pause+100*time.Microsecond, 10*time.Millisecond); time.Since(last) > 20*pause {
				pause = 0
			}
			last = time.Now()
			if wait := max(again, pause); wait > 0 {
				select {
				case <-ctx.Done():
				case <-time.After(wait):
				}
			}
			if again == 0 || ctx.Err() != nil {
				break
			}
		}
	}
	if err := ctx.Err(); err != nil {
		found, pickErr := threads.PickRun(o.Thread, run)
		if pickErr != nil {
			return nil, nil, context.Cause(ctx)
		}
		hint := ""
		looking, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if why := s.Unattended(looking, found); why != "" {
			hint = "; " + why + ": it goes on when a process calls Work with it"
		} else if (found.Status == journal.StatusQueued || found.Wake) && s.engine.Executing(name) == nil {
			hint = "; a worker that has the flow is busy, or about to take it"
		}
		return nil, nil, fmt.Errorf("perdure: waited for run %s, which is %s%s: %w", found.ID, found.Status, hint, context.Cause(ctx))
	}
	return nil, nil, store.ErrClosed
}

// awaitPass waits a while for the end of a pass.
func awaitPass(ctx context.Context, pass *engine.Executing) {
	timer := time.NewTimer(250 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-pass.Done:
	case <-ctx.Done():
	case <-timer.C:
	}
}

// stands reports whether a run cannot go on by itself. Whether the children can
// that it waits for is another question.
func (s *Staff) stands(run *journal.Run) bool {
	// Other code blocked it, and a worker of this one is about to look.
	if run.Status == journal.StatusBlocked && !run.Held && !run.Misfits[s.opts.Version] && s.Works(run.Flow) {
		return false
	}
	switch run.Status {
	case journal.StatusPaused, journal.StatusBlocked, journal.StatusQuarantined:
		return !run.Cancelled || run.Held
	case journal.StatusSuspended:
		if run.Wake {
			return false
		}
		for _, w := range run.Waits {
			if w.Kind == journal.Asked || w.Kind == journal.Waiting && !journal.IsChildSignal(w.Signal) {
				return true
			}
		}
	}
	return run.Status.Final()
}

// family looks at the children that a run waits for: a run cannot go on by
// itself while one of them cannot. Their journals tell it, not the run's own.
type family struct {
	staff  *Staff
	tenant *threads.Tenant
	known  map[string]*threads.Opened // by the id of the child
	pause  time.Duration              // until the next look
}

// stand reports whether a child that the run waits for cannot go on by itself,
// and otherwise when to look again, 0 if it waits for none.
func (f *family) stand(ctx context.Context, run *journal.Run) (bool, time.Duration) {
	if run.Status != journal.StatusSuspended || run.Wake {
		return false, 0
	}
	again := time.Duration(0)
	for _, w := range run.Waits {
		child := run.Child(w.Signal)
		if child == nil {
			continue
		}
		// One that is not there, or cannot be read, may be the next time.
		if own := f.runOf(ctx, child.ID); own != nil && !own.Status.Final() {
			if f.staff.stands(own) {
				return true, 0
			}
			if stand, _ := f.stand(ctx, own); stand {
				return true, 0
			}
		}
		again = f.pause
	}
	if again > 0 {
		f.pause = min(2*f.pause, time.Second)
	}
	return false, again
}

// runOf returns the run of a child as it is now, nil if that is not known.
func (f *family) runOf(ctx context.Context, id string) *journal.Run {
	o := f.known[id]
	if o == nil {
		name, err := f.tenant.Find(ctx, id)
		if err != nil {
			return nil
		}
		if o, err = f.staff.threads.Read(ctx, name); err != nil {
			return nil
		}
		f.known[id] = o
	} else if on, err := f.staff.threads.ReadOn(ctx, o); err != nil {
		delete(f.known, id)
		return nil
	} else {
		o, f.known[id] = on, on
	}
	return o.Thread.RunByID(f.staff.threads.ChildRunID(id))
}
