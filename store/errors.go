package store

import (
	"errors"
	"fmt"
)

// The errors of the contract. Drivers wrap them with what was being done and
// what to do about it; match them with errors.Is.
var (
	// ErrConflict: the journal or cell is not as the caller saw it. Nothing
	// was written. An engine may refuse spuriously, so a conflict alone does
	// not prove that there is another writer: read again, then decide.
	ErrConflict = errors.New("store: conflict")

	// ErrNotFound: there is no such cell.
	ErrNotFound = errors.New("store: not found")

	// ErrDropped: the journal was dropped; its name can never be used again.
	ErrDropped = errors.New("store: journal was dropped")

	// ErrTooLarge: an entry, append or value exceeds the limit.
	ErrTooLarge = errors.New("store: too large")

	// ErrInvalid: the call itself is wrong; repeating it does not help.
	ErrInvalid = errors.New("store: invalid call")

	// ErrClosed: the handle is closed.
	ErrClosed = errors.New("store: closed")

	// ErrUnknown: AppendOnce could not find out whether its append happened
	// before its context ended.
	ErrUnknown = errors.New("store: outcome unknown")

	// ErrRolledBack: a transaction ended without effect, because its context
	// did or something in it failed.
	ErrRolledBack = errors.New("store: the transaction was rolled back")

	// ErrCorrupt: stored bytes are not what was written. A *CorruptError
	// says where.
	ErrCorrupt = errors.New("store: corrupt")

	// ErrPoisoned: a write or sync through this handle failed, so the handle
	// no longer knows what the disk holds and writes nothing more. Close it
	// and open the store again, which recovers all acknowledged writes.
	ErrPoisoned = errors.New("store: poisoned by a failed write")

	// ErrUnavailable: the engine failed and is being opened again, see Reopen.
	// The call may have happened; try again.
	ErrUnavailable = errors.New("store: unavailable")

	// ErrFull: there is no space left to write to.
	ErrFull = errors.New("store: no space left")

	// ErrScheme: no driver is registered for the URL's scheme.
	ErrScheme = errors.New("store: unknown scheme")

	// ErrLocked: another process has the store open, and its engine allows
	// one process only.
	ErrLocked = errors.New("store: locked by another process")

	// ErrBusy: another program has held the store's lock, or kept a transaction
	// open that is in the way, for too long. Try again once it is done.
	ErrBusy = errors.New("store: another program is in the way")

	// ErrBackup: another backup of the store is in progress, see [Backuper].
	ErrBackup = errors.New("store: a backup is being made")

	// ErrForeign: the path or database holds something other than a store.
	ErrForeign = errors.New("store: not a store")

	// ErrNewer: the store was written in a format newer than this binary's.
	ErrNewer = errors.New("store: written by a newer version")

	// ErrWeak: the store is less durable than Open was asked to require.
	ErrWeak = errors.New("store: durability too weak")

	// ErrKey: an encrypted store cannot be read with the keys at hand.
	ErrKey = errors.New("store: wrong or missing key")
)

// CorruptError locates damage. It matches ErrCorrupt.
type CorruptError struct {
	Journal string  // the damaged journal, if it is one
	Seq     uint64  // the first sequence that cannot be trusted; those before it are intact
	Cell    string  // the damaged cell, if it is one
	Version Version // with which Put and Delete replace or remove the damaged cell; "" if they cannot
	Where   string  // the place in the driver's terms: a file and offset, a row
	Reason  string
}

// Error says what is damaged, where, and what can still be read.
func (e *CorruptError) Error() string {
	what := "store"
	switch {
	case e.Journal != "":
		what = fmt.Sprintf("journal %q at sequence %d", e.Journal, e.Seq)
	case e.Cell != "":
		what = fmt.Sprintf("cell %q", e.Cell)
	}
	msg := fmt.Sprintf("%v: %s: %s", ErrCorrupt, what, e.Reason)
	if e.Where != "" {
		msg += " (" + e.Where + ")"
	}
	if e.Journal != "" && e.Seq > 1 {
		msg += fmt.Sprintf("; the entries up to %d are intact", e.Seq-1)
	}
	return msg + "; restore it from a backup"
}

// Unwrap makes errors.Is(err, ErrCorrupt) true.
func (e *CorruptError) Unwrap() error { return ErrCorrupt }

// Conflictf returns an error that matches ErrConflict; the message says what was
// found. It is for authors of drivers.
func Conflictf(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrConflict}, args...)...)
}

// NotAtEnd returns the ErrConflict of an append to a journal that does not end at
// after. It is for authors of drivers.
func NotAtEnd(journal string, after, last uint64) error {
	return Conflictf("journal %q ends at %d, not at %d; read the rest and decide again", journal, last, after)
}

// NotVersion returns the ErrConflict of a write that expected version prev of a
// cell whose version is now; "" means that there is no cell. It is for authors of
// drivers.
func NotVersion(key string, prev, now Version) error {
	switch {
	case prev == "":
		return Conflictf("cell %q already exists; get it and decide again", key)
	case now == "":
		return Conflictf("cell %q no longer exists; decide again", key)
	}
	return Conflictf("cell %q has been changed; get it and decide again", key)
}

// WasDropped returns the ErrDropped of a call on a dropped journal. It is for
// authors of drivers.
func WasDropped(journal string) error {
	return fmt.Errorf("%w: %q; use a new name", ErrDropped, journal)
}

// NoCell returns the ErrNotFound of a missing cell. It is for authors of drivers.
func NoCell(key string) error {
	return fmt.Errorf("%w: cell %q", ErrNotFound, key)
}

func invalidf(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}

func tooLargef(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrTooLarge}, args...)...)
}
