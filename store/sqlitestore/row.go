package sqlitestore

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"hash/crc32"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const (
	pageSize = 4096 // of the database

	keySize = 16 // of a mask's key
	sumSize = 4  // of the checksum before masked bytes

	// versionSize is the size of a version. Versions are random, so that they
	// do not repeat where a file is restored from a backup either.
	versionSize = 16

	maxSeq = 1<<32 - 1 // the low half of an entry's key
	maxID  = 1<<31 - 1 // the high half, without the sign
)

// entryKey is the key of an entry: the entries of a journal are adjacent and
// in order in the table.
func entryKey(id int64, seq uint64) int64 { return id<<32 | int64(seq) }

// nameSum is the column sum.
func nameSum(name []byte) int64 { return int64(crc32.Checksum(name, castagnoli)) }

// headSum is the column crc of a journal.
func headSum(id, last int64, key, name []byte) int64 {
	var b [17]byte
	b[0] = 'j'
	binary.LittleEndian.PutUint64(b[1:], uint64(id))
	binary.LittleEndian.PutUint64(b[9:], uint64(last))
	crc := crc32.Checksum(b[:], castagnoli)
	crc = crc32.Update(crc, castagnoli, key)
	return int64(crc32.Update(crc, castagnoli, name))
}

// A masker masks the bytes of one journal or cell with its key. The checksum
// before them covers the place where they belong, so that bytes which ended up
// elsewhere are found out.
type masker struct {
	block cipher.Block
	sum   uint32 // of the place
	iv    [aes.BlockSize]byte
	place [17]byte
}

func newMasker(key [keySize]byte) *masker {
	b, err := aes.NewCipher(key[:])
	if err != nil {
		panic("sqlitestore: " + err.Error()) // the size is right
	}
	return &masker{block: b}
}

// atEntry moves the masker to an entry.
func (m *masker) atEntry(id int64, seq uint64) *masker {
	m.place[0] = 'e'
	binary.LittleEndian.PutUint64(m.place[1:], uint64(id))
	binary.LittleEndian.PutUint64(m.place[9:], seq)
	m.sum = crc32.Checksum(m.place[:], castagnoli)
	// A sequence is written once under a key, so its stream is used once.
	// The low half is the counter of blocks.
	binary.BigEndian.PutUint64(m.iv[:], seq)
	return m
}

// atCell moves the masker to a version of a cell, of versionSize.
func (m *masker) atCell(name, version []byte) *masker {
	m.place[0] = 'c'
	copy(m.place[1:], version)
	m.sum = crc32.Update(crc32.Checksum(m.place[:], castagnoli), castagnoli, name)
	copy(m.iv[:], version)
	return m
}

// mask appends to buf what the table keeps for data.
func (m *masker) mask(buf, data []byte) []byte {
	buf = binary.LittleEndian.AppendUint32(buf, crc32.Update(m.sum, castagnoli, data))
	buf = append(buf, data...)
	cipher.NewCTR(m.block, m.iv[:]).XORKeyStream(buf, buf)
	return buf
}

// unmask returns the data in kept, in the same memory. It is false if these
// are not the bytes that were written here.
func (m *masker) unmask(kept []byte) ([]byte, bool) {
	if len(kept) < sumSize {
		return nil, false
	}
	cipher.NewCTR(m.block, m.iv[:]).XORKeyStream(kept, kept)
	data := kept[sumSize:]
	return data, binary.LittleEndian.Uint32(kept) == crc32.Update(m.sum, castagnoli, data)
}
