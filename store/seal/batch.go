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
	cells, err := s.lockBatch(b)
	if err != nil {
		return 0, err
	}
	for {
		sealed := store.Batch{Journal: b.Journal, After: b.After, Cells: cells}
		box, fresh, err := s.batchBox(ctx, &sealed)
		if err != nil {
			return 0, err
		}
		sealed.Entries = lockEntries(box, b.Journal, b.After, b.Entries)
		last, err := s.batcher.AppendBatch(ctx, sealed)
		switch stale := (*store.CellConflict)(nil); {
		case err == nil && fresh:
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
func (s *Store) batchBox(ctx context.Context, b *store.Batch) (box cipher.AEAD, fresh bool, err error) {
	if len(b.Cells) == store.MaxWrites {
		box, err = s.writeBox(ctx, b.Journal, b.After)
		return box, false, err
	}
	box, err = s.findBox(ctx, b.Journal, b.After)
	if err != nil || box != nil {
		return box, false, err
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
