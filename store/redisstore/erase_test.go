package redisstore_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/redistest"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/redisstore"
)

// holds reports whether any file below a folder has the bytes.
func holds(t *testing.T, dir, canary string) bool {
	t.Helper()
	found := false
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil // the server removes files meanwhile
		}
		data, err := os.ReadFile(path)
		found = found || err == nil && bytes.Contains(data, []byte(canary))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestErase drops a journal and deletes a cell: their bytes leave the server's files
// with the rewrite that the drop asks for, at the latest when the handle is closed.
func TestErase(t *testing.T) {
	const canary, other = "CANARY-0f2d81", "KEPT-77b1c9"
	for _, closes := range []bool{false, true} {
		server := redistest.Start(t, append([]string{"--rdbcompression", "no"}, redistest.Always...)...)
		if !closes {
			redisstore.RewriteSoon(t)
		}
		s := openURL(t, server.URL)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		version, err := s.Put(ctx, "cell", []byte(canary+" of a cell"), "")
		if err == nil {
			_, err = s.AppendBatch(ctx, store.Batch{Journal: "gone", Entries: [][]byte{[]byte(canary + " of an entry")}, Cells: []store.Write{{Key: "b", Value: []byte("x")}}})
		}
		if err == nil {
			_, err = s.Append(ctx, "stays", 0, []byte(other))
		}
		if err != nil {
			t.Fatal(err)
		}
		if !holds(t, server.Dir, canary) {
			t.Fatal("the canary is not in the files, so this test shows nothing")
		}
		if err := s.Delete(ctx, "cell", version); err != nil {
			t.Fatal(err)
		}
		if err := s.Drop(ctx, "gone"); err != nil {
			t.Fatal(err)
		}
		if closes {
			s.Close()
		}
		for holds(t, server.Dir, canary) {
			select {
			case <-ctx.Done():
				t.Fatalf("the canary is still in the files (closed: %t)", closes)
			case <-time.After(10 * time.Millisecond):
			}
		}
		if !holds(t, server.Dir, other) {
			t.Error("what was not dropped is not in the files")
		}
		c := client(t, server.URL)
		if left := c.Keys(ctx, "*").Val(); strings.Contains(strings.Join(left, " "), ":j:gone") || strings.Contains(strings.Join(left, " "), ":c:cell") {
			t.Errorf("the server has the keys %q", left)
		}
	}
}
