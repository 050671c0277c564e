// Package journal is the format of a thread's journal and its meaning: what
// an entry looks like in bytes, how entries are chained, and what a thread is
// after a prefix of them. It does no I/O and reads no clock.
//
// An entry is one line of JSON:
//
//	{"v":1,"k":"step","id":"…","t":…,"r":2,"e":1,"p":"/find","b":{…},"h":"…"}
//
// format, kind, random id, time in microseconds, run (the sequence of the
// entry that queued it), epoch (of the claim under which it was written), path,
// body, and the hash that chains it: SHA-256 over the hash before it, the
// bytes of the header, and the SHA-256 of the body. So an export may leave a
// body out and still be verified. Fields that are not known are skipped, here
// and in bodies; the bytes in the store keep them.
//
// [Thread] folds entries, one after the other, into everything that is asked
// about a thread. Any prefix of a journal is a thread. [Thread.Snapshot] keeps
// the fold of one that ends between runs, so that [Restore] saves folding it
// again; it is a cache and may be lost at any time.
package journal
