package threads

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/store"
)

// A store that was restored from a backup is an earlier moment: readers may have
// seen events that it does not have, and other events get their sequences. RestoredCell
// names the restoration, and from then on the event ids of all threads differ from
// those before it: see [Tenant.Tag].
const RestoredCell = "perdure/restored"

// Restored is the content of RestoredCell.
type Restored struct {
	ID    string    `json:"id"`             // of the restoration
	Taken time.Time `json:"taken,omitzero"` // when the backup was taken, if that is known
}

// MarkRestored marks a store as restored, and removes what belongs to processes that
// used it before. None of them may still run.
func MarkRestored(ctx context.Context, s store.Store, taken time.Time) error {
	for _, err := range s.List(ctx, "~seal/", "") { // a sealed store hides these cells
		if err == nil {
			err = fmt.Errorf("%w: the store is sealed; its keys are needed to mark it as restored", store.ErrKey)
		}
		return err
	}
	value, err := json.Marshal(Restored{ID: journal.NewID(), Taken: taken})
	if err != nil {
		return err
	}
	if _, err := store.Update(ctx, s, RestoredCell, func(store.Cell) ([]byte, error) { return value, nil }); err != nil {
		return err
	}
	for _, prefix := range []string{"worker/", "ticket/"} {
		if err := store.DeletePrefix(ctx, s, prefix); err != nil {
			return err
		}
	}
	return nil
}

// ReadRestored returns the store's last restoration; the id is "" if there was none.
func ReadRestored(ctx context.Context, s store.Store) (Restored, error) {
	var r Restored
	cell, err := s.Get(ctx, RestoredCell)
	if errors.Is(err, store.ErrNotFound) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	if json.Unmarshal(cell.Value, &r) != nil || r.ID == "" {
		return r, fmt.Errorf("%w: cell %q", fault.ErrCorrupt, RestoredCell)
	}
	return r, nil
}

// WasRestored reports whether the store was restored from a backup at some time.
func (c *Threads) WasRestored() bool { return c.restored != "" }
