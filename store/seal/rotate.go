package seal

import (
	"context"
	"errors"
	"fmt"

	"github.com/perdure/perdure/store"
)

// Rotate wraps all data keys with the key ring's current key, and returns how
// many it rewrapped. Once it has returned without an error, older keys are no
// longer needed, provided that no process still has a ring in which one of them
// is the current key. Entries and values are not rewritten.
//
// Rotate can be interrupted and repeated, and may run concurrently with other
// calls. A data key that cannot be unwrapped does not hold up the others: they are
// rotated, and the error says how many were not.
func (s *Store) Rotate(ctx context.Context) (rotated int, err error) {
	var failed int
	var why error
	for cell, err := range s.inner.List(ctx, s.prefix, "") {
		if err != nil {
			return rotated, fmt.Errorf("seal: list the data keys to rotate: %w", err)
		}
		if s.keys.Current(cell.Value) {
			continue
		}
		done, err := s.rewrap(ctx, cell.Key)
		switch {
		case errors.Is(err, store.ErrKey):
			if failed++; why == nil {
				why = err
			}
		case err != nil:
			return rotated, fmt.Errorf("seal: rotate the data key in cell %q; call Rotate again: %w", cell.Key, err)
		case done:
			rotated++
		}
	}
	if why != nil {
		return rotated, fmt.Errorf("seal: %d data keys were not rotated; keep the old keys (the first error: %w)", failed, why)
	}
	return rotated, nil
}

// rewrap rewraps the data key in a cell, unless that has been done or the cell is
// gone.
func (s *Store) rewrap(ctx context.Context, cell string) (done bool, err error) {
	errSkip := errors.New("nothing to do")
	_, err = store.Update(ctx, s.inner, cell, func(old store.Cell) ([]byte, error) {
		if old.Version == "" || s.keys.Current(old.Value) {
			return nil, errSkip
		}
		key, err := s.unwrap(ctx, cell, old.Value)
		if err != nil {
			return nil, err
		}
		return s.keys.Wrap(ctx, key, []byte(cell))
	})
	if errors.Is(err, errSkip) {
		return false, nil
	}
	return err == nil, err
}
