package kvstore

import (
	"context"
	"iter"

	"github.com/perdure/perdure/store"
)

// KV is the key-value engine under a Store. Its methods are those of store.Store
// for cells, so every store is a KV as well (for names and values a little below
// its limits).
//
// This is what a Store needs, and all it needs:
//
//   - Writes are linearizable: of several conditional writes that name the
//     same version of a key at most one wins, and Get returns the newest
//     acknowledged value together with its version.
//   - ErrConflict means that this call wrote nothing. It may be spurious.
//     Beware of clients that repeat a conditional write on their own when a
//     response is lost: the repetition conflicts with its own first try. Turn
//     such retries off, or return another error.
//   - After any other error except ErrTooLarge, ErrInvalid, ErrClosed and
//     ErrCorrupt the write may have happened, or may still happen, provided
//     that its condition holds at that time.
//   - A version is never empty. Two writes of one key have the same version
//     only if they wrote the same bytes, even across Delete: a revision
//     counter that is never reset will do, and so will a hash of the value.
//   - List yields the keys that begin with prefix and come after the given
//     key, ordered bytewise. A key that was written before the call and is not
//     written during it is yielded exactly once. The body of the loop may call
//     the engine.
//   - Keys have 1 to MaxKey bytes from 0-9, a-v and the dash; prefix and after
//     may also contain a z. Values have 1 to MaxValue bytes of any value, plus
//     Options.Pack, and come back as they were given.
//   - The engine does not retain the slices it is given or reuse those it
//     returns, and all methods are safe for concurrent use.
//   - Nothing else writes to these keys; an engine that is also used for other
//     things puts a prefix of its own before them.
//
// For Drop to remove bytes, overwritten and deleted values must really go away:
// turn off anything that keeps old versions of a key.
type KV interface {
	// Get returns the value and version of a key, or store.ErrNotFound.
	Get(ctx context.Context, key string) (store.Cell, error)

	// Put writes a key if its version is still prev or, if prev is "", if there
	// is no such key; otherwise it returns store.ErrConflict. It returns the
	// new version once the write is as durable as the engine promises.
	Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error)

	// Delete removes a key if its version is still prev; otherwise, even if
	// there is no such key, it returns store.ErrConflict.
	Delete(ctx context.Context, key string, prev store.Version) error

	// List yields the keys that begin with prefix and come after the given
	// key, in order, with their values and versions. Nothing follows an error.
	List(ctx context.Context, prefix, after string) iter.Seq2[store.Cell, error]
}

var _ KV = store.Store(nil)

// The sizes that an engine must accept.
const (
	// MaxKey is the length in bytes of the longest key.
	MaxKey = len(batchTag) + (8*store.MaxName+4)/5 + 1 + seqDigits

	// MaxValue is the size in bytes of the largest value: what a driver must
	// accept, plus the framing around it.
	MaxValue = store.MaxEntry + store.Slack + 256

	// MaxPack is the largest value of Options.Pack. With it, an engine must
	// accept values of up to MaxPack more bytes than MaxValue.
	MaxPack = 1 << 20
)

// upgrade finds an upgrade of the engine. An engine that is a store may be a
// wrapper.
func upgrade[T any](kv KV) (T, bool) {
	if s, ok := kv.(store.Store); ok {
		return store.As[T](s)
	}
	t, ok := kv.(T)
	return t, ok
}
