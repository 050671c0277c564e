package blob

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/perdure/perdure/store"
)

const (
	// Inline is the size up to which a value belongs into its entry; a larger
	// one becomes a blob.
	Inline = 64 << 10

	// MaxSize is the size of the largest blob.
	MaxSize = 1 << 30
)

// Ref names a blob below its prefix. It is data: one that comes from outside
// is checked when it is used, and reaches nothing below another prefix.
type Ref struct {
	Hash string `json:"hash"` // SHA-256 of the manifest, in lower-case hex
	Size int64  `json:"size"` // of the value in bytes
}

// check returns ErrInvalid or ErrTooLarge unless ref may name a blob.
func (r Ref) check() error {
	if !isHash(r.Hash) {
		return fmt.Errorf("%w: blob: the ref's hash %.80q is not 64 lower-case hex digits; pass the ref that Put returned", store.ErrInvalid, r.Hash)
	}
	if r.Size < 0 {
		return fmt.Errorf("%w: blob: the ref %s has the size %d; pass the ref that Put returned", store.ErrInvalid, r.Hash, r.Size)
	}
	if r.Size > MaxSize {
		return fmt.Errorf("%w: blob: the ref %s has the size %d; a blob has at most %d bytes", store.ErrTooLarge, r.Hash, r.Size, MaxSize)
	}
	return nil
}

// hashOf is the SHA-256 of data in lower-case hex.
func hashOf(data []byte) string {
	h := sha256.Sum256(data)
	return hex.EncodeToString(h[:])
}

// isHash takes lower case only, so that a blob has one name.
func isHash(text string) bool {
	raw, err := hex.DecodeString(text)
	return err == nil && len(raw) == sha256.Size && hex.EncodeToString(raw) == text
}

// Chunks and manifests have names of two kinds, so that a value that looks
// like a manifest cannot be opened as one.
func chunkKey(prefix, hash string) string    { return prefix + "c/" + hash }
func manifestKey(prefix, hash string) string { return prefix + "m/" + hash }

// checkPrefix refuses a prefix that is no folder: below "thread-1" would be
// the blobs of "thread-10" too.
func checkPrefix(prefix string) error {
	if !strings.HasSuffix(prefix, "/") {
		return fmt.Errorf("%w: blob: the prefix %.80q does not end with /, so it may be the beginning of another; add one", store.ErrInvalid, prefix)
	}
	if most := store.MaxName - len(chunkKey("", hashOf(nil))); len(prefix) > most {
		return fmt.Errorf("%w: blob: the prefix %.40q… has %d bytes; use at most %d", store.ErrInvalid, prefix, len(prefix), most)
	}
	return nil
}
