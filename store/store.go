package store

import (
	"context"
	"iter"
)

// Store keeps journals and cells. It is what a driver implements and what
// everything durable in Perdure is written in terms of. All methods are safe
// for concurrent use. The clauses that every Store meets are in the package
// comment; [github.com/perdure/perdure/store/storetest] executes them.
type Store interface {
	// Append adds entries to a journal behind sequence after, all or none,
	// durably, and returns the sequence of the last one. A journal begins to
	// exist with its first append, at after 0. ErrConflict means that the
	// journal does not end at after and that nothing was written; it may be
	// spurious. ErrDropped, ErrTooLarge, ErrInvalid, ErrClosed, ErrCorrupt,
	// ErrKey and ErrNewer also mean that nothing was written. After any other
	// error the append may have happened: [AppendOnce] finds out.
	//
	// The store does not keep the slices it is given. Beside an error the
	// sequence means nothing.
	Append(ctx context.Context, journal string, after uint64, entries ...[]byte) (last uint64, err error)

	// Read yields the entries behind sequence after, in order and without a
	// gap, up to some moment after the loop begins. A journal that was never
	// written, or that ends at or before after, yields nothing; a dropped one
	// yields ErrDropped. An error is the last thing yielded. The caller owns
	// the bytes it gets, and may call the store, stop or pause inside the loop.
	Read(ctx context.Context, journal string, after uint64) iter.Seq2[Entry, error]

	// Journals yields the names of all journals behind name after, ordered
	// bytewise. A journal that is neither created nor dropped during the call
	// is yielded exactly once. Dropped journals are not yielded. What is
	// damaged is told by an error behind all that is not; an error is the
	// last thing yielded. The body of the loop may call the store.
	Journals(ctx context.Context, after string) iter.Seq2[string, error]

	// Drop removes a journal and its bytes, and leaves a tombstone: Append
	// and Read answer ErrDropped for ever. Dropping a dropped journal
	// succeeds; so does dropping one that never was.
	Drop(ctx context.Context, journal string) error

	// Get returns a cell, or ErrNotFound. The caller owns the bytes.
	Get(ctx context.Context, key string) (Cell, error)

	// Put writes a cell if its version is still prev, or, where prev is "",
	// if the cell does not exist; otherwise ErrConflict, which may be
	// spurious, and nothing is written. It returns the new version, which
	// this key never has again. As with Append, other errors than the
	// definite ones mean that the write may have happened.
	Put(ctx context.Context, key string, value []byte, prev Version) (Version, error)

	// Delete removes a cell if its version is prev; otherwise, also where
	// there is no such cell, ErrConflict. An empty prev is ErrInvalid.
	Delete(ctx context.Context, key string, prev Version) error

	// List yields the cells whose keys begin with prefix and are behind key
	// after, ordered bytewise by key. A cell that is not written during the
	// call is yielded exactly once; one that is may be yielded in any of its
	// versions or not at all. Prefix and after are bounds and may be of any
	// length. What is damaged is told by an error behind all that is not; an
	// error is the last thing yielded. The body of the loop may call the
	// store.
	List(ctx context.Context, prefix, after string) iter.Seq2[Cell, error]

	// Close releases the handle. Calls under way finish or fail; later ones
	// answer ErrClosed. Closing twice is harmless.
	Close() error
}

// Entry is one entry of a journal.
type Entry struct {
	Seq  uint64 // dense from 1
	Data []byte
}

// Version names one write of one cell. It is opaque; two are compared with ==.
type Version string

// Cell is a small versioned record.
type Cell struct {
	Key     string
	Value   []byte
	Version Version
}

// The limits of the contract.
const (
	// MaxEntry is the size up to which every store takes an entry, a cell's
	// value, and the entries of one append together.
	MaxEntry = 256 << 10

	// MaxBatch is the number of entries that one append may hold.
	MaxBatch = 64

	// MaxName is the length in bytes of the longest journal name or cell key.
	MaxName = 512

	// Slack is what a driver takes beyond MaxEntry, so that a wrapper may
	// add to what it is given.
	Slack = 4 << 10
)

// CheckName returns ErrInvalid unless name may name a journal or a cell: 1 to
// MaxName bytes, of any value. What is the noun for the message, "journal" or
// "cell". It is for authors of drivers.
func CheckName(what, name string) error {
	if name == "" {
		return invalidf("the %s's name is empty; give it one of 1 to %d bytes", what, MaxName)
	}
	if len(name) > MaxName {
		return invalidf("the %s's name %.40q… has %d bytes; use at most %d, for example a hash of it", what, name, len(name), MaxName)
	}
	return nil
}

// CheckAppend returns ErrInvalid or ErrTooLarge unless a driver has to accept
// an append of these entries. It is for authors of drivers.
func CheckAppend(journal string, entries [][]byte) error {
	if err := CheckName("journal", journal); err != nil {
		return err
	}
	if len(entries) == 0 {
		return invalidf("append to %q holds no entry; give at least one", journal)
	}
	if len(entries) > MaxBatch {
		return tooLargef("append to %q holds %d entries; use at most %d in one append", journal, len(entries), MaxBatch)
	}
	size := 0
	for _, e := range entries {
		size += len(e)
	}
	if size > MaxEntry+Slack {
		return tooLargef("append to %q holds %d bytes; keep it to %d, larger values belong into a blob", journal, size, MaxEntry)
	}
	return nil
}

// CheckPut returns ErrInvalid or ErrTooLarge unless a driver has to accept
// this cell. It is for authors of drivers.
func CheckPut(key string, value []byte) error {
	if err := CheckName("cell", key); err != nil {
		return err
	}
	if len(value) > MaxEntry+Slack {
		return tooLargef("the value of cell %q has %d bytes; keep it to %d, larger values belong into a blob", key, len(value), MaxEntry)
	}
	return nil
}

// CheckDelete returns ErrInvalid unless key and prev may name a version of a
// cell. It is for authors of drivers.
func CheckDelete(key string, prev Version) error {
	if err := CheckName("cell", key); err != nil {
		return err
	}
	if prev == "" {
		return invalidf("delete of cell %q names no version; pass the one that Get or Put returned", key)
	}
	return nil
}
