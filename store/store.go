package store

import (
	"context"
	"iter"
)

// Store keeps journals and cells. Drivers implement it, and everything durable
// in Perdure is built on it. All methods are safe for concurrent use. The package
// comment lists the clauses that every Store meets, and
// [github.com/perdure/perdure/store/storetest] executes them.
type Store interface {
	// Append adds entries to a journal after the given sequence, all or none,
	// durably, and returns the sequence of the last one. The first append, with
	// after 0, creates the journal. ErrConflict means that the journal does not
	// end at after and that nothing was written; it may be spurious.
	// ErrDropped, ErrTooLarge, ErrInvalid, ErrClosed, ErrCorrupt, ErrKey and
	// ErrNewer also mean that nothing was written. After any other error the
	// append may have happened: [AppendOnce] finds out.
	//
	// The store does not retain the slices it is given. If err is not nil,
	// last means nothing.
	Append(ctx context.Context, journal string, after uint64, entries ...[]byte) (last uint64, err error)

	// Read yields the entries after the given sequence, in order and without
	// gaps, up to some moment after the loop begins. A journal that was never
	// written, or that ends at or before after, yields nothing; a dropped one
	// yields ErrDropped. Nothing follows an error. The caller owns the bytes
	// it gets, and may call the store, stop or pause inside the loop.
	Read(ctx context.Context, journal string, after uint64) iter.Seq2[Entry, error]

	// Journals yields the names of all journals after the given name, ordered
	// bytewise. A journal that is neither created nor dropped during the call
	// is yielded exactly once. Dropped journals are not yielded. Damaged
	// journals are reported as an error after all intact ones; nothing
	// follows an error. The body of the loop may call the store.
	Journals(ctx context.Context, after string) iter.Seq2[string, error]

	// Drop removes a journal and its bytes, and leaves a tombstone: from then
	// on Append and Read return ErrDropped. Dropping a journal that was
	// already dropped, or that never existed, succeeds. After an error, some of
	// its bytes may be left even though it is dropped: Drop again removes them.
	Drop(ctx context.Context, journal string) error

	// Get returns a cell, or ErrNotFound. The caller owns the bytes.
	Get(ctx context.Context, key string) (Cell, error)

	// Put writes a cell if its version is still prev or, if prev is "", if the
	// cell does not exist; otherwise it writes nothing and returns
	// ErrConflict, which may be spurious. It returns the new version, which
	// this key never has again. As with Append, errors other than the definite
	// ones mean that the write may have happened.
	Put(ctx context.Context, key string, value []byte, prev Version) (Version, error)

	// Delete removes a cell if its version is prev; otherwise, even if there
	// is no such cell, it returns ErrConflict. An empty prev is ErrInvalid.
	Delete(ctx context.Context, key string, prev Version) error

	// List yields the cells whose keys begin with prefix and come after the
	// given key, ordered bytewise by key. A cell that is not written during
	// the call is yielded exactly once; one that is written may be yielded in
	// any of its versions or not at all. Prefix and after are bounds and may
	// have any length. Damaged cells are reported as an error after all intact
	// ones; nothing follows an error. The body of the loop may call the store.
	List(ctx context.Context, prefix, after string) iter.Seq2[Cell, error]

	// Close releases the handle. Calls in progress finish or fail; later ones
	// return ErrClosed. Closing twice is harmless.
	Close() error
}

// Entry is one entry of a journal.
type Entry struct {
	Seq  uint64 // dense from 1
	Data []byte
}

// Version identifies one write of one cell. It is opaque; compare with ==.
type Version string

// Cell is a small versioned record.
type Cell struct {
	Key     string
	Value   []byte
	Version Version
}

// The limits of the contract.
const (
	// MaxEntry is the size in bytes up to which every store accepts an entry, a
	// cell's value, and the entries of one append taken together.
	MaxEntry = 256 << 10

	// MaxBatch is the maximum number of entries in one append.
	MaxBatch = 64

	// MaxName is the length in bytes of the longest journal name or cell key.
	MaxName = 512

	// Slack is how many bytes a driver accepts beyond MaxEntry, so that a
	// wrapper may add to what it is given.
	Slack = 4 << 10
)

// CheckName returns ErrInvalid unless name is a valid name of a journal or cell:
// 1 to MaxName bytes of any value. The message calls it by the noun what,
// "journal" or "cell". It is for authors of drivers.
func CheckName(what, name string) error {
	if name == "" {
		return invalidf("the name of the %s is empty; use 1 to %d bytes", what, MaxName)
	}
	if len(name) > MaxName {
		return invalidf("the name of the %s, %.40q…, has %d bytes; use at most %d, for example a hash of it", what, name, len(name), MaxName)
	}
	return nil
}

// CheckAppend returns ErrInvalid or ErrTooLarge unless drivers must accept an
// append of these entries. It is for authors of drivers.
func CheckAppend(journal string, entries [][]byte) error {
	if err := CheckName("journal", journal); err != nil {
		return err
	}
	if len(entries) == 0 {
		return invalidf("append to %q has no entries; pass at least one", journal)
	}
	if len(entries) > MaxBatch {
		return tooLargef("append to %q has %d entries; use at most %d in one append", journal, len(entries), MaxBatch)
	}
	size := 0
	for _, e := range entries {
		size += len(e)
	}
	if size > MaxEntry+Slack {
		return tooLargef("append to %q has %d bytes; use at most %d, and put larger values into a blob", journal, size, MaxEntry)
	}
	return nil
}

// CheckPut returns ErrInvalid or ErrTooLarge unless drivers must accept this cell.
// It is for authors of drivers.
func CheckPut(key string, value []byte) error {
	if err := CheckName("cell", key); err != nil {
		return err
	}
	if len(value) > MaxEntry+Slack {
		return tooLargef("the value of cell %q has %d bytes; use at most %d, and put larger values into a blob", key, len(value), MaxEntry)
	}
	return nil
}

// CheckDelete returns ErrInvalid unless key is a valid name and prev is not empty.
// It is for authors of drivers.
func CheckDelete(key string, prev Version) error {
	if err := CheckName("cell", key); err != nil {
		return err
	}
	if prev == "" {
		return invalidf("delete of cell %q has no version; pass the one that Get or Put returned", key)
	}
	return nil
}
