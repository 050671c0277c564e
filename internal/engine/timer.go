package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/internal/tree"
)

// Sleep waits for d.
func Sleep(ctx context.Context, name string, d time.Duration) error {
	f, v, err := enter(ctx, tree.Sleep, name, tree.Options{})
	if err != nil {
		return err
	}
	defer f.finish()
	p := f.pass
	n := v.Node
	if n == nil {
		if err := p.gate(ctx, f); err != nil {
			return err
		}
		due := clock.Now().Add(d).UnixMicro()
		if err := p.open(f, func() threads.Line {
			return threads.Line{Kind: journal.Timer, Path: v.Path, Body: journal.Body{Due: due}}
		}); err != nil {
			return err
		}
		n = p.node(v.Path)
	}
	if err := p.until(ctx, f, v.Path, n); err != nil {
		return err
	}
	f.takeOver(n)
	return nil
}

// Receive waits for a signal and returns its value.
func Receive(ctx context.Context, name, signal string, timeout time.Duration) ([]byte, error) {
	if err := tree.CheckName(signal); err != nil {
		return nil, fmt.Errorf("%w: the signal: %w", fault.ErrName, err)
	}
	f, v, err := enter(ctx, tree.Receive, name, tree.Options{})
	if err != nil {
		return nil, err
	}
	defer f.finish()
	p := f.pass
	n := v.Node
	if n == nil {
		if err := p.gate(ctx, f); err != nil {
			return nil, err
		}
		if err := p.recordReceive(f, v.Path, signal, timeout); err != nil {
			return nil, err
		}
		n = p.node(v.Path)
	}
	if err := p.until(ctx, f, v.Path, n); err != nil {
		return nil, err
	}
	return f.result(n)
}

// recordReceive records that a signal was taken, or that the frame waits for one.
func (p *Pass) recordReceive(f *frame, path, signal string, timeout time.Duration) error {
	var due int64
	if timeout > 0 {
		due = clock.Now().Add(timeout).UnixMicro()
	}
	p.order.Lock()
	defer p.order.Unlock()
	dumps := p.dumps()
	return p.commitNew(f, func() batch {
		for _, s := range p.thread.Signals {
			if s.Name == signal {
				return batch{lines: []threads.Line{{Kind: journal.Received, Path: path,
					Body: journal.Body{Name: signal, Ref: s.Seq, Value: s.Value}}}}
			}
		}
		b := batch{lines: []threads.Line{{Kind: journal.Waiting, Path: path, Body: journal.Body{Name: signal, Due: due}}}}
		if p.active == 1 && !p.run.Cancelled {
			b = p.suspension(b, dumps)
		}
		return b
	})
}

// Take returns the next input that steers the run, and whether there is one.
func Take(ctx context.Context, name string) ([]byte, bool, error) {
	f, v, err := enter(ctx, tree.Take, name, tree.Options{})
	if err != nil {
		return nil, false, err
	}
	defer f.finish()
	p := f.pass
	n := v.Node
	if n == nil {
		if err := p.gate(ctx, f); err != nil {
			return nil, false, err
		}
		if p.tookNothing(v.Path) {
			return nil, false, nil
		}
		if err := p.commit(func() batch {
			b := journal.Body{}
			if len(p.thread.Inbox) > 0 {
				b.Ref, b.Value = p.thread.Inbox[0].N, p.thread.Inbox[0].Input
			}
			return batch{lines: []threads.Line{{Kind: journal.Took, Path: v.Path, Body: b}}}
		}); err != nil {
			return nil, false, err
		}
		n = p.node(v.Path)
	}
	raw, err := f.result(n)
	return raw, n.Ref != 0, err
}

// tookNothing notes that there was nothing to take, to be recorded with the next
// commit: until then nothing in the journal follows from it, and after a crash it
// is asked again. It returns false if that is not so.
func (p *Pass) tookNothing(path string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sealed != nil || len(p.thread.Inbox) > 0 || len(p.late) >= maxLate {
		return false
	}
	p.late = append(p.late, threads.Line{Kind: journal.Took, Path: path})
	return true
}

// maxLate is how many entries may wait for the next commit, so that they fit
// into its append.
const maxLate = 16
