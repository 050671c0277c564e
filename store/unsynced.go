package store

import "context"

// Unsynced is the upgrade of stores that can write a cell without waiting for the
// disk. Like [Batcher] it is asserted on the outermost store only, so a wrapper
// implements it by calling PutUnsynced on the store inside.
type Unsynced interface {
	// PutUnsynced is Put for values that need not survive a power failure, such
	// as a heartbeat. The write is visible to everyone at once and survives the
	// process. After a power failure the cell is as this write or an earlier one
	// left it, with the version of that write. It is never torn, and never older
	// than its last write by Put, Delete or a batch.
	PutUnsynced(ctx context.Context, key string, value []byte, prev Version) (Version, error)
}

// PutUnsynced calls Unsynced.PutUnsynced if s has it, and otherwise Put.
func PutUnsynced(ctx context.Context, s Store, key string, value []byte, prev Version) (Version, error) {
	if u, ok := s.(Unsynced); ok {
		return u.PutUnsynced(ctx, key, value, prev)
	}
	return s.Put(ctx, key, value, prev)
}
