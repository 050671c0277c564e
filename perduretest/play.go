package perduretest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/tree"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// play runs the flows once, with a crash at each of the cuts: the first cut in the
// first life, the second in the second, and so on.
func (s *sweep) play(cuts ...cut) *result {
	s.runs++
	s.Effects.reset()
	r := &result{}
	synctest.Test(s.t, func(t *testing.T) {
		var inner store.Store = memstore.New()
		if s.Store != nil {
			inner = s.Store()
		}
		defer inner.Close()
		start := time.Now()
		ctx := context.WithoutCancel(t.Context())
		limited, cancel := context.WithTimeoutCause(ctx, s.Limit, fmt.Errorf("it does not end within %v of virtual time", s.Limit))
		defer cancel()
		for i := 0; r.err == nil; i++ {
			var c cut
			if i < len(cuts) {
				c = cuts[i]
			}
			if s.live(limited, inner, c, r) {
				break
			}
			r.err = s.bury(ctx, inner)
		}
		r.took = time.Since(start)
		if err := r.collect(ctx, inner, s); r.err == nil {
			r.err = err
		}
	})
	return r
}

// live is one life. It reports whether it was the last, not ended by a crash.
func (s *sweep) live(ctx context.Context, inner store.Store, c cut, r *result) (last bool) {
	o := s.defaults()
	o.Observer = perdure.Observers(watcher{s.Effects}, s.Options.Observer)
	l, err := begin(ctx, inner, c, o, s.Flows)
	if err == nil {
		// The outside knows the process that it talks to: it stops waiting for
		// a dead one, and for one whose worker has given up.
		alive, cancel := context.WithCancel(ctx)
		defer cancel()
		l.handle.OnCrash(cancel)
		go func() {
			<-l.gone
			cancel()
		}()
		starter := l.rt
		if s.remote {
			starter, err = perdure.New(alive, l.handle, o, s.Flows...)
		} else {
			synctest.Wait() // for the worker to have room
		}
		if err == nil {
			err = s.drive(alive, starter, l.rt, o.Lease)
		}
	}
	if err == nil {
		synctest.Wait() // for the worker to tidy up
	}
	stopErr := l.stop()
	l.mu.Lock()
	for class := range l.writes {
		s.classes[class] = true
	}
	l.mu.Unlock()
	if l.handle.Crashed() {
		r.crashes = append(r.crashes, fmt.Sprintf("%s %s", c.fault, l.at))
		return false
	}
	if stopErr != nil { // even if the outside has waited in vain because of it
		err = fmt.Errorf("the worker: %w", stopErr)
	}
	r.err = err
	return true
}

// drive starts the runs and plays the outside until nothing more happens.
func (s *sweep) drive(ctx context.Context, starter, rt *perdure.Runtime, lease time.Duration) error {
	for _, q := range s.Start {
		if _, err := starter.Start(ctx, q); err != nil {
			return fmt.Errorf("start of flow %s: %w", q.Flow, err)
		}
	}
	stuck := map[string]bool{} // runs that the outside leaves as they are
	turns := 0
	for _, q := range s.Start {
		for {
			if turns++; turns > maxTurns {
				return fmt.Errorf("thread %s: the outside was called %d times and the runs did not end", q.Thread, turns)
			}
			run, err := s.wait(ctx, rt, q.Thread, stuck, lease)
			if err != nil {
				return err
			}
			if run == nil {
				break
			}
			if run.Status.Final() {
				continue
			}
			moved, err := s.outside(ctx, rt, run)
			if err != nil {
				return err
			}
			if due := nextDue(run); !moved && !due.IsZero() {
				select {
				case <-ctx.Done():
				case <-time.After(max(time.Millisecond, time.Until(due))):
				}
				moved = true
			}
			stuck[run.ID] = !moved
		}
	}
	for _, q := range s.Start {
		if err := family(ctx, rt, q.Thread); err != nil {
			return err
		}
	}
	return nil
}

// family waits until the children of a thread cannot continue by themselves: a
// child that a parent cancels may end after it.
func family(ctx context.Context, rt *perdure.Runtime, thread string) error {
	t, err := rt.Get(ctx, thread)
	if err != nil {
		return err
	}
	for _, run := range t.Runs {
		for _, child := range run.Children {
			if _, err := rt.Wait(ctx, child.Thread, ""); err != nil {
				return fmt.Errorf("waiting for the child at %s of thread %s: %w", child.Path, thread, err)
			}
			if err := family(ctx, rt, child.Thread); err != nil {
				return err
			}
		}
	}
	return nil
}

// wait waits for the first run of a thread that has not ended, and returns nil if
// there is none. Runs queued behind a run that is stuck may stay queued.
func (s *sweep) wait(ctx context.Context, rt *perdure.Runtime, thread string, stuck map[string]bool, lease time.Duration) (*perdure.Run, error) {
	t, err := rt.Get(ctx, thread)
	if err != nil {
		return nil, err
	}
	behind := false
	for _, run := range t.Runs {
		if run.Status.Final() || stuck[run.ID] {
			behind = behind || stuck[run.ID]
			continue
		}
		patience := ctx
		if behind {
			var cancel context.CancelFunc
			patience, cancel = context.WithTimeout(ctx, 2*lease)
			defer cancel()
		}
		found, err := rt.Wait(patience, thread, run.ID)
		if behind && errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			stuck[run.ID] = true
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("waiting for run %d of thread %s: %w", run.Seq, thread, err)
		}
		return found, nil
	}
	return nil, nil
}

// outside lets the outside act, and reports whether it changed the thread.
func (s *sweep) outside(ctx context.Context, rt *perdure.Runtime, run *perdure.Run) (bool, error) {
	if s.Outside == nil {
		return false, nil
	}
	before, err := entries(ctx, rt, run.Thread)
	if err != nil {
		return false, err
	}
	if err := s.Outside(ctx, rt, run); err != nil {
		return false, fmt.Errorf("the outside: %w", err)
	}
	after, err := entries(ctx, rt, run.Thread)
	return after != before, err
}

// entries counts the entries of a thread and of those below it.
func entries(ctx context.Context, rt *perdure.Runtime, thread string) (uint64, error) {
	t, err := rt.Get(ctx, thread)
	if errors.Is(err, perdure.ErrNoThread) {
		return 0, nil // a child that is about to be started
	}
	if err != nil {
		return 0, err
	}
	n := t.Seq
	for _, run := range t.Runs {
		for _, child := range run.Children {
			below, err := entries(ctx, rt, child.Thread)
			if err != nil {
				return 0, err
			}
			n += below
		}
	}
	return n, nil
}

// bury notes which steps a crash has left without an outcome.
func (s *sweep) bury(ctx context.Context, inner store.Store) error {
	all, err := recordings(ctx, inner)
	if err != nil {
		return err
	}
	recorded := map[place]int{}
	for _, r := range all {
		for _, e := range r.entries {
			run := r.thread.Run(e.Run)
			if run == nil {
				continue
			}
			path := tree.Names(e.Path)
			if e.Kind == journal.Step || e.Kind == journal.Attempt {
				recorded[place{r.thread.ID, run.ID, path}]++
			}
			// A step with children is a composite: its body is flow code, and
			// a crash is no excuse for an effect there.
			for above := path; strings.Contains(above, "/"); {
				above = above[:strings.LastIndexByte(above, '/')]
				recorded[place{r.thread.ID, run.ID, above}] = 1 << 30
			}
		}
	}
	s.Effects.died(recorded)
	return nil
}
