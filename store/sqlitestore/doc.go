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
// do not work over a network file system. It must not be removed, moved or
// replaced while it is open, and have no second name (a hard link): writes return
// [store.ErrPoisoned] soon after the one, and Open refuses the other. While app.db is open, and after a crash,
// app.db-wal and app.db-shm are beside it; they belong to it. So do the empty
// file app.db-scrub and the folder app.db-peers, see below.
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
// between pages it leaves copies of them behind. These are cleared whenever a
// page is copied from the WAL into the database, and erasing copies all pages
// and empties the WAL. The name of a dropped journal stays as its tombstone.
//
// If another program copies pages, it leaves such remains in the database. When
// SQLite's shell is the last to close a store, as after a crash, Open notices,
// because app.db-scrub is there without the WAL, and writes the database anew. A
// program that copies pages while the store is open, with PRAGMA wal_checkpoint or
// by writing to the database, is not noticed.
//
// # Looking inside
//
// What is in a store can be read with SQLite's shell, also while it is open:
//
//	sqlite3 -readonly app.db
//	sqlite> SELECT * FROM threads WHERE status = 'suspended';
//	sqlite> SELECT seq, kind, time, path, body FROM history WHERE thread = 't-17';
//
// There are four views for this. NULL stands for what is encrypted, see package
// seal.
//
//   - threads has a row for each thread: thread, user, title, the flow of its newest
//     run, status, times, and how many of its asks are open. It may be a moment
//     older than the journal.
//   - history has a row for each entry of a thread: its sequence, kind, time, the
//     run it belongs to (by the sequence that queued it), path as in perdure events,
//     and its body as JSON.
//   - runs has a row for each input that was queued: run, flow, status, times.
//   - asks has a row for each open ask: ask, path, prompt, data, and when it is due.
//
// The column journal of each is the name of the thread's journal in the tables.
//
// A fork has the entries after its beginning; those before belong to the thread
// that it was forked from, and so do the runs and the open asks that it shares
// with that: threads counts them, but runs and asks do not show them. Nor do
// they show what a rewind has taken back; of a thread that was rewound to what an
// earlier rewind had taken back, they may show too much or too little. The
// statuses in runs follow from the newest entry that is about the run: perdure
// show tells more. The tables below the views are
// journals, entries (key is the journal's id << 32 | the sequence) and cells. Do
// not write to them: every row has a checksum.
//
// # Tables of the program
//
// A program may keep tables of its own in the file and write to them in steps whose
// rows are committed with their outcomes: see package sqltx. The tables and views of
// the store, and names that begin with perdure_, are out of reach there. Rows of the
// program have no checksum, are not encrypted by package seal, and are not removed
// when a thread is erased; what is said about erasure above holds for rows that it
// deletes itself. A transaction holds the database's only write lock.
//
// # Formats
//
// A store of format 1, from before rows could be read, is migrated when it is
// opened, also by commands that only look. Stop all older processes first: from
// then on older binaries answer [store.ErrNewer]. The migration is one transaction.
// Until it is done it needs a little more than twice the size of the file in
// addition to it, three times for what is in cells, and the file is about twice as
// large afterwards, with room for what comes. Without the room Open returns
// [store.ErrFull] and the file is as it was; only Linux tells the room beforehand,
// and elsewhere a disk that is full at the end has to be given room before any
// binary can open the file. A store can have up to 128 GiB.
//
// # Watching
//
// Watch wakes at once for writes of the same handle, and within milliseconds for
// those of other handles and processes, which tell each other through sockets in
// the folder app.db-peers. Cast reaches the listeners of all of them. The folder
// is there while somebody watches, and after a crash; only those may enter it who
// may read and write the database. A peer that is slow or stopped holds up
// nobody: it loses messages, but finds what was written. The exception is one that
// is stopped inside a commit: it has SQLite's lock, and others that write return
// [store.ErrBusy] once [Options.BusyTimeout] has passed.
//
// A writer that cannot tell, as one of an older version, is found by polling:
// within a second the first time, and then within about 50 milliseconds. So are
// all where there are no such sockets, as on Windows and on file systems
// without them. Messages do not reach other processes there.
package sqlitestore
