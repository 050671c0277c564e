// Package sqlitestore keeps a store in one SQLite database file, without cgo.
// It is the store to start with: there is nothing to install or run, and any
// number of processes on one machine may have the file open at once.
//
//	s, err := sqlitestore.Open(ctx, "app.db", sqlitestore.Options{})
//
//	import _ "github.com/perdure/perdure/store/sqlitestore"
//	s, err := store.Open(ctx, "sqlite:app.db")             // the same, by URL
//	s, err := store.Open(ctx, "sqlite:///var/lib/app.db")
//
// The folder must exist and be on a local disk: SQLite's locks and shared memory
// do not work over a network file system. While app.db is open, and after a crash,
// app.db-wal and app.db-shm are beside it; they belong to it. So does the folder
// app.db-peers, see below.
//
// Only its owner may read and write a new database, whatever the umask is. An
// existing one keeps its mode, and the files beside it get the same mode: to share
// a store within a group, create it, then chmod 660 the file and chmod 770 the
// folder. In a folder without a sticky bit to which everyone may write, no new
// store is created unless [Options.SharedFolder] or ?shared-folder at the end of
// the URL allows it.
//
// # Durability
//
// The database is in WAL mode with synchronous=FULL (and fullfsync on macOS),
// read back on every connection that is used: an acknowledged write survives a
// power failure, [store.Power]. With [Normal], or on a file system in memory, it
// survives only the death of the process, and Durability says so.
//
// Writes that arrive while another is being synced share the next sync. A single
// writer pays for its own sync and no more. A batch ([store.Batcher]) counts as one
// write. A commit that holds only puts by [store.Unsynced] is not synced; the next
// sync makes them durable too.
//
// A write or sync that fails (a full disk, an I/O error) poisons the handle:
// its writes return [store.ErrPoisoned] until the store is opened again.
//
// # Damage
//
// Every entry, cell and journal has a checksum, and each journal's end is kept
// apart from its entries, so a changed, missing or added row is found when it
// is read and named in a [store.CorruptError]. What SQLite itself cannot see
// is a damaged WAL after a crash: it ends at the first frame whose checksum
// fails, and what was written behind that is gone.
//
// # Erasure
//
// When Drop returns, the journal's bytes are no longer in any of the files,
// nor are those of cells deleted before it. A cell that is deleted on its own
// leaves the files when the handle is idle for a second, within a minute, or
// at Close, whichever is first; if a process dies before, when the store is
// next opened and nobody else uses it. A program that keeps a transaction open
// to read puts all this off: Drop and Close then say so.
//
// SQLite's secure_delete alone does not achieve this: when it moves rows
// between pages it leaves copies of them behind. Therefore the bytes of each
// journal and each cell are masked with a key of their own, kept in a table
// whose rows never move, and erasing overwrites the key in place and empties
// the WAL. The keys lie in the same file: masking is for erasure and keeps
// nobody from reading the file. Package seal does that. Names are not masked,
// and the name of a dropped journal stays as its tombstone.
//
// # Watching
//
// Watch wakes at once for writes of the same handle, and within milliseconds for
// those of other handles and processes, which tell each other through sockets in
// the folder app.db-peers. Cast reaches the listeners of all of them. The folder
// is there while somebody watches, and after a crash; only those may enter it who
// may read and write the database. A peer that is slow or stopped holds up
// nobody: it loses messages, but finds what was written.
//
// A writer that cannot tell, as one of an older version, is found by polling:
// within a second the first time, and then within about 50 milliseconds. So are
// all where there are no such sockets, as on Windows and on file systems
// without them. Messages do not reach other processes there.
package sqlitestore
