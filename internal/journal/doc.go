// Package journal defines the format and the meaning of a thread's journal: the
// bytes of an entry, the hash chain, and what a thread is after a prefix of its
// entries. It does no I/O, reads no clock, and may import only blob.
//
// An entry is one line of JSON:
//
//	{"v":1,"k":"step","id":"…","t":…,"r":2,"e":1,"p":"/find","b":{…},"h":"…"}
//
// Its fields are the format, kind, random id, time in microseconds, run (the
// sequence of the entry that queued it), epoch (of the claim under which it was
// written), path, body, and the hash that chains it: SHA-256 over the previous
// hash, the bytes of the header, and the SHA-256 of the body. An export may
// therefore leave out a body and still be verified. Unknown fields are skipped,
// here and in bodies; the bytes in the store keep them.
//
// [Thread] folds entries, one after the other, into everything that can be asked
// about a thread. Any prefix of a journal is a thread. [Thread.Snapshot] saves the
// fold of a prefix that ends between runs; it is a cache and may be lost at any
// time. It leaves out long values, which are restored as the [Place] in the journal
// where they can be read.
package journal
