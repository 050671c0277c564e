// Package pgstore keeps a store in a schema of a PostgreSQL database, version 14
// or later. It is the store for more than one machine: any number of processes may
// have it open, and PostgreSQL is the one thing they share.
//
//	s, err := pgstore.Open(ctx, "postgres://app@db.example/app", pgstore.Options{})
//
//	import _ "github.com/perdure/perdure/store/pgstore"
//	s, err := store.Open(ctx, "postgres://app@db.example/app?schema=agents") // by URL
//
// The URL is one of pgx: sslmode, several hosts, target_session_attrs and
// pool_max_conns are parameters, and PGPASSWORD and the other PG* variables of the
// environment count. The store is in a schema of its own, perdure unless ?schema=
// says otherwise, which Open creates; the user needs the right to do so, once. A
// handle has up to 8 connections, however many runs there are.
//
// # Writing
//
// An append is one statement and one commit. Writes that arrive while others are
// being committed go into the next statement together, and each caller gets its
// own success or conflict. A batch ([store.Batcher]) counts as one write. A put by
// [store.Unsynced] does not wait for the server's disk.
//
// A statement whose answer is lost, because the connection fails or the server
// does not answer for [Options.Timeout], may have happened: the call returns
// [store.ErrUnavailable], and store.AppendOnce finds out. The next call connects
// again.
//
// Steps of package pgtx commit rows of the program together with their outcome, see
// [store.Transactor]. Such a transaction has a connection of its own while it is
// open; up to 8 are kept for the next ones.
//
// # Durability
//
// With fsync and full_page_writes, and synchronous_commit not off, an acknowledged
// write survives a power failure of the server, [store.Power]; otherwise the class
// is [store.Process]. The settings are read on every connection that is used, and
// a connection with weaker ones than the first is refused. What survives the loss
// of the server's disk is a matter of its replicas, and of synchronous_commit =
// remote_write or remote_apply.
//
// # Watching
//
// Watch wakes at once for writes of the same handle. Others tell what they have
// written and cast by notifications of PostgreSQL, after the commit and many
// together, on the channel perdure_ and the schema's name; nothing is sent while
// nobody listens. A handle on which someone watches or listens has one more
// connection for this, which it opens again when it fails. What was not told is
// found by polling, within a second. Messages may have up to 1 MiB.
//
// # Poolers
//
// Through PgBouncer in transaction mode all of this works except listening:
// statements are not prepared ahead, and a handle looks for the writes of others
// every 200 milliseconds. Messages do not reach it. To have it listen, give it a
// URL past the pooler for that one connection:
//
//	postgres://app@pooler/app?direct=postgres%3A%2F%2Fapp%40db.example%2Fapp
//
// Open notices a pooler by itself.
//
// # Looking inside
//
// Four views of the schema show what is in a store, to psql and to statements that
// join them with other tables:
//
//		app=> SET search_path = perdure;
//		app=> SELECT thread, status, updated FROM threads WHERE status = 'suspended';
//		app=> SELECT seq, kind, time, path, body FROM history WHERE thread = 't-17';
//
//	  - threads has a row for each thread: thread, owner, title, the flow of its
//	    newest run, status, times, and how many of its asks are open.
//	  - history has a row for each entry of a thread, its event: sequence, kind, time,
//	    the run it belongs to (by the sequence that queued it), path, and its body as
//	    JSON.
//	  - runs has a row for each input that was queued: run, flow, status, times.
//	  - asks has a row for each open ask: ask, path, prompt, data, and when it is due.
//
// NULL stands for what is encrypted or not JSON. The views and their columns stay;
// later versions may add to them. A fork has the entries after its beginning;
// runs and asks that it shares with the thread it was forked from are shown there
// only. Do not write to the tables below the views.
//
// # Formats
//
// Open brings a schema of an earlier version to its own format, in one transaction
// that others wait for. Processes of the earlier version that have the store open
// go on; they answer [store.ErrNewer] when they open it again.
//
// # Erasure
//
// Drop deletes a journal's rows and Delete a cell's: no statement can read them
// again. PostgreSQL gives their space back when it vacuums the table, which the
// schema asks for early, and overwrites it when it needs the space. Until then
// bytes may be in its files, and its WAL, replicas and backups keep them for as
// long as they are kept. Where that is too long, use package seal: deleting a
// journal's key makes all copies unreadable for those who do not have the key ring.
package pgstore
