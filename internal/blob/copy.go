package blob

import (
	"context"
	"fmt"

	"github.com/perdure/perdure/store"
)

// Copy copies a blob chunk by chunk, so that it has the same ref here. It
// checks the blob on the way; the blob exists only once Close has returned nil.
type Copy struct {
	store    store.Store // nil to only check the blob
	prefix   string
	ref      Ref
	manifest manifest
	taken    int64
}

// NewCopy begins the copy of a blob that is cut into chunks of the given size.
// If s is nil, the blob is only checked.
func NewCopy(s store.Store, prefix string, ref Ref, chunk int64) (*Copy, error) {
	if err := ref.check(); err != nil {
		return nil, err
	}
	if chunk < minChunk || chunk > store.MaxEntry {
		return nil, fmt.Errorf("%w: blob: %s is cut into chunks of %d bytes; chunks must have %d to %d", store.ErrInvalid, ref.Hash, chunk, minChunk, store.MaxEntry)
	}
	if s != nil {
		if err := checkPrefix(prefix); err != nil {
			return nil, err
		}
	}
	return &Copy{store: s, prefix: prefix, ref: ref, manifest: manifest{size: ref.Size, chunk: chunk}}, nil
}

// minChunk keeps the manifest of the largest blob within a cell.
const minChunk = 160 << 10

// Done reports whether all chunks were added.
func (c *Copy) Done() bool { return c.taken == c.ref.Size }

// Add adds the next chunk.
func (c *Copy) Add(ctx context.Context, chunk []byte) error {
	i := len(c.manifest.hashes)
	if c.Done() || int64(len(chunk)) != c.manifest.length(i) {
		return fmt.Errorf("%w: blob: chunk %d of %s has %d bytes", store.ErrCorrupt, i+1, c.ref.Hash, len(chunk))
	}
	h := hashOf(chunk)
	if c.store != nil {
		if err := putCell(ctx, c.store, chunkKey(c.prefix, h), chunk); err != nil {
			return fmt.Errorf("blob: put chunk %d: %w", i+1, err)
		}
	}
	c.manifest.hashes = append(c.manifest.hashes, h)
	c.taken += int64(len(chunk))
	return nil
}

// Close checks the blob as a whole and writes its manifest.
func (c *Copy) Close(ctx context.Context) error {
	if !c.Done() {
		return fmt.Errorf("%w: blob: %s ends at byte %d of %d", store.ErrCorrupt, c.ref.Hash, c.taken, c.ref.Size)
	}
	data := c.manifest.encode()
	if h := hashOf(data); h != c.ref.Hash {
		return fmt.Errorf("%w: blob: its bytes have the hash %s, not %s", store.ErrCorrupt, h, c.ref.Hash)
	}
	if c.store == nil {
		return nil
	}
	if err := putCell(ctx, c.store, manifestKey(c.prefix, c.ref.Hash), data); err != nil {
		return fmt.Errorf("blob: put the manifest of %d chunks: %w", len(c.manifest.hashes), err)
	}
	return nil
}
