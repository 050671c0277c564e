package natsstore

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

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

func (s *Store) append(ctx context.Context, b store.Batch) (last uint64, err error) {
	if !s.begin() {
		return 0, store.ErrClosed
	}
	defer s.writes.Done()
	h, known := s.heads.get(b.Journal)
	cells, examined := b.Cells, make([]uint64, len(b.Cells))
	for i, w := range b.Cells {
		if examined[i], err = expected(w.Prev); err != nil {
			known = false // a version that this store never gave
		}
	}
	known = known && h.last == b.After
	err = s.retry(ctx, func(again bool) error {
		if again || !known {
			if h, _, err = s.load(ctx, b.Journal); err != nil {
				return err
			}
			switch {
			case h.dropped:
				return store.WasDropped(b.Journal)
			case h.last != b.After:
				return store.NotAtEnd(b.Journal, b.After, h.last)
			}
			if cells, examined, err = s.examine(ctx, b.Cells); err != nil {
				return err
			}
		}
		subject := s.subject(kindJournal, b.Journal)
		a := &appended{start: b.After + 1, index: h.next(), entries: b.Entries}
		messages := []*nats.Msg{message(subject, h.at, a.encode(subject))}
		for i, w := range cells {
			messages = append(messages, s.cellMessage(w, examined[i]))
		}
		at, err := s.publish(ctx, messages)
		if err != nil {
			s.heads.forget(b.Journal)
			return err
		}
		last = a.last()
		s.heads.put(b.Journal, head{place: place{last, at}, index: a.index})
		return nil
	})
	if err != nil {
		return 0, err
	}
	b.Cells = cells // those that were written
	for name := range b.Heard {
		s.wrote(name)
	}
	return last, nil
}

// examine returns the writes of a batch that can be made, with what the server is to
// expect of their subjects, or a *store.CellConflict.
func (s *Store) examine(ctx context.Context, all []store.Write) (cells []store.Write, expect []uint64, err error) {
	skip := false // optional writes
	for _, w := range all {
		if skip && w.Optional {
			continue
		}
		now, at, err := s.version(ctx, w.Key)
		switch {
		case err != nil && !errors.Is(err, store.ErrCorrupt):
			return nil, nil, err
		case now == w.Prev:
			cells, expect = append(cells, w), append(expect, at)
		case w.Optional:
			skip = true
		default:
			return nil, nil, &store.CellConflict{Key: w.Key, Err: store.NotVersion(w.Key, w.Prev, now)}
		}
	}
	return cells, expect, nil
}

// retry calls try until it returns something other than a refusal of the server, which
// proves nothing: try then looks again, and decides by what it sees. Nothing was written
// by a try that was refused.
func (s *Store) retry(ctx context.Context, try func(again bool) error) error {
	began := time.Now()
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		err := try(pause > time.Millisecond)
		var no *refusal
		if !errors.As(err, &no) {
			return err
		}
		if time.Since(began) > s.timeout {
			return no.final()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// Drop implements store.Store. The tombstone makes the journal unreadable at once. Then
// its messages are overwritten, one after the other. See the package comment for what
// is left.
func (s *Store) Drop(ctx context.Context, journal string) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	if err := store.CheckName("journal", journal); err != nil {
		return err
	}
	if !s.begin() {
		return store.ErrClosed
	}
	defer s.writes.Done()
	s.heads.forget(journal)
	subject, mark := s.subject(kindJournal, journal), s.subject(kindDropped, journal)
	var h head
	err := s.retry(ctx, func(bool) (err error) {
		if h, _, err = s.load(ctx, journal); err != nil && !errors.Is(err, store.ErrCorrupt) {
			return err
		}
		if h.dropped {
			return nil
		}
		h.at, err = s.publish(ctx, []*nats.Msg{
			message(subject, h.at, seal(subject, isDropped, make([]byte, recordSize))),
			rollup(&nats.Msg{Subject: mark, Header: nats.Header{}, Data: seal(mark, isDropped, make([]byte, recordSize))}),
		})
		return err
	})
	if err != nil {
		return err
	}
	s.wrote(journal)
	return s.erase(ctx, subject, h.at)
}
