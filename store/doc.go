// Package store is the contract between Perdure and the place where its
// durable things live. A store keeps two kinds: journals, append-only lists of
// entries whose appends name the last sequence they have seen, and cells,
// small versioned records whose writes name the version they replace. Both are
// compare-and-swap: of several writers that saw the same, one wins and the
// others learn it.
//
// # Using a store
//
// Import a driver for its URL scheme, and open:
//
//	import _ "github.com/perdure/perdure/store/sqlitestore"
//
//	s, err := store.Open(ctx, "sqlite:app.db", store.Require(store.Power))
//
// Append through [AppendOnce], which finds out what became of an append whose
// answer was lost, or through [AppendWith], which writes cells together with the
// entries where the store can. Follow a journal with [Watch] and Store.Read. Entries and
// values hold up to [MaxEntry] bytes; what is larger is cut into cells.
//
// # The clauses
//
// Every store meets these. Package storetest has cases for all that shows from
// outside; damage and locks are for the tests of each driver:
//
//   - An acknowledged write survives what the store's [Durability] says. The
//     class is taken from the engine's real settings when the store is opened.
//   - Of concurrent appends with the same after, at most one wins. ErrConflict
//     means that nothing was written, and may be spurious. After an error that
//     is not one of the definite ones (ErrConflict, ErrDropped, ErrTooLarge,
//     ErrInvalid, ErrClosed, ErrCorrupt, ErrKey, ErrNewer) it may have
//     happened. An after inside an earlier append or beyond the end is
//     ErrConflict.
//   - The entries of one append are adjacent, all there or none. Readers see
//     prefixes that only grow. Sequences are dense from 1.
//   - Where a store has [Batcher], the entries of a batch and its required cells
//     are all there or none, also for readers; the journal is judged before the
//     cells, and optional cells never refuse it.
//   - Drop can be repeated. Afterwards the name answers ErrDropped for ever,
//     through every handle.
//   - The versions of a cell never repeat, also across Delete and re-creation.
//   - Journals and List are in bytewise order, can be resumed behind any name,
//     and yield what is not written meanwhile exactly once.
//   - Bytes come back as they were given: empty, NUL, invalid UTF-8. An append
//     holds 1 to MaxBatch entries of together MaxEntry bytes, a value MaxEntry
//     bytes; drivers take [Slack] more, for wrappers; larger is ErrTooLarge.
//   - Names are 1 to MaxName bytes of any value. None collides with another
//     or escapes from the store; journals and cells do not share names.
//   - Handles on one URL see each other. Where an engine allows one process
//     only, handles in it share the engine and another process gets ErrLocked.
//   - A cancelled context leaves no half write.
//   - A full disk or a failing sync is an error, never a success, and poisons
//     the handle of a driver that writes to a disk itself: every later write
//     on it is ErrPoisoned, also when the disk has recovered. [Reopen] opens
//     a new one then.
//   - A closed store answers ErrClosed.
//   - Damage is ErrCorrupt with its place, never a silently shorter journal,
//     and does not spread to other journals or cells. A damaged cell that can
//     still be found has a version, by which it is replaced or removed.
//
// # Writing a driver
//
// Implement [Store]; check arguments with [CheckAppend], [CheckPut],
// [CheckName] and [CheckDelete], and answer with [NotAtEnd], [NotVersion],
// [WasDropped] and [NoCell], so that all stores refuse alike; say what writes
// survive by [Durable]. Embed a [Hub] for wake-ups within the process,
// and implement [Watcher] or [Caster] over the engine where it can tell
// another process, [Batcher] where it can commit an append with cells, and
// [Unsynced] where it can spare a put the sync. Call [Register] in init, and export a constructor of your
// own with an Options struct. Then run storetest.Run over it, and
// storetest.Kill where it claims to survive a process. examples/driver is a
// complete driver in less than 200 lines; package kvstore makes a store out
// of a key-value engine.
//
// A wrapper implements [Store] and [Wrapper]; upgrades that it does not
// implement are found in the store inside by [As], all but [Batcher] and
// [Unsynced]: what went past the wrapper would not be sealed, observed or counted.
package store
