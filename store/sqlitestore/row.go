package sqlitestore

import "hash/crc32"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const (
	pageSize = 4096 // of the database

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
func headSum(id, last int64, name []byte) int64 {
	return checksum('j', id, uint64(last), name)
}

// entrySum is the column crc of an entry. It covers where the entry belongs, so
// that a row which ended up elsewhere is found out; name is the checksum of the
// journal's name.
func entrySum(id int64, name int64, seq uint64, data []byte) int64 {
	return checksum('e', id<<32|name, seq, data)
}

// checksum returns the sum of what a row is, where it belongs and its bytes.
func checksum(kind byte, place int64, at uint64, data []byte) int64 {
	sum := crcByte(^uint32(0), kind)
	for i := range 8 {
		sum = crcByte(sum, byte(uint64(place)>>(8*i)))
	}
	for i := range 8 {
		sum = crcByte(sum, byte(at>>(8*i)))
	}
	return int64(crc32.Update(^sum, castagnoli, data))
}

// crcByte goes on with a sum by one byte, without the array on the heap that
// package crc32 would need for a few of them.
func crcByte(sum uint32, b byte) uint32 { return castagnoli[byte(sum)^b] ^ sum>>8 }

// crcText is crcByte for each byte of a short text.
func crcText[T string | []byte](sum uint32, text T) uint32 {
	for i := range len(text) {
		sum = crcByte(sum, text[i])
	}
	return sum
}

// cellSum is the column crc of a cell.
func cellSum[T string | []byte](name T, version, value []byte) int64 {
	sum := crcText(crcText(crcByte(^uint32(0), 'c'), version), name)
	return int64(crc32.Update(^sum, castagnoli, value))
}
