package engine

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"reflect"
	"time"
	"unicode/utf8"

	"github.com/perdure/perdure/internal/exact"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/internal/tree"
)

// Emit records a custom event.
func Emit(ctx context.Context, name string, v any) error {
	raw, err := exact.Encode(v, reflect.TypeOf(v))
	if err != nil {
		return fmt.Errorf("emit %q: %w", name, err)
	}
	return recordNote(ctx, tree.Emit, name, journal.Emitted, journal.Body{Value: journal.Value{JSON: raw}})
}

// Plan records the names of the steps to come.
func Plan(ctx context.Context, steps ...string) error {
	size := 0
	for _, s := range steps {
		if err := tree.CheckName(s); err != nil {
			return fmt.Errorf("%w: plan: %w", fault.ErrName, err)
		}
		size += len(s)
	}
	if size > maxQuestion {
		return fmt.Errorf("%w: a plan has at most %d bytes of names, not %d", fault.ErrTooLarge, maxQuestion, size)
	}
	return recordNote(ctx, tree.Plan, "#plan", journal.Planned, journal.Body{Plan: steps})
}

// recordNote records a verb that runs no function.
func recordNote(ctx context.Context, verb tree.Verb, name string, kind journal.Kind, b journal.Body) error {
	f, v, err := enter(ctx, verb, name, tree.Options{})
	if err != nil {
		return err
	}
	defer f.finish()
	if v.Node == nil {
		if err := f.pass.gate(ctx, f); err != nil {
			return err
		}
		if err := f.pass.record(v.Path, kind, &b, nil); err != nil {
			return err
		}
		v.Node = f.pass.node(v.Path)
	}
	f.takeOver(v.Node)
	return nil
}

// Key returns the idempotency key of a step, "" outside a run.
func Key(ctx context.Context) string {
	f, err := inside(ctx)
	if err != nil {
		return ""
	}
	if f.key != "" {
		return f.key
	}
	return f.pass.key(f.memo.Path())
}

// key derives the key of a path. The name of the thread is random, so keys
// cannot be guessed, and a fork has different ones.
func (p *Pass) key(path string) string { return keyIn(threads.Self(p.name), p.run.N, path) }

func keyIn(name string, run uint64, path string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%d\n%s", name, run, tree.Names(path)))
	return base64.RawURLEncoding.EncodeToString(sum[:18])
}

// keyAt returns the key that a path had in the thread that wrote the entry at
// seq: for a fork, that may be an ancestor.
func (p *Pass) keyAt(path string, seq uint64) (string, error) {
	name := threads.Self(p.name)
	roots, err := p.engine.threads.Roots(p.io, p.name)
	if err != nil {
		return "", p.lose(err)
	}
	for _, r := range roots {
		if seq > r.Base {
			break
		}
		name = r.Parent
	}
	return keyIn(name, p.run.N, path), nil
}

// Now returns the time of the newest outcome that the frame has passed.
func Now(ctx context.Context) time.Time {
	f, err := inside(ctx)
	if err != nil {
		return time.Time{}
	}
	f.pass.mu.Lock()
	defer f.pass.mu.Unlock()
	return time.UnixMicro(f.now).UTC()
}

// Spend counts n of a unit against the run's budget.
func Spend(ctx context.Context, unit string, n int64) error {
	if unit == "" || len(unit) > 200 || !utf8.ValidString(unit) || n < 0 {
		return fmt.Errorf("%w: spend %d of %.40q", fault.ErrOption, n, unit)
	}
	return change(ctx, "Spend", func(f *frame) error { return f.spend(unit, n) })
}

// spend counts against the budget. The caller holds mu.
func (f *frame) spend(unit string, n int64) error {
	p := f.pass
	if f.pending.spend == nil {
		f.pending.spend = map[string]int64{}
	}
	f.pending.spend[unit] = journal.Sum(f.pending.spend[unit], n)
	p.spending[f] = true
	limit, limited := p.run.Budget[unit]
	total := p.run.Spent[unit]
	for other := range p.spending {
		total = journal.Sum(total, other.pending.spend[unit])
	}
	if limited && total > limit {
		return fmt.Errorf("%w: %d of %d %s spent", fault.ErrBudget, total, limit, unit)
	}
	return nil
}

// change lets a leaf step change something, unless it has ended.
func change(ctx context.Context, what string, do func(*frame) error) error {
	f, err := inside(ctx)
	if err != nil {
		return err
	}
	p := f.pass
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case f.done:
		return fmt.Errorf("%w: %s after the step %s returned", fault.ErrNoRun, what, f.path())
	case p.sealed != nil:
		return p.sealed
	case !f.step:
		return fmt.Errorf("%w: %s at %s/", fault.ErrNoLeaf, what, f.path())
	case f.verbs:
		return fmt.Errorf("%w: %s in %s, which called a verb", fault.ErrComposite, what, f.path())
	}
	f.leaf = true
	return do(f)
}
