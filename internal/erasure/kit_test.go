package erasure_test

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"io"
)

func randomBytes() []byte {
	b := make([]byte, 32)
	rand.Read(b)
	return b
}

// unzipped returns what compressed data holds, nothing if it is not compressed.
func unzipped(data []byte) []byte {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil
	}
	plain, _ := io.ReadAll(z) // up to what follows it
	return plain
}
