package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"time"

	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/exact"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/internal/tree"
	"github.com/perdure/perdure/store"
)

type step struct {
	*StepOptions
	frame  *frame // the frame it is in
	verb   tree.Verb
	path   string
	result reflect.Type    // of its function, nil for none
	shown  json.RawMessage // data of the question about its outcome
	fn     func(context.Context) (json.RawMessage, error)

	inner    *frame // the frame of its function, once called
	returned error  // the error of an at-most-once function in this pass
}

// noOptions are the options of a step without any.
var noOptions = new(StepOptions)

// Step runs fn until its outcome is recorded, and returns that. Result is the
// type that the caller decodes it into.
func Step(ctx context.Context, verb tree.Verb, name string, result reflect.Type, fn func(context.Context) (json.RawMessage, error), opts []StepOption) (json.RawMessage, error) {
	o := noOptions
	if len(opts) > 0 {
		o = new(StepOptions)
		for _, set := range opts {
			set(o)
		}
	}
	err := o.check()
	var shown json.RawMessage
	if err == nil && o.Asks != nil {
		_, _, shown, err = checkQuestion(ctx, *o.Asks, exact.KindOf(result))
	}
	if err != nil {
		return nil, fmt.Errorf("step %q: %w", name, err)
	}
	f, v, err := enter(ctx, verb, name, tree.Options{Input: o.Input, Renamed: o.Renamed, Added: o.Added, Allows: o.Allows})
	if err != nil {
		return nil, err
	}
	defer f.finish()
	n := v.Node
	if n != nil && n.Done && !n.Composite() {
		return f.result(n)
	}
	s := &step{StepOptions: o, frame: f, verb: verb, path: v.Path, result: result, shown: shown, fn: fn}
	if n != nil && n.Done {
		if err := f.pass.mode.passed(ctx, s, n); err != nil {
			return nil, err
		}
		return f.result(n)
	}
	if err := f.pass.mode.run(ctx, s); err != nil {
		// What is recorded inside an interrupted step has happened.
		if n := f.pass.node(s.path); n != nil && fault.IsCut(err) {
			f.takeOver(n)
			if locked(f.pass, func() bool { return n.Intent }) {
				err = fmt.Errorf("%w; step %s may have happened: %w", err, tree.Names(s.path), fault.ErrUnknownOutcome)
			}
		}
		return nil, err
	}
	return f.result(f.pass.node(s.path))
}

func (l live) passed(context.Context, *step, *tree.Node) error { return nil }

// run makes attempts until the outcome is recorded. The error says why it is
// not.
func (l live) run(ctx context.Context, s *step) error {
	p := l.pass
	for {
		attempt, unknown := 1, false
		n := p.started(s.path)
		if n != nil {
			attempt, unknown = n.Attempts+1, n.Intent
		}
		if unknown {
			if !s.Once {
				return s.notOnce()
			}
			if done, err := s.decide(ctx); done || err != nil {
				return err
			}
			continue
		}
		if err := s.backoff(ctx, n); err != nil {
			return err
		}
		// A composite that began before it was interrupted is entered for its
		// cleanups; nothing else starts inside it.
		if err := p.gate(ctx, s.frame); err != nil {
			if begun := locked(p, func() bool { return n != nil && n.Composite() }); !begun || !fault.IsCut(err) {
				return err
			}
		}
		if done, err := s.call(ctx, attempt); done || err != nil {
			return err
		}
	}
}

// notOnce blocks the run because the step used to be at-most-once.
func (s *step) notOnce() error {
	return s.frame.pass.block(s.frame, fmt.Sprintf("at %s:\n- recorded: the start of an at-most-once step\n+ the code: a step that is not AtMostOnce", tree.Names(s.path)))
}

// call makes an attempt once the worker's lease is valid, unless nothing more
// may start. It returns true if the step then has its outcome.
func (s *step) call(ctx context.Context, attempt int) (bool, error) {
	p := s.frame.pass
	if err := p.holder.AwaitLease(p.ctx); err != nil {
		return false, p.lose(err)
	}
	p.mu.Lock()
	halted := p.halted
	if !halted {
		p.calls[s] = true
	}
	p.mu.Unlock()
	if halted {
		<-p.ctx.Done()
		return false, p.Err()
	}
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.calls, s)
	}()
	if s.Once {
		if intended, err := s.intend(); err != nil || !intended {
			return false, err
		}
	}
	return s.attempt(ctx, attempt)
}

// shortWait is the longest wait between attempts that is spent in memory.
const shortWait = 2 * time.Second

// backoff waits until the next attempt is due, in memory if that is soon.
func (s *step) backoff(ctx context.Context, n *tree.Node) error {
	p := s.frame.pass
	if n == nil || n.Due == 0 {
		return nil
	}
	if n.Timer {
		fire := func() error {
			return p.commit(func() batch {
				if !n.Timer || s.frame.refusal() != nil {
					return batch{}
				}
				return batch{lines: []threads.Line{{Kind: journal.Fired, Path: s.path}}}
			})
		}
		if clock.Micros() >= n.Due {
			return fire()
		}
		return p.park(ctx, &waiter{frame: s.frame, due: n.Due, fire: fire, ready: func() bool { return !n.Timer }})
	}
	due, stop := clock.Alarm(n.Due)
	defer stop()
	drained := p.drained
	if s.frame.cleaning {
		drained = nil // it continues in any case
	}
	select {
	case <-due:
		return nil
	case <-drained:
		return nil // the gate does not let it begin
	case <-ctx.Done():
		return p.cutCause(ctx, s.frame)
	case <-p.ctx.Done():
		return p.Err()
	}
}

