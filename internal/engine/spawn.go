package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/lifecycle"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/internal/tree"
)

// Child is a thread that a run has spawned.
type Child struct {
	Id     string
	parent string // name of its parent's thread
	run    uint64
}

// maxDescent is how many ancestors a child may have.
const maxDescent = 64

// Spawn starts a child.
func Spawn(ctx context.Context, name, flow string, in any) (*Child, error) {
	raw, err := checkSpawn(ctx, flow, in)
	if err != nil {
		return nil, fmt.Errorf("spawn %q: %w", name, err)
	}
	f, v, err := enter(ctx, tree.Spawn, name, tree.Options{})
	if err != nil {
		return nil, err
	}
	defer f.finish()
	p := f.pass
	p.mu.Lock()
	child, _ := p.run.ChildAt(v.Path)
	started := child != nil && child.Joined
	fresh := child == nil || p.mode.replaced(child, v.Node)
	p.mu.Unlock()
	if fresh {
		if err := p.gate(ctx, f); err != nil {
			return nil, err
		}
		if child, err = p.recordSpawn(f, v.Path, flow, raw); err != nil {
			return nil, err
		}
	}
	if fresh || !started {
		if err := p.mode.startChild(child); err != nil {
			return nil, err
		}
	}
	f.takeOver(p.node(v.Path))
	return &Child{Id: child.ID, parent: p.name, run: p.run.N}, nil
}

// checkSpawn returns the JSON of a child's input. What it refuses is refused in
// every replay, before the verb counts as visited.
func checkSpawn(ctx context.Context, flow string, in any) (json.RawMessage, error) {
	f, err := inside(ctx)
	if err != nil {
		return nil, err
	}
	if err := tree.CheckName(flow); err != nil {
		return nil, fmt.Errorf("%w: flow: %w", fault.ErrName, err)
	}
	if d := lifecycle.Depth(f.pass.thread); d >= maxDescent {
		return nil, fmt.Errorf("%w: thread %s is %d levels below its first ancestor, which is the limit", fault.ErrInvalid, f.pass.thread.ID, d)
	}
	return f.pass.engine.opts.CheckInput(flow, in)
}

func (p *Pass) recordSpawn(f *frame, path, flow string, in json.RawMessage) (child *journal.Child, err error) {
	value, err := p.value(in)
	if err != nil {
		return nil, err
	}
	p.order.Lock()
	defer p.order.Unlock()
	err = p.commitNew(f, func() batch {
		_, earlier := p.run.ChildAt(path)
		texts := []string{"child", p.key(path), strconv.Itoa(earlier)}
		if n := p.thread.Rewinds; n > 0 { // the number may have belonged to a child that was taken back
			texts = append(texts, strconv.Itoa(n))
		}
		id := threads.Base32.EncodeToString(p.engine.threads.Hash(texts...)[:15])
		budget := maps.Clone(p.run.Budget)
		for unit, limit := range budget {
			budget[unit] = max(0, limit-p.run.Spent[unit])
		}
		return batch{
			lines: []threads.Line{{Kind: journal.Spawned, Path: path, Body: journal.Body{Child: id, Flow: flow, Budget: budget, Value: value}}},
			then:  func() { child, _ = p.run.ChildAt(path) },
		}
	})
	return child, err
}

// Join waits for the end of a child and returns its output.
func Join(ctx context.Context, name string, c *Child) (json.RawMessage, error) {
	f, err := inside(ctx)
	if err != nil {
		return nil, err
	}
	p := f.pass
	child, err := p.childOf(c)
	if err != nil {
		return nil, fmt.Errorf("join %q: %w", name, err)
	}
	f, v, err := enter(ctx, tree.Join, name, tree.Options{})
	if err != nil {
		return nil, err
	}
	defer f.finish()
	for {
		p.mu.Lock()
		n := p.tree.At(v.Path)
		done, waits := n != nil && n.Done, n != nil && n.Open != 0
		told, end, other := child.Joined, child.End, child.Other
		again := told && child.Failed && p.run.Retries > child.Retries
		p.mu.Unlock()
		if done {
			return f.result(n)
		}
		if err := p.gate(ctx, f); err != nil {
			return nil, err
		}
		if again && other {
			if child, err = p.replaceChild(f, child); err != nil {
				return nil, err
			}
			continue
		}
		if again {
			if again, err = p.retryChild(child); err != nil {
				return nil, err
			}
		}
		switch {
		case told && !again:
			err = p.joined(v.Path, child, end)
		case again || !waits:
			err = p.awaitChild(f, v.Path, child, end)
		default:
			err = p.park(ctx, &waiter{frame: f, ready: func() bool { return n.Done || child.Joined }})
		}
		if err != nil {
			return nil, err
		}
	}
}

