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
// do not work over a network file system. The file must not be removed, moved or
// replaced while it is open: soon afterwards, writes return [store.ErrPoisoned]. It must
// not have a second name (a hard link): Open refuses it. While app.db is open, and after
// a crash, app.db-wal and app.db-shm are beside it; they belong to it. So do the empty
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
// is read and named in a [store.CorruptError]. Only a damaged WAL after a crash goes
// unnoticed, by SQLite itself: it ends at the first frame whose checksum fails, and
// everything written after that is lost.
//
// # Erasure
//
// When Drop returns, the journal's bytes are no longer in any of the files,
// nor are those of cells deleted before it. A cell that is deleted on its own
// leaves the files when the handle is idle for a second, within a minute, or
// at Close, whichever is first; if the process dies before that, when the store is
// next opened and nobody else uses it. A program that keeps a read transaction open
// delays all of this: Drop and Close then say so.
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
// The content of a store can be read with SQLite's shell, even while it is open:
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
//     older than the journal. If the start of a thread died, there is a row with the
//     status NULL until a worker has removed it.
//   - history has a row for each entry of a thread: its sequence, kind, time, the
//     run it belongs to (by the sequence that queued it), path as in perdure events,
//     and its body as JSON.
//   - runs has a row for each input that was queued: run, flow, status, times.
//   - asks has a row for each open ask: ask, path, prompt, data, and when it is due.
//
// The column journal of each view is the name of the thread's journal in the tables.
//
// A fork has the entries after its beginning; earlier ones belong to the thread that
// it was forked from, and so do the runs and open asks that the two share: threads
// counts them, but runs and asks do not show them for the fork. Nor do runs and asks
// show what a rewind has taken back; if a thread was rewound to something that an
// earlier rewind had taken back, they may show too much or too little. The statuses in
// runs follow from the newest entry about the run; perdure show says more. The tables
// below the views are journals, entries (key is the journal's id << 32 | the sequence)
// and cells. Do not write to them: every row has a checksum.
//
// # Tables of the program
//
// A program may keep tables of its own in the file and write to them in steps whose
// rows are committed with their outcomes: see package sqltx. Such steps cannot reach the
// tables and views of the store, or names that begin with perdure_. Rows of the
// program have no checksum, are not encrypted by package seal, and are not removed
// when a thread is erased; when the program deletes them itself, they leave the files as
// described above. A transaction holds the database's only write lock.
//
// # Formats
//
// A store of format 1, from before rows could be read, is migrated when it is
// opened, even by commands that only read. Stop all older processes first: from
// then on older binaries return [store.ErrNewer]. The migration is one transaction.
// It needs free space of a little more than twice the size of the file, three times
// for what is in cells. Afterwards the file is about twice as large, with free space
// inside. If the disk lacks the space, Open returns [store.ErrFull] and leaves the file
// as it was. Only on Linux can Open check the space beforehand: elsewhere, if the disk
// fills up at the end, it must be given space before any binary can open the file. A
// store can have up to 128 GiB.
//
// # Watching
//
// Watch wakes at once for writes of the same handle, and within milliseconds for
// those of other handles and processes, which tell each other through sockets in
// the folder app.db-peers. Cast reaches the listeners of all of them. The folder
// exists while somebody watches, and after a crash; only users who may read and write
// the database may enter it. A slow or stopped peer does not hold up others: it loses
// messages, but still finds what was written. The exception is a peer that is stopped
// inside a commit: it holds SQLite's lock, and writes of others return [store.ErrBusy]
// once [Options.BusyTimeout] has passed.
//
// Writes of a process that cannot announce them, such as one of an older version, are
// found by polling: within a second the first time, and then within about 50
// milliseconds. The same holds for all processes where there are no such sockets, as on
// Windows and some file systems. Messages do not reach other processes there.
package sqlitestore
