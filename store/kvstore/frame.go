package kvstore

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/perdure/perdure/store"
)

// A value is a checksum of four bytes, a format of one byte, and a body. Later
// formats keep the checksum in place, so that a value of a newer version can be
// distinguished from a damaged one.
const (
	format    = 1
	frameSize = 4 + 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// frame returns the value with this body for this key.
func frame(key string, body ...[]byte) []byte {
	size := frameSize
	for _, b := range body {
		size += len(b)
	}
	value := make([]byte, frameSize, size)
	value[4] = format
	for _, b := range body {
		value = append(value, b...)
	}
	binary.BigEndian.PutUint32(value, checksum(key, value[4:]))
	return value
}

// checksum also covers the key, to detect a value under the wrong key.
func checksum(key string, rest []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte(key), castagnoli), castagnoli, rest)
}

// damage means that a key of the engine does not hold what was written. It
// becomes a *store.CorruptError that names the journal or cell.
type damage struct{ key, reason string }

func (d *damage) Error() string { return d.key + ": " + d.reason }

// unframe returns the body of a value, *damage, or ErrNewer.
func unframe(key string, value []byte) ([]byte, error) {
	if len(value) < frameSize {
		return nil, &damage{key, "the value is cut short"}
	}
	if binary.BigEndian.Uint32(value) != checksum(key, value[4:]) {
		return nil, &damage{key, "the checksum is wrong"}
	}
	if value[4] != format {
		return nil, fmt.Errorf("%w: key %q has format %d, but this binary only knows %d; update it", store.ErrNewer, key, value[4], format)
	}
	return value[frameSize:], nil
}

// batch holds the entries of one append. Its encoding is the same in a head and
// in a key of its own: start, count, and each entry preceded by its length.
type batch struct {
	start   uint64
	entries [][]byte
}

// last returns the sequence of the last entry, or 0 if there is no batch.
func (b batch) last() uint64 { return b.start + uint64(len(b.entries)) - 1 }

func (b batch) encode() []byte {
	size := (2 + len(b.entries)) * binary.MaxVarintLen64
	for _, e := range b.entries {
		size += len(e)
	}
	body := binary.AppendUvarint(make([]byte, 0, size), b.start)
	body = binary.AppendUvarint(body, uint64(len(b.entries)))
	return appendEntries(body, b.entries)
}

func appendEntries(body []byte, entries [][]byte) []byte {
	for _, e := range entries {
		body = append(binary.AppendUvarint(body, uint64(len(e))), e...)
	}
	return body
}

// joined returns the encoding of the batch encoded in body with more entries.
func joined(key string, body []byte, more [][]byte) ([]byte, error) {
	start, n := binary.Uvarint(body)
	count, m := binary.Uvarint(body[max(n, 0):])
	if n <= 0 || m <= 0 {
		return nil, &damage{key, "the batch is not well formed"}
	}
	size := len(body) + binary.MaxVarintLen64
	for _, e := range more {
		size += binary.MaxVarintLen64 + len(e)
	}
	next := binary.AppendUvarint(make([]byte, 0, size), start)
	next = binary.AppendUvarint(next, count+uint64(len(more)))
	return appendEntries(append(next, body[n+m:]...), more), nil
}

// decodeBatch decodes a batch found under key. Its entries share the body, but
// cannot grow into each other.
func decodeBatch(key string, body []byte) (batch, error) {
	bad := &damage{key, "the batch is not well formed"}
	next := func() (n uint64, ok bool) {
		n, size := binary.Uvarint(body)
		if size <= 0 {
			return 0, false
		}
		body = body[size:]
		return n, true
	}
	start, ok1 := next()
	count, ok2 := next()
	if !ok1 || !ok2 || start == 0 || count == 0 || count > uint64(len(body)) || start+count < start {
		return batch{}, bad
	}
	b := batch{start: start, entries: make([][]byte, 0, count)}
	for range count {
		size, ok := next()
		if !ok || size > uint64(len(body)) {
			return batch{}, bad
		}
		b.entries = append(b.entries, body[:size:size])
		body = body[size:]
	}
	if len(body) > 0 {
		return batch{}, bad
	}
	return b, nil
}
