package engine

import (
	"context"
	"encoding/json"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/tree"
)

// Scope calls fn in its own frame. Stop says why the outer frame has to stop.
func Scope(ctx context.Context, name string, fn func(context.Context) error) (stop, err error) {
	f, v, err := enter(ctx, tree.Scope, name, tree.Options{})
	if err != nil {
		return err, nil
	}
	defer f.finish()
	inner := f.child(f.memo.EnterScope(v))
	clean := false
	defer func() {
		if !clean { // fn panicked or exited, which also ends the frame
			_ = inner.left(fault.ErrPanic)
		}
	}()
	err = fn(inner.with(ctx))
	clean = true
	if stop := inner.left(err); stop != nil {
		return stop, nil
	}
	f.pass.mu.Lock()
	f.now = max(f.now, inner.now)
	f.pass.mu.Unlock()
	return nil, err
}

// recordTimeouts records that frames around a cleanup have timed out, before
// anything is recorded as a result: a new pass starts with fresh clocks.
func (f *frame) recordTimeouts() error {
	p := f.pass
	for g := f; g != nil; g = g.parent {
		path := g.memo.Path()
		p.mu.Lock()
		n := p.tree.At(path)
		over := g.timedOut && p.sealed == nil && (n == nil || !n.TimedOut)
		p.mu.Unlock()
		if !over {
			continue
		}
		b := journal.Body{Name: journal.TimeOver, Fail: fault.Failure(fault.ErrTimeout)}
		if err := p.record(path, journal.Problem, &b, nil); err != nil {
			return err
		}
	}
	return nil
}

// Cleanup runs a step on the way out.
func Cleanup(ctx context.Context, name string, fn func(context.Context) error) error {
	f, err := inside(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	stop := context.AfterFunc(f.pass.ctx, func() { cancel(f.pass.Err()) })
	defer stop()
	if err := f.recordTimeouts(); err != nil {
		return err
	}
	f.pass.mu.Lock()
	was := f.cleaning
	f.cleaning = true
	f.pass.mu.Unlock()
	defer func() {
		f.pass.mu.Lock()
		f.cleaning = was
		f.pass.mu.Unlock()
	}()
	_, err = Step(ctx, tree.Cleanup, name, nil, func(ctx context.Context) (json.RawMessage, error) {
		return nil, fn(ctx)
	}, nil)
	return err
}
