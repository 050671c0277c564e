package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// AppendOnce appends like Store.Append and finds out what became of it: after an
// error that leaves the outcome open it reads the journal, and appends the same
// bytes again, until the entries are in the journal or can no longer get there.
// It retries after a spurious conflict too.
//
// It returns nil if the entries are in the journal, exactly once. ErrConflict
// means that nothing was written: another entry is at after+1, the journal ends
// before after, or the store refused for no reason until ctx ended. Other definite
// errors also mean that nothing was written. ErrUnknown means that the outcome
// was still open when ctx ended, when the store had failed for some seconds and
// ctx is not [Patient], or when the handle became useless: a later reader of the
// journal will find the entries there or not.
//
// The first entry must differ from every other entry that may be appended to this
// journal, for example by containing a random id: AppendOnce recognises it by that.
func AppendOnce(ctx context.Context, s Store, journal string, after uint64, entries ...[]byte) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if err := CheckAppend(journal, entries); err != nil {
		return 0, err
	}
	return appendOnce(ctx, s, journal, after, entries, func() (uint64, error) { return s.Append(ctx, journal, after, entries...) })
}

// appendOnce is AppendOnce with a function that appends the entries.
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
			return 0, Conflictf("journal %q has another entry at %d; read the rest and decide again", journal, after+1)
		case errors.Is(readErr, ErrDropped):
			return 0, readErr
		case errors.Is(open, ErrPoisoned), readErr != nil && wroteNothing(readErr), open != nil && OutOfPatience(ctx, began):
			return 0, verdict(journal, after, open, err, readErr)
		}
		if cell := (*CellConflict)(nil); errors.As(err, &cell) && readErr == nil {
			return 0, err // true of earlier tries too: versions do not come back
		}
		if err != nil && readErr == nil && after > 0 {
			// The conflict is real if the journal does not even reach after.
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

// wroteNothing reports whether an append that returned err wrote nothing, and
// would fail in the same way again.
func wroteNothing(err error) bool {
	for _, definite := range []error{ErrTooLarge, ErrInvalid, ErrClosed, ErrCorrupt, ErrKey, ErrNewer} {
		if errors.Is(err, definite) {
			return true
		}
	}
	return false
}

// verdict returns the errors of the last try, which wrote nothing, or ErrUnknown
// if the outcome of an earlier try is open.
func verdict(journal string, after uint64, open error, last ...error) error {
	err := errors.Join(last...)
	if open == nil {
		return err
	}
	return fmt.Errorf("%w: append to %q after %d: %w", ErrUnknown, journal, after, errors.Join(open, err))
}

// entryBehind returns the entry at after+1, if it is there.
func entryBehind(ctx context.Context, s Store, journal string, after uint64) ([]byte, bool, error) {
	for e, err := range s.Read(ctx, journal, after) {
		return e.Data, err == nil, err
	}
	return nil, false, nil
}

// ReadAll returns the entries of a journal after the given sequence.
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

// Update changes the value of a cell by calling change, and tries again until no other
// writer interferes. Change is given the current cell, whose Version is "" if there is
// none, and returns the new value, or an error to stop.
//
// While the store is being reopened, Update retries for some seconds or, with a
// [Patient] context, until the context ends. If the outcome of a Put is still open,
// Update returns its error: the change may or may not have happened, and a caller
// whose change can safely be made twice may call Update again.
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

// putAgain is Put, repeated while the store is unavailable. If the cell then has
// another version, an earlier try may have written that, or what it replaced: so
// this is not a conflict but the open outcome of that try.
func putAgain(ctx context.Context, s Store, key string, value []byte, prev Version) (Version, error) {
	var open error
	began := time.Now()
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		version, err := s.Put(ctx, key, value, prev)
		switch {
		case errors.Is(err, ErrRolledBack): // of a transaction, which is over
			return "", err
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

// Derived returns s for writers of cells that are derived from something else and
// can be rewritten: Get returns a damaged cell with an empty value and the version
// with which Put and Delete replace or remove it.
func Derived(s Store) Store { return derived{s} }

type derived struct{ Store }

func (d derived) Get(ctx context.Context, key string) (Cell, error) {
	cell, err := d.Store.Get(ctx, key)
	if bad, ok := errors.AsType[*CorruptError](err); ok && bad.Cell == key && bad.Version != "" {
		return Cell{Key: key, Version: bad.Version}, nil
	}
	return cell, err
}

// DeletePrefix removes all cells whose keys begin with prefix, including damaged
// ones. It can be interrupted and repeated. Cells written meanwhile may remain.
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
