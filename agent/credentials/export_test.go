package credentials

import (
	"context"
	"encoding/json"
)

type SealedSecret = sealedSecret

func (c *Credentials) Unseal(ctx context.Context, user, name string, raw json.RawMessage) (string, error) {
	return c.unseal(ctx, user, name, raw)
}

func (c *Credentials) Sealed(ctx context.Context, user, name string) (json.RawMessage, error) {
	item, err := c.shelf.Get(ctx, []string{user}, name)
	if err != nil {
		return nil, err
	}
	return item.Value, nil
}
