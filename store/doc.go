// Package store is the contract between Perdure and the place where it keeps
// everything durable. A store holds journals, append-only lists of entries whose
// appends name the last sequence they have seen, and cells, small versioned
// records whose writes name the version they replace. Both are compare-and-swap:
// of several writers that saw the same state, one wins and the others find out.
//
// # Using a store
//
// Import a driver for its URL scheme, and open the store:
//
//	import _ "github.com/perdure/perdure/store/sqlitestore"
//
//	s, err := store.Open(ctx, "sqlite:app.db", store.Require(store.Power))
//
// Append through [AppendOnce], which finds out what became of an append whose
// result was lost, or through [AppendWith], which also writes cells, in the same
// commit if the store can. Follow a journal with [Watch] and Store.Read. Entries
// and values hold up to [MaxEntry] bytes; split larger ones into several cells.
//
// # The clauses
//
// Every store meets these. Package storetest has cases for everything that can be
// observed from outside; the tests of each driver cover damage and locks:
//
//   - An acknowledged write survives what the store's [Durability] says. The
//     class is taken from the engine's real settings when the store is opened.
//   - Of concurrent appends with the same after, at most one wins. ErrConflict
//     means that nothing was written, and may be spurious. After an error that
//     is not one of the definite ones (ErrConflict, ErrDropped, ErrTooLarge,
//     ErrInvalid, ErrClosed, ErrCorrupt, ErrKey, ErrNewer) the append may have
//     happened. An after inside an earlier append or beyond the end is
//     ErrConflict.
//   - The entries of one append are adjacent, all there or none. Readers see
//     prefixes that only grow. Sequences are dense from 1.
//   - Where a store has [Batcher], the entries of a batch and its required cells
//     are all there or none, for readers too; the journal is checked before the
//     cells, and optional cells never fail the batch.
//   - Drop can be repeated. Afterwards the name returns ErrDropped forever,
//     through every handle.
//   - The versions of a cell never repeat, even across Delete and re-creation.
//   - Journals and List are in bytewise order, can be resumed after any name,
//     and yield what is not written meanwhile exactly once.
//   - Bytes come back as they were given: empty, NUL, invalid UTF-8. An append
//     holds 1 to MaxBatch entries of at most MaxEntry bytes together, and a value
//     at most MaxEntry bytes; drivers accept [Slack] more, for wrappers; anything
//     larger is ErrTooLarge.
//   - Names are 1 to MaxName bytes of any value. None collides with another
//     or escapes from the store; journals and cells have separate names.
//   - Handles on one URL see each other's writes. If an engine allows only one
//     process, its handles share the engine and other processes get ErrLocked.
//   - A cancelled context leaves no partial write.
//   - A full disk or a failing sync is an error, never a success, and poisons
//     the handle of a driver that writes to a disk itself: every later write
//     through it is ErrPoisoned, even after the disk has recovered. [Reopen]
//     then opens a new one.
//   - A closed store returns ErrClosed.
//   - Damage is ErrCorrupt with its place, never a silently shorter journal,
//     and does not spread to other journals or cells. A damaged cell that can
//     still be found has a version with which to replace or remove it.
//
// # Writing a driver
//
// Implement [Store]. Check arguments with [CheckAppend], [CheckPut], [CheckName]
// and [CheckDelete], and build errors with [NotAtEnd], [NotVersion], [WasDropped]
// and [NoCell], so that all stores refuse alike. Declare what writes survive with
// [Durable]. Embed a [Hub] for wake-ups within the process; implement [Watcher]
// or [Caster] if the engine can notify other processes, [Batcher] if it can commit
// an append together with cells, and [Unsynced] if it can put a cell without a
// sync. Call [Register] in init, and export a constructor of your own with an
// Options struct. Then run storetest.Run over it, and storetest.Kill if it claims
// to survive the death of a process. examples/driver is a complete driver in less
// than 200 lines; package kvstore makes a store out of a key-value engine.
//
// A wrapper implements [Store] and [Wrapper]. [As] finds upgrades that the wrapper
// does not implement in the store inside, except [Batcher], [Transactor] and
// [Unsynced]: a write that bypassed the wrapper would not be sealed, observed or
// counted.
package store
