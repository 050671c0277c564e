package threads

import (
	"context"

	"github.com/perdure/perdure/store"
)

// Who writes cells with an entry knows what they hold until another writer changes
// them. So the end of a run, which replaces what its start or claim has written,
// reads none of them: the batch says which versions it expects, and if one is
// outdated it is refused and built again from what the store has.

// wrote remembers the cells that a batch has written.
func (o *Opened) wrote(cells []store.Write) {
	if len(cells) == 0 {
		return // steps are in between
	}
	o.made = nil
	for _, w := range cells {
		if *w.Made == "" {
			continue
		}
		if o.made == nil {
			o.made = map[string]store.Cell{}
		}
		o.made[w.Key] = store.Cell{Key: w.Key, Version: *w.Made, Value: w.Value}
	}
}

// Cells returns a store that gets the cells which were last written with an entry of
// the thread as they were then. A write that follows from one must be refused if its
// version is outdated.
func (o *Opened) Cells(s store.Store) store.Store {
	if o.made == nil {
		return s
	}
	return remembered{s, o.made}
}

type remembered struct {
	store.Store
	made map[string]store.Cell
}

// Get implements store.Store.
func (r remembered) Get(ctx context.Context, key string) (store.Cell, error) {
	if cell, ok := r.made[key]; ok {
		return cell, nil
	}
	return r.Store.Get(ctx, key)
}
