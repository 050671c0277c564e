package blob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/perdure/perdure/store"
)

// Put stores everything that r yields as a blob under prefix, which must end
// with a slash. After an error it can be repeated from the start; what exists
// is not written again. A value over MaxSize bytes is store.ErrTooLarge.
func Put(ctx context.Context, s store.Store, prefix string, r io.Reader) (Ref, error) {
	if err := checkPrefix(prefix); err != nil {
		return Ref{}, err
	}
	m := manifest{chunk: chunkSize}
	chunk := make([]byte, chunkSize)
	for {
		n, more, err := fill(r, chunk)
		if err != nil {
			return Ref{}, fmt.Errorf("blob: read the value after byte %d: %w", m.size+int64(n), err)
		}
		if n == 0 {
			break
		}
		if m.size += int64(n); m.size > MaxSize {
			return Ref{}, fmt.Errorf("%w: blob: the value has more than %d bytes; keep it elsewhere and store its location", store.ErrTooLarge, MaxSize)
		}
		h := hashOf(chunk[:n])
		if err := putCell(ctx, s, chunkKey(prefix, h), chunk[:n]); err != nil {
			return Ref{}, fmt.Errorf("blob: put chunk %d: %w", len(m.hashes)+1, err)
		}
		m.hashes = append(m.hashes, h)
		if !more {
			break
		}
	}
	// Last, so that a manifest never lists a missing chunk.
	data := m.encode()
	h := hashOf(data)
	if err := putCell(ctx, s, manifestKey(prefix, h), data); err != nil {
		return Ref{}, fmt.Errorf("blob: put the manifest of %d chunks: %w", len(m.hashes), err)
	}
	return Ref{Hash: h, Size: m.size}, nil
}

// fill reads until chunk is full or r ends, and reports whether r may have
// more. Unlike io.ReadFull, it treats io.ErrUnexpectedEOF as an error of r:
// that is how a truncated request body ends.
func fill(r io.Reader, chunk []byte) (n int, more bool, err error) {
	for empty := 0; n < len(chunk); empty++ {
		got, err := r.Read(chunk[n:])
		n += got
		switch {
		case err == io.EOF:
			return n, false, nil
		case err != nil:
			return n, false, err
		case got > 0:
			empty = 0
		case empty == mostEmpty:
			return n, false, io.ErrNoProgress
		}
	}
	return n, true, nil
}

// mostEmpty is how many empty reads in a row are tolerated before fill gives
// up.
const mostEmpty = 100

// putCell writes a cell that is named by its content, unless it exists.
func putCell(ctx context.Context, s store.Store, key string, value []byte) error {
	errThere := errors.New("it is there")
	began := time.Now()
	for {
		_, err := store.Update(ctx, s, key, func(old store.Cell) ([]byte, error) {
			switch {
			case old.Version == "":
				return value, nil
			case bytes.Equal(old.Value, value):
				return nil, errThere
			}
			return nil, damaged(key, "its bytes do not match its hash")
		})
		switch {
		case errors.Is(err, errThere):
			return nil
		case errors.Is(err, store.ErrUnavailable) && !errors.Is(err, store.ErrRolledBack) && ctx.Err() == nil && !store.OutOfPatience(ctx, began):
			continue // it may have been written: look again
		}
		return err
	}
}

func damaged(key, reason string) error {
	return &store.CorruptError{Cell: key, Reason: reason}
}

// Delete removes all blobs under prefix. It can be interrupted and repeated. A
// blob that is put at the same time may remain, whole or in part.
func Delete(ctx context.Context, s store.Store, prefix string) error {
	if err := checkPrefix(prefix); err != nil {
		return err
	}
	// Manifests first, so that a blob is either whole or gone.
	for _, kind := range []string{"m/", "c/"} {
		if err := store.DeletePrefix(ctx, s, prefix+kind); err != nil {
			return fmt.Errorf("blob: delete everything below %q; call Delete again: %w", prefix, err)
		}
	}
	return nil
}
