package redisstore

import (
	"context"
	"errors"
	"iter"

	"github.com/redis/go-redis/v9"

	"github.com/perdure/perdure/store"
)

// Put implements store.Store.
func (s *Store) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	if err := s.usable(ctx); err != nil {
		return "", err
	}
	if err := store.CheckPut(key, value); err != nil {
		return "", err
	}
	r := &request{Batch: store.Batch{Cells: []store.Write{{Key: key, Value: value, Prev: prev}}}}
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
	return s.writer.do(ctx, &request{Batch: store.Batch{Cells: []store.Write{{Key: key, Prev: prev, Remove: true}}}})
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, key string) (store.Cell, error) {
	if err := s.usable(ctx); err != nil {
		return store.Cell{}, err
	}
	if err := store.CheckName("cell", key); err != nil {
		return store.Cell{}, err
	}
	r, err := s.run(ctx, "read from", getScript, []string{s.keys.cells, s.keys.cell + key}, key)
	switch {
	case err != nil:
		return store.Cell{}, err
	case r.is(isNone):
		return store.Cell{}, store.NoCell(key)
	case r.is(wasLost):
		return store.Cell{}, s.lostCell(key)
	}
	return s.cell(key, r.text(1))
}

// lostCell returns the error of a cell that should have content.
func (s *Store) lostCell(key string) error {
	return &store.CorruptError{Cell: key, Version: lostVersion, Where: "key " + s.keys.cell + key, Reason: "its content is missing"}
}

// cell decodes a cell.
func (s *Store) cell(key, content string) (store.Cell, error) {
	if len(content) < versionSize {
		return store.Cell{}, &store.CorruptError{Cell: key, Version: store.Version(content), Where: "key " + s.keys.cell + key, Reason: "it is too short to have a version"}
	}
	return store.Cell{Key: key, Version: store.Version(content[:versionSize]), Value: []byte(content[versionSize:])}, nil
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[store.Cell, error] {
	return func(yield func(store.Cell, error) bool) {
		end := behind(prefix)
		from := "[" + prefix
		if after >= prefix {
			from = "(" + after
		}
		var damage error
		for limit := firstPage; ; {
			page, err := s.index(ctx, s.keys.cells, from, end, limit)
			var contents []any
			if err == nil && len(page) > 0 {
				contents, err = s.contents(ctx, page)
			}
			if err != nil {
				yield(store.Cell{}, err)
				return
			}
			size := 0
			for i, key := range page {
				if err := s.usable(ctx); err != nil {
					yield(store.Cell{}, err)
					return
				}
				from = "(" + key
				content, ok := contents[i].(string)
				var c store.Cell
				if ok {
					c, err = s.cell(key, content)
				} else if err = s.missing(ctx, key); err == nil {
					continue // it was deleted just now
				}
				switch {
				case errors.Is(err, store.ErrCorrupt):
					if damage == nil {
						damage = err
					}
					continue
				case err != nil:
					yield(store.Cell{}, err)
					return
				}
				if !yield(c, nil) {
					return
				}
				size += len(key) + len(content) + 64
			}
			if len(page) < limit {
				break
			}
			limit = nextPage(limit, len(page), max(size, len(page)))
		}
		if damage != nil {
			yield(store.Cell{}, damage)
		}
	}
}

// contents returns what cells hold, nil for those that hold nothing.
func (s *Store) contents(ctx context.Context, cells []string) ([]any, error) {
	names := make([]string, len(cells))
	for i, key := range cells {
		names[i] = s.keys.cell + key
	}
	var contents []any
	err := s.call(ctx, "read from", func(ctx context.Context, c *redis.Client) (err error) {
		contents, err = c.MGet(ctx, names...).Result()
		return err
	})
	if err != nil {
		return nil, err // the call may go on
	}
	return contents, nil
}

// missing returns the error of a cell that has a key but no content, nil if it has
// been deleted, or written again, since.
func (s *Store) missing(ctx context.Context, key string) error {
	if _, err := s.Get(ctx, key); err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	return nil
}

// behind returns the upper bound of keys that begin with prefix.
func behind(prefix string) string {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] < 0xff {
			end := []byte(prefix[:i+1])
			end[i]++
			return "(" + string(end)
		}
	}
	return "+"
}
