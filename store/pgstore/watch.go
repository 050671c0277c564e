package pgstore

import (
	"context"
	"iter"
	"time"

	"github.com/perdure/perdure/store"
)

// Watch implements store.Watcher.
func (s *Store) Watch(ctx context.Context, prefix string) iter.Seq[struct{}] {
	return func(yield func(struct{}) bool) {
		s.watch.Do(func() { go s.poll() })
		for range s.Hub.Watch(ctx, prefix) {
			if !yield(struct{}{}) {
				return
			}
		}
	}
}

// poll looks for writes until the store is closed. What a transaction wrote can be
// read from the moment that a new snapshot differs from older ones.
func (s *Store) poll() {
	tick := time.NewTicker(store.PollInterval)
	defer tick.Stop()
	for seen := ""; ; {
		select {
		case <-s.closing:
			return
		case <-tick.C:
		}
		if !s.Watching() {
			continue
		}
		var now string
		err := s.query(context.Background(), "SELECT pg_current_snapshot()::text", func(scan func(...any) error) error { return scan(&now) })
		if err != nil || now != seen { // whoever reads will see why it fails
			s.WakeAll()
		}
		seen = now
	}
}
