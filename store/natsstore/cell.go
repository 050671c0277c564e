package natsstore

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"strconv"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/perdure/perdure/store"
)

// The version of a cell is the sequence of its message in the stream, which never
// recurs.

// expected returns the sequence that a version stands for: 0 if there is no cell.
func expected(v store.Version) (uint64, error) {
	if v == "" {
		return 0, nil
	}
	return strconv.ParseUint(string(v), 10, 64)
}

// markerTTL is how long the marker of a deleted cell stays. It has to be a message,
// since only those are compared and swapped, but nobody needs it later: without it the
// cell does not exist either.
const markerTTL = "60s"

// cellMessage returns the message of a write to a cell whose subject has to end at the
// given sequence. It replaces the earlier ones.
func (s *Store) cellMessage(w store.Write, at uint64) *nats.Msg {
	subject := s.subject(kindCell, w.Key)
	if w.Remove {
		m := rollup(message(subject, at, seal(subject, isDeleted, make([]byte, recordSize))))
		m.Header.Set(jetstream.MsgTTLHeader, markerTTL)
		return m
	}
	data := append(make([]byte, recordSize, recordSize+len(w.Value)), w.Value...)
	return rollup(message(subject, at, seal(subject, isCell, data)))
}

// Put implements store.Store.
func (s *Store) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	if err := s.usable(ctx); err != nil {
		return "", err
	}
	if err := store.CheckPut(key, value); err != nil {
		return "", err
	}
	return s.write(ctx, store.Write{Key: key, Value: value, Prev: prev})
}

// Delete implements store.Store.
func (s *Store) Delete(ctx context.Context, key string, prev store.Version) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	if err := store.CheckDelete(key, prev); err != nil {
		return err
	}
	_, err := s.write(ctx, store.Write{Key: key, Prev: prev, Remove: true})
	return err
}

func (s *Store) write(ctx context.Context, w store.Write) (version store.Version, err error) {
	if !s.begin() {
		return "", store.ErrClosed
	}
	defer s.writes.Done()
	at, parseErr := expected(w.Prev)
	err = s.retry(ctx, func(again bool) error {
		if again || parseErr != nil {
			var now store.Version
			if now, at, err = s.version(ctx, w.Key); err != nil && !errors.Is(err, store.ErrCorrupt) {
				return err
			}
			if now != w.Prev {
				return store.NotVersion(w.Key, w.Prev, now)
			}
		}
		seq, err := s.publish(ctx, []*nats.Msg{s.cellMessage(w, at)})
		version = store.Version(strconv.FormatUint(seq, 10))
		return err
	})
	if err != nil {
		return "", err
	}
	s.wrote(w.Key)
	return version, nil
}

// version returns the version of a cell, "" if there is none, and the sequence at
// which its subject ends. ErrCorrupt comes with both.
func (s *Store) version(ctx context.Context, key string) (store.Version, uint64, error) {
	cell, at, err := s.load1(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		err = nil
	}
	return cell.Version, at, err
}

// load1 asks the leader of the stream for a cell, and returns the sequence at which its
// subject ends.
func (s *Store) load1(ctx context.Context, key string) (store.Cell, uint64, error) {
	subject := s.subject(kindCell, key)
	m, err := s.getLast(ctx, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return store.Cell{}, 0, store.NoCell(key)
	}
	if err != nil {
		return store.Cell{}, 0, err
	}
	cell := store.Cell{Key: key, Version: store.Version(strconv.FormatUint(m.Sequence, 10))}
	kind, value, err := unseal(subject, m.Data)
	switch {
	case err == nil && kind == isDeleted:
		return store.Cell{}, m.Sequence, store.NoCell(key)
	case err == nil && kind != isCell:
		err = &damage{"the message is not a cell"}
	}
	if d, ok := errors.AsType[*damage](err); ok {
		err = &store.CorruptError{Cell: key, Version: cell.Version, Where: s.where(m.Sequence), Reason: d.reason}
	}
	cell.Value = value
	return cell, m.Sequence, err
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, key string) (store.Cell, error) {
	if err := s.usable(ctx); err != nil {
		return store.Cell{}, err
	}
	if err := store.CheckName("cell", key); err != nil {
		return store.Cell{}, err
	}
	cell, _, err := s.load1(ctx, key)
	if err != nil {
		return store.Cell{}, err
	}
	return cell, nil
}

// List implements store.Store. It asks for all keys with the prefix and sorts them,
// then gets the cells, some at a time.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[store.Cell, error] {
	return func(yield func(store.Cell, error) bool) {
		if err := s.list(ctx, prefix, after, func(c store.Cell) bool { return yield(c, nil) }); err != nil {
			yield(store.Cell{}, err)
		}
	}
}

func (s *Store) list(ctx context.Context, prefix, after string, yield func(store.Cell) bool) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	if len(prefix) > store.MaxName {
		return nil // there are no names this long
	}
	keys, err := s.names(ctx, kindCell, prefix)
	if err != nil {
		return err
	}
	from, found := slices.BinarySearch(keys, after)
	if found {
		from++
	}
	var bad error // reported after all intact cells
	for keys = keys[from:]; len(keys) > 0; {
		page := keys[:min(window, len(keys))]
		keys = keys[len(page):]
		cells, errs := make([]store.Cell, len(page)), make([]error, len(page))
		var wg sync.WaitGroup
		for i, key := range page {
			wg.Go(func() { cells[i], _, errs[i] = s.load1(ctx, key) })
		}
		wg.Wait()
		for i, err := range errs {
			switch {
			case errors.Is(err, store.ErrNotFound):
				continue
			case errors.Is(err, store.ErrCorrupt), errors.Is(err, store.ErrNewer):
				bad = cmp.Or(bad, err)
				continue
			case err != nil:
				return err
			}
			if err := s.usable(ctx); err != nil {
				return err
			}
			if !yield(cells[i]) {
				return nil
			}
		}
	}
	return bad
}
