package blob

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/perdure/perdure/store"
)

// Chunks returns the size of all chunks of a blob but the last, and the chunks
// as stored. Each is checked against its hash, and only one is in memory at a
// time.
//
// If there is no such blob, the error matches store.ErrNotFound; damage is a
// *store.CorruptError that names the cell; an impossible ref is
// store.ErrInvalid.
func Chunks(ctx context.Context, s store.Store, prefix string, ref Ref) (int64, iter.Seq2[[]byte, error], error) {
	r, err := open(ctx, s, prefix, ref)
	if err != nil {
		return 0, nil, err
	}
	return r.manifest.chunk, func(yield func([]byte, error) bool) {
		for i := range r.manifest.hashes {
			if chunk, err := r.loadChunk(i); !yield(chunk, err) || err != nil {
				return
			}
		}
	}, nil
}

// Bytes returns the whole blob that ref names. Errors are those of Chunks.
func Bytes(ctx context.Context, s store.Store, prefix string, ref Ref) ([]byte, error) {
	_, chunks, err := Chunks(ctx, s, prefix, ref)
	if err != nil {
		return nil, err
	}
	// Chunks has compared the ref's size with the manifest's, so it is not just
	// a claim.
	value := make([]byte, 0, ref.Size)
	for chunk, err := range chunks {
		if err != nil {
			return nil, err
		}
		value = append(value, chunk...)
	}
	return value, nil
}

func open(ctx context.Context, s store.Store, prefix string, ref Ref) (*reader, error) {
	if err := checkPrefix(prefix); err != nil {
		return nil, err
	}
	if err := ref.check(); err != nil {
		return nil, err
	}
	key := manifestKey(prefix, ref.Hash)
	cell, err := s.Get(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("blob: there is no blob %s below %q; it was deleted, or the ref is for another prefix: %w", ref.Hash, prefix, err)
	}
	if err != nil {
		return nil, fmt.Errorf("blob: get the manifest of %s: %w", ref.Hash, err)
	}
	if hashOf(cell.Value) != ref.Hash {
		return nil, damaged(key, "the manifest's bytes do not match its hash")
	}
	m, err := decode(cell.Value)
	if err != nil {
		return nil, damaged(key, "the manifest cannot be read: "+err.Error())
	}
	if m.size != ref.Size {
		return nil, fmt.Errorf("%w: blob: the ref says that %s has %d bytes, but it has %d; pass the ref that Put returned", store.ErrInvalid, ref.Hash, ref.Size, m.size)
	}
	return &reader{ctx: ctx, s: s, prefix: prefix, key: key, ref: ref, manifest: m}, nil
}

type reader struct {
	ctx      context.Context
	s        store.Store
	prefix   string
	key      string // of the manifest's cell
	ref      Ref
	manifest *manifest
}

func (r *reader) loadChunk(i int) ([]byte, error) {
	if err := r.ctx.Err(); err != nil {
		return nil, err
	}
	h := r.manifest.hashes[i]
	key := chunkKey(r.prefix, h)
	what := fmt.Sprintf("chunk %d of %d of blob %s", i+1, len(r.manifest.hashes), r.ref.Hash)
	cell, err := r.s.Get(r.ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		// Delete removes a chunk only after its manifest.
		if _, gone := r.s.Get(r.ctx, r.key); errors.Is(gone, store.ErrNotFound) {
			return nil, fmt.Errorf("blob: %s was deleted while it was read: %w", r.ref.Hash, err)
		}
		return nil, damaged(key, what+" is missing")
	}
	if err != nil {
		return nil, fmt.Errorf("blob: get %s: %w", what, err)
	}
	if hashOf(cell.Value) != h {
		return nil, damaged(key, what+" does not match its hash")
	}
	if int64(len(cell.Value)) != r.manifest.length(i) {
		return nil, damaged(key, fmt.Sprintf("%s has %d bytes, its manifest says %d", what, len(cell.Value), r.manifest.length(i)))
	}
	return cell.Value, nil
}