// childOf returns what the run knows about a child.
func (p *Pass) childOf(c *Child) (*journal.Child, error) {
	if c == nil {
		return nil, fmt.Errorf("%w: no child; Spawn returns one", fault.ErrInvalid)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	child := p.run.Child(journal.ChildSignal(c.Id))
	if child != nil && child.Stale && child.Other {
		child, _ = p.run.ChildAt(child.Path) // a Join has replaced it
	}
	switch {
	case c.parent != p.name || c.run != p.run.N || child == nil:
		return nil, fmt.Errorf("%w: child %s belongs to another run; only the run that spawned it can join it", fault.ErrInvalid, c.Id)
	case child.Stale && p.mode.replaced(child, p.tree.At(child.Path)):
		return nil, fmt.Errorf("%w: child %s was replaced by another; use the one that Spawn returned in this pass", fault.ErrInvalid, c.Id)
	}
	return child, nil
}

// joined records at a path the end of a child that the run already knows.
func (p *Pass) joined(path string, child *journal.Child, end uint64) error {
	e, err := patient(p, nil, func() (journal.Body, error) { return p.engine.threads.BodyAt(p.io, p.name, end) })
	if err != nil {
		return err
	}
	return p.commit(func() batch {
		if n := p.tree.At(path); child.End != end || n != nil && n.Done {
			return batch{}
		}
		return batch{lines: []threads.Line{{Kind: journal.Received, Path: path,
			Body: journal.Body{Name: journal.ChildSignal(child.ID), Status: e.Status, Ref: end, Value: e.Value, Fail: e.Fail}}}}
	})
}

// awaitChild records that the frame waits for the end of a child, unless a
// newer end has been reported in the meantime.
func (p *Pass) awaitChild(f *frame, path string, child *journal.Child, end uint64) error {
	p.order.Lock()
	defer p.order.Unlock()
	dumps := p.dumps()
	return p.commitNew(f, func() batch {
		if child.Joined && child.End != end {
			return batch{}
		}
		b := batch{lines: []threads.Line{{Kind: journal.Waiting, Path: path, Body: journal.Body{Name: journal.ChildSignal(child.ID)}}}}
		if p.active == 1 && !p.run.Cancelled {
			b = p.suspension(b, dumps)
		}
		return b
	})
}

// replaced reports whether a child belongs to another thread, or was given up.
func (l live) replaced(child *journal.Child, _ *tree.Node) bool { return child.Stale || child.Doomed }

// startChild makes sure that a child was started, or ends the pass.
func (l live) startChild(child *journal.Child) error {
	p := l.pass
	if err := p.Err(); err != nil {
		return err
	}
	if _, err := p.life().StartChild(p.io, p.name, p.thread, p.run, child, p.traceContext()); err != nil {
		return p.lose(fmt.Errorf("starting child %s: %w", child.ID, err))
	}
	return nil
}

// cancelChildren cancels the children whose end the run does not know, or only
// those whose branch was closed if doomed is set.
func (p *Pass) cancelChildren(doomed bool) error {
	p.mu.Lock()
	over, open := p.sealed, p.run.OpenChildren()
	if doomed {
		open = slices.DeleteFunc(open, func(c *journal.Child) bool { return !c.Doomed })
	}
	p.mu.Unlock()
	if over != nil || len(open) == 0 {
		return over
	}
	return p.mode.cancelChildren(open)
}

func (l live) cancelChildren(open []*journal.Child) error {
	p := l.pass
	if err := p.life().CancelChildren(p.io, p.name, p.thread, p.run, open); err != nil {
		return p.lose(fmt.Errorf("cancelling children: %w", err))
	}
	return nil
}

// retryChild retries a failed child, and reports whether to wait for another
// end.
func (p *Pass) retryChild(child *journal.Child) (bool, error) {
	again, err := p.life().RetryChild(p.io, p.name, child, func(key string) bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.thread.Heard(key)
	})
	if err != nil && !errors.Is(err, fault.ErrCorrupt) {
		return false, p.lose(fmt.Errorf("retrying child %s: %w", child.ID, err))
	}
	return again, nil
}

// replaceChild spawns another child in place of a failed one that is not this
// thread's to retry.
func (p *Pass) replaceChild(f *frame, old *journal.Child) (*journal.Child, error) {
	in, err := p.load(f, old.Input)
	if err != nil {
		return nil, err
	}
	child, err := p.recordSpawn(f, old.Path, old.Flow, in)
	if err != nil {
		return nil, err
	}
	return child, p.mode.startChild(child)
}

func (p *Pass) life() *lifecycle.Control { return p.engine.control(p.thread.Tenant) }
