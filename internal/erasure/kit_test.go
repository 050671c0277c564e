package erasure_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/perdure/perdure/internal/kit"
)

// unzipped returns what compressed data holds, nothing if it is not compressed.
func unzipped(data []byte) []byte {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil
	}
	plain, _ := io.ReadAll(z) // up to what follows it
	return plain
}

// filesWith returns the files below a folder that hold a canary, plain or compressed.
func filesWith(t *testing.T, dir string, c *kit.Canary) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the store removes files of processes that listened
		}
		if err != nil || d.IsDir() || d.Type()&os.ModeSocket != 0 {
			return err
		}
		data, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		data = append(data, name...)
		if c.FoundIn(data) || c.FoundIn(unzipped(data)) {
			found = append(found, name)
		}
		return err
	})
	kit.NoErr(t, err)
	return found
}
