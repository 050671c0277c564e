// Package upstashstore keeps a store in a Redis database that is reached over HTTP, by
// the REST protocol of Upstash: by Upstash itself, or by a server of your own that speaks
// it, such as SRH. It imports packages store and kvstore and the standard library.
//
//	s, err := upstashstore.Open(ctx, "upstash://merry-cat-32748.upstash.io", upstashstore.Options{Token: token})
//
//	import _ "github.com/perdure/perdure/store/upstashstore"
//	s, err := store.Open(ctx, "upstash://merry-cat-32748.upstash.io?prefix=agents") // by URL
//
// The token comes from [Options] or $UPSTASH_REDIS_REST_TOKEN, and has to allow writes.
// All keys of a store begin with its prefix in braces, {perdure}: unless ?prefix= says
// otherwise. With ?existing=true, Open creates nothing. With ?tls=false the requests are
// plain HTTP, for a server on the same machine or a private network; anyone on the path
// can then read the token.
//
// # When not to use it
//
// It is for programs that have nothing but HTTP and an Upstash database. Upstash databases
// can be reached by Redis's own protocol too, but package redisstore refuses them if they
// do not report Redis's settings. With a Redis server of your own, use redisstore, which
// takes fewer round trips, and tells how durable its server is.
//
// # Durability
//
// The class is [store.None]. Upstash replicates asynchronously: the documentation says
// that a replica takes over when the leader of a key fails, and that after a network
// partition the last writer wins. Acknowledged writes may be lost in both cases, and a run
// then continues from an earlier step. It is not documented when a write reaches a disk,
// and no command reveals it. The tests run on Redis behind a server that speaks the
// protocol, not on the service itself.
//
// # Consistency
//
// A read replica may answer with an old state. All calls are scripts, sent as EVAL, which
// may write: the service has to run them where it writes, in the primary region. Each
// script compares and then writes, and is executed whole or not at all. It also compares
// the id of the store, so that a database that was emptied or restored from another one
// is [store.ErrCorrupt], not an empty store.
//
// # Requests
//
// A write is one request; a read is one, and two for each hundred values after it. The
// format is that of package kvstore, with appends packed up to 64 KiB, and values are in
// base64: no request or answer is much larger than 450 kB. Watch finds writes of other
// handles by reading every 200 milliseconds, which a plan that charges by the command
// makes dear; there is no [store.Batcher].
//
// A write is sent once. If the answer is lost, or does not come within [Options].Timeout,
// it returns [store.ErrUnavailable], and store.AppendOnce finds out what became of it.
//
// # Erasure
//
// Drop and Delete remove keys from the database. The service decides how long its replicas,
// disks and backups keep them; with package seal, deleting a journal's key makes all
// copies unreadable.
package upstashstore
