// Package s3store keeps a store in a bucket of Amazon S3, or of any service that speaks
// its protocol and checks the conditions of writes. It is for archives and for threads
// that are rarely active: there is nothing to operate, storage costs little, and a write
// takes as long as a request does.
//
//	s, err := s3store.Open(ctx, "s3://my-bucket/agents", s3store.Options{})
//
//	import _ "github.com/perdure/perdure/store/s3store"
//	s, err := store.Open(ctx, "s3://my-bucket/agents?endpoint=https://s3.example&region=eu-west-1") // by URL
//
// The bucket must exist. The store owns all objects under its prefix; Open creates it
// unless the URL has existing=true. Any number of processes may have it open. Access keys
// come from Options, from the
// environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN), from
// ~/.aws/credentials or, on Amazon, from the role of the machine. They need s3:GetObject,
// s3:PutObject and s3:DeleteObject on the prefix and s3:ListBucket on the bucket; without
// a region, also s3:GetBucketLocation.
//
// # Which services
//
// A write names what it replaces, by If-Match with an ETag or by If-None-Match: *. Open
// tries both, and refuses a service that ignores them with [ErrUnsuited]. Amazon S3,
// Cloudflare R2 and MinIO document them, and the tests run on Versity's gateway. Google
// Cloud Storage is not among them: it knows these headers for reads only, and has a
// condition of its own, x-goog-if-generation-match, for writes.
//
// A bucket that keeps old versions of objects, as one with an object lock does, would
// keep what is erased; Open refuses it with [ErrVersioned].
//
// # Requests
//
// The newest entries of a journal are in one object, its tail, which an append replaces
// by one that holds its entries too. When the tail has reached 256 KiB, the next append
// first copies it to a segment, an object that never changes. So an append is one
// request, and one more for every 256 KiB; a cold read of 10 000 entries of 500 bytes
// takes 20 requests. The price is that an append uploads 128 KiB on average in addition
// to its entries, in a journal that has grown to that size. The format of keys and
// values is that of package kvstore.
//
// A cell is an object. Services list keys without values, so that a list costs one
// request for each thousand cells and one for each cell; the list of journals reads
// their tails. Watch finds writes of other handles by reading every 200 milliseconds.
// An append with cells, as by store.AppendWith, is a request for each of them: there is
// no store.Batcher.
//
// # Failures
//
// Reads are repeated a few times if the service is too busy or fails. Writes are not: a
// write that is sent again after its answer was lost would conflict with itself. It
// returns [store.ErrUnavailable] instead, after [Options].Timeout at the latest, and
// store.AppendOnce finds out what became of it.
//
// # Durability
//
// A write that the service has acknowledged survives what the service promises, and so
// the durability is [store.Power]. A server of your own has to keep that promise with
// its disks; the protocol does not reveal whether it does.
//
// # Erasure
//
// Drop removes the segments of a journal and replaces the tail by a tombstone of a few
// bytes; Delete replaces a cell by an object of one byte, since not every service supports
// conditional deletes. A lifecycle rule that expires objects under the prefix that are
// smaller than two bytes removes these, and is safe. Replicas and backups of the bucket
// are out of reach; with package seal, deleting a journal's key makes all copies
// unreadable.
package s3store
