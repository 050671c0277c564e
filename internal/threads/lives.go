package threads

import (
	"context"
	"errors"

	"github.com/perdure/perdure/store"
)

// UsedKey is the key of the cell which says that a thread was erased to whose
// name a cell led.
func (c *Threads) UsedKey(idCell string) string {
	return "used/" + Base32.EncodeToString(c.Hash("used", idCell)[:20])
}

func (r *Tenant) Tag(ctx context.Context, name, thread string) (string, error) {
	_, err := r.All.Store.Get(ctx, r.All.UsedKey(r.IDKey(thread)))
	if errors.Is(err, store.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return Base32.EncodeToString(r.All.Hash("life", name)[:5]), nil
}
