// Package seal wraps a store and encrypts what it is given, so that the disk,
// database or bucket below never sees an entry, a value or a message in clear.
//
//	ring, err := seal.ParseRing(os.Getenv("PERDURE_KEYS")) // "2026-11:q83v…="
//	s, err := seal.New(ctx, inner, ring)
//
// A key for the ring comes from, for example, openssl rand -base64 32. Instead
// of a [Ring] in memory, anything that can wrap a few bytes may be the
// [Keyring], such as the key service of a cloud.
//
// # How it works
//
// All is AES-256-GCM with random nonces. Each journal has a data key of its
// own, made with its first entry and kept in a cell of the store inside,
// wrapped by the key ring. An entry is bound to its journal and sequence: one
// that was changed, moved, copied or swapped is a *store.CorruptError that
// says where. The cells share a data key, from which each cell's own is
// derived by HKDF-SHA256, and a value is bound to its cell. An entry or value
// grows by 29 bytes.
//
// Bytes that are not sealed are refused, never returned, and [New] refuses a
// store that has been in use without sealing.
//
// # Rotating and shredding
//
// To change keys, put the new one first in the ring of every process, keep
// the old one behind it, and call Rotate: it wraps all data keys with the new
// one and leaves the entries alone. Then the old key can be taken out of the
// rings.
//
// Drop removes the journal and then its data key, without which copies of its
// entries elsewhere, in backups or snapshots of the disk, cannot be read if
// the data key's cell is not in them too. If Drop fails, repeat it.
//
// # What it does not do
//
// The names of journals and cells, sizes, times and versions stay visible.
// One who can write to the store inside can delete things, cut a journal's
// tail off or put an older value of a cell back: sealing finds changed bytes,
// not missing ones. Keys are in the memory of the process while it runs.
//
// A data key is good for 2^32 entries of its journal, and the one of a cell
// for as many writes; rotation does not change them.
//
// Cells whose keys begin with "~seal/" hold the data keys, and in a store that
// is sealed twice "~~seal/" too. They are hidden, and calls that name them are
// ErrInvalid.
package seal