// attempt calls the function once and records the result. It returns true if
// that is the outcome of the step.
func (s *step) attempt(ctx context.Context, attempt int) (bool, error) {
	p := s.frame.pass
	inner := s.enter(attempt)

	ctx, unlimited := s.limit(ctx, inner)
	defer unlimited()
	ctx, observed := p.engine.stepStarted(ctx, inner, s.Attrs)
	p.watchLeaf(inner)
	exited := true
	defer func() {
		p.unwatchLeaf(inner)
		p.deps.letGo(inner)
		_ = inner.rollback()
		if exited { // by runtime.Goexit, which also ends the frame
			_ = inner.left(fault.ErrFenced)
		}
	}()
	began := time.Now()
	raw, err := s.perform(ctx, inner)
	inner.took = time.Since(began).Microseconds()
	exited = false
	p.leafReturned(inner)
	if stop := inner.left(err); stop != nil {
		observed(stop)
		return false, stop
	}
	if stop := s.stopped(inner, err); stop != nil {
		observed(cmp.Or(err, stop))
		_ = inner.rollback()
		if !inner.verbs {
			p.order.Lock()
			p.settledInside() // its changes are void, but did not happen outside a leaf
			p.order.Unlock()
		}
		if err != nil && fault.IsCut(stop) {
			s.leftover(inner, err)
		}
		return false, stop
	}
	if err == nil {
		switch stop, stopErr := s.succeed(inner, raw); {
		case errors.Is(stopErr, store.ErrRolledBack):
			_ = inner.rollback()
			if stop := s.stopped(inner, stopErr); stop != nil {
				observed(stop)
				return false, stop
			}
			err = stopErr
		case errors.Is(stopErr, fault.ErrTooLarge):
			_ = inner.rollback()
			err = stopErr
		default:
			observed(stopErr) // a result that is not in the journal is none
			return stop, stopErr
		}
	}
	observed(err)
	return s.fail(ctx, inner, err)
}

func (s *step) enter(attempt int) *frame {
	p := s.frame.pass
	inner := s.frame.child(s.frame.memo.Enter(s.path))
	inner.step, inner.once, inner.inTx, inner.attempt = true, s.Once, s.InTx, attempt
	inner.cleaning = inner.cleaning || s.verb == tree.Cleanup
	inner.view = newView(s.frame.view)
	p.mu.Lock()
	defer p.mu.Unlock()
	s.inner = inner
	return inner
}

// limit ends the context of an attempt at its timeout, until unlimited is called.
func (s *step) limit(ctx context.Context, inner *frame) (_ context.Context, unlimited func()) {
	if s.Timeout <= 0 {
		return ctx, func() {}
	}
	p := s.frame.pass
	limited, cancel := context.WithCancelCause(ctx)
	over := func() {
		p.mu.Lock()
		inner.timedOut = true
		p.mu.Unlock()
		cancel(fmt.Errorf("%w: step %s after %v", fault.ErrTimeout, inner.path(), s.Timeout))
	}
	w := &stopwatch{left: s.Timeout, over: over}
	if n := p.node(s.path); n != nil && n.TimedOut {
		over() // in an earlier pass, which has already cleaned up
	}
	p.mu.Lock()
	inner.limit = w
	w.shift(+1)
	p.mu.Unlock()
	return limited, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if w.active > 0 {
			w.shift(-w.active)
		}
		cancel(nil)
	}
}

// stopped returns why the end of an attempt is not an outcome: the run was
// cancelled or sealed while it ran.
func (s *step) stopped(inner *frame, err error) error {
	p := s.frame.pass
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sealed != nil {
		return p.sealed
	}
	// A function that fails once its context has been cancelled was
	// interrupted; one that finishes still has a result.
	if why := inner.refusal(); why != nil && (inner.cut || err != nil) {
		s.frame.cutOff()
		return why
	}
	return nil
}

// leftover records what remains of a cancelled attempt: what it spent, and that
// an at-most-once step did not happen.
func (s *step) leftover(inner *frame, err error) {
	kind, notDone := journal.Problem, s.Once && fault.IsNotDone(err)
	if notDone {
		kind = journal.Attempt
	} else if len(inner.pending.spend) == 0 {
		return
	}
	p := s.frame.pass
	b := journal.Body{Attempt: inner.attempt, NotDone: notDone, Fail: p.failure(err), Spend: inner.pending.spend}
	_ = p.record(s.path, kind, &b, inner)
}

