// Package blob keeps values that are too large for an entry in the cells of a
// store. A value is cut into chunks; each chunk is a cell named by the hash of
// its bytes, and a manifest, named by its own hash, lists them. What an entry
// keeps is a [Ref]: the manifest's hash and the size.
//
//	ref, err := blob.Put(ctx, s, prefix, body)       // before the entry that has ref
//	value, err := blob.Bytes(ctx, s, prefix, ref)
//
// Everything is below a prefix, that of a thread: equal values within it are
// kept once, a ref means something only within it, and [Delete] removes all
// of it. Put can be repeated after a crash anywhere, and by several at once:
// it writes what is missing. What a Put that was cut off has written stays
// until Delete.
//
// Both ways stream: one chunk is in memory at a time, and the manifest.
package blob
