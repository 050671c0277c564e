package seal

import (
	"context"

	"github.com/perdure/perdure/store"
)

// casts sits between a sealed store and the store inside if that can carry
// messages. Unwrap returns it, so that the upgrade is found only where it works,
// and never unsealed.
type casts struct {
	store.Store
	caster store.Caster
	root   root
}

var (
	_ store.Caster  = (*casts)(nil)
	_ store.Wrapper = (*casts)(nil)
)

// Cast implements store.Caster.
func (c *casts) Cast(ctx context.Context, topic string, message []byte) error {
	sealed := lock(c.root(castKind, topic), message, bound(castKind, topic, 0))
	return c.caster.Cast(ctx, topic, sealed)
}

// Hear implements store.Caster. A message that was not sealed, or was changed, is
// treated as lost.
func (c *casts) Hear(ctx context.Context, topic string, hear func(message []byte)) {
	box := c.root(castKind, topic)
	c.caster.Hear(ctx, topic, func(message []byte) {
		if plain, reason := unlock(box, message, bound(castKind, topic, 0)); reason == "" {
			hear(plain)
		}
	})
}

// Unwrap implements store.Wrapper.
func (c *casts) Unwrap() store.Store { return c.Store }
