package sqlitestore

import (
	"encoding/binary"
	"hash/crc32"
	"slices"
	"testing"
)

// TestSums compares the checksums of rows with what files have: the CRC of all
// that they cover, one after the other.
func TestSums(t *testing.T) {
	name, version, data := []byte("journal ü"), []byte("0123456789abcdef"), []byte("some data")
	number := func(n int64) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(n)) }
	for what, test := range map[string]struct {
		got  int64
		over [][]byte
	}{
		"name":    {nameSum(name), [][]byte{name}},
		"journal": {headSum(7, 1<<31, name), [][]byte{{'j'}, number(7), number(1 << 31), name}},
		"dropped": {headSum(7, -1, name), [][]byte{{'j'}, number(7), number(-1), name}},
		"entry":   {entrySum(7, 99, 1<<31, data), [][]byte{{'e'}, number(7<<32 | 99), number(1 << 31), data}},
		"cell":    {cellSum(name, version, data), [][]byte{{'c'}, version, name, data}},
		"empty":   {cellSum("", nil, nil), [][]byte{{'c'}}},
	} {
		if want := int64(crc32.Checksum(slices.Concat(test.over...), castagnoli)); test.got != want {
			t.Errorf("the checksum of %s is %d, want %d", what, test.got, want)
		}
	}
}