// succeed records a result, with what the leaf changed.
func (s *step) succeed(inner *frame, raw json.RawMessage) (bool, error) {
	p := s.frame.pass
	b := journal.Body{Input: s.Input, Verb: s.verbName(), Allows: s.Allows, Value: journal.Value{JSON: raw},
		State: inner.pending.changes, Spend: inner.pending.spend}
	if inner.verbs && len(b.State) == 0 { // a change may refer to the value
		b.Ref = p.alike(s.path, raw)
	}
	if b.Ref != 0 {
		b.Value = journal.Value{}
	}
	return true, p.record(s.path, journal.Step, &b, inner)
}

// fail records a failed attempt, or the failure that ends the step.
func (s *step) fail(ctx context.Context, inner *frame, err error) (bool, error) {
	p := s.frame.pass
	if cause := context.Cause(ctx); errors.Is(cause, fault.ErrTimeout) && !errors.Is(err, fault.ErrTimeout) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	notDone := fault.IsNotDone(err)
	if s.Once && !notDone {
		// The intent stands: the next iteration decides what became of it.
		s.returned = err
		return false, p.record(s.path, journal.Problem, &journal.Body{Fail: p.failure(err), Spend: inner.pending.spend}, inner)
	}
	return s.failed(inner.attempt, err, s.policy(1), inner)
}

// failed records a failed attempt, and when the next one is due, if any.
func (s *step) failed(attempt int, err error, policy RetryPolicy, inner *frame) (bool, error) {
	p := s.frame.pass
	b := journal.Body{Input: s.Input, Verb: s.verbName(), Fail: p.failure(err), NotDone: s.Once}
	if inner != nil {
		b.Spend = inner.pending.spend
	}
	s.returned = nil
	cleaned := locked(p, func() bool { return p.tree.At(s.path).Cleaned() })
	if attempt >= cmp.Or(policy.Attempts, 3) || fault.IsPermanent(err) || cleaned {
		return true, p.record(s.path, journal.Step, &b, inner)
	}
	b.Attempt, b.Most = attempt, cmp.Or(policy.Attempts, 3)
	wait := max(policy.delay(attempt, p.key(s.path)), fault.RetryAfter(err))
	b.Due, b.Timer, b.Cleaning = clock.Now().Add(wait).UnixMicro(), wait > shortWait, s.frame.cleaning
	if err := p.record(s.path, journal.Attempt, &b, inner); err != nil {
		return false, err
	}
	p.engine.threads.Log.WarnContext(p.runCtx, "an attempt failed", "thread", p.thread.ID, "run", p.run.ID, "path", tree.Names(s.path), "attempt", attempt, "of", b.Most, "next", clock.Stamp(b.Due), "error", b.Fail.Msg)
	return false, nil
}

func (s *step) verbName() string {
	if s.verb == tree.Step {
		return ""
	}
	return string(s.verb)
}

// record appends one entry for a node. If it is the outcome of a leaf, the deps
// that the leaf may have changed are saved with it.
func (p *Pass) record(path string, kind journal.Kind, body *journal.Body, leaf *frame) error {
	var tx *transaction // if there is one, it holds the first part of the order
	if leaf != nil {
		tx = locked(p, func() *transaction { return leaf.tx })
	}
	if tx == nil {
		p.order.tx.Lock()
		defer p.order.tx.Unlock()
	}
	p.order.tail.Lock()
	defer p.order.tail.Unlock()
	if leaf != nil {
		defer p.unwatchLeaf(leaf) // before the next is recorded
	}
	p.inTx = tx
	defer func() { p.inTx = nil }()
	p.recording[0] = threads.Line{Kind: kind, Path: path, Body: *body}
	defer func() { p.recording[0] = threads.Line{} }()
	b := &p.recording[0].Body
	if leaf != nil && !leaf.verbs {
		p.settledInside()
		if kind == journal.Step || kind == journal.Attempt {
			b.Took = leaf.took
		}
	}
	if leaf != nil && len(leaf.pending.edits) > 0 && b.Fail == nil {
		p.rebase(&leaf.pending)
		b.State = leaf.pending.changes
	}
	if leaf != nil && !leaf.verbs && b.Fail == nil {
		b.Deps = p.dumpWhere(func(v *depValue) bool { return p.concerns(v, leaf) })
	}
	if err := p.fit(b); err != nil {
		return err
	}
	return p.mode.commit(func() batch {
		if !p.spending[leaf] {
			return batch{lines: p.recording[:], in: tx}
		}
		return batch{lines: p.recording[:], in: tx, then: func() { delete(p.spending, leaf) }}
	})
}

// alike returns the entry of a descendant that holds the same value, so that
// the value need not be written again.
func (p *Pass) alike(path string, raw json.RawMessage) uint64 {
	if len(raw) < 64 {
		return 0
	}
	return locked(p, func() uint64 { return p.tree.At(path).Holder(raw) })
}

// invoke calls user code and turns a panic into an error with its stack.
func invoke[T any](ctx context.Context, fn func(context.Context) (T, error)) (v T, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &fault.Panicked{Value: r, Stack: string(debug.Stack())}
		}
	}()
	v, err = fn(ctx)
	return v, fault.Sound(err)
}
