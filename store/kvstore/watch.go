package kvstore

import (
	"context"
	"iter"
	"sync"

	"github.com/perdure/perdure/store"
)

// Watch implements store.Watcher. Writes through this handle wake at once; those
// of others wake when the engine reports them if it is a store.Watcher, and
// otherwise within store.PollInterval.
func (s *Store) Watch(ctx context.Context, prefix string) iter.Seq[struct{}] {
	return func(yield func(struct{}) bool) {
		ctx, cancel := context.WithCancel(ctx)
		wake := make(chan struct{}, 1) // holds one wake-up: coalesced, never lost
		var listening sync.WaitGroup
		defer func() { cancel(); listening.Wait() }()
		for _, source := range s.sources(ctx, prefix) {
			listening.Go(func() {
				defer cancel() // a source that ends was closed
				for range source {
					select {
					case wake <- struct{}{}:
					default:
					}
				}
			})
		}
		for {
			select {
			case <-ctx.Done():
				return
			case <-wake:
				if s.usable(ctx) != nil || !yield(struct{}{}) {
					return
				}
			}
		}
	}
}

// sources returns the loops that together see every change under a prefix. The
// hub's is always one of them, since it ends when the store is closed.
func (s *Store) sources(ctx context.Context, prefix string) []iter.Seq[struct{}] {
	own := s.hub.Watch(ctx, prefix)
	if w, ok := upgrade[store.Watcher](s.kv); ok {
		return []iter.Seq[struct{}]{own, w.Watch(ctx, headTag+common(prefix)), w.Watch(ctx, cellTag+common(prefix))}
	}
	// With its upgrades hidden, the store is polled.
	return []iter.Seq[struct{}]{own, store.Watch(ctx, struct{ store.Store }{s}, prefix)}
}

// Cast implements store.Caster. Messages reach all users of the engine if it is a
// store.Caster, and otherwise the listeners of this handle.
func (s *Store) Cast(ctx context.Context, topic string, message []byte) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	if c, ok := upgrade[store.Caster](s.kv); ok {
		return c.Cast(ctx, topic, message)
	}
	return s.hub.Cast(ctx, topic, message)
}

// Hear implements store.Caster.
func (s *Store) Hear(ctx context.Context, topic string, hear func(message []byte)) {
	c, ok := upgrade[store.Caster](s.kv)
	if !ok {
		s.hub.Hear(ctx, topic, hear)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	c.Hear(ctx, topic, hear)
}
