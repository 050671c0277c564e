package filestore

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/perdure/perdure/store"
)

// TestFullDisk fills a small file system under a store.
func TestFullDisk(t *testing.T) {
	mnt := filepath.Join(t.TempDir(), "mnt")
	if err := os.Mkdir(mnt, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", mnt, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("needs the right to mount: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(mnt, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	dir := filepath.Join(mnt, "store")
	s, err := Open(t.Context(), dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if s.Durability() != store.Process {
		t.Errorf("the durability in memory is %v, want process", s.Durability())
	}
	ballast := filepath.Join(mnt, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 512<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	entry := []byte(`"` + strings.Repeat("x", 10_000) + `"`)
	acked := uint64(0)
	for err == nil && acked < 1000 {
		if _, err = s.Append(t.Context(), "j", acked, entry); err == nil {
			acked++
		}
	}
	if !errors.Is(err, store.ErrFull) || !errors.Is(err, store.ErrPoisoned) || acked == 0 {
		t.Fatalf("Append %d on a full disk = %v, want ErrFull and ErrPoisoned", acked, err)
	}
	if _, err := s.Put(t.Context(), "c", []byte("1"), ""); !errors.Is(err, store.ErrPoisoned) {
		t.Errorf("Put afterwards = %v, want ErrPoisoned", err)
	}
	if got, err := contents(t.Context(), s, "j"); err != nil || uint64(len(got)) != acked {
		t.Errorf("Read on a full disk = %d entries, %v, want %d", len(got), err, acked)
	}
	s.Close()
	for _, full := range []bool{true, false} {
		if !full {
			if err := os.Remove(ballast); err != nil {
				t.Fatal(err)
			}
		}
		s, err := Open(t.Context(), dir, Options{})
		if err != nil {
			t.Fatalf("Open, full %v = %v", full, err)
		}
		if got, err := contents(t.Context(), s, "j"); err != nil || uint64(len(got)) != acked {
			t.Errorf("Read, full %v = %d entries, %v, want %d", full, len(got), err, acked)
		}
		if !full {
			if _, err := s.Append(t.Context(), "j", acked, entry); err != nil {
				t.Errorf("Append after space returned = %v", err)
			}
		}
		s.Close()
	}
}
