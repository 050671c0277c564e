package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/internal/tree"
)

// Group runs branches concurrently: see perdure.Group.
type Group struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	frame  *frame
	err    error // of NewGroup, or of a Go that could not start

	fast     bool // a failed branch closes the others
	started  bool
	over     bool
	number   int
	branches []*branch
	left     int
	waiting  bool
	woken    chan struct{}
	judged   chan struct{} // closed when all branches are known
	wg       sync.WaitGroup
}

type branch struct {
	frame  *frame
	cancel context.CancelCauseFunc
	err    error
}

// NewGroup returns a group in the frame of ctx. If fast is set, a failed branch
// closes the others.
func NewGroup(ctx context.Context, fast bool) *Group {
	g := &Group{fast: fast, woken: make(chan struct{}), judged: make(chan struct{})}
	g.frame, g.err = inside(ctx)
	g.ctx, g.cancel = context.WithCancelCause(ctx)
	return g
}

// Go starts a branch.
func (g *Group) Go(name string, fn func(context.Context) error) {
	if g.err != nil {
		return
	}
	f := g.frame
	if err := tree.CheckName(name); err != nil {
		g.err = fmt.Errorf("%w: %w", fault.ErrName, err)
		return
	}
	if g.over {
		g.err = fmt.Errorf("%w: Go after Wait; use a new group", fault.ErrConcurrent)
		return
	}
	if !g.started {
		if g.err = f.begin("group with branch", name); g.err != nil {
			return
		}
	}
	p := f.pass
	p.mu.Lock()
	if !g.started {
		g.started, f.group, g.number = true, g, f.memo.Group()
	}
	memo, err := f.memo.Branch(name, g.number)
	if err != nil {
		g.err = fmt.Errorf("%w: branch %s/%s: %w", fault.ErrName, f.path(), name, err)
		p.mu.Unlock()
		return
	}
	if diff := f.memo.NotBranch(name); diff != "" && !p.run.Cancelled && f.closedBy() == nil {
		p.mu.Unlock()
		g.err = p.block(f, diff)
		return
	}
	b := &branch{frame: f.child(memo)}
	b.frame.view = newView(f.view)
	b.frame.branch = &branchRef{outer: f.branch, group: g}
	ctx, cancel := context.WithCancelCause(g.ctx)
	b.cancel = cancel
	if closer := memo.Closer(); closer != nil { // in an earlier pass, or before this Go
		b.frame.branch.failed = closer.Name == name
		g.closeBranch(b)
	}
	g.branches = append(g.branches, b)
	g.left++
	p.shift(b.frame, +1)
	p.mu.Unlock()
	g.wg.Add(1)
	go g.run(ctx, b, fn)
}

func (g *Group) run(ctx context.Context, b *branch, fn func(context.Context) error) {
	defer g.wg.Done()
	p := g.frame.pass
	exited := true
	defer func() {
		if r := recover(); r != nil {
			b.err = &fault.Panicked{Value: r, Stack: string(debug.Stack())}
		} else if exited {
			b.err = errors.New("perdure: a branch called runtime.Goexit")
		}
		if stop := b.frame.left(b.err); stop != nil {
			b.err = stop
		}
		if b.err != nil && g.fast {
			g.failed(b)
		}
		b.cancel(nil)
		p.mu.Lock()
		g.left--
		if g.left == 0 && g.waiting {
			p.shift(g.frame, +1) // the frame continues before its last branch is gone
			g.waiting = false
			close(g.woken)
		}
		p.shift(b.frame, -1)
		p.mu.Unlock()
		p.settle()
	}()
	b.err = fault.Sound(fn(b.frame.with(ctx)))
	exited = false
}

// closeBranch closes a branch, unless it is the one that failed. The caller
// holds mu.
func (g *Group) closeBranch(b *branch) {
	if !b.frame.branch.failed {
		b.frame.branch.closed = true
		b.cancel(fault.ErrFailedFast)
	}
}

// failed records that a branch was the first to fail, and closes the others.
func (g *Group) failed(b *branch) {
	p := g.frame.pass
	err := p.commit(func() batch {
		if p.run.Cancelled || g.frame.closedBy() != nil || b.frame.memo.Closer() != nil {
			return batch{}
		}
		return batch{
			lines: []threads.Line{{Kind: journal.Closed, Path: b.frame.memo.Path(), Body: journal.Body{Fail: p.failure(b.err)}}},
			then: func() {
				b.frame.branch.failed = true
				for _, other := range g.branches {
					g.closeBranch(other)
				}
				for w := range p.waiters {
					if p.goesOn(w) {
						p.unpark(w)
					}
				}
			},
		}
	})
	if err == nil {
		_ = p.cancelChildren(true) // an error has sealed the pass
	}
}

// pastFailure returns a diff if the code continues in a failed branch. The
// caller holds mu.
func (f *frame) pastFailure() string {
	for b := f.branch; b != nil; b = b.outer {
		if b.failed {
			return fmt.Sprintf("in %s:\n- recorded: its branch failed and closed those beside it\n+ the code: goes on", f.path())
		}
	}
	return ""
}

// Wait waits for all branches and returns their errors.
func (g *Group) Wait() error {
	if g.frame == nil {
		return g.err
	}
	p := g.frame.pass
	if !g.started {
		g.over = true
		return g.err
	}
	p.mu.Lock()
	if g.over {
		p.mu.Unlock()
		return fmt.Errorf("%w: Wait was already called", fault.ErrConcurrent)
	}
	g.over = true
	close(g.judged)
	wait := g.left > 0
	if wait {
		g.waiting = true
		p.shift(g.frame, -1)
	}
	p.mu.Unlock()
	if wait {
		p.settle()
		<-g.woken
	}
	g.wg.Wait()
	g.cancel(nil)
	defer g.frame.finish()

	p.mu.Lock()
	g.frame.group = nil
	var nodes []*tree.Node
	var errs []error
	var failed *branch
	for _, b := range g.branches {
		nodes = append(nodes, b.frame.memo.Node())
		g.frame.now = max(g.frame.now, b.frame.now)
		errs = append(errs, b.err)
		if b.frame.branch.failed {
			failed = b
		}
	}
	g.frame.view.apply(tree.Changes(nodes...))
	sealed, diff := p.sealed, ""
	if failed != nil && sealed == nil && !p.run.Cancelled && g.frame.closedBy() == nil {
		errs = []error{failed.err}
		if failed.err == nil {
			diff = fmt.Sprintf("at %s:\n- recorded: the branch failed and closed those beside it\n+ the code: it succeeds", failed.frame.path())
		}
	}
	p.mu.Unlock()
	switch {
	case sealed != nil:
		return sealed
	case diff != "":
		return p.block(g.frame, diff)
	}
	if failed != nil {
		if err := p.cancelChildren(true); err != nil { // a crash may have prevented it before
			return err
		}
	}
	return errors.Join(append(errs, g.err)...)
}

// abandon ends a group whose frame returned without Wait.
func (g *Group) abandon() {
	cause := fmt.Errorf("%w: its frame returned", context.Canceled)
	p := g.frame.pass
	p.mu.Lock()
	// Its waiters become active again before Wait checks whether everything
	// waits.
	for w := range p.waiters {
		for b := w.frame.branch; b != nil; b = b.outer {
			if b.group == g {
				w.err = cause
				p.unpark(w)
				break
			}
		}
	}
	p.mu.Unlock()
	g.cancel(cause)
	_ = g.Wait()
}
