package seal

import (
	"context"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/perdure/perdure/store"
)

// AppendBatch implements store.Batcher if the store inside does. The data key of a
// new journal is one of the cells that the batch inside writes.
func (s *Store) AppendBatch(ctx context.Context, b store.Batch) (uint64, error) {
	if s.batcher == nil {
		return 0, errors.ErrUnsupported
	}
	return s.writeBatch(ctx, b, s.batcher.AppendBatch, true, func(ctx context.Context) (cipher.AEAD, error) { return s.writeBox(ctx, b.Journal, b.After) })
}

// writeBatch seals a batch for write. If there is no room in it for the data key of a
// new journal, makeBox creates that. What is written lasts, unless the program has
// still to commit it.
func (s *Store) writeBatch(ctx context.Context, b store.Batch, write func(context.Context, store.Batch) (uint64, error), lasts bool, makeBox func(context.Context) (cipher.AEAD, error)) (uint64, error) {
	cells, err := s.lockBatch(b)
	if err != nil {
		return 0, err
	}
	for {
		sealed := store.Batch{Journal: b.Journal, After: b.After, Cells: cells}
		box, fresh, err := s.batchBox(ctx, &sealed, makeBox)
		if err != nil {
			return 0, err
		}
		sealed.Entries = lockEntries(box, b.Journal, b.After, b.Entries)
		last, err := write(ctx, sealed)
		switch stale := (*store.CellConflict)(nil); {
		case err == nil && fresh && lasts: // otherwise the data key may never be there
			s.boxes.put(b.Journal, box)
		case errors.Is(err, store.ErrDropped):
			_ = s.shred(ctx, b.Journal) // see Append
		case errors.As(err, &stale) && stale.Key == s.keyCell(b.Journal):
			continue // another writer created the data key
		}
		return last, err
	}
}

// lockBatch refuses what Append and Put would refuse, and returns the cells of a
// batch as they are stored.
func (s *Store) lockBatch(b store.Batch) ([]store.Write, error) {
	if err := store.CheckBatch(b); err != nil {
		return nil, err
	}
	if err := s.checkAppend(b.Journal, b.Entries); err != nil {
		return nil, err
	}
	cells := make([]store.Write, len(b.Cells), len(b.Cells)+1)
	for i, w := range b.Cells {
		var err error
		if w.Remove {
			w.Value, err = nil, s.checkKey(w.Key)
		} else {
			w.Value, err = s.lockCell(w.Key, w.Value)
		}
		if err != nil {
			return nil, err
		}
		cells[i] = w
	}
	return cells, nil
}

// batchBox is writeBox for a batch: a new data key is added to the batch if there
// is room, and otherwise created before it.
func (s *Store) batchBox(ctx context.Context, b *store.Batch, makeBox func(context.Context) (cipher.AEAD, error)) (box cipher.AEAD, fresh bool, err error) {
	if len(b.Cells) == store.MaxWrites {
		box, err = makeBox(ctx)
		return box, false, err
	}
	box, err = s.findBox(ctx, b.Journal, b.After)
	if err != nil || box != nil {
		return box, false, err
	}
	if err := s.announce(ctx); err != nil {
		return nil, false, err
	}
	cell, key := s.keyCell(b.Journal), make([]byte, keySize)
	rand.Read(key)
	wrapped, err := s.keys.Wrap(ctx, key, []byte(cell))
	if err != nil {
		return nil, false, fmt.Errorf("seal: create the data key in cell %q: %w", cell, err)
	}
	b.Cells = append(b.Cells, store.Write{Key: cell, Value: wrapped})
	return newBox(key), true, nil
}

// Begin implements store.Transactor if the store inside does. The program's own
// rows are not sealed.
func (s *Store) Begin(ctx context.Context, native any) (store.Tx, error) {
	t, err := store.Join(ctx, s.inner, native)
	if err != nil {
		return nil, err
	}
	return &tx{Tx: t, s: s, joined: native != nil}, nil
}

type tx struct {
	store.Tx
	s      *Store
	joined bool // the program commits it
	left   bool // to the program
}

// Put implements store.Tx.
func (t *tx) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	sealed, err := t.s.lockCell(key, value)
	if err != nil {
		return "", t.rollBack(err)
	}
	return t.Tx.Put(ctx, key, sealed, prev)
}

// Commit implements store.Tx. A data key is not created beside the transaction,
// which may hold the lock for it.
func (t *tx) Commit(ctx context.Context, b store.Batch) (uint64, error) {
	if t.left {
		return t.Tx.Commit(ctx, store.Batch{}) // it is over, and the store says so
	}
	last, err := t.s.writeBatch(ctx, b, t.Tx.Commit, !t.joined, func(ctx context.Context) (cipher.AEAD, error) {
		box, err := t.s.findBox(ctx, b.Journal, b.After)
		if err == nil && box == nil {
			err = fmt.Errorf("%w: seal: the batch for the new journal %q writes %d cells; use at most %d in a transaction", store.ErrTooLarge, b.Journal, len(b.Cells), store.MaxWrites-1)
		}
		return box, err
	})
	t.left = t.joined && err == nil
	return last, t.rollBack(err)
}

// rollBack ends the transaction if err says that it is over.
func (t *tx) rollBack(err error) error {
	if err != nil && !errors.Is(err, store.ErrConflict) {
		_ = t.Tx.Rollback()
	}
	return err
}
