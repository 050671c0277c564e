package kvstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/perdure/perdure/store"
)

// nonceSize is the number of random bytes before the value of a cell. They make
// each write unique, so that versions do not repeat if the engine's versions are
// hashes of the value.
const nonceSize = 16

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, key string) (store.Cell, error) {
	if err := s.usable(ctx); err != nil {
		return store.Cell{}, err
	}
	if err := store.CheckName("cell", key); err != nil {
		return store.Cell{}, err
	}
	cell, err := s.kv.Get(ctx, cellKey(key))
	if errors.Is(err, store.ErrNotFound) {
		return store.Cell{}, store.NoCell(key)
	}
	if err != nil {
		return store.Cell{}, fmt.Errorf("kvstore: get cell %q: %w", key, err)
	}
	return openCell(key, cell)
}

// openCell returns the cell called key, which the engine keeps as inner.
func openCell(key string, inner store.Cell) (store.Cell, error) {
	body, err := unframe(cellKey(key), inner.Value)
	if err == nil && len(body) < nonceSize {
		err = &damage{inner.Key, "the cell is not well formed"}
	}
	if d, ok := errors.AsType[*damage](err); ok {
		return store.Cell{}, &store.CorruptError{Cell: key, Version: inner.Version, Where: "key " + d.key, Reason: d.reason}
	}
	if err != nil {
		return store.Cell{}, err
	}
	return store.Cell{Key: key, Value: body[nonceSize:], Version: inner.Version}, nil
}

// Put implements store.Store.
func (s *Store) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	if err := s.usable(ctx); err != nil {
		return "", err
	}
	if err := store.CheckPut(key, value); err != nil {
		return "", err
	}
	var nonce [nonceSize]byte
	rand.Read(nonce[:]) // never fails
	version, err := s.kv.Put(ctx, cellKey(key), frame(cellKey(key), nonce[:], value), prev)
	if err != nil {
		return "", refused("put", key, err)
	}
	s.hub.Wake(key)
	return version, nil
}

// Delete implements store.Store.
func (s *Store) Delete(ctx context.Context, key string, prev store.Version) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	if err := store.CheckDelete(key, prev); err != nil {
		return err
	}
	if err := s.kv.Delete(ctx, cellKey(key), prev); err != nil {
		return refused("delete", key, err)
	}
	s.hub.Wake(key)
	return nil
}

// refused returns the error of a write to a cell. It names the cell, where a
// conflict of the engine would name one of its own keys.
func refused(what, key string, err error) error {
	if errors.Is(err, store.ErrConflict) {
		return store.Conflictf("%s of cell %q: the cell has been changed; get it and decide again", what, key)
	}
	return fmt.Errorf("kvstore: %s cell %q: %w", what, key, err)
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[store.Cell, error] {
	return func(yield func(store.Cell, error) bool) {
		if err := s.usable(ctx); err != nil {
			yield(store.Cell{}, err)
			return
		}
		if len(prefix) > store.MaxName {
			return // there are no names this long
		}
		var bad error // reported after all intact cells
		for inner, err := range s.kv.List(ctx, cellTag+common(prefix), behind(cellTag, prefix, after)) {
			if err != nil {
				err = fmt.Errorf("kvstore: list cells after %q: %w", after, err)
			} else {
				err = s.usable(ctx)
			}
			if err != nil {
				yield(store.Cell{}, err)
				return
			}
			key, err := decode(cellTag, inner.Key)
			if err == nil && !strings.HasPrefix(key, prefix) {
				break // keys are ordered, so none follow
			}
			var cell store.Cell
			if err == nil {
				cell, err = openCell(key, inner)
			}
			if err != nil {
				bad = cmp.Or(bad, err)
			} else if !yield(cell, nil) {
				return
			}
		}
		if bad != nil {
			yield(store.Cell{}, bad)
		}
	}
}
