package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/internal/tree"
)

// waiter is a thread of control that waits for something in the journal.
type waiter struct {
	frame *frame
	ready func() bool // whether it may continue; called under mu
	woken chan struct{}
	err   error        // why it was woken, if not because it is ready
	due   int64        // when fire is called, 0 for never
	fire  func() error // records that its time is up
}

// park lets the frame wait until ready. If nothing else is active, the run is
// suspended and sealed instead. The error says why the frame must not continue.
func (p *Pass) park(ctx context.Context, w *waiter) error {
	w.woken = make(chan struct{})
	p.mu.Lock()
	switch {
	case p.sealed != nil:
		defer p.mu.Unlock()
		return p.sealed
	case w.ready():
		p.mu.Unlock()
		return nil
	case w.frame.refusal() != nil:
		defer p.mu.Unlock()
		w.frame.cutOff()
		return w.frame.refusal()
	case ctx.Err() != nil:
		p.mu.Unlock()
		return p.cutCause(ctx, w.frame)
	}
	p.waiters[w] = true
	p.shift(w.frame, -1)
	p.mu.Unlock()
	p.settle()

	var due <-chan time.Time
	if w.due != 0 {
		ready, stop := clock.Alarm(w.due)
		defer stop()
		due = ready
	}
	for {
		select {
		case <-w.woken:
			return p.woken(w)
		case <-due:
			due = nil
			if err := w.fire(); err != nil && p.Err() == nil {
				return p.leave(w, err)
			}
		case <-ctx.Done():
			return p.leave(w, p.cause(ctx))
		case <-p.ctx.Done(): // sealed, which the code's own context may not show
			return p.leave(w, p.Err())
		}
	}
}

// goesOn reports whether to wake a waiter: what it waits for has arrived or is
// given up. The caller holds mu.
func (p *Pass) goesOn(w *waiter) bool {
	return w.ready() || w.frame.refusal() != nil
}

// woken returns why a waiter was woken, nil if it may continue.
func (p *Pass) woken(w *waiter) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.sealed != nil:
		return p.sealed
	case w.err != nil:
		return w.err
	case w.ready():
		return nil
	}
	w.frame.cutOff()
	return w.frame.refusal()
}

func (p *Pass) leave(w *waiter, err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiters[w] {
		p.unpark(w)
	}
	if p.sealed != nil {
		return p.sealed
	}
	if fault.IsCut(err) {
		w.frame.cutOff()
	}
	return err
}

// unpark wakes a waiter. The caller holds mu.
func (p *Pass) unpark(w *waiter) {
	delete(p.waiters, w)
	p.shift(w.frame, +1)
	close(w.woken)
}

// shift counts the active threads of control in the pass, and in each frame
// from f up that has a timeout. The caller holds mu.
func (p *Pass) shift(f *frame, by int) {
	p.active += by
	for ; f != nil; f = f.parent {
		if f.limit != nil {
			f.limit.shift(by)
		}
	}
}

// rest waits inside the pass until wait returns. If all active threads of
// control do so, and this pass has recorded nothing yet, that is recorded, so
// that the run is not blamed if the worker dies.
func (p *Pass) rest(wait func() error) error {
	p.mu.Lock()
	p.resting++
	p.mu.Unlock()
	p.settle()
	err := wait()
	p.mu.Lock()
	p.resting--
	p.mu.Unlock()
	return err
}

// rests reports whether to record that the run only waits. The caller holds mu.
func (p *Pass) rests() bool {
	return p.resting > 0 && p.active == p.resting && p.run.Silent && !p.run.Resting && p.sealed == nil
}

// act records that code is about to run that may kill the worker.
func (p *Pass) act() error {
	return p.commit(func() batch {
		return batch{lines: []threads.Line{{Kind: journal.Nudge, Body: journal.Body{Name: journal.NudgeActs}}}}
	})
}

// settle suspends the run if every thread of control is waiting.
func (p *Pass) settle() {
	p.mu.Lock()
	idle := p.active == 0 && p.sealed == nil
	rests := p.rests()
	p.mu.Unlock()
	if rests {
		_ = p.commit(func() batch { // an error has sealed the pass
			if !p.rests() {
				return batch{}
			}
			return batch{lines: []threads.Line{{Kind: journal.Nudge, Body: journal.Body{Name: journal.NudgeRests}}}}
		})
	}
	if !idle {
		return
	}
	p.mode.suspend()
}

// suspend records that the run is suspended, and seals the pass.
func (l live) suspend() {
	p := l.pass
	p.checkOutside("it waits")
	p.order.Lock()
	defer p.order.Unlock()
	dumps := p.dumps()
	err := l.commit(func() batch {
		if p.active != 0 {
			return batch{}
		}
		return p.suspension(batch{}, dumps)
	})
	if err != nil && p.Err() == nil {
		_ = p.lose(err) // the waiters must not wait forever
	}
}

