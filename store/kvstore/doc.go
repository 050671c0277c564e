// Package kvstore makes a store out of any key-value engine that supports
// conditional writes. Given the four methods of [KV], it provides journals,
// batches, drops and cells that meet the whole contract of package store:
//
//	type bucket struct{ … }                  // Get, Put, Delete, List
//
//	s := kvstore.New(bucket, kvstore.Options{Durability: store.Power})
//	storetest.Run(t, …)                      // verifies that it does
//
// [KV] lists the few things that the engine must promise.
//
// # How the engine holds a journal
//
// Each journal has one head, a key whose value holds the whole newest batch of
// entries. An append first moves that batch to a key of its own, named by the
// sequence of its last entry, and then writes the new batch into the head,
// provided that the head is still the one it saw. That one write is the commit:
// before it nothing has happened, after it everything has. The move can safely be
// repeated, since the batch was already committed and never changes. In the
// steady state an append takes two writes and nothing else; a reader at the end
// of a journal needs one Get.
//
// With [Options].Pack, an append joins the batch in the head, and the batch is moved
// only once it has reached that size. An append is then a single write, and a reader
// needs few calls for many entries, but each append writes the whole batch again: on
// average half of Pack in addition to its own bytes. This suits engines that charge by
// the call and have large values, such as object stores. A damaged head loses all
// entries of its batch.
//
// A reader takes the head first. By then all batches before the head's have been
// moved, so one List of them in order, followed by the head, is the journal as it
// was at that moment.
//
// Drop turns the head into a tombstone of a few bytes and then deletes the moved
// batches. An append in progress may move its batch once more after those
// deletes; it finds the tombstone when it tries to commit, and removes the batch
// again. If the process dies or loses the engine at that very moment, or the
// engine later carries out a write whose result was lost, the bytes of that batch
// remain until Drop is called again. They can never be read: the journal is
// dropped in any case.
//
// # Keys and values
//
// Keys consist of digits, lower-case letters and dashes, so that they are safe
// in object stores, subjects, file systems and case-insensitive databases. Names
// are encoded in base32 with the digits 0-9a-v, which keeps their bytewise order:
//
//	c-NAME          a cell
//	h-NAME          the head of a journal
//	b-NAME-LAST     a moved batch; LAST has 16 hexadecimal digits
//
// Every value carries a format and a checksum bound to its key. Damage, a lost
// batch, a lost head that leaves batches, and values under the wrong key are all
// detected and reported as ErrCorrupt. If an engine loses acknowledged writes and what
// remains is consistent, the loss cannot be detected.
//
// # What comes from the engine
//
// If the engine also implements store.Watcher, store.Caster, store.Durable or
// store.Weak, so does the store. Without a Watcher, writes through the same handle wake
// watchers at once, and those of others are found by polling every store.PollInterval.
// Without a Caster, messages reach only the same handle. There is no store.Batcher: a
// KV writes one key at a time, so store.AppendWith makes its writes one after the
// other.
//
// Poisoning is up to the engine: the error of a write is passed on, and an engine
// that no longer knows what it holds returns store.ErrPoisoned from then on.
package kvstore
