package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/perdure/perdure/store"
)

// Open returns a reader of the blob that ref names below prefix. Each chunk is
// checked against its hash before any byte of it is returned.
//
// Where there is no such blob, the error matches store.ErrNotFound; damage is
// a *store.CorruptError that names the cell; a ref that cannot be one is
// store.ErrInvalid. The reader is for one goroutine, and ends with ctx.
func Open(ctx context.Context, s store.Store, prefix string, ref Ref) (io.ReadCloser, error) {
	r, err := open(ctx, s, prefix, ref)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Bytes returns the blob that ref names below prefix, whole.
func Bytes(ctx context.Context, s store.Store, prefix string, ref Ref) ([]byte, error) {
	r, err := open(ctx, s, prefix, ref)
	if err != nil {
		return nil, err
	}
	// The size is that of the manifest by now, not what a ref claims.
	value := make([]byte, ref.Size)
	if _, err := io.ReadFull(r, value); err != nil {
		return nil, err
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
		return nil, fmt.Errorf("blob: there is no blob %s below %q; it was deleted, or the ref belongs elsewhere: %w", ref.Hash, prefix, err)
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
	next     int    // the chunk to load next
	rest     []byte // what is left of the chunk before it
	err      error  // what every further Read returns
}

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) {
	if len(r.rest) == 0 && r.err == nil && len(p) > 0 {
		r.rest, r.err = r.loadChunk()
	}
	if r.err != nil {
		return 0, r.err
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// loadChunk returns the next chunk, or io.EOF behind the last.
func (r *reader) loadChunk() ([]byte, error) {
	i := r.next
	if i == len(r.manifest.hashes) {
		return nil, io.EOF
	}
	if err := r.ctx.Err(); err != nil {
		return nil, err
	}
	r.next++
	h := r.manifest.hashes[i]
	key := chunkKey(r.prefix, h)
	what := fmt.Sprintf("chunk %d of %d of blob %s", i+1, len(r.manifest.hashes), r.ref.Hash)
	cell, err := r.s.Get(r.ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		// A chunk goes only after its manifest, in Delete.
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

// Close implements io.Closer. A Read after it fails.
func (r *reader) Close() error {
	r.rest, r.err = nil, fmt.Errorf("blob: read %s: %w", r.ref.Hash, fs.ErrClosed)
	return nil
}
