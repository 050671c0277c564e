package engine

import (
	"context"
	"encoding/json"
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
	_, _, err := carry(ctx, tree.Sleep, name, tree.Options{}, func(f *frame, path string) error {
		return f.pass.open(f, threads.Line{Kind: journal.Timer, Path: path, Body: journal.Body{Due: clock.Now().Add(d).UnixMicro()}})
	})
	return err
}

// Receive waits for a signal and returns its value.
func Receive(ctx context.Context, name, signal string, timeout time.Duration) (json.RawMessage, error) {
	if err := tree.CheckName(signal); err != nil {
		return nil, fmt.Errorf("%w: the signal: %w", fault.ErrName, err)
	}
	_, raw, err := carry(ctx, tree.Receive, name, tree.Options{}, func(f *frame, path string) error {
		return f.pass.recordReceive(f, path, signal, timeout)
	})
	return raw, err
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
func Take(ctx context.Context, name string) (json.RawMessage, bool, error) {
	n, raw, err := carry(ctx, tree.Take, name, tree.Options{}, func(f *frame, path string) error {
		p := f.pass
		if p.tookNothing(path) {
			return nil
		}
		return p.commit(func() batch {
			b := journal.Body{}
			if len(p.thread.Inbox) > 0 {
				b.Ref, b.Value = p.thread.Inbox[0].N, p.thread.Inbox[0].Input
			}
			return batch{lines: []threads.Line{{Kind: journal.Took, Path: path, Body: b}}}
		})
	})
	return raw, n != nil && n.Ref != 0, err
}

// tookNothing notes that there was nothing to take, to be recorded with the
// next commit: until then nothing in the journal depends on it, and after a
// crash the run looks again. It returns false if there is something to take, or
// no room for the note.
func (p *Pass) tookNothing(path string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sealed != nil || len(p.thread.Inbox) > 0 || len(p.late) >= maxLate {
		return false
	}
	p.late = append(p.late, threads.Line{Kind: journal.Took, Path: path})
	return true
}

// maxLate is how many entries may wait for the next commit and still fit into it.
const maxLate = 16
