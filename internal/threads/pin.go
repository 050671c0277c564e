package threads

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/store"
)

// ClosedGate is what the gate of a thread begins with that is being erased, and
// ClosedIf what it begins with, before a sequence, while that depends on where
// its journal ends.
const ClosedGate, ClosedIf = "erased", "erased-if-"

// IsClosed reports whether an erase has closed a gate.
func IsClosed(gate store.Cell) bool { return strings.HasPrefix(string(gate.Value), ClosedGate) }

// IsClosedIf reports whether it has as long as the thread does not move on.
func IsClosedIf(gate store.Cell) bool { return strings.HasPrefix(string(gate.Value), ClosedIf) }

// passed reports whether a gate was closed for an erase that cannot happen any
// more, since the thread has moved on. Whoever closed it may have died.
func (c *Threads) passed(ctx context.Context, name string, gate store.Cell) (bool, error) {
	if !IsClosedIf(gate) {
		return false, nil
	}
	text, _, _ := strings.Cut(strings.TrimPrefix(string(gate.Value), ClosedIf), " ")
	at, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return false, fmt.Errorf("%w: the gate of thread %s: %w", fault.ErrCorrupt, name, err)
	}
	o, err := c.Read(ctx, name)
	if errors.Is(err, fault.ErrErased) || errors.Is(err, fault.ErrCorrupt) {
		return false, nil // nothing moves what is damaged
	}
	return err == nil && o.Thread.Seq > at, err
}

// PinPrefix is what the keys of the pins of a thread begin with.
func PinPrefix(name string) string { return "pin/" + name + "/" }

// GateKey is the key of a thread's gate.
func GateKey(name string) string { return "gate/" + name }

// Pin notes that a thread depends on another, or returns ErrErased if that one goes.
func (c *Threads) Pin(ctx context.Context, name, by string) error {
	if _, err := c.Ensure(ctx, PinPrefix(name)+by, []byte("{}")); err != nil {
		return fmt.Errorf("perdure: pinning a thread: %w", err)
	}
	gate, err := store.Update(ctx, c.Store, GateKey(name), func(old store.Cell) ([]byte, error) {
		if IsClosed(old) {
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
		if gone, err = c.IsDropped(ctx, name); gone {
			err = &fault.ErasedError{Thread: name}
			if deleted := c.Store.Delete(ctx, gate.Key, gate.Version); !errors.Is(deleted, store.ErrConflict) {
				err = errors.Join(err, deleted)
			}
		}
	}
	if errors.Is(err, fault.ErrErased) {
		return errors.Join(err, c.Unpin(ctx, name, by))
	}
	return err
}

// Unpin takes a pin away.
func (c *Threads) Unpin(ctx context.Context, name, by string) error {
	cell, err := c.Store.Get(ctx, PinPrefix(name)+by)
	if err == nil {
		err = c.Store.Delete(ctx, cell.Key, cell.Version)
	}
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrConflict) {
		return nil
	}
	return err
}

// Pins returns the names of the threads that pin one.
func (c *Threads) Pins(ctx context.Context, name string) ([]string, error) {
	var names []string
	for cell, err := range c.Store.List(ctx, PinPrefix(name), "") {
		if err != nil {
			return nil, fmt.Errorf("perdure: listing forks and children: %w", err)
		}
		names = append(names, strings.TrimPrefix(cell.Key, PinPrefix(name)))
	}
	return names, nil
}

// Forks and children pin the thread that they come from: it is not erased
// without them. A pin is a cell of its own, written before the first entry of
// what pins. Beside them each thread has a gate, a cell which every pin moves,
// and which an erase closes by the version that it saw before it looked at the
// pins: so either the erase sees the pin, or the pin finds the gate closed.
