package kvstore

import (
	"context"
	"iter"

	"github.com/perdure/perdure/store"
)

// KV is a key-value engine as its owner brings it. The methods are those of
// the cells of store.Store, so every store is a KV as well (for names and
// values that stay a little under its limits).
//
// What a Store needs, and all it needs:
//
//   - Writes are linearizable: of several conditional writes that name the
//     same version of a key at most one wins, and Get returns the newest
//     acknowledged value together with its version.
//   - ErrConflict means that this call wrote nothing. It may be spurious.
//     Beware of clients that repeat a conditional write by themselves when an
//     answer is lost: the repetition conflicts with its own first try. Turn
//     such retries off, or answer with another error.
//   - After any other error but ErrTooLarge, ErrInvalid, ErrClosed and
//     ErrCorrupt the write may have happened, or may still happen; as long as
//     it does only if its condition holds then, all is well.
//   - A version is never empty. Two writes of one key have the same version
//     only if they wrote the same bytes, also across Delete: a revision
//     counter that goes on counting will do, and so will a hash of the value.
//   - List yields the keys that begin with prefix and are behind after,
//     ordered bytewise. A key that was written before the call and is not
//     written during it is yielded exactly once. The loop's body may call the
//     engine.
//   - Keys have 1 to MaxKey bytes out of 0-9, a-v and the dash; prefix and
//     after may also contain a z. Values have 1 to MaxValue bytes of any
//     kind, and come back as they were given.
//   - The engine does not keep the slices it is given nor use again those it
//     returns, and all methods are safe for concurrent use.
//   - Nothing else writes to these keys; an engine that is used for other
//     things too puts a prefix of its own before them.
//
// For Drop to remove bytes, overwritten and deleted values must really go:
// turn off what keeps old versions of a key.
type KV interface {
	// Get returns the value and version of a key, or store.ErrNotFound.
	Get(ctx context.Context, key string) (store.Cell, error)

	// Put writes a key if its version is still prev or, where prev is "", if
	// there is no such key; otherwise store.ErrConflict. It returns the new
	// version once the write is as durable as the engine says.
	Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error)

	// Delete removes a key if its version is still prev; otherwise, also
	// where there is no such key, store.ErrConflict.
	Delete(ctx context.Context, key string, prev store.Version) error

	// List yields the keys that begin with prefix and are behind after, in
	// order, with their values and versions. An error is the last thing
	// yielded.
	List(ctx context.Context, prefix, after string) iter.Seq2[store.Cell, error]
}

var _ KV = store.Store(nil)

// The sizes that an engine must take.
const (
	// MaxKey is the length in bytes of the longest key.
	MaxKey = len(batchTag) + (8*store.MaxName+4)/5 + 1 + seqDigits

	// MaxValue is the size in bytes of the largest value: what a driver has
	// to take, and the framing around it.
	MaxValue = store.MaxEntry + store.Slack + 256
)

// upgrade finds what the engine offers beyond KV. An engine that is a store
// may be wrapped.
func upgrade[T any](kv KV) (T, bool) {
	if s, ok := kv.(store.Store); ok {
		return store.As[T](s)
	}
	t, ok := kv.(T)
	return t, ok
}
