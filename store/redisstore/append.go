package redisstore

import (
	"context"
	"iter"

	"github.com/perdure/perdure/store"
)

// Append implements store.Store.
func (s *Store) Append(ctx context.Context, journal string, after uint64, entries ...[]byte) (uint64, error) {
	if err := s.usable(ctx); err != nil {
		return 0, err
	}
	if err := store.CheckAppend(journal, entries); err != nil {
		return 0, err
	}
	return s.append(ctx, store.Batch{Journal: journal, After: after, Entries: entries})
}

// AppendBatch implements store.Batcher.
func (s *Store) AppendBatch(ctx context.Context, b store.Batch) (uint64, error) {
	if err := s.usable(ctx); err != nil {
		return 0, err
	}
	if err := store.CheckBatch(b); err != nil {
		return 0, err
	}
	return s.append(ctx, b)
}

func (s *Store) append(ctx context.Context, b store.Batch) (uint64, error) {
	r := &request{Batch: b}
	if err := s.writer.do(ctx, r); err != nil {
		return 0, err
	}
	b.Tell(r.versions)
	return b.After + uint64(len(b.Entries)), nil
}

// Read implements store.Store.
func (s *Store) Read(ctx context.Context, journal string, after uint64) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		if err := store.CheckName("journal", journal); err != nil {
			yield(store.Entry{}, err)
			return
		}
		after := after // the sequence may be iterated again
		for limit := firstPage; ; {
			page, err := s.readPage(ctx, journal, after, limit)
			if err != nil {
				yield(store.Entry{}, err)
				return
			}
			size := 0
			for _, data := range page {
				if err := s.usable(ctx); err != nil {
					yield(store.Entry{}, err)
					return
				}
				after++
				if !yield(store.Entry{Seq: after, Data: []byte(data)}, nil) {
					return
				}
				size += len(data) + 64
			}
			if len(page) < limit {
				return
			}
			limit = nextPage(limit, len(page), size)
		}
	}
}

// Pages are read one after the other, without holding a connection in between, since
// the loop over them may be slow. Their length follows from the size of the items so
// far.
const (
	firstPage = 64
	mostPage  = 4096
	pageBytes = 1 << 20
)

func nextPage(limit, items, size int) int {
	if items < limit {
		return limit
	}
	return min(max(pageBytes/(size/items), 4), 4*limit, mostPage)
}

// maxSeq is more than any list can hold, and an integer that Lua represents exactly.
const maxSeq = 1 << 52

// readPage returns up to limit entries.
func (s *Store) readPage(ctx context.Context, journal string, after uint64, limit int) ([]string, error) {
	after = min(after, maxSeq)
	r, err := s.run(ctx, "read from", readScript, []string{s.keys.journals, s.keys.dropped, s.keys.journal + journal}, journal, after, after+uint64(limit)-1)
	switch {
	case err != nil:
		return nil, err
	case r.is(wasDropped):
		return nil, store.WasDropped(journal)
	case r.is(wasLost):
		return nil, s.lostJournal(journal)
	}
	return r.page(1), nil
}

// lostJournal returns the error of a journal that should have entries.
func (s *Store) lostJournal(journal string) error {
	return &store.CorruptError{Journal: journal, Seq: 1, Where: "key " + s.keys.journal + journal, Reason: "its entries are missing"}
}

// Journals implements store.Store.
func (s *Store) Journals(ctx context.Context, after string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		after := after // the sequence may be iterated again
		for {
			page, err := s.index(ctx, s.keys.journals, "("+after, "+", mostPage)
			if err != nil {
				yield("", err)
				return
			}
			for _, name := range page {
				if err := s.usable(ctx); err != nil {
					yield("", err)
					return
				}
				if !yield(name, nil) {
					return
				}
				after = name
			}
			if len(page) < mostPage {
				return
			}
		}
	}
}

// index returns up to limit members of a sorted set in bytewise order.
func (s *Store) index(ctx context.Context, key, least, most string, limit int) ([]string, error) {
	r, err := s.run(ctx, "read from", indexScript, []string{key}, least, most, limit)
	return r.page(1), err
}

// Drop implements store.Store. The package comment says what is left of the
// journal's bytes on the server's disk.
func (s *Store) Drop(ctx context.Context, journal string) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	if err := store.CheckName("journal", journal); err != nil {
		return err
	}
	if _, err := s.run(ctx, "write to", dropScript, []string{s.keys.journals, s.keys.dropped, s.keys.journal + journal}, journal); err != nil {
		return err
	}
	s.Wake(journal)
	s.news.wrote(journal)
	s.rewrites.want()
	return nil
}
