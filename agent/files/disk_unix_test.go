//go:build unix

package files

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"
)

// TestPipesAreNotRead would hang if it were not so.
func TestPipesAreNotRead(t *testing.T) {
	root := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(root, "pipe"), 0o666); err != nil {
		t.Fatal(err)
	}
	f := Disk(root)
	if _, err := f.Read(t.Context(), "/pipe"); !errors.Is(err, ErrPath) {
		t.Errorf("Read: %v, want ErrPath", err)
	}
	if err := f.Write(t.Context(), "/pipe", "text"); !errors.Is(err, ErrPath) {
		t.Errorf("Write: %v, want ErrPath", err)
	}
	if all, err := f.List(t.Context(), "/"); err != nil || len(all) > 0 {
		t.Errorf("List: %v, %v; want nothing", all, err)
	}
}
