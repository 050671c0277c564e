package archive_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/perdure/perdure/archive"
	"github.com/perdure/perdure/archive/archivetest"
)

// mount mounts a small disk. Without the right to, the test is skipped, and fails in CI.
func mount(t *testing.T, at string, flags uintptr, options string) {
	t.Helper()
	err := syscall.Mount("tmpfs", at, "tmpfs", flags, options)
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatal(err)
	}
	if err != nil {
		t.Skipf("skipped, because no disk can be mounted: %v", err)
	}
}

// TestDiskFails fills a small file system under an archive, makes it read-only, and puts
// a folder in the place of an object.
func TestDiskFails(t *testing.T) {
	mnt := t.TempDir()
	mount(t, mnt, 0, "size=64k")
	t.Cleanup(func() {
		if err := syscall.Unmount(mnt, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	p, err := archive.Open(t.Context(), "file:"+mnt)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Put(t.Context(), "a/small", strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	if err := p.Put(t.Context(), "a/large", strings.NewReader(strings.Repeat("x", 200<<10))); !errors.Is(err, archive.ErrFull) || errors.Is(err, archive.ErrUnavailable) {
		t.Errorf("Put on a full disk: %v", err)
	}
	if err := os.Mkdir(filepath.Join(mnt, "a", "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := archivetest.Read(t.Context(), p, "a/folder"); !errors.Is(err, archive.ErrUnavailable) {
		t.Errorf("reading a folder: %v", err)
	}
	if err := syscall.Mount("tmpfs", mnt, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{"Put": p.Put(t.Context(), "a/new", strings.NewReader("x")), "Delete": p.Delete(t.Context(), "a/small")} {
		if !errors.Is(err, archive.ErrUnavailable) {
			t.Errorf("%s on a read-only disk: %v", what, err)
		}
	}
	if got, err := archivetest.Read(t.Context(), p, "a/small"); err != nil || string(got) != "x" {
		t.Errorf("it holds %q, %v", got, err)
	}
}

// TestReadOnlyDiskVanishes: a disk that cannot be marked is told from its mount point too.
func TestReadOnlyDiskVanishes(t *testing.T) {
	mnt := t.TempDir()
	mount(t, mnt, syscall.MS_RDONLY, "")
	p, err := archive.Open(t.Context(), "file:"+mnt)
	if err == nil {
		_, err = archivetest.Read(t.Context(), p, "a/x")
	}
	if !errors.Is(err, archive.ErrNotFound) {
		t.Errorf("Get of a missing object: %v; want ErrNotFound", err)
	}
	if err := syscall.Unmount(mnt, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := archivetest.Read(t.Context(), p, "a/x"); !errors.Is(err, archive.ErrUnavailable) {
		t.Errorf("Get without the disk: %v; want ErrUnavailable", err)
	}
	if err := p.Delete(t.Context(), "a/x"); !errors.Is(err, archive.ErrUnavailable) {
		t.Errorf("Delete without the disk: %v; want ErrUnavailable", err)
	}
}

// TestReaderFails: an error of what is written is not one of the archive.
func TestReaderFails(t *testing.T) {
	p, err := archive.Dir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	broken := &os.PathError{Op: "read", Path: "elsewhere", Err: syscall.EIO}
	err = p.Put(t.Context(), "a/b", io.MultiReader(strings.NewReader("x"), during(func() error { return broken })))
	if !errors.Is(err, broken) || errors.Is(err, archive.ErrUnavailable) {
		t.Errorf("Put of what cannot be read: %v", err)
	}
}
