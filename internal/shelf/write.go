package shelf

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/perdure/perdure/store"
)

// PutOptions say what a Put expects to find. The zero value expects nothing, and
// also replaces what is damaged.
type PutOptions struct {
	Version store.Version // of the value that it replaces; "": any, or none
	Create  bool          // there must be no value
	TTL     time.Duration // after which the value is not there; 0: it stays
	Once    string        // a key of this write: repeated with the same, it happens once
}

// tries bounds how often a write is tried again. A conflict means that another
// writer got on, so many in a row are rare.
const tries = 64

// Put writes a value, JSON, and returns it as it is now. If it does not find
// what the options expect it writes nothing and returns a *ConflictError.
//
// A write whose outcome the store left open is looked after. If another one
// stands there then, nobody knows whether that replaced this one: the error
// matches store.ErrUnknown. Without an expectation it is written again instead.
func (s *Shelf) Put(ctx context.Context, ns []string, key string, value json.RawMessage, o PutOptions) (*Item, error) {
	if err := Check(ns, key); err != nil {
		return nil, err
	}
	switch {
	case len(value) > MaxValue:
		return nil, fmt.Errorf("%w: the value has %d bytes; the limit is %d", ErrTooLarge, len(value), MaxValue)
	case o.TTL < 0, o.Create && o.Version != "":
		return nil, fmt.Errorf("%w: a negative time to live, or a version with a condition that there is no value", ErrInvalid)
	}
	if err := s.checkMoved(ctx); err != nil {
		return nil, err
	}
	id := rand.Text()
	if o.Once != "" {
		id = s.hash("write", o.Once, string(o.Version), strconv.FormatBool(o.Create), o.TTL.String(), string(value))
	}
	var put *Item
	var open error // why an earlier try may have happened
	err := s.retry(ctx, func() error {
		from := s.host.Store
		blind := o.Version == "" && !o.Create
		if blind {
			from = store.Derived(from) // what is damaged is replaced
		}
		cell, err := from.Get(ctx, s.root+s.Place(ns, key))
		if errors.Is(err, store.ErrNotFound) {
			cell = store.Cell{Key: s.root + s.Place(ns, key)}
		} else if err != nil {
			return err
		}
		var old *Item
		if cell.Version != "" {
			item, r, err := s.parse(cell)
			switch {
			case err != nil && !blind:
				return err
			case err != nil:
			case r.Write == id:
				put = item // an earlier try that is taken for lost
				return nil
			case !item.expired():
				old = item
			}
		}
		if o.Create && old != nil || o.Version != "" && (old == nil || old.Version != o.Version) {
			if open != nil {
				return fmt.Errorf("%w: writing to a shelf: %w", store.ErrUnknown, open)
			}
			e := &ConflictError{}
			if old != nil {
				e.Now = old.Version
			}
			return e
		}
		put, err = s.write(ctx, cell, old, &record{Namespace: ns, Key: key, Value: value, Write: id}, o.TTL)
		if err != nil && !final(err) && !errors.Is(err, store.ErrConflict) {
			open = err
		}
		return err
	})
	if err == nil {
		err = s.checkKept(ctx)
	}
	if err != nil {
		return nil, err
	}
	return put, nil
}

func (s *Shelf) write(ctx context.Context, cell store.Cell, old *Item, r *record, ttl time.Duration) (*Item, error) {
	now := time.Now()
	r.Created, r.Updated = now.UnixMicro(), now.UnixMicro()
	if old != nil {
		r.Created = old.Created.UnixMicro()
	}
	if ttl > 0 {
		r.Expires = now.Add(ttl).UnixMicro()
	}
	raw, err := r.encode()
	if err != nil {
		return nil, err
	}
	version, err := s.host.Store.Put(ctx, cell.Key, raw, cell.Version)
	if err != nil {
		return nil, err
	}
	item, _, err := s.parse(store.Cell{Key: cell.Key, Value: raw, Version: version})
	return item, err
}

// checkMoved refuses a write if the store was migrated.
func (s *Shelf) checkMoved(ctx context.Context) error {
	if s.host.CheckMoved == nil {
		return nil
	}
	return s.host.CheckMoved(ctx)
}

// checkKept returns an error after a write that a migration may have missed.
func (s *Shelf) checkKept(ctx context.Context) error {
	if s.host.CheckKept == nil {
		return nil
	}
	return s.host.CheckKept(ctx)
}

// Delete removes a value, of the version if one is given. A value that is not
// there is removed already.
func (s *Shelf) Delete(ctx context.Context, ns []string, key string, version store.Version) error {
	if err := Check(ns, key); err != nil {
		return err
	}
	if err := s.checkMoved(ctx); err != nil {
		return err
	}
	if err := s.delete(ctx, s.root+s.Place(ns, key), version); err != nil {
		return err
	}
	return s.checkKept(ctx)
}

func (s *Shelf) delete(ctx context.Context, name string, version store.Version) error {
	return s.retry(ctx, func() error {
		cell, err := s.host.Store.Get(ctx, name)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		if version != "" && cell.Version != version {
			item, _, err := s.parse(cell)
			if err == nil && item.expired() {
				return nil
			}
			return &ConflictError{Now: cell.Version}
		}
		return s.host.Store.Delete(ctx, name, cell.Version)
	})
}

// retry repeats what conflicted with another writer or was left open by the
// store.
func (s *Shelf) retry(ctx context.Context, do func() error) error {
	var err error
	pause := time.Millisecond
	for range tries {
		err = do()
		if err == nil || final(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(pause):
		}
		pause = min(2*pause, 50*time.Millisecond)
	}
	return fmt.Errorf("shelf: gave up after %d tries: %w", tries, err)
}

// final reports whether an error would come again.
func final(err error) bool {
	return slices.ContainsFunc([]error{
		ErrConflict, ErrInvalid, ErrTooLarge, store.ErrUnknown, context.Canceled, context.DeadlineExceeded,
		store.ErrTooLarge, store.ErrInvalid, store.ErrClosed, store.ErrCorrupt, store.ErrKey, store.ErrNewer, store.ErrPoisoned, store.ErrFull,
	}, func(e error) bool { return errors.Is(err, e) })
}
