package perdure

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/perdure/perdure/store"
)

// Damaged is the status of a thread in a list in which someone has found damage:
// see [Runtime.Verify].
const Damaged Status = "damaged"

// damaged says that a thread cannot be read behind what was folded of it, and
// what to do.
func (c *core) damaged(ctx context.Context, o *opened, err error) error {
	id := o.thread.ID
	var s summary
	if cell, getErr := c.store.Get(ctx, journalOf(o.name)); getErr == nil && json.Unmarshal(cell.Value, &s) == nil && s.ID != "" {
		id = s.ID // also of one whose first entry is lost, and of a fork in the part that it shares
	}
	if o.thread.Seq == 0 {
		return fmt.Errorf("%w: thread %s: nothing of it is good, restore it from a backup or an export: %w", ErrCorrupt, or(id, o.name), err)
	}
	return fmt.Errorf("%w: thread %s, good up to entry %d, where it can be forked: %w", ErrCorrupt, id, o.thread.Seq, err)
}

// tellDamage makes lists show that a thread is damaged. It is a hint: who writes
// the next summary has read the thread.
func (c *core) tellDamage(ctx context.Context, name string) {
	_, _ = store.Update(ctx, c.store, journalOf(name), func(old store.Cell) ([]byte, error) {
		var s summary
		if old.Version == "" || json.Unmarshal(old.Value, &s) != nil || s.Status == Damaged {
			return nil, errNothing
		}
		s.Status = Damaged
		return json.Marshal(s)
	})
}
