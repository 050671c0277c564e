package kvstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/perdure/perdure/store"
)

// Drop implements store.Store. A damaged journal can be dropped like any
// other. See the package comment for when to call it again.
func (s *Store) Drop(ctx context.Context, journal string) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	if err := store.CheckName("journal", journal); err != nil {
		return err
	}
	s.heads.forget(journal)
	if err := s.bury(ctx, journal); err != nil {
		return err
	}
	s.hub.Wake(journal)
	for cell, err := range s.kv.List(ctx, batchPrefix(journal), "") {
		if err == nil {
			err = s.remove(ctx, cell.Key, cell.Version)
		}
		if err != nil {
			return fmt.Errorf("kvstore: remove the entries of dropped journal %q (drop it again): %w", journal, err)
		}
	}
	return nil
}

// bury puts a tombstone over the head of a journal.
func (s *Store) bury(ctx context.Context, journal string) error {
	key := headKey(journal)
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		h, err := s.head(ctx, journal)
		if _, damaged := errors.AsType[*damage](err); err != nil && !damaged {
			return err
		}
		if h.dropped {
			return nil
		}
		_, err = s.kv.Put(ctx, key, frame(key, []byte{headDropped}), h.version)
		if err == nil {
			return nil
		}
		if !errors.Is(err, store.ErrConflict) {
			return fmt.Errorf("kvstore: drop journal %q: %w", journal, err)
		}
		if err := wait(ctx, pause); err != nil {
			return err
		}
	}
}

// remove deletes a key of a dropped journal, whatever its version is by then.
func (s *Store) remove(ctx context.Context, key string, version store.Version) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		err := s.kv.Delete(ctx, key, version)
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
		cell, err := s.kv.Get(ctx, key)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		version = cell.Version
		if err := wait(ctx, pause); err != nil {
			return err
		}
	}
}

func wait(ctx context.Context, pause time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(pause):
		return nil
	}
}
