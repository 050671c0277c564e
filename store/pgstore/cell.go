package pgstore

import (
	"context"
	"iter"

	"github.com/perdure/perdure/store"
)

// Put implements store.Store.
func (s *Store) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	return s.put(ctx, key, value, prev, false)
}

// PutUnsynced implements store.Unsynced. The server acknowledges the write before it
// is on disk, unless it shares a commit with one that must be.
func (s *Store) PutUnsynced(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	return s.put(ctx, key, value, prev, true)
}

func (s *Store) put(ctx context.Context, key string, value []byte, prev store.Version, unsynced bool) (store.Version, error) {
	if err := s.usable(ctx); err != nil {
		return "", err
	}
	if err := store.CheckPut(key, value); err != nil {
		return "", err
	}
	r := newRequest(store.Batch{Cells: []store.Write{{Key: key, Value: value, Prev: prev}}})
	r.unsynced = unsynced
	if err := s.writer.do(ctx, r); err != nil {
		return "", err
	}
	return r.versions[0], nil
}

// Delete implements store.Store.
func (s *Store) Delete(ctx context.Context, key string, prev store.Version) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	if err := store.CheckDelete(key, prev); err != nil {
		return err
	}
	return s.writer.do(ctx, newRequest(store.Batch{Cells: []store.Write{{Key: key, Prev: prev, Remove: true}}}))
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, key string) (store.Cell, error) {
	if err := s.usable(ctx); err != nil {
		return store.Cell{}, err
	}
	if err := store.CheckName("cell", key); err != nil {
		return store.Cell{}, err
	}
	cell, found := store.Cell{Key: key}, false
	err := s.query(ctx, s.sqlGet, func(scan func(...any) error) error {
		found = true
		return scan(&cell.Version, &cell.Value)
	}, []byte(key))
	switch {
	case err != nil:
		return store.Cell{}, err
	case !found:
		return store.Cell{}, store.NoCell(key)
	}
	return cell, nil
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[store.Cell, error] {
	return func(yield func(store.Cell, error) bool) {
		end := store.PrefixEnd(prefix)
		from := prefix
		if after >= prefix {
			from = after + "\x00" // the least key after it
		}
		for limit := firstPage; ; {
			var page []store.Cell
			size := 0
			err := s.usable(ctx)
			if err == nil {
				err = s.query(ctx, s.sqlList, func(scan func(...any) error) error {
					var key []byte
					var c store.Cell
					err := scan(&key, &c.Version, &c.Value)
					c.Key = string(key)
					page = append(page, c)
					size += len(key) + len(c.Value) + 64
					return err
				}, []byte(from), end, limit)
			}
			if err != nil {
				yield(store.Cell{}, err)
				return
			}
			for _, c := range page {
				if err := s.usable(ctx); err != nil {
					yield(store.Cell{}, err)
					return
				}
				if !yield(c, nil) {
					return
				}
				from = c.Key + "\x00"
			}
			if len(page) < limit {
				return
			}
			limit = nextPage(limit, len(page), size)
		}
	}
}

// Count implements store.Counter.
func (s *Store) Count(ctx context.Context, prefix string) (n int, err error) {
	if err := s.usable(ctx); err != nil {
		return 0, err
	}
	err = s.query(ctx, s.sqlCount, func(scan func(...any) error) error { return scan(&n) }, []byte(prefix), store.PrefixEnd(prefix))
	return n, err
}
