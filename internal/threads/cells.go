package threads

import (
	"context"
	"errors"

	"github.com/perdure/perdure/store"
)

// Remove deletes a cell, if it holds only what is given, where that is not "".
func (c *Threads) Remove(ctx context.Context, key, only string) error {
	for {
		cell, err := store.Derived(c.Store).Get(ctx, key)
		if errors.Is(err, store.ErrNotFound) || err == nil && only != "" && string(cell.Value) != only {
			return nil
		}
		if err == nil {
			err = c.Store.Delete(ctx, key, cell.Version)
		}
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// Ensure returns what a cell holds, which is fresh if it was not there.
func (c *Threads) Ensure(ctx context.Context, key string, fresh []byte) ([]byte, error) {
	held := fresh
	_, err := store.Update(ctx, c.Store, key, func(old store.Cell) ([]byte, error) {
		if old.Version != "" {
			held = old.Value
			return nil, ErrNothing
		}
		return fresh, nil
	})
	if err == nil || errors.Is(err, ErrNothing) {
		return held, nil
	}
	// The answer may have been lost.
	if cell, getErr := c.Store.Get(ctx, key); getErr == nil {
		return cell.Value, nil
	}
	return nil, err
}
