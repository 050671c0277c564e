package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/lifecycle"
	"github.com/perdure/perdure/internal/scrub"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/internal/tree"
)

// FlowFunc is the function of a flow.
type FlowFunc func(ctx context.Context, in json.RawMessage) (json.RawMessage, error)

// NewPass returns the pass of a run that a worker has claimed with entries. Solo
// says that the run is a suspect, which is executed alone.
func (c *Engine) NewPass(h Holder, io context.Context, o *threads.Opened, run *journal.Run, entries []journal.Entry, solo bool) *Pass {
	p := c.passOf(io, o.Name, o.Thread, run, o.Trees[run.N])
	p.holder, p.epoch, p.solo, p.mode = h, o.Thread.Epoch, solo, live{p}
	c.observe(p, entries)
	return p
}

// passOf returns a pass without a mode.
func (c *Engine) passOf(io context.Context, name string, t *journal.Thread, run *journal.Run, memo *tree.Tree) *Pass {
	p := &Pass{engine: c, name: name, io: io, born: time.Now(), order: make(turn, 1), thread: t, run: run, tree: memo,
		active: 1, waiters: map[*waiter]bool{}, drained: make(chan struct{}),
		calls: map[*step]bool{}, spending: map[*frame]bool{}, deps: depSet{byID: map[string]*depValue{}}, leaves: map[*frame]*leafWatch{}}
	p.ctx, p.end = context.WithCancelCause(context.WithoutCancel(io))
	p.runCtx, p.cancel = context.WithCancelCause(p.ctx)
	p.runCtx, p.secrets = scrub.With(p.runCtx)
	return p
}

// Execute runs the function of the flow until the pass is sealed.
func (p *Pass) Execute(fn FlowFunc) {
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		p.watch()
	}()
	over := p.engine.noteExecuting(p.name)
	defer over()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.flow(fn)
	}()
	<-ended
	p.mu.Lock()
	p.seal(fault.ErrFenced) // nothing can be left open
	p.mu.Unlock()
	<-watching
	p.closeDeps()
}

// DueLines returns what is to be appended about waits whose time is over.
func DueLines(t *journal.Thread, run *journal.Run, now int64) []threads.Line {
	var lines []threads.Line
	size := 0 // of defaults, which may be large: the rest comes later
	for _, path := range slices.Sorted(maps.Keys(run.Waits)) {
		if w := run.Waits[path]; w.Due != 0 && w.Due <= now && len(lines) < 32 {
			l := dueLine(t, run, path, w)
			if l.Body.Answer != nil {
				size += len(l.Body.Answer.Value.JSON) + len(l.Body.Answer.Message)
			}
			if size > 128<<10 && len(lines) > 0 {
				break
			}
			lines = append(lines, l)
		}
	}
	return lines
}

// flow calls the flow's function and records how the run ended.
func (p *Pass) flow(fn FlowFunc) {
	root := &frame{pass: p, memo: p.tree.Frame(), now: p.run.Created, attempt: 1,
		view: &view{base: p.run.BaseState}}
	root.view.apply(p.tree.Root.State) // edited in a fork before anything was recorded
	if p.run.Cancelled {
		p.cancel(fault.ErrCancelled)
	}
	var out json.RawMessage
	err := errors.New("perdure: the flow left by runtime.Goexit")
	defer func() {
		if stop := root.left(err); stop != nil {
			return
		}
		p.mode.finish(out, err)
	}()
	in, loadErr := p.load(root, p.run.Input)
	if loadErr != nil { // it has sealed the pass
		err = loadErr
		return
	}
	out, err = invoke(root.with(p.runCtx), func(ctx context.Context) (json.RawMessage, error) { return fn(ctx, in) })
}

func (l live) finish(out json.RawMessage, err error) {
	p := l.pass
	b := journal.Body{Status: string(journal.StatusSucceeded), Value: journal.Value{JSON: out}}
	if err != nil {
		b = journal.Body{Status: string(journal.StatusFailed), Fail: p.failure(err)}
	} else if b.Ref = p.alike("", out); b.Ref != 0 {
		b.Value = journal.Value{}
	}
	p.checkOutside("the end")
	if p.cancelChildren(false) != nil { // it has sealed the pass
		return
	}
	p.order.Lock()
	defer p.order.Unlock()
	b.Deps = p.dumps()
	if err := p.fit(&b); err != nil {
		return
	}
	err = l.commit(func() batch {
		end := b
		end.Unknown = lifecycle.UnknownOutcomes(p.run)
		if p.run.Cancelled {
			end.Status = string(journal.StatusCancelled)
		}
		return batch{
			lines: []threads.Line{{Kind: journal.Ended, Body: end}},
			then:  func() { p.seal(errEnded) },
		}
	})
	if err != nil && p.Err() == nil {
		_ = p.lose(err)
	}
}

var errEnded = errors.New("perdure: the run has ended")

// Drain lets the pass begin nothing new, so that it is handed over.
func (p *Pass) Drain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.draining {
		p.draining = true
		close(p.drained)
	}
}

// Release hands the run over although a step is still running.
func (p *Pass) Release() {
	_ = p.commit(func() batch {
		return batch{
			lines: []threads.Line{{Kind: journal.Released}},
			then:  func() { p.seal(fmt.Errorf("%w: the worker stopped", fault.ErrFenced)) },
		}
	})
}
