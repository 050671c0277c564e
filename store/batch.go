package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"
)

// MaxWrites is the maximum number of cells that one batch may write.
const MaxWrites = 16

// Batch is one append together with writes of cells.
type Batch struct {
	Journal string
	After   uint64
	Entries [][]byte // as for Append: 1 to MaxBatch
	Cells   []Write  // at most MaxWrites, of different keys
}

// Write is what a batch does to one cell.
type Write struct {
	Key    string
	Value  []byte
	Prev   Version // as for Put, or as for Delete if Remove is set
	Remove bool    // removes the cell instead of writing it

	// Ahead, if not nil, is what AppendWith writes instead of Value if it has to
	// write a required cell before the entries. Drivers ignore it.
	Ahead []byte

	// Optional says that the batch does not depend on this write. Optional writes
	// are made in order, up to the first whose cell is not at version Prev: that
	// write and all later ones are skipped.
	Optional bool

	// Made, if not nil, is set to the version of the cell after a successful batch, if
	// the driver knows it, which saves the writer a read. If an optional write was
	// skipped, the cell may have another version.
	Made *Version

	// Quiet says that nobody waits for this write: it need not wake watchers.
	Quiet bool
}

// Heard yields the names whose watchers a successful batch wakes, as if all of its writes
// were made. It is for authors of drivers.
func (b Batch) Heard(yield func(name string) bool) {
	if b.Journal != "" && !yield(b.Journal) {
		return
	}
	for _, w := range b.Cells {
		if !w.Quiet && !yield(w.Key) {
			return
		}
	}
}

// Tell sets the Made fields of a successful batch's writes to the new versions of their
// cells, which are "" where they are not known. It is for authors of drivers.
func (b Batch) Tell(versions []Version) {
	for i, w := range b.Cells {
		if w.Made != nil && !w.Remove {
			*w.Made = versions[i]
		}
	}
}

// CellConflict is the ErrConflict of a batch whose journal ends as expected but
// one of whose required cells is at another version.
type CellConflict struct {
	Key string
	Err error // as Put or Delete would return it
}

func (e *CellConflict) Error() string { return e.Err.Error() }

// Unwrap makes errors.Is(err, ErrConflict) true.
func (e *CellConflict) Unwrap() error { return e.Err }

// Batcher is the upgrade of stores that can append and write cells in one
// commit. Unlike other upgrades it is asserted on the outermost store only: a
// batch that bypassed a wrapper would not be sealed, observed or counted. So a
// wrapper implements it on top of the store inside. If that store is not a Batcher,
// the wrapper returns errors.ErrUnsupported for every batch, even an invalid one.
type Batcher interface {
	// AppendBatch appends the entries and makes the writes, all or none,
	// durably, and returns the sequence of the last entry. A reader that sees
	// one of them sees all that are not optional.
	//
	// Its errors are those of Append. If the journal does not end at After, it
	// returns ErrConflict, whatever the cells hold; if a required cell is not at
	// its version, it returns a *CellConflict. Optional writes never make it fail.
	AppendBatch(ctx context.Context, b Batch) (last uint64, err error)
}

// BatcherOf returns s as a Batcher, or nil if it is not one or wraps a store that
// is not one. It is for authors of wrappers.
func BatcherOf(s Store) Batcher {
	batcher, ok := s.(Batcher)
	if !ok {
		return nil
	}
	if _, err := batcher.AppendBatch(context.Background(), Batch{}); err == errors.ErrUnsupported {
		return nil
	}
	return batcher
}

func appendBatch(ctx context.Context, s Store, b Batch) (uint64, error) {
	if batcher, ok := s.(Batcher); ok {
		return batcher.AppendBatch(ctx, b)
	}
	return 0, errors.ErrUnsupported
}

// CheckBatch returns ErrInvalid or ErrTooLarge unless drivers must accept this
// batch. It is for authors of drivers.
func CheckBatch(b Batch) error {
	if err := CheckAppend(b.Journal, b.Entries); err != nil {
		return err
	}
	if len(b.Cells) > MaxWrites {
		return tooLargef("the batch for journal %q writes %d cells; use at most %d", b.Journal, len(b.Cells), MaxWrites)
	}
	for i, w := range b.Cells {
		err := CheckPut(w.Key, w.Value)
		if w.Remove {
			err = CheckDelete(w.Key, w.Prev)
		}
		if err != nil {
			return err
		}
		for _, other := range b.Cells[:i] {
			if other.Key == w.Key {
				return invalidf("the batch for journal %q writes cell %q twice", b.Journal, w.Key)
			}
		}
	}
	return nil
}

// AppendWith appends a batch like Batcher.AppendBatch and finds out what became
// of it, as [AppendOnce] does for an append: it returns nil if the entries are
// in the journal, exactly once, and the required writes have been made. After
// ErrConflict, including a *CellConflict, the entries are not in the journal.
//
// If s is not a Batcher, AppendWith writes the required cells one after the other
// in the order of the batch, then appends, then makes the optional writes. A crash
// or an error in between may leave required cells without the entries. So a
// required cell should only hint at what is about to be appended.
func AppendWith(ctx context.Context, s Store, b Batch) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if err := CheckBatch(b); err != nil {
		return 0, err
	}
	if len(b.Cells) > 0 {
		last, err := appendOnce(ctx, s, b.Journal, b.After, b.Entries, func() (uint64, error) { return appendBatch(ctx, s, b) })
		if err != errors.ErrUnsupported { // not errors.Is: an error of the disk may match it
			return last, err
		}
	}
	for _, w := range b.Cells {
		if w.Optional {
			continue
		}
		if w.Ahead != nil {
			w.Value = w.Ahead
		}
		if err := writeCell(ctx, s, w); err != nil {
			return 0, err
		}
	}
	last, err := AppendOnce(ctx, s, b.Journal, b.After, b.Entries...)
	if err != nil {
		return 0, err
	}
	for _, w := range b.Cells {
		if w.Optional && put(ctx, s, w) != nil {
			break
		}
	}
	return last, nil
}

func put(ctx context.Context, s Store, w Write) error {
	if w.Remove {
		return s.Delete(ctx, w.Key, w.Prev)
	}
	_, err := s.Put(ctx, w.Key, w.Value, w.Prev)
	return err
}

// writeCell makes a required write of a batch and finds out what became of it. If
// the cell holds the value, it does not matter who wrote it.
func writeCell(ctx context.Context, s Store, w Write) error {
	began := time.Now()
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		err := put(ctx, s, w)
		if err == nil || wroteNothing(err) {
			return err
		}
		cell, getErr := s.Get(ctx, w.Key)
		switch missing := errors.Is(getErr, ErrNotFound); {
		case getErr != nil && !missing:
			err = errors.Join(err, getErr)
		case w.Remove && missing, !w.Remove && !missing && cell.Version != w.Prev && bytes.Equal(cell.Value, w.Value):
			return nil
		case cell.Version != w.Prev:
			return &CellConflict{Key: w.Key, Err: NotVersion(w.Key, w.Prev, cell.Version)}
		}
		if errors.Is(err, ErrPoisoned) || OutOfPatience(ctx, began) {
			return fmt.Errorf("%w: write of cell %q: %w", ErrUnknown, w.Key, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: write of cell %q: %w", ErrUnknown, w.Key, errors.Join(ctx.Err(), err))
		case <-time.After(pause):
		}
	}
}
