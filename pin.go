package perdure

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/store"
)

// Forks and children pin the thread that they come from: it is not erased
// without them. A pin is a cell of its own, written before the first entry of
// what pins. Beside them each thread has a gate, a cell which every pin moves,
// and which an erase closes by the version that it saw before it looked at the
// pins: so either the erase sees the pin, or the pin finds the gate closed.

// closedGate is what the gate of a thread begins with that is being erased, and
// closedIf what it begins with, before a sequence, while that depends on where
// its journal ends.
const closedGate, closedIf = "erased", "erased-if-"

func isClosed(gate store.Cell) bool { return strings.HasPrefix(string(gate.Value), closedGate) }

func isClosedIf(gate store.Cell) bool { return strings.HasPrefix(string(gate.Value), closedIf) }

// passed reports whether a gate was closed for an erase that cannot happen any
// more, since the thread has moved on. Whoever closed it may have died.
func (c *core) passed(ctx context.Context, name string, gate store.Cell) (bool, error) {
	if !isClosedIf(gate) {
		return false, nil
	}
	text, _, _ := strings.Cut(strings.TrimPrefix(string(gate.Value), closedIf), " ")
	at, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return false, fmt.Errorf("%w: the gate of thread %s: %w", fault.ErrCorrupt, name, err)
	}
	o, err := c.read(ctx, name)
	if errors.Is(err, fault.ErrErased) || errors.Is(err, fault.ErrCorrupt) {
		return false, nil // nothing moves what is damaged
	}
	return err == nil && o.thread.Seq > at, err
}

func pinsOf(name string) string { return "pin/" + name + "/" }

func gateOf(name string) string { return "gate/" + name }

// pin notes that a thread depends on another. ErrErased means that the other is
// being erased.
func (c *core) pin(ctx context.Context, name, by string) error {
	if _, err := c.ensure(ctx, pinsOf(name)+by, []byte("{}")); err != nil {
		return fmt.Errorf("perdure: pinning a thread: %w", err)
	}
	gate, err := store.Update(ctx, c.store, gateOf(name), func(old store.Cell) ([]byte, error) {
		if isClosed(old) {
			if passed, err := c.passed(ctx, name, old); err != nil {
				return nil, err
			} else if !passed {
				return nil, &fault.ErasedError{Thread: name}
			}
		}
		return []byte(by), nil
	})
	if err == nil {
		// The gate of a thread that was erased is gone, and then this is a new
		// one: but it went behind the journal.
		var gone bool
		if gone, err = c.dropped(ctx, name); gone {
			err = &fault.ErasedError{Thread: name}
			if deleted := c.store.Delete(ctx, gate.Key, gate.Version); !errors.Is(deleted, store.ErrConflict) {
				err = errors.Join(err, deleted)
			}
		}
	}
	if errors.Is(err, fault.ErrErased) {
		return errors.Join(err, c.unpin(ctx, name, by))
	}
	return err
}

// unpin takes a pin away.
func (c *core) unpin(ctx context.Context, name, by string) error {
	cell, err := c.store.Get(ctx, pinsOf(name)+by)
	if err == nil {
		err = c.store.Delete(ctx, cell.Key, cell.Version)
	}
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrConflict) {
		return nil
	}
	return err
}

// pins returns the names of the threads that pin one.
func (c *core) pins(ctx context.Context, name string) ([]string, error) {
	var names []string
	for cell, err := range c.store.List(ctx, pinsOf(name), "") {
		if err != nil {
			return nil, fmt.Errorf("perdure: listing forks and children: %w", err)
		}
		names = append(names, strings.TrimPrefix(cell.Key, pinsOf(name)))
	}
	return names, nil
}
