// Package seal wraps a store and encrypts what it is given, so that the disk,
// database or bucket below never sees an entry, a value or a message in plaintext.
//
//	ring, err := seal.ParseRing(os.Getenv("PERDURE_KEYS")) // "2026-11:q83v…="
//	s, err := seal.New(ctx, inner, ring)
//
// To make a key for the ring, run for example openssl rand -base64 32. Instead of
// a [Ring] in memory, anything that can wrap a few bytes can serve as the
// [Keyring], such as a cloud's key service.
//
// # How it works
//
// Everything is encrypted with AES-256-GCM and random nonces. Each journal has a
// data key of its own, created with its first entry and kept in a cell of the
// store inside, wrapped by the key ring. An entry is bound to its journal and
// sequence: if it was changed, moved, copied or swapped, reading it returns a
// *store.CorruptError that says where. The cells share a data key, from which each
// cell's own key is derived by HKDF-SHA256, and a value is bound to its cell. An
// entry or value grows by 29 bytes.
//
// Bytes that are not sealed are refused, never returned, and [New] refuses a
// store that has been used without sealing.
//
// # Rotating and shredding
//
// To change keys, add the new one to the ring of every process, after the old one,
// and then put it first in all of them: a process without it cannot read what others
// wrap with it. Then call Rotate: it wraps all data keys with the new key and leaves
// the entries alone. After that, the old key can be removed from the rings. The store
// records which keys it needs, and New refuses a ring that lacks one of them. To read a
// backup, the keys from the time it was made are needed.
//
// Drop removes the journal and then its data key. Without the key, copies of the
// entries in backups or snapshots of the disk cannot be read, unless they also
// contain the data key's cell. If Drop fails, repeat it.
//
// # What it does not do
//
// The names of journals and cells, sizes, times and versions remain visible.
// Anyone who can write to the store inside can delete things, truncate a journal
// or restore an older value of a cell: sealing detects changed bytes, not missing
// ones. Keys are in the memory of the process while it runs.
//
// A data key is good for 2^32 entries of its journal, and a cell's key for as
// many writes; rotation does not change them.
//
// Cells whose keys begin with "~seal/", and in a store that is sealed twice also
// "~~seal/", hold the data keys. They are hidden, and calls that name them return
// ErrInvalid.
package seal
