package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// AppendOnce appends like Store.Append and finds out what became of it: an
// error that leaves the outcome open is answered by looking, and by repeating
// the same bytes, until the entries are in the journal or can no longer be.
// A spurious conflict is repeated too.
//
// It returns nil if the entries are there, exactly once. ErrConflict means
// that nothing was written: another's entry stands at after+1, or the journal
// ends before after, or the store refused for no reason until ctx ended. So do
// other definite errors. ErrUnknown means that ctx ended, the store failed for
// some seconds and ctx is not [Patient], or the handle became useless, before
// the truth was known: whoever reads the journal later will find the entries
// there or not.
//
// The first entry must differ from every other that may be appended to this
// journal, for example by a random id in it: that is how it is recognised.
func AppendOnce(ctx context.Context, s Store, journal string, after uint64, entries ...[]byte) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if err := CheckAppend(journal, entries); err != nil {
		return 0, err
	}
	return appendOnce(ctx, s, journal, after, entries, func() (uint64, error) { return s.Append(ctx, journal, after, entries...) })
}

// appendOnce is AppendOnce by a function that appends the entries.
func appendOnce(ctx context.Context, s Store, journal string, after uint64, entries [][]byte, try func() (uint64, error)) (uint64, error) {
	var open error // why an earlier try may have happened
	began := time.Now()
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		last, err := try()
		switch {
		case err == nil, errors.Is(err, ErrDropped), err == errors.ErrUnsupported:
			return last, err
		case errors.Is(err, ErrConflict):
		case wroteNothing(err):
			return 0, verdict(journal, after, open, err)
		default:
			open, err = err, nil
		}
		at, found, readErr := entryBehind(ctx, s, journal, after)
		switch {
		case found && bytes.Equal(at, entries[0]):
			return after + uint64(len(entries)), nil
		case found:
			return 0, Conflictf("journal %q has another entry at %d; read its tail and decide again", journal, after+1)
		case errors.Is(readErr, ErrDropped):
			return 0, readErr
		case errors.Is(open, ErrPoisoned), readErr != nil && wroteNothing(readErr), open != nil && OutOfPatience(ctx, began):
			return 0, verdict(journal, after, open, err, readErr)
		}
		if cell := (*CellConflict)(nil); errors.As(err, &cell) && readErr == nil {
			return 0, err // also of earlier tries: versions do not come back
		}
		if err != nil && readErr == nil && after > 0 {
			// Not spurious if the journal does not even reach after.
			if _, reached, readErr := entryBehind(ctx, s, journal, after-1); !reached && readErr == nil {
				return 0, verdict(journal, after, open, err)
			}
		}
		select {
		case <-ctx.Done():
			return 0, verdict(journal, after, open, err, ctx.Err())
		case <-time.After(pause):
		}
	}
}

// wroteNothing reports whether an append that answered err wrote nothing,
// and would answer so again.
func wroteNothing(err error) bool {
	for _, definite := range []error{ErrTooLarge, ErrInvalid, ErrClosed, ErrCorrupt, ErrKey, ErrNewer} {
		if errors.Is(err, definite) {
			return true
		}
	}
	return false
}

// verdict returns the errors of the last try, which wrote nothing, or
// ErrUnknown where an earlier one is open.
func verdict(journal string, after uint64, open error, last ...error) error {
	err := errors.Join(last...)
	if open == nil {
		return err
	}
	return fmt.Errorf("%w: append to %q behind %d: %w", ErrUnknown, journal, after, errors.Join(open, err))
}

// entryBehind returns the entry at after+1, if it is there.
func entryBehind(ctx context.Context, s Store, journal string, after uint64) ([]byte, bool, error) {
	for e, err := range s.Read(ctx, journal, after) {
		return e.Data, err == nil, err
	}
	return nil, false, nil
}

// ReadAll returns the entries of a journal behind after.
func ReadAll(ctx context.Context, s Store, journal string, after uint64) ([]Entry, error) {
	var all []Entry
	for e, err := range s.Read(ctx, journal, after) {
		if err != nil {
			return all, err
		}
		all = append(all, e)
	}
	return all, nil
}

