// Package blob keeps values that are too large for an entry in the cells of a
// store. A value is cut into chunks; each chunk is a cell named by the hash of
// its bytes, and a manifest, named by its own hash, lists them. The entry holds
// a [Ref]: the manifest's hash and the size.
//
//	ref, err := blob.Put(ctx, s, prefix, body)       // before the entry that has ref
//	value, err := blob.Bytes(ctx, s, prefix, ref)
//
// Everything is kept under a thread's prefix: equal values under it are stored
// once, a ref is meaningful only there, and [Delete] removes all of it. Put can
// be repeated after a crash at any point, and by several callers at once: it
// writes what is missing. The cells of an interrupted Put stay until Delete.
//
// Reading and writing both stream: only one chunk and the manifest are in
// memory at a time.
package blob
