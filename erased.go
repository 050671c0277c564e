package perdure

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/perdure/perdure/internal/blob"
	"github.com/perdure/perdure/internal/due"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/store"
)

// Whoever reads or writes may meet a thread that is being erased or is gone. It
// learns that from the journal, and sweeps away what it has written too late.

// sweep removes what may be written for a thread until its journal says that it
// was erased: hints of flows, the snapshot, and blobs.
func (c *core) sweep(ctx context.Context, name string, flows ...string) error {
	for _, flow := range flows {
		if err := due.Forget(ctx, c.store, flow, name); err != nil {
			return err
		}
	}
	if err := c.forgetSnapshot(ctx, name); err != nil {
		return err
	}
	return blob.Delete(ctx, c.store, blobsOf(name))
}

// late sweeps behind a writer that learned from err that the thread it wrote
// for is erased, and returns err. What it has written is not there for anyone,
// and the erase may have passed already.
func (c *core) late(ctx context.Context, name string, err error, flows ...string) error {
	if !errors.Is(err, fault.ErrErased) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.opts.Lease)
	defer cancel()
	// It may be another thread's error, for example of what it was forked from.
	gone, goneErr := c.erased(ctx, name)
	if gone {
		goneErr = c.sweep(ctx, name, flows...)
	}
	if goneErr != nil {
		c.log.Warn("sweeping behind an erased thread", "thread", name, "error", goneErr)
	}
	return err
}

// erased reports whether a thread was erased or is about to be.
func (c *core) erased(ctx context.Context, name string) (bool, error) {
	if gone, err := c.dropped(ctx, name); gone || err != nil {
		return gone, err
	}
	_, err := c.read(ctx, name)
	if errors.Is(err, fault.ErrErased) {
		return true, nil
	}
	return false, err
}

// dropped reports whether the journal of a thread was dropped.
func (c *core) dropped(ctx context.Context, name string) (bool, error) {
	for _, err := range c.store.Read(ctx, journalOf(name), 0) {
		switch {
		case errors.Is(err, store.ErrDropped):
			return true, nil
		case errors.Is(err, store.ErrCorrupt):
			return false, nil
		}
		return false, err
	}
	return false, nil
}

// checkErased returns ErrErased for a thread that is being erased, for those
// who read only the beginning of its journal.
func (c *core) checkErased(ctx context.Context, name string) error {
	gate, err := c.store.Get(ctx, gateOf(name))
	if errors.Is(err, store.ErrNotFound) || err == nil && !isClosed(gate) {
		return nil
	}
	if err == nil {
		_, err = c.read(ctx, name)
	}
	if errors.Is(err, fault.ErrCorrupt) {
		return nil
	}
	return err
}

// listed returns the id of a thread as its summary has it, "" if it has none.
func (c *core) listed(ctx context.Context, name string) (string, error) {
	cell, err := c.store.Get(ctx, journalOf(name))
	if errors.Is(err, store.ErrNotFound) {
		return "", nil
	}
	var s summary
	if err == nil && json.Unmarshal(cell.Value, &s) != nil {
		s.ID = ""
	}
	return s.ID, err
}

// remove deletes a cell, if it holds only what is given, where that is not "".
func (c *core) remove(ctx context.Context, key, only string) error {
	for {
		cell, err := store.Derived(c.store).Get(ctx, key)
		if errors.Is(err, store.ErrNotFound) || err == nil && only != "" && string(cell.Value) != only {
			return nil
		}
		if err == nil {
			err = c.store.Delete(ctx, key, cell.Version)
		}
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}
