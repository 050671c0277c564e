package natsstore

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/perdure/perdure/store"
)

// A message of the stream is a checksum of four bytes, which also covers the subject,
// a format of one byte, a kind of one byte, and a body. Later formats keep the
// checksum in place, so that a newer message can be told from a damaged one.
const (
	format     = 1
	recordSize = 4 + 1 + 1
)

// The kinds of messages.
const (
	isAppend  = 'a' // start, count, index, and each entry preceded by its length
	isDropped = 'd' // a tombstone, without a body
	isCell    = 'c' // the value of a cell
	isDeleted = 'x' // the marker of a deleted cell, without a body
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(subject string, rest []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte(subject), castagnoli), castagnoli, rest)
}

// seal completes a message that begins with recordSize free bytes.
func seal(subject string, kind byte, data []byte) []byte {
	data[4], data[5] = format, kind
	binary.BigEndian.PutUint32(data, checksum(subject, data[4:]))
	return data
}

// damage means that a message is not what was written.
type damage struct{ reason string }

func (d *damage) Error() string { return d.reason }

// unseal returns the kind and the body of a message, *damage, or ErrNewer.
func unseal(subject string, data []byte) (kind byte, body []byte, err error) {
	switch {
	case len(data) < recordSize:
		return 0, nil, &damage{"the message is cut short"}
	case binary.BigEndian.Uint32(data) != checksum(subject, data[4:]):
		return 0, nil, &damage{"the checksum is wrong"}
	case data[4] != format:
		return 0, nil, fmt.Errorf("%w: a message has format %d, but this binary only knows %d; update it", store.ErrNewer, data[4], format)
	}
	return data[5], data[recordSize:], nil
}

// A place is where the stream has an append.
type place struct {
	last uint64 // the sequence of its last entry
	at   uint64 // the sequence of its message in the stream
}

// maxIndex is how many earlier appends a message points to.
const maxIndex = 32

// An appended is one append. Its index has the places of the appends before it, newest
// first, up to maxIndex of them: a reader finds them without searching, and gets them
// at once.
type appended struct {
	start   uint64
	index   []place
	entries [][]byte
}

func (a *appended) last() uint64 { return a.start + uint64(len(a.entries)) - 1 }

// encode returns the message of an append.
func (a *appended) encode(subject string) []byte {
	size := recordSize + (3+2*len(a.index)+len(a.entries))*binary.MaxVarintLen64
	for _, e := range a.entries {
		size += len(e)
	}
	data := make([]byte, recordSize, size)
	data = binary.AppendUvarint(data, a.start)
	data = binary.AppendUvarint(data, uint64(len(a.entries)))
	data = binary.AppendUvarint(data, uint64(len(a.index)))
	next := place{last: a.start - 1}
	for i, p := range a.index {
		data = binary.AppendUvarint(data, next.last-p.last)
		if i == 0 {
			data = binary.AppendUvarint(data, p.at)
		} else {
			data = binary.AppendUvarint(data, next.at-p.at)
		}
		next = p
	}
	for _, e := range a.entries {
		data = binary.AppendUvarint(data, uint64(len(e)))
		data = append(data, e...)
	}
	return seal(subject, isAppend, data)
}

// decodeAppend reads the body of an append. Its entries are parts of the body.
func decodeAppend(body []byte) (*appended, error) {
	malformed := &damage{"the append is not well formed"}
	number := func() uint64 {
		n, k := binary.Uvarint(body)
		if k <= 0 {
			body = nil
			return 0
		}
		body = body[k:]
		return n
	}
	a := &appended{start: number()}
	count, index := number(), number()
	if a.start == 0 || count == 0 || count > store.MaxBatch || index > maxIndex {
		return nil, malformed
	}
	next := place{last: a.start - 1}
	for i := range index {
		p := place{last: next.last - number(), at: number()}
		if i > 0 {
			p.at = next.at - p.at
		}
		a.index = append(a.index, p)
		next = p
	}
	for range count {
		size := number()
		if size > uint64(len(body)) || body == nil {
			return nil, malformed
		}
		a.entries = append(a.entries, body[:size:size])
		body = body[size:]
	}
	if len(body) > 0 {
		return nil, malformed
	}
	return a, nil
}
