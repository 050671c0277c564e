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

// Forks and children pin the thread that they come from: it is not erased without
// them. A pin is a cell of its own, written before the first entry of the thread
// that pins. Each thread also has a gate, a cell that every pin changes. An erase
// closes the gate on condition that it has the version from before the erase
// listed the pins. So either the erase sees the pin, or the pin finds the gate
// closed.

// ClosedGate begins the gate of a thread that is being erased. ClosedIf begins it,
// followed by a sequence, if the erase is void once the journal has moved past
// that sequence.
const ClosedGate, ClosedIf = "erased", "erased-if-"

// IsClosed reports whether an erase has closed a gate.
func IsClosed(gate store.Cell) bool { return strings.HasPrefix(string(gate.Value), ClosedGate) }

// IsClosedIf reports whether an erase has closed a gate on condition that the
// thread does not move on.
func IsClosedIf(gate store.Cell) bool { return strings.HasPrefix(string(gate.Value), ClosedIf) }

// passed reports whether the erase that closed a gate is void because the thread
// has moved on. The process that closed it may have died.
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
		return false, nil // a damaged thread does not move on
	}
	return err == nil && o.Thread.Seq > at, err
}

// PinPrefix is the prefix of the keys of a thread's pins. They stay when the thread
// is archived and restored, so they are named after what both threads were first.
func PinPrefix(name string) string { return "pin/" + Self(name) + "/" }

// GateKey is the key of a thread's gate.
func GateKey(name string) string { return "gate/" + name }

// Pin records that the thread by depends on the thread name. It returns ErrErased
// if that one was or is being erased.
func (c *Threads) Pin(ctx context.Context, name, by string) error {
	if _, err := c.Ensure(ctx, PinPrefix(name)+Self(by), []byte("{}")); err != nil {
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
		// An erase drops the journal before it deletes the gate: if it has
		// finished, this gate is a new one, and the journal is gone.
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

// Unpin removes a pin.
func (c *Threads) Unpin(ctx context.Context, name, by string) error {
	cell, err := c.Store.Get(ctx, PinPrefix(name)+Self(by))
	if err == nil {
		err = c.Store.Delete(ctx, cell.Key, cell.Version)
	}
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrConflict) {
		return nil
	}
	return err
}

// Pins returns the names that the threads that pin a thread had first, see Self.
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
