package seal

import (
	"context"
	"iter"

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

// Listen implements store.Caster. A message that was not sealed, or was changed,
// is treated as lost.
func (c *casts) Listen(ctx context.Context, topic string) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		box := c.root(castKind, topic)
		for m := range c.caster.Listen(ctx, topic) {
			plain, reason := unlock(box, m, bound(castKind, topic, 0))
			if reason == "" && !yield(plain) {
				return
			}
		}
	}
}

// Unwrap implements store.Wrapper.
func (c *casts) Unwrap() store.Store { return c.Store }
