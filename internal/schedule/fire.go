package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

// Starter starts the runs of schedules.
type Starter interface {
	// Has reports whether runs of a flow can be started here.
	Has(flow string) bool
	// Start starts the run of a firing, or returns the one that was started before.
	Start(ctx context.Context, s *Schedule, at int64) (Run, error)
	// Find returns the run of a firing, the zero value if it was not started.
	Find(ctx context.Context, s *Schedule, at int64) (Run, error)
	// Ended reports whether a run has ended, or is gone.
	Ended(ctx context.Context, s *Schedule, r Run) (bool, error)
	// Await waits until a run has ended.
	Await(ctx context.Context, s *Schedule, r Run) error
	// Cancel cancels a run. One that has ended is no error.
	Cancel(ctx context.Context, s *Schedule, r Run) error
}

// maker makes firings.
type maker struct {
	threads *threads.Threads
	cron    Cron
	starter Starter
	id      string        // of the worker
	late    time.Duration // a firing that is later was missed
}

// errGone means that a schedule was removed.
var errGone = errors.New("perdure: the schedule was removed")

// mostAtOnce is how many firings of a schedule are made before it is another's turn.
const mostAtOnce = 20

// make makes the firings of a schedule that are due, and returns the schedule as it is
// then, nil if it is gone.
func (m *maker) make(ctx context.Context, key string) (s *Schedule, err error) {
	cell, err := m.threads.Store.Get(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err == nil {
		s, err = parse(cell.Value)
	}
	for range mostAtOnce {
		if err != nil || !s.ready(clock.Micros()) {
			break
		}
		var acted bool
		var now *Schedule
		if now, acted, err = m.act(ctx, key, s); now != nil {
			s = now
		}
		if !acted {
			break
		}
	}
	if errors.Is(err, errGone) {
		return nil, nil
	}
	return s, err
}

// ready reports whether there is something to do, as far as the cell tells.
func (s *Schedule) ready(now int64) bool {
	return !s.Paused && (s.Next != 0 && s.Next <= now || len(s.Queue) > 0)
}

// act takes one step, and reports whether there was one to take.
func (m *maker) act(ctx context.Context, key string, s *Schedule) (*Schedule, bool, error) {
	if err := m.threads.CheckMoved(ctx); err != nil {
		return s, false, err
	}
	if !m.starter.Has(s.Flow) {
		return s, false, fmt.Errorf("%w: %q; no worker that has it is there", fault.ErrNoFlow, s.Flow)
	}
	if err := s.Timing.Check(m.cron); err != nil {
		return s, false, err
	}
	now := clock.Micros()
	isDue := s.Next != 0 && s.Next <= now
	over := true // the last run
	if s.LastOf.Run != "" && s.Overlap != Allow {
		var err error
		if over, err = m.starter.Ended(ctx, s, s.LastOf); err != nil {
			return s, false, err
		}
	}
	switch {
	case len(s.Queue) > 0 && over:
		return m.start(ctx, key, s, s.Queue[0])
	case !isDue:
		return s, false, nil
	}
	if target, missed := m.target(s, now); target != s.Next {
		s, err := m.write(ctx, key, s.Life, func(n *Schedule) bool { return n.Next == s.Next && n.jump(m.cron, missed, target, now) })
		return s, true, err
	}
	at := s.Next
	switch {
	case over && len(s.Queue) == 0:
	case s.Overlap == Cancel:
		if err := m.starter.Cancel(ctx, s, s.LastOf); err != nil {
			return s, false, err
		}
	case s.Overlap == Queue:
		s, err := m.write(ctx, key, s.Life, func(n *Schedule) bool { return n.enqueue(m.cron, at) })
		return s, true, err
	default:
		// It may have been started before the last run continued.
		if r, err := m.starter.Find(ctx, s, at); err != nil || r == (Run{}) {
			if err != nil {
				return s, false, err
			}
			s, err := m.write(ctx, key, s.Life, func(n *Schedule) bool {
				return n.done(m.cron, m.id, Firing{At: at, Made: clock.Micros(), Outcome: Overlap})
			})
			return s, true, err
		}
	}
	return m.start(ctx, key, s, at)
}

// start starts the run of a firing, and then writes it down.
func (m *maker) start(ctx context.Context, key string, s *Schedule, at int64) (*Schedule, bool, error) {
	r, err := m.starter.Start(ctx, s, at)
	if errors.Is(err, fault.ErrKeyReused) { // it was started, and then the schedule was changed
		r, err = m.starter.Find(ctx, s, at)
	}
	if err != nil {
		return s, false, err
	}
	now, err := m.write(ctx, key, s.Life, func(n *Schedule) bool {
		return n.done(m.cron, m.id, Firing{At: at, Made: clock.Micros(), Outcome: Started, Run: r})
	})
	if errors.Is(err, errGone) {
		return nil, false, errors.Join(err, m.starter.Cancel(ctx, s, r))
	}
	return now, true, err
}

// target returns which firing is to be made next, of those that are due, and the last one
// before it. If all are missed, the target is 0.
func (m *maker) target(s *Schedule, now int64) (target, missed int64) {
	if now-s.Next <= m.late.Microseconds() {
		return s.Next, 0
	}
	n := 1
	if s.CatchUp == CatchAll {
		n = s.Most
	}
	latest := s.Timing.Latest(m.cron, s.Next, now, n)
	if len(latest) == 0 {
		return s.Next, 0
	}
	target = latest[0]
	if s.CatchUp == CatchSkip && now-target > m.late.Microseconds() {
		return 0, target
	}
	if before := s.Timing.Latest(m.cron, s.Next, target-1, 1); len(before) > 0 {
		missed = before[0]
	}
	return target, missed
}

// jump leaves out firings that were missed.
func (s *Schedule) jump(cron Cron, missed, target, now int64) bool {
	f := Firing{At: s.Next, Made: now, Outcome: Missed, Error: s.Error}
	if missed != s.Next {
		f.Until = missed
	}
	s.note(f)
	s.Last = missed
	if s.Next = target; target == 0 {
		s.plan(cron, now)
	}
	return true
}

// enqueue lets a firing wait for the end of the last run.
func (s *Schedule) enqueue(cron Cron, at int64) bool {
	if s.Next != at {
		return false
	}
	if s.Last = at; len(s.Queue) < MostQueued {
		s.Queue = append(s.Queue, at)
	} else {
		s.note(Firing{At: at, Made: clock.Micros(), Outcome: Overlap, Error: fmt.Sprintf("%d firings wait for the end of a run", MostQueued)})
	}
	s.plan(cron, at)
	return true
}

// done writes down what came of a firing, unless someone else has.
func (s *Schedule) done(cron Cron, worker string, f Firing) bool {
	queued := slices.Index(s.Queue, f.At)
	switch {
	case queued >= 0:
		s.Queue = slices.Delete(s.Queue, queued, queued+1)
	case f.At <= s.Last:
		return false
	}
	if f.Outcome == Started {
		s.Fired++
		s.LastOf = f.Run
	}
	s.note(f)
	s.Last = max(s.Last, f.At)
	s.Error, s.Since, s.Worker = "", 0, worker
	if s.Next != 0 && s.Next <= s.Last {
		s.plan(cron, s.Last)
	}
	return true
}

// fail shows why the next firing cannot be made.
func (s *Schedule) fail(text string) bool {
	if s.Error == text {
		return false
	}
	if s.Error = text; s.Since == 0 {
		s.Since = clock.Micros()
	}
	return true
}

// write changes a schedule that has the same life. If the function reports that there is
// nothing to change, it returns the schedule as it is.
func (m *maker) write(ctx context.Context, key, life string, f func(*Schedule) bool) (s *Schedule, err error) {
	_, err = store.Update(ctx, m.threads.Store, key, func(old store.Cell) ([]byte, error) {
		if old.Version == "" {
			return nil, errGone
		}
		if s, err = parse(old.Value); err != nil {
			return nil, err
		}
		if s.Life != life {
			return nil, errGone
		}
		if !f(s) {
			return nil, threads.ErrNothing
		}
		s.Writes++
		return json.Marshal(s)
	})
	if errors.Is(err, threads.ErrNothing) {
		err = nil
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}
