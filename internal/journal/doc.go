// Package journal is the format of a thread's journal and its meaning: what
// an entry looks like in bytes, how entries are chained, and what a thread is
// after a prefix of them. It does no I/O, reads no clock, and may import
// only blob.
//
// An entry is one line of JSON:
//
//	{"v":1,"k":"step","id":"…","t":…,"r":2,"e":1,"p":"/find","b":{…},"h":"…"}
//
// format, kind, random id, time in microseconds, run (the sequence of the
// entry that queued it), epoch (of the claim under which it was written), path,
// body, and the hash that chains it: SHA-256 over the hash before it, the
// bytes of the header, and the SHA-256 of the body. So an export may leave a
// body out and still be verified. Unknown fields are skipped, here and in
// bodies; the bytes in the store keep them.
//
// [Thread] folds entries, one after the other, into everything that can be asked
// about a thread. Any prefix of a journal is a thread. [Thread.Snapshot] saves
// the fold of a prefix that ends between runs, so that it need not be folded
// again; it is a cache and may be lost at any time. Long values are not in it:
// they come back as the [Place] in the journal where they can be read.
package journal
