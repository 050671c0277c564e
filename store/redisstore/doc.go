// Package redisstore keeps a store on a Redis server, version 7 or later. It imports
// package store and go-redis. Valkey is compatible by its documentation; no test runs on
// it.
//
//	s, err := redisstore.Open(ctx, "redis://:password@redis.example:6379/0", redisstore.Options{})
//
//	import _ "github.com/perdure/perdure/store/redisstore"
//	s, err := store.Open(ctx, "rediss://ann:password@redis.example?prefix=agents") // by URL, with TLS
//
// The URL has the form that go-redis accepts, with parameters such as pool_size and
// dial_timeout. All keys of a store begin with its prefix in braces, {perdure}: unless
// ?prefix= says otherwise: up to 48 letters, digits and the characters _ . : -. With
// ?existing=true, Open creates nothing. With &addr=host:port, once for each, the URL
// names more servers to look for the store on: replicas that may take over, or nodes
// of a cluster. A handle has up to 8 connections, and one more to listen with.
//
// With rediss: the connections are encrypted, and the server's certificate is checked.
// &ca=FILE names the authority to trust, if this machine does not trust it already, and
// &cert=FILE&key=FILE the client's own certificate, which a server demands unless it is
// set to tls-auth-clients no. All of them are PEM files.
//
// go-redis logs to standard error what calls return anyway, so importing this package
// turns its log off for the whole program. redis.SetLogger turns it on again.
//
// # When not to use it
//
// Redis keeps all data in memory, so every thread costs memory for as long as it is
// kept. It syncs its file at every write only if it is told to, and does not wait for its
// replicas. A program that has PostgreSQL is better off with pgstore, and one on a single
// machine with sqlitestore. This package is for those who already run Redis and control
// its settings.
//
// # Durability
//
// The settings are read when the store is opened, and again on every new connection,
// which is refused if they have become weaker:
//
//   - appendonly yes and appendfsync always: [store.Power]. The server writes and syncs
//     its append-only file before it answers, or lets anyone read, a write.
//   - the same with no-appendfsync-on-rewrite yes: [store.Process], as it does not sync
//     while it rewrites the file.
//   - appendfsync everysec, which is the default, or no: [store.None]. The server may
//     lose what it acknowledged, even if only its own process is killed.
//   - no append-only file, or settings that this user may not read: [store.None].
//
// Weakness says which it is. A server whose maxmemory-policy is not noeviction is
// refused with ErrEvicts, since it would drop journals. A replica is refused too.
//
// None of this covers the loss of the server. Replication is asynchronous: a replica that
// takes over, by hand, by Sentinel or in a cluster, may lack the last acknowledged writes.
// The command WAIT does not prevent that, and min-replicas-to-write only limits how many
// are lost. A handle cannot notice it: journals end earlier than they did, and runs
// continue from an earlier step, so that steps happen again. If that is not acceptable,
// use pgstore with synchronous replicas. The driver does not speak Sentinel's protocol:
// name all servers with &addr=, and it finds the one that accepts writes. If a server
// comes back without the store, or with another one of the same prefix, calls return
// ErrCorrupt; likewise if it loses the store while running, for example by FLUSHALL: each
// script first compares the id of the store with the one that Open read.
//
// # Writing
//
// A server whose memory is full refuses writes with [store.ErrFull], but drops journals
// and deletes cells. Runtime.Erase writes a few hundred bytes before it removes
// anything, so raise maxmemory by a little first.
//
// An append with its cells is one script and one round trip. It is executed whole or
// not at all, and is one record in the append-only file. Writes that arrive while
// others are on their way go to the server together, and each caller gets its own
// success or conflict. Redis has no way to acknowledge a single write early, so there
// is no [store.Unsynced].
//
// A write whose answer is lost, because the connection fails or the server does not
// answer within [Options.Timeout], may have taken effect: the call returns
// [store.ErrUnavailable], and store.AppendOnce finds out. Nothing is sent again unless
// the server says that it was not executed. The next call reconnects.
//
// # Clusters
//
// All keys of a store are in one slot of a Redis Cluster, so that everything works
// there as on a single server, and one node holds the whole store. Several stores
// spread over the nodes; one does not. A handle follows the store when its slot moves;
// while the slot is being moved, calls return [store.ErrUnavailable].
//
// # Watching
//
// Watch wakes at once for writes of the same handle. Handles tell each other what they
// have written and cast on a sharded channel, after the write, many together, and only
// while another handle listens. Polling finds writes whose message was lost, within a
// second. A message may have up to 1 MiB. A user whose ACL does not allow the channel
// polls every 200 milliseconds, and casts stay in the process.
//
// # Erasure
//
// Drop removes a journal's entries, and Delete a cell: no command can read them again.
// The append-only file has them until the server rewrites it. The handle requests that
// with BGREWRITEAOF a minute after a drop, once for all drops in that time, and when it
// is closed with drops pending; like any rewrite, this forks the server. Cells that were
// deleted before the drop leave the file with it. Snapshots (save), replicas and backups
// keep what they have until they are replaced, and so does the file if the user may not
// run BGREWRITEAOF or the program dies first. If that is too long, use package seal:
// deleting a journal's key makes all copies unreadable to anyone without the key ring.
//
// # Damage
//
// A journal or cell whose key is missing or of another type is [store.ErrCorrupt]. If
// someone deletes the lists of names themselves, that is not noticed: without
// {perdure}:journals or {perdure}:keys nothing is listed, though everything can still be
// read by name, and without {perdure}:dropped a dropped name can be written again. Redis
// has checksums only in snapshots, and none that a client can see: Runtime.Verify or
// package seal detects bytes that change on its disk or in its memory.
//
// # Rights
//
// A user with an ACL needs the keys and the channel of the prefix, and these commands:
//
//	ACL SETUSER perdure on >PASSWORD ~{perdure}:* &{perdure}:*
//	  +info +client|setname +eval +evalsha +get +mget +exists +setnx +set +getrange +del
//	  +llen +lrange +rpush +unlink +zadd +zrem +zscore +zrange +sadd +sismember
//	  +ping +spublish +ssubscribe +config|get +bgrewriteaof
//
// Those of the last line are optional: they serve to notify other handles, to determine
// the durability, and to erase. A database other than 0 needs +select. If a required
// command is not allowed, Open returns ErrPassword and names it. If a right is taken away
// later, calls fail with ErrPassword before they write.
package redisstore
