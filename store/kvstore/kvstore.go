package kvstore

import (
	"context"
	"io"
	"sync"

	"github.com/perdure/perdure/store"
)

// Options configures a Store.
type Options struct {
	// Durability is what acknowledged writes of the engine survive. It is
	// ignored if the engine is a store.Durable, which knows better.
	Durability store.Durability

	// Pack is the size in bytes up to which an append joins the newest batch
	// of its journal instead of moving it, up to MaxPack; 0 keeps each append
	// in a batch of its own. See the package comment for what it costs. Stores
	// on one engine may differ in it.
	Pack int
}

// Store is a store in a key-value engine.
type Store struct {
	kv      KV
	durable store.Durability
	hub     *store.Hub
	pack    int
	heads   headCache

	close    sync.Once
	life     context.Context // ends with Close
	end      context.CancelFunc
	closeErr error
}

var (
	_ store.Store   = (*Store)(nil)
	_ store.Watcher = (*Store)(nil)
	_ store.Caster  = (*Store)(nil)
	_ store.Durable = (*Store)(nil)
	_ store.Weak    = (*Store)(nil)
)

// New returns a store in kv. Several stores, even in different processes, may use
// one engine at the same time. Close closes kv if it is an io.Closer.
func New(kv KV, o Options) *Store {
	s := &Store{kv: kv, durable: o.Durability, hub: store.NewHub(), pack: min(o.Pack, MaxPack)}
	if d, ok := upgrade[store.Durable](kv); ok {
		s.durable = d.Durability()
	}
	s.life, s.end = context.WithCancel(context.Background())
	return s
}

// Durability implements store.Durable.
func (s *Store) Durability() store.Durability { return s.durable }

// Weakness implements store.Weak, for engines that do.
func (s *Store) Weakness() string {
	if w, ok := upgrade[store.Weak](s.kv); ok {
		return w.Weakness()
	}
	return ""
}

// Close implements store.Store. It closes the engine if that is an io.Closer.
func (s *Store) Close() error {
	s.close.Do(func() {
		s.end()
		s.hub.Stop()
		if c, ok := s.kv.(io.Closer); ok {
			s.closeErr = c.Close()
		}
	})
	return s.closeErr
}

func (s *Store) usable(ctx context.Context) error {
	if s.life.Err() != nil {
		return store.ErrClosed
	}
	return ctx.Err()
}