// Update writes a cell by a function of what it holds, again and again until
// no other writer came between. Change gets the current cell, whose Version
// is "" if there is none, and returns the new value, or an error to stop.
//
// What a store answers that is being opened again is repeated for some seconds,
// or with a [Patient] context until it ends.
// Where the outcome of a Put is open nevertheless, Update returns that error:
// the change may or may not have happened, and a caller whose change can
// safely be made twice calls Update again.
func Update(ctx context.Context, s Store, key string, change func(old Cell) ([]byte, error)) (Cell, error) {
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		old, err := getAgain(ctx, s, key)
		if errors.Is(err, ErrNotFound) {
			old = Cell{Key: key}
		} else if err != nil {
			return Cell{}, err
		}
		value, err := change(old)
		if err != nil {
			return Cell{}, err
		}
		version, err := putAgain(ctx, s, key, value, old.Version)
		if err == nil {
			return Cell{Key: key, Value: value, Version: version}, nil
		}
		if !errors.Is(err, ErrConflict) {
			return Cell{}, err
		}
		select {
		case <-ctx.Done():
			return Cell{}, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// getAgain is Get, repeated while the store is unavailable.
func getAgain(ctx context.Context, s Store, key string) (Cell, error) {
	began := time.Now()
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		cell, err := s.Get(ctx, key)
		if !errors.Is(err, ErrUnavailable) || OutOfPatience(ctx, began) {
			return cell, err
		}
		select {
		case <-ctx.Done():
			return Cell{}, errors.Join(ctx.Err(), err)
		case <-time.After(pause):
		}
	}
}

// putAgain is Put, repeated while the store is unavailable. If another version
// is there then, an earlier try may have written it, or what it replaced: that
// is not a conflict but the open outcome of that try.
func putAgain(ctx context.Context, s Store, key string, value []byte, prev Version) (Version, error) {
	var open error
	began := time.Now()
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		version, err := s.Put(ctx, key, value, prev)
		switch {
		case errors.Is(err, ErrUnavailable):
			open = err
		case open == nil, err == nil:
			return version, err
		case errors.Is(err, ErrConflict):
			cell, getErr := getAgain(ctx, s, key)
			if getErr != nil && !errors.Is(getErr, ErrNotFound) || cell.Version != prev {
				return "", open
			}
		default:
			return "", errors.Join(open, err)
		}
		if OutOfPatience(ctx, began) {
			return "", open
		}
		select {
		case <-ctx.Done():
			return "", errors.Join(ctx.Err(), open)
		case <-time.After(pause):
		}
	}
}

// Derived returns s for writers of cells that follow from something else and
// can be written anew: Get returns a damaged cell as one with an empty value,
// under the version by which Put and Delete replace or remove it.
func Derived(s Store) Store { return derived{s} }

type derived struct{ Store }

func (d derived) Get(ctx context.Context, key string) (Cell, error) {
	cell, err := d.Store.Get(ctx, key)
	if bad, ok := errors.AsType[*CorruptError](err); ok && bad.Cell == key && bad.Version != "" {
		return Cell{Key: key, Version: bad.Version}, nil
	}
	return cell, err
}

// DeletePrefix removes all cells whose keys begin with prefix, also damaged
// ones. It can be interrupted and repeated. A cell that is written meanwhile
// may stay.
func DeletePrefix(ctx context.Context, s Store, prefix string) error {
	for {
		err := deletePrefix(ctx, s, prefix)
		bad, ok := errors.AsType[*CorruptError](err)
		if !ok || bad.Version == "" || !strings.HasPrefix(bad.Cell, prefix) {
			return err
		}
		if err := s.Delete(ctx, bad.Cell, bad.Version); err != nil && !errors.Is(err, ErrConflict) {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

func deletePrefix(ctx context.Context, s Store, prefix string) error {
	for cell, err := range s.List(ctx, prefix, "") {
		if err != nil {
			return err
		}
		for err = s.Delete(ctx, cell.Key, cell.Version); errors.Is(err, ErrConflict); {
			if cell, err = s.Get(ctx, cell.Key); err == nil {
				err = s.Delete(ctx, cell.Key, cell.Version)
			}
		}
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
	}
	return nil
}
