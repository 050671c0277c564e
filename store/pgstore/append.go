package pgstore

import (
	"context"
	"iter"
	"math"

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
	r := newRequest(b)
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
		for more, limit := true, firstPage; more; {
			var page []store.Entry
			var err error
			if page, more, err = s.readPage(ctx, journal, after, limit); err != nil {
				yield(store.Entry{}, err)
				return
			}
			size := 0
			for _, e := range page {
				if err := s.usable(ctx); err != nil {
					yield(store.Entry{}, err)
					return
				}
				if !yield(e, nil) {
					return
				}
				after = e.Seq
				size += len(e.Data) + 64
			}
			limit = nextPage(limit, len(page), size)
		}
	}
}

// Pages are read one after the other, without holding a connection in between, since
// the loop over them may be slow. Their length follows from the size of the rows so
// far.
const (
	firstPage = 64
	mostPage  = 4096
	pageBytes = 1 << 20
)

func nextPage(limit, rows, size int) int {
	if rows < limit {
		return limit
	}
	return min(max(pageBytes/(size/rows), 4), 4*limit, mostPage)
}

// readPage returns up to limit entries, and whether there may be more.
func (s *Store) readPage(ctx context.Context, journal string, after uint64, limit int) (page []store.Entry, more bool, err error) {
	if err := s.usable(ctx); err != nil {
		return nil, false, err
	}
	after = min(after, math.MaxInt64)
	var last int64
	err = s.query(ctx, s.sqlRead, func(scan func(...any) error) error {
		var seq *int64
		var data []byte
		if err := scan(&last, &seq, &data); err != nil || seq == nil {
			return err
		}
		if want := after + uint64(len(page)) + 1; uint64(*seq) != want && last >= 0 {
			return s.missing(journal, want)
		}
		page = append(page, store.Entry{Seq: uint64(*seq), Data: data})
		return nil
	}, []byte(journal), int64(after), limit)
	switch {
	case err != nil:
		return nil, false, err
	case last < 0:
		return nil, false, store.WasDropped(journal)
	case len(page) < limit && last > 0 && after < uint64(last) && after+uint64(len(page)) != uint64(last):
		return nil, false, s.missing(journal, after+uint64(len(page))+1)
	}
	return page, len(page) == limit, nil
}

// missing returns the error for an entry that exists according to the journal's head
// but has no row.
func (s *Store) missing(journal string, seq uint64) error {
	return &store.CorruptError{Journal: journal, Seq: seq, Where: "table " + s.schema + ".entries", Reason: "the entry is missing"}
}

// Journals implements store.Store.
func (s *Store) Journals(ctx context.Context, after string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		after := after // the sequence may be iterated again
		for {
			var page []string
			err := s.usable(ctx)
			if err == nil {
				err = s.query(ctx, s.sqlJournals, func(scan func(...any) error) error {
					var name []byte
					err := scan(&name)
					page = append(page, string(name))
					return err
				}, []byte(after), mostPage)
			}
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

// Drop implements store.Store. The package comment says what is left of the
// journal's bytes on the server's disk.
func (s *Store) Drop(ctx context.Context, journal string) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	if err := store.CheckName("journal", journal); err != nil {
		return err
	}
	if err := s.query(ctx, s.sql("SELECT SCHEMA.drop1($1)"), nil, []byte(journal)); err != nil {
		return err
	}
	s.Wake(journal)
	s.news.wrote(journal)
	return nil
}

// query runs a statement and calls each with every row.
func (s *Store) query(ctx context.Context, sql string, each func(scan func(...any) error) error, args ...any) error {
	bounded, cancel := s.call(ctx)
	defer cancel()
	rows, err := s.pool.Query(bounded, sql, args...)
	if err == nil {
		defer rows.Close()
		for err == nil && rows.Next() {
			if each != nil {
				err = each(rows.Scan)
			}
		}
		if err != nil {
			return err
		}
		err = rows.Err()
	}
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return s.failed("read from", err)
}
