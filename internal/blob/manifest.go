package blob

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"

	"github.com/perdure/perdure/store"
)

// chunkSize is the size of all chunks of a blob but its last. It is written
// into manifests, so that it may change. The manifest of MaxSize bytes has to
// fit into a cell too.
const chunkSize = store.MaxEntry

// manifest is how a blob is put together. Its bytes are a version, the size
// of the value, the size of a chunk, and the hashes of the chunks.
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

// decode returns the manifest in b. Its hash was checked, so an error means
// that it was written so.
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

// length is how many bytes chunk i has.
func (m *manifest) length(i int) int64 {
	return min(m.chunk, m.size-int64(i)*m.chunk)
}
