package kvstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"

	"github.com/perdure/perdure/store"
)

// Read implements store.Store.
func (s *Store) Read(ctx context.Context, journal string, after uint64) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		for b, err := range s.read(ctx, journal, after) {
			if err != nil {
				yield(store.Entry{}, err)
				return
			}
			for i, data := range b.entries {
				if err := s.usable(ctx); err != nil {
					yield(store.Entry{}, err)
					return
				}
				seq := b.start + uint64(i)
				if seq > after && !yield(store.Entry{Seq: seq, Data: data}, nil) {
					return
				}
			}
		}
	}
}

// read yields the batches with the entries after the given sequence, as of the
// time its head is loaded: by then all batches before the head's are moved.
func (s *Store) read(ctx context.Context, journal string, after uint64) iter.Seq2[batch, error] {
	return func(yield func(batch, error) bool) {
		err := s.usable(ctx)
		if err == nil {
			err = store.CheckName("journal", journal)
		}
		var h head
		if err == nil {
			h, err = s.load(ctx, journal)
		}
		// If the head is damaged, the entries before it can still be read.
		until := h.start - min(h.start, 1)
		if c, ok := errors.AsType[*store.CorruptError](err); ok && c.Seq > 0 {
			until = c.Seq - 1
		}
		if after < until {
			for b, err := range s.moved(ctx, journal, after, until) {
				if err != nil {
					yield(batch{}, s.located(ctx, journal, err))
					return
				}
				if !yield(b, nil) {
					return
				}
			}
		}
		if err == nil && after < h.last {
			var b batch
			if b, err = decodeBatch(headKey(journal), h.batch); err == nil {
				yield(b, nil)
				return
			}
		}
		if err != nil {
			yield(batch{}, err)
		}
	}
}

// moved yields the moved batches that end after the sequence after and at or
// before until, without gaps; a gap is *damage. If until is MaxUint64, it yields
// all there are.
func (s *Store) moved(ctx context.Context, journal string, after, until uint64) iter.Seq2[batch, error] {
	return func(yield func(batch, error) bool) {
		next := after + 1
		for cell, err := range s.kv.List(ctx, batchPrefix(journal), batchKey(journal, after)) {
			if err != nil {
				yield(batch{}, fmt.Errorf("kvstore: list the batches of journal %q: %w", journal, err))
				return
			}
			last, err := batchLast(cell.Key)
			if err == nil && last > until {
				break
			}
			var body []byte
			if err == nil {
				body, err = unframe(cell.Key, cell.Value)
			}
			var b batch
			if err == nil {
				b, err = decodeBatch(cell.Key, body)
			}
			// The first one may begin before the requested entries.
			if err == nil && (b.start > next || b.start < next && next != after+1) {
				err = &damage{cell.Key, fmt.Sprintf("the batch begins at %d, but %d comes next", b.start, next)}
			}
			if !yield(b, err) || err != nil {
				return
			}
			next = last + 1
		}
		if until != math.MaxUint64 && next != until+1 {
			yield(batch{}, &damage{batchPrefix(journal), fmt.Sprintf("the batch with %d is lost", next)})
		}
	}
}

// located turns damage of a journal into a *store.CorruptError that says which
// entries can be trusted, or into ErrDropped if the journal was dropped meanwhile.
// Other errors are returned unchanged.
func (s *Store) located(ctx context.Context, journal string, err error) error {
	d, ok := errors.AsType[*damage](err)
	if !ok {
		return err
	}
	if h, _ := s.head(ctx, journal); h.dropped {
		return store.WasDropped(journal)
	}
	c := &store.CorruptError{Journal: journal, Seq: 1, Where: "key " + d.key, Reason: d.reason}
	for b, err := range s.moved(ctx, journal, 0, math.MaxUint64) {
		if err != nil {
			break
		}
		c.Seq = b.last() + 1
	}
	return c
}

// Journals implements store.Store. It also yields journals with a damaged head,
// since they exist: Read reports what is wrong with them.
func (s *Store) Journals(ctx context.Context, after string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := s.usable(ctx); err != nil {
			yield("", err)
			return
		}
		var bad error // reported after all intact names
		for cell, err := range s.kv.List(ctx, headTag, behind(headTag, "", after)) {
			if err != nil {
				err = fmt.Errorf("kvstore: list the journals after %q: %w", after, err)
			} else {
				err = s.usable(ctx)
			}
			if err != nil {
				yield("", err)
				return
			}
			name, err := decode(headTag, cell.Key)
			var h head
			if err == nil {
				h, err = decodeHead(cell.Key, cell.Value)
			}
			if _, damaged := errors.AsType[*damage](err); damaged {
				err = nil
			}
			if err != nil {
				bad = cmp.Or(bad, err)
			} else if !h.dropped && !yield(name, nil) {
				return
			}
		}
		if bad != nil {
			yield("", bad)
		}
	}
}