// suspension adds to a batch the entry that suspends the run, or the one that
// hands it over if the worker is about to stop.
func (p *Pass) suspension(b batch, dumps map[string]journal.Value) batch {
	d := threads.Line{Kind: journal.Suspended, Body: journal.Body{Deps: dumps, Fail: failedBranches(p.run, b.lines)}}
	if p.draining {
		d.Kind = journal.Released
	}
	first := b.then
	return batch{
		lines: append(b.lines, d),
		then: func() {
			if first != nil {
				first()
			}
			p.seal(fault.ErrSuspended)
		},
	}
}

// failedBranches says which branches of a run will have failed after lines, nil
// if none, so that whoever sees the run suspended learns about them.
func failedBranches(run *journal.Run, lines []threads.Line) *journal.Failure {
	failing := maps.Clone(run.Failing)
	for _, d := range lines {
		failing = journal.Failing(failing, journal.Entry{Kind: d.Kind, Path: d.Path}, &d.Body)
	}
	var all []string
	for _, branch := range slices.Sorted(maps.Keys(failing)) {
		all = append(all, fmt.Sprintf("branch %s failed: %s", tree.Names(branch), failing[branch].Fail.Msg))
	}
	if all == nil {
		return nil
	}
	return &journal.Failure{Msg: fault.Clip(strings.Join(all, "\n"), fault.MaxMessage)}
}

// open appends the entry with which a verb begins to wait. If nothing else is
// active, the same append suspends the run.
func (p *Pass) open(f *frame, line threads.Line) error {
	p.order.Lock()
	defer p.order.Unlock()
	alone := locked(p, func() bool { return p.active == 1 })
	var dumps map[string]journal.Value
	if alone {
		dumps = p.dumps()
	}
	return p.commitNew(f, func() batch {
		b := batch{lines: []threads.Line{line}}
		// Entries absorbed in between may have woken another thread of control.
		if alone && p.active == 1 && !p.run.Cancelled {
			b = p.suspension(b, dumps)
		}
		return b
	})
}

// commitNew commits the entry with which something begins in a frame, unless a
// sibling branch has failed in the meantime. Waits below a cleanup are marked.
func (p *Pass) commitNew(f *frame, build func() batch) error {
	var closed error
	err := p.mode.commit(func() batch {
		if closed = f.refusal(); closed != nil && !p.run.Cancelled {
			f.cutOff()
			return batch{}
		}
		closed = nil
		b := build()
		if len(b.lines) > 0 {
			b.lines[0].Body.Cleaning = f.cleaning
		}
		return b
	})
	if err == nil {
		err = closed
	}
	return err
}

func (l live) begin(context.Context, *frame) error { return nil }

// gate lets a frame begin something, unless the run is sealed, cancelled or paused.
func (p *Pass) gate(ctx context.Context, f *frame) error {
	for {
		p.mu.Lock()
		held := p.run.PausedAt != 0 || p.draining
		switch {
		case p.sealed != nil:
			defer p.mu.Unlock()
			return p.sealed
		case f.refusal() != nil:
			defer p.mu.Unlock()
			f.cutOff()
			return f.refusal()
		case ctx.Err() != nil:
			p.mu.Unlock()
			return p.cause(ctx)
		case f.pastFailure() != "":
			diff := f.pastFailure()
			p.mu.Unlock()
			return p.block(f, diff)
		case !held || f.cleaning:
			p.mu.Unlock()
			return p.mode.begin(ctx, f)
		}
		p.mu.Unlock()
		w := &waiter{frame: f, ready: func() bool {
			return p.run.PausedAt == 0 && !p.draining || f.refusal() != nil
		}}
		if err := p.park(ctx, w); err != nil {
			return err
		}
	}
}

// cutCause is cause for a frame that gives something up because of it.
func (p *Pass) cutCause(ctx context.Context, f *frame) error {
	err := p.cause(ctx)
	if fault.IsCut(err) {
		p.mu.Lock()
		defer p.mu.Unlock()
		f.cutOff()
	}
	return err
}

// cause returns why a context of the run ended.
func (p *Pass) cause(ctx context.Context) error {
	if err := p.Err(); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// stopwatch limits how long something below a frame may be active in total.
type stopwatch struct {
	active  int
	left    time.Duration
	running time.Time
	timer   *time.Timer
	over    func()
}

func (s *stopwatch) shift(by int) {
	was := s.active > 0
	s.active += by
	switch now := s.active > 0; {
	case now && !was:
		s.running = time.Now()
		s.timer = time.AfterFunc(max(s.left, 1), s.over) // never fires at once, see internal/bell
	case was && !now:
		s.timer.Stop()
		s.left -= time.Since(s.running)
	}
}
