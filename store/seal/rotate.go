package seal

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/perdure/perdure/store"
)

// Rotate wraps all data keys with the key ring's current key, and returns how
// many it rewrapped. Once it has returned without an error, older keys are no
// longer needed, provided that no process still has a ring in which one of them
// is the current key; if a process wraps with one in the meantime, Rotate returns an
// error. Entries and values are not rewritten. Rotate combines [Store.RotateAfter], for
// all data keys, with [Store.Retire].
//
// Rotate can be interrupted and repeated, and may run concurrently with other
// calls. A data key that cannot be unwrapped does not hold up the others: they are
// rotated, and the error says how many were not.
func (s *Store) Rotate(ctx context.Context) (rotated int, err error) {
	rotated, err = s.rotateAll(ctx)
	if err == nil {
		err = s.Retire(ctx)
	}
	return rotated, err
}

func (s *Store) rotateAll(ctx context.Context) (rotated int, err error) {
	_, rotated, err = s.RotateAfter(ctx, "", math.MaxInt)
	return rotated, err
}

// RotateAfter is a part of a rotation: it looks at up to most data keys that come after
// the one named by after, which is "" at first, and rewraps those that need it. Next names
// the last one, or is "" if there are no more.
func (s *Store) RotateAfter(ctx context.Context, after string, most int) (next string, rotated int, err error) {
	var failed int
	var why error
	for cell, err := range s.inner.List(ctx, s.prefix, after) {
		if err != nil {
			return after, rotated, fmt.Errorf("seal: list the data keys to rotate: %w", err)
		}
		if most == 0 {
			next = after
			break
		}
		after, most = cell.Key, most-1
		if cell.Key == s.registryCell() || s.keys.Current(cell.Value) {
			continue
		}
		done, err := s.rewrap(ctx, cell.Key)
		switch {
		case errors.Is(err, store.ErrKey):
			if failed++; why == nil {
				why = err
			}
		case err != nil:
			return after, rotated, fmt.Errorf("seal: rotate the data key in cell %q; call Rotate again: %w", cell.Key, err)
		case done:
			rotated++
		}
	}
	if why != nil {
		return next, rotated, fmt.Errorf("seal: %d data keys were not rotated; keep the old keys (the first error: %w)", failed, why)
	}
	return next, rotated, nil
}

// rewrap rewraps the data key in a cell, unless that has been done or the cell is
// gone.
func (s *Store) rewrap(ctx context.Context, cell string) (done bool, err error) {
	if err := s.announce(ctx); err != nil {
		return false, err
	}
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
