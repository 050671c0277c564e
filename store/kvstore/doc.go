// Package kvstore makes a store out of any key-value engine that can write a
// key on condition. Whoever brings the four methods of [KV] has journals,
// batches, drops and cells that meet the whole contract of package store:
//
//	type bucket struct{ … }                  // Get, Put, Delete, List
//
//	s := kvstore.New(bucket, kvstore.Options{Durability: store.Power})
//	storetest.Run(t, …)                      // and see that it does
//
// What the engine must promise, and it is little, is written at [KV].
//
// # How a journal lies in the engine
//
// Each journal has one head, a key whose value holds the newest batch of
// entries, whole. An append first moves that batch to a key of its own, named
// by the sequence of its last entry, and then writes the new batch into the
// head on condition that the head is still the one it saw. That one write is
// the commit: before it nothing has happened, behind it everything has. The
// move repeats harmlessly, since what is moved was committed before and never
// changes. In the steady state an append is two writes and nothing else; a
// reader at the end of a journal needs one Get.
//
// A reader takes the head first. All batches before the head's have been moved
// by then, so one List of them in order, and the head behind, are the journal
// as it was at that moment.
//
// Drop turns the head into a tombstone of a few bytes and then deletes the
// moved batches. An append that was under way may move its batch once more
// behind those deletes; it finds the tombstone when it tries to commit, and
// removes the batch again. If the process dies or loses the engine in just
// that moment, or the engine carries out a write late whose answer was lost,
// the bytes of that batch stay until Drop is called again. They can never be
// read: the journal is dropped in any case.
//
// # Keys and values
//
// Keys consist of digits, lower-case letters and dashes, so that they are safe
// in object stores, subjects, file systems and case-blind databases. Names
// are written in base32 with the digits 0-9a-v, which keeps their bytewise
// order:
//
//	c-NAME          a cell
//	h-NAME          the head of a journal
//	b-NAME-LAST     a moved batch; LAST has 16 hexadecimal digits
//
// Every value carries a format and a checksum bound to its key. Damage, a lost
// batch, a lost head with batches behind it, and values under the wrong key are
// all found and answered with ErrCorrupt. An engine that loses acknowledged
// writes as a whole, so that what remains is consistent, cannot be seen through.
//
// # What comes from the engine
//
// An engine that also implements store.Watcher, store.Caster or store.Durable
// lends that to the store. Without a Watcher, the writes of the same handle
// wake at once and those of others are found by looking every
// store.PollInterval. Without a Caster, messages reach only the same handle.
// There is no store.Batcher: a KV writes one key at a time, so store.AppendWith
// makes its writes one after the other.
// Poisoning is the engine's: an error of a write is handed on, and an engine
// that no longer knows what it holds answers store.ErrPoisoned from then on.
package kvstore
