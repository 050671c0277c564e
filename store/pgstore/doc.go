// Package pgstore keeps a store in a schema of a PostgreSQL database, version 14
// or later. It is the store for more than one machine: any number of processes may
// have it open, and PostgreSQL is all that they share.
//
//	s, err := pgstore.Open(ctx, "postgres://app@db.example/app", pgstore.Options{})
//
//	import _ "github.com/perdure/perdure/store/pgstore"
//	s, err := store.Open(ctx, "postgres://app@db.example/app?schema=agents") // by URL
//
// The URL has the form that pgx accepts: it may name several hosts and set
// parameters such as sslmode, target_session_attrs and pool_max_conns, and the
// environment may set PGPASSWORD and the other PG* variables. The store has a schema
// of its own, named perdure unless ?schema= says otherwise: up to 48 letters, digits
// and underscores, without a digit in front. Open creates the schema if it is missing,
// for which the user needs the right CREATE on the database, or uses an empty one that
// the user may create tables in. With ?existing=true it creates nothing. The database
// must use the encoding UTF8 or SQL_ASCII.
//
// A handle has up to 8 connections, however many runs there are, one more to listen
// with, and one more for each step of package pgtx that is running.
//
// # Writing
//
// An append is one statement and one commit. Writes that arrive while others are
// being committed go into the next statement together, and each caller gets its
// own success or conflict. A batch ([store.Batcher]) counts as one write. A put by
// [store.Unsynced] does not wait for the server's disk.
//
// A statement whose answer is lost, because the connection fails or the server does
// not answer within [Options.Timeout], may have taken effect: the call returns
// [store.ErrUnavailable], and store.AppendOnce finds out. The next call reconnects.
// While the server cannot be reached, a handle tries one connection at a time, with
// pauses that grow to a second. Calls that need one wait for the outcome of such an
// attempt, or for the end of their context.
//
// If the server's disk is full, a write returns [store.ErrFull], and reads still work.
// If the WAL's disk is full, the server stops: calls return ErrUnavailable, and some
// also match ErrFull. Once there is room and the server is up, workers continue by
// themselves. A server that had no room to recover has given up, and must be started
// again.
//
// Steps of package pgtx commit rows of the program together with their outcome, see
// [store.Transactor]. Such a transaction has a connection of its own while it is
// open; up to 8 of these are kept for later transactions.
//
// # Durability
//
// If fsync and full_page_writes are on and synchronous_commit is not off, an
// acknowledged write survives a power failure of the server, and the durability is
// [store.Power]; otherwise it is [store.Process]. The settings are read on every new
// connection, and one with weaker settings than the first is refused. What survives
// the loss of the server's disk depends on its replicas: see
// synchronous_standby_names and synchronous_commit.
//
// # Watching
//
// Watch wakes at once for writes of the same handle. Handles tell each other what
// they have written and cast by notifications of PostgreSQL, on a channel named
// perdure_ and the schema. They send them after the commit, many together, and only
// while another handle listens. A handle on which someone watches or listens has one
// more connection for this, and reopens it after a failure. Polling finds writes
// whose notification was lost, within a second. A message may have up to 1 MiB.
//
// # Poolers
//
// Through PgBouncer in transaction mode all of this works except listening:
// statements are not prepared in advance, and a handle polls for the writes of others
// every 200 milliseconds. Messages do not reach it. To let it listen, give it a URL
// that bypasses the pooler for that one connection:
//
//	postgres://app@pooler/app?direct=postgres%3A%2F%2Fapp%40db.example%2Fapp
//
// Open detects a pooler by itself.
//
// # Looking inside
//
// Four views in the schema show the content of a store, for use in psql and in joins
// with other tables:
//
//		app=> SET search_path = perdure;
//		app=> SELECT thread, status, updated FROM threads WHERE status = 'suspended';
//		app=> SELECT seq, kind, time, path, body FROM history WHERE thread = 't-17';
//
//	  - threads has a row for each thread: thread, owner, title, flow, status, times,
//	    and the number of its open asks. If the start of a thread died, there is a
//	    row with the status NULL until a worker has removed it.
//	  - history has a row for each entry of a thread, its event: sequence, kind, time,
//	    the run it belongs to (by the sequence that queued it), path as in
//	    GET /v1/threads/{thread}/events, and its body as JSON.
//	  - runs has a row for each input that was queued: run, flow, status, times.
//	  - asks has a row for each open ask: ask, path, prompt, data, and when it is due.
//
// The column journal of each view, a bytea, is the name of the thread's journal in the
// tables. It can join the views even where the thread is NULL.
//
// Data that is encrypted or not JSON appears as NULL. If JSON contains the escape
// \u0000, for which PostgreSQL has no character, or half of a surrogate pair, its
// \u0000 and escaped surrogates are shown as U+FFFD. In SQL_ASCII so is every escape for
// a character that is not ASCII. The views and their columns are stable; later versions
// may add to them. For a fork they show only what came after its beginning: runs and
// asks that it shares with its parent appear under the parent. Do not write to the
// tables below the views.
//
// # Formats
//
// Open upgrades the schema of an earlier version in one transaction, for which others
// wait. Processes of the earlier version that have the store open continue; opening
// it again, they get [store.ErrNewer].
//
// # Erasure
//
// Drop deletes a journal's rows and Delete a cell's: no statement can read them
// again. PostgreSQL frees their space when it vacuums the table, which the schema
// requests early, and overwrites the bytes when it reuses the space. Until then they
// may be in its files, and the WAL, replicas and backups retain them for as long as
// those are kept. If that is too long, use package seal: deleting a journal's key
// makes all copies unreadable to anyone without the key ring.
package pgstore
