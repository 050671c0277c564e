// Package natsstore keeps a store in a stream of NATS JetStream, version 2.12 or later.
// With three replicas it is a highly available store without a database: any number of
// processes may have it open, and it keeps working when a server is lost. It imports
// package store and the client of NATS, never the server.
//
//	s, err := natsstore.Open(ctx, "nats://app:secret@a.example,b.example,c.example", natsstore.Options{Replicas: 3})
//
//	import _ "github.com/perdure/perdure/store/natsstore"
//	s, err := store.Open(ctx, "nats://app:secret@nats.example?stream=agents&replicas=3") // by URL
//
// The URL names the servers, with a user and password or a token, and may have the
// parameters below. With tls:// instead of nats://, or any parameter that begins with
// tls, a server without TLS is refused; one that requires TLS gets it anyway.
//
//	stream     the name of the stream, perdure unless given
//	prefix     the first token of its subjects, the stream's name unless given
//	replicas   how many servers keep a new stream, 1 unless given
//	storage    file, or memory for a new stream that survives nothing
//	existing   true: do not create a stream
//	system     a URL with credentials of the system account, see Durability
//	creds      a file with credentials; nkey: a file with a seed
//	tls        true: like tls://
//	tls_ca     a file with the certificates of authorities to trust
//	tls_cert   a file with a certificate of the program; tls_key: one with its key
//
// A program that has a connection, or embeds the server, calls [New].
//
// A user with permissions needs, for a stream and prefix named perdure, to publish to
// perdure.> and $JS.API.STREAM.*.perdure and $JS.API.STREAM.MSG.*.perdure, and to
// subscribe to perdure.> and _INBOX.>. Open names what is missing, see [ErrRights]. With
// $JS.API.INFO the store also warns of the limits of the account.
//
// # Writing
//
// An append is one message, with all its entries, on the subject of its journal. The
// server stores it only if that subject ends where the writer says, and so compares and
// swaps. Concurrent appends are sent without waiting for each other, and each gets its
// own answer. An append with cells ([store.Batcher]), and a drop, are atomic batches: a
// server that is not part of a cluster first writes each of them to a folder of its own
// and syncs it there, so they are far slower than appends.
//
// The server may refuse a write although nothing has changed. After a refusal the driver
// reads and decides by what it sees. A write that gets no answer is not repeated: the
// call returns [store.ErrUnavailable], and store.AppendOnce finds out. This is so when
// the connection is lost, when too few replicas are up, and after [Options.Timeout].
//
// A server or account without space refuses all writes with [store.ErrFull]. A drop and
// a delete are messages too, so they are refused as well, and with them Runtime.Erase:
// raise the limits first. Limit the space by max_bytes of the stream: a server that is
// not part of a cluster checks its own limit and the account's with each message that it
// stores, and so may store only a part of a batch. The error then also matches
// ErrUnavailable.
//
// # Reading
//
// The leader of the stream answers reads, so they see what was acknowledged; direct
// gets, which any replica answers, are off. A leader that was cut off from the others, or
// stopped, may answer with an older state until it notices, which takes it some seconds.
// Such a read cannot lead to a wrong write, because writes need the others.
//
// Each append records the positions of the 32 before it, so that a reader can fetch 32
// at a time, wherever it begins. Journals and List ask for all names with a prefix and
// sort them, since the server lists them in no order. A million names take tens of
// megabytes.
//
// # Durability
//
// A server syncs its files every two minutes unless its sync_interval is always. So by
// default an acknowledged write survives the death of the servers' processes, and the
// durability is [store.Process]. It is [store.Power] if all servers that hold the stream
// report that they always sync, for which Open needs the system account, or if the
// program says so with [Options.SyncAlways]. The servers are asked once, at Open. A stream in
// memory is [store.None].
//
// A stream whose settings would drop entries, such as max_age, is refused.
//
// # Watching
//
// After a write was acknowledged, a handle tells the others with a plain NATS message. A
// handle that misses it finds the write by polling within a second. Messages of
// [store.Caster] are plain messages too, of up to the server's max_payload.
//
// # Erasure
//
// Drop writes a tombstone and then has the server overwrite each message of the journal
// in its files before it returns. The tombstone and the name stay. With replicas, the
// servers' Raft logs keep the messages until they are compacted, and a replica that is
// down overwrites them when it is back. An old version of a cell, and a deleted cell, are
// unreadable at once, but their bytes stay until the server compacts the file: once it has
// begun another one, 8 MB later, and less than half of the file is in use. A client cannot
// ask for that; a migration to another stream copies only what is in use, and the old
// stream can then be deleted. Package seal makes all copies of a dropped journal unreadable
// to anyone without the key ring, but not those of cells, which share one key.
package natsstore
