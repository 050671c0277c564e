package kvstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/perdure/perdure/store"
)

// Append implements store.Store.
func (s *Store) Append(ctx context.Context, journal string, after uint64, entries ...[]byte) (uint64, error) {
	if err := s.usable(ctx); err != nil {
		return 0, err
	}
	if err := store.CheckAppend(journal, entries); err != nil {
		return 0, err
	}
	h, cached := s.heads.get(journal)
	if !cached || h.last != after {
		var err error
		if h, err = s.load(ctx, journal); err != nil {
			return 0, err
		}
		if h.last != after {
			return 0, store.NotAtEnd(journal, after, h.last)
		}
	}
	// If anything goes wrong from here on, the cached head cannot be trusted.
	next := head{start: after + 1, last: after + uint64(len(entries))}
	var moved store.Cell
	var err error
	if h.open {
		next.start = h.start
		next.batch, err = joined(headKey(journal), h.batch, entries)
	} else {
		next.batch = batch{start: next.start, entries: entries}.encode()
		moved, err = s.move(ctx, journal, h)
	}
	if err == nil {
		next.open = len(next.batch) < s.pack
		key := headKey(journal)
		next.version, err = s.kv.Put(ctx, key, frame(key, next.tag(), next.batch), h.version)
	}
	if err != nil {
		s.heads.forget(journal)
		return 0, s.failedAppend(ctx, journal, after, moved, err)
	}
	s.heads.put(journal, next)
	s.hub.Wake(journal)
	return next.last, nil
}

// move writes the newest batch of a journal to its own key, if it is not there
// yet, and returns that key with its version. The batch is committed, so all
// writers move the same bytes and it does not matter which one does.
func (s *Store) move(ctx context.Context, journal string, h head) (store.Cell, error) {
	if h.version == "" {
		return store.Cell{}, nil
	}
	key := batchKey(journal, h.last)
	version, err := s.kv.Put(ctx, key, frame(key, h.batch), "")
	if err == nil {
		return store.Cell{Key: key, Version: version}, nil
	}
	if !errors.Is(err, store.ErrConflict) {
		return store.Cell{}, fmt.Errorf("move its newest batch: %w", err)
	}
	there, getErr := s.kv.Get(ctx, key)
	if errors.Is(getErr, store.ErrNotFound) {
		return store.Cell{}, err // a spurious conflict, or the journal was dropped
	}
	if getErr != nil {
		return store.Cell{}, fmt.Errorf("get its newest batch: %w", getErr)
	}
	body, err := unframe(key, there.Value)
	if err == nil && !bytes.Equal(body, h.batch) {
		err = &damage{key, "the batch differs from the one in the head"}
	}
	if err != nil {
		return store.Cell{}, s.located(ctx, journal, err)
	}
	return there, nil
}

// failedAppend returns the error of an append that failed with err after its checks. A
// conflict may be due to the tombstone of a drop, and then the batch that was
// moved has to be removed again.
func (s *Store) failedAppend(ctx context.Context, journal string, after uint64, moved store.Cell, err error) error {
	if !errors.Is(err, store.ErrConflict) {
		return fmt.Errorf("kvstore: append to journal %q after %d: %w", journal, after, err)
	}
	h, headErr := s.head(ctx, journal)
	switch {
	case headErr != nil:
		return store.Conflictf("append to journal %q after %d was refused; read the rest and decide again (%v)", journal, after, headErr)
	case h.dropped:
		if moved.Key != "" {
			if err := s.remove(ctx, moved.Key, moved.Version); err != nil {
				return fmt.Errorf("%w; some of its bytes may be left; drop it again to remove them (%v)", store.WasDropped(journal), err)
			}
		}
		return store.WasDropped(journal)
	case h.last != after:
		return store.NotAtEnd(journal, after, h.last)
	}
	return store.Conflictf("the engine refused an append to journal %q although it ends at %d as expected; try again", journal, after)
}
