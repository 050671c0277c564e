package blob

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/perdure/perdure/store"
)

// chunkSize is the size of all chunks of a blob but the last. Manifests record
// it, so that it may change. The manifest of MaxSize bytes must fit into a cell
// too.
const chunkSize = store.MaxEntry

// manifest describes how a blob is assembled. It is encoded as a version, the
// size of the value, the size of a chunk, and the hashes of the chunks.
type manifest struct {
	size   int64
	chunk  int64
	hashes []string // in hex
}

const (
	manifestVersion = 1
	manifestHead    = 1 + 8 + 4
)

func (m *manifest) encode() []byte {
	b := make([]byte, 0, manifestHead+len(m.hashes)*sha256.Size)
	b = append(b, manifestVersion)
	b = binary.BigEndian.AppendUint64(b, uint64(m.size))
	b = binary.BigEndian.AppendUint32(b, uint32(m.chunk))
	for _, h := range m.hashes {
		b, _ = hex.AppendDecode(b, []byte(h))
	}
	return b
}

// decode returns the manifest in b. The caller has checked its hash, so an
// error means that it was written that way.
func decode(b []byte) (*manifest, error) {
	if len(b) == 0 || b[0] != manifestVersion {
		return nil, errors.New("its format is not known here; was it written by a newer version?")
	}
	if len(b) < manifestHead {
		return nil, errors.New("it is too short for a manifest")
	}
	m := &manifest{size: int64(binary.BigEndian.Uint64(b[1:])), chunk: int64(binary.BigEndian.Uint32(b[9:]))}
	if m.size < 0 || m.size > MaxSize || m.chunk <= 0 {
		return nil, errors.New("its sizes are out of range")
	}
	n := (m.size + m.chunk - 1) / m.chunk
	if b = b[manifestHead:]; int64(len(b)) != n*sha256.Size {
		return nil, errors.New("its sizes and its number of chunks do not agree")
	}
	m.hashes = make([]string, n)
	for i := range m.hashes {
		m.hashes[i] = hex.EncodeToString(b[i*sha256.Size:][:sha256.Size])
	}
	return m, nil
}

func (m *manifest) length(i int) int64 {
	return min(m.chunk, m.size-int64(i)*m.chunk)
}

const (
	// Inline is the largest size of a value that belongs in its entry.
	Inline = 64 << 10

	// MaxSize is the size of the largest blob.
	MaxSize = 1 << 30
)

// Ref names a blob under its prefix. It is plain data: a ref from outside is
// checked when it is used, and reaches nothing under another prefix.
type Ref struct {
	Hash string `json:"hash"` // SHA-256 of the manifest, in lower-case hex
	Size int64  `json:"size"` // of the value in bytes
}

// check returns ErrInvalid or ErrTooLarge if the ref cannot name a blob.
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

// hashOf returns the SHA-256 of data in lower-case hex.
func hashOf(data []byte) string {
	h := sha256.Sum256(data)
	return hex.EncodeToString(h[:])
}

// isHash accepts only lower case, so that a blob has one name.
func isHash(text string) bool {
	raw, err := hex.DecodeString(text)
	return err == nil && len(raw) == sha256.Size && hex.EncodeToString(raw) == text
}

// Chunks and manifests have separate names, so that a value that looks like a
// manifest cannot be opened as one.
func chunkKey(prefix, hash string) string    { return prefix + "c/" + hash }
func manifestKey(prefix, hash string) string { return prefix + "m/" + hash }

// checkPrefix refuses a prefix that is not a folder: "thread-1" would include
// the blobs of "thread-10".
func checkPrefix(prefix string) error {
	if !strings.HasSuffix(prefix, "/") {
		return fmt.Errorf("%w: blob: the prefix %.80q does not end with /, so it may be the beginning of another; add one", store.ErrInvalid, prefix)
	}
	if most := store.MaxName - len(chunkKey("", hashOf(nil))); len(prefix) > most {
		return fmt.Errorf("%w: blob: the prefix %.40q… has %d bytes; use at most %d", store.ErrInvalid, prefix, len(prefix), most)
	}
	return nil
}
