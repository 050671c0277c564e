package threads

import (
	"context"
	"errors"

	"github.com/perdure/perdure/internal/blob"
	"github.com/perdure/perdure/internal/due"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/store"
)

// A reader or writer may meet a thread that is being erased or is gone. It learns
// that from the journal, and a writer then sweeps away what it has written too
// late.

// IsGone reports whether an error says that a thread was erased or does not exist.
func IsGone(err error) bool {
	return errors.Is(err, fault.ErrErased) || errors.Is(err, fault.ErrNoThread) || errors.Is(err, store.ErrDropped)
}

// IsAway reports whether an error says that a thread is not in the store: it IsGone or
// archived.
func IsAway(err error) bool { return IsGone(err) || errors.Is(err, fault.ErrArchived) }

// RemoveDerived removes what others may write for a thread until its journal says
// that it was erased: hints for flows, the snapshot, and blobs.
func (c *Threads) RemoveDerived(ctx context.Context, name string, flows ...string) error {
	for _, flow := range flows {
		if err := due.Forget(ctx, c.Store, flow, name); err != nil {
			return err
		}
	}
	if err := c.forgetSnapshot(ctx, name); err != nil {
		return err
	}
	return blob.Delete(ctx, c.Store, BlobPrefix(name))
}

// SweepIfErased returns err. If err says that the thread was erased, it first
// removes what the caller may have written for it: the erase may have swept
// before that.
func (c *Threads) SweepIfErased(ctx context.Context, name string, err error, flows ...string) error {
	if !errors.Is(err, fault.ErrErased) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.lease)
	defer cancel()
	// The error may be about another thread, such as the one it was forked from.
	gone, goneErr := c.IsErased(ctx, name)
	if gone {
		goneErr = c.RemoveDerived(ctx, name, flows...)
	}
	if goneErr != nil {
		c.Log.Warn("sweeping up after an erased thread", "thread", name, "error", goneErr)
	}
	return err
}

// IsErased reports whether a thread was or is being erased.
func (c *Threads) IsErased(ctx context.Context, name string) (bool, error) {
	if gone, err := c.IsDropped(ctx, name); gone || err != nil {
		return gone, err
	}
	_, err := c.Read(ctx, name)
	if errors.Is(err, fault.ErrErased) {
		return true, nil
	}
	return false, err
}

// IsLeaving reports whether what is in the store under a name is the rest of a thread
// that was or is being erased or archived, or the beginning of one that is being
// restored. Values are missing there, and nothing is damaged.
func (c *Threads) IsLeaving(ctx context.Context, name string) (bool, error) {
	a, _, err := c.ReadArchived(ctx, name)
	if err == nil && a != nil && a.Live() != name {
		return true, nil
	}
	if err != nil && !errors.Is(err, fault.ErrCorrupt) {
		return false, err
	}
	gone, err := c.IsErased(ctx, name)
	if errors.Is(err, fault.ErrCorrupt) {
		err = nil
	}
	return gone, err
}

// IsDropped reports whether the journal of a thread was dropped.
func (c *Threads) IsDropped(ctx context.Context, name string) (bool, error) {
	for _, err := range c.Store.Read(ctx, JournalKey(name), 0) {
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

// CheckErased returns ErrErased for a thread that is being erased. It is for
// callers that read only the beginning of its journal.
func (c *Threads) CheckErased(ctx context.Context, name string) error {
	gate, err := c.Store.Get(ctx, GateKey(name))
	if errors.Is(err, store.ErrNotFound) || err == nil && !IsClosed(gate) {
		return nil
	}
	if err == nil {
		_, err = c.Read(ctx, name)
	}
	if errors.Is(err, fault.ErrCorrupt) {
		return nil
	}
	return err
}

// IsUnusable reports whether a store has to be opened again. One that is only
// unavailable recovers by itself.
func IsUnusable(err error) bool {
	return errors.Is(err, store.ErrClosed) || errors.Is(err, store.ErrPoisoned)
}
