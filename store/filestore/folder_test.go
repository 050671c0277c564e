package filestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/perdure/perdure/store"
)

func TestURL(t *testing.T) {
	for _, c := range []struct {
		url, dir string
		err      error
	}{
		{"file:data", "data", nil},
		{"file:a b/%20?x#y", "a b/%20?x#y", nil},
		{"file:/srv/data", "/srv/data", nil},
		{"file:///srv/data", "/srv/data", nil},
		{"file:", "", nil},
		{"file://host/data", "", store.ErrInvalid},
	} {
		if runtime.GOOS == "windows" && strings.HasPrefix(c.url, "file:///") {
			continue
		}
		dir, err := dirOf(c.url)
		if dir != c.dir || !errors.Is(err, c.err) {
			t.Errorf("dirOf(%q) = %q, %v, want %q, %v", c.url, dir, err, c.dir, c.err)
		}
	}
	dir := filepath.Join(t.TempDir(), "new")
	s, err := store.Open(t.Context(), "file:"+dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := store.Open(t.Context(), "file:"); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("Open of no folder = %v, want ErrInvalid", err)
	}
}

// TestRefused opens what cannot be opened. A refused folder is left as it is.
func TestRefused(t *testing.T) {
	write := func(name string, content []byte) func(dir string) error {
		return func(dir string) error { return os.WriteFile(filepath.Join(dir, name), content, 0o600) }
	}
	made := func(change func(dir string) error) func(dir string) error {
		return func(dir string) error {
			s, err := Open(context.Background(), dir, Options{})
			if err != nil {
				return err
			}
			if _, err := s.Append(context.Background(), "j", 0, []byte("1")); err != nil {
				return err
			}
			s.Close()
			return change(dir)
		}
	}
	remove := func(name string) func(dir string) error {
		return func(dir string) error { return os.RemoveAll(filepath.Join(dir, name)) }
	}
	for _, c := range []struct {
		name string
		make func(dir string) error
		want error
		word string
	}{
		{"foreign file", write("notes.txt", nil), store.ErrForeign, "notes.txt"},
		{"foreign tmp", func(dir string) error {
			if err := os.Mkdir(filepath.Join(dir, "tmp"), 0o700); err != nil {
				return err
			}
			return write("tmp/thesis.txt", nil)(dir)
		}, store.ErrForeign, "tmp"},
		{"foreign FORMAT", write("FORMAT", []byte("version 3\n")), store.ErrForeign, "empty folder"},
		{"newer", made(write("FORMAT", formatLine(7))), store.ErrNewer, "format 7"},
		{"older than any", made(write("FORMAT", formatLine(0))), store.ErrCorrupt, "FORMAT"},
		{"FORMAT missing", made(remove("FORMAT")), store.ErrForeign, "FORMAT"},
		{"journals missing", made(remove("journals")), store.ErrCorrupt, "journals"},
		{"cells missing", made(remove("cells")), store.ErrCorrupt, "cells"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := c.make(dir); err != nil {
				t.Fatal(err)
			}
			before := tree(t, dir)
			s, err := Open(t.Context(), dir, Options{})
			if err == nil {
				s.Close()
			}
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), c.word) {
				t.Errorf("Open = %v, want %v with %q", err, c.want, c.word)
			}
			if after := tree(t, dir); after != before {
				t.Errorf("the refused folder held %s, now %s", before, after)
			}
		})
	}
	t.Run("a file", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(t.Context(), path, Options{}); !errors.Is(err, store.ErrForeign) {
			t.Errorf("Open of a file = %v, want ErrForeign", err)
		}
	})
	t.Run("no parent", func(t *testing.T) {
		_, err := Open(t.Context(), filepath.Join(t.TempDir(), "no", "such"), Options{})
		if err == nil || !strings.Contains(err.Error(), "parent") {
			t.Errorf("Open = %v, want an error that names the parent", err)
		}
	})
	t.Run("other options", func(t *testing.T) {
		dir := t.TempDir()
		mustOpen(t, dir, healthy)
		if _, err := Open(t.Context(), dir, Options{}); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("Open with other options = %v, want ErrInvalid", err)
		}
	})
}

func tree(t *testing.T, dir string) string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		files = append(files, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(files)
}

// TestCutCreation opens what a creation cut short leaves.
func TestCutCreation(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"tmp", "journals"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"LOCK", "tmp/1"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := mustOpen(t, dir, healthy)
	if _, err := s.Append(t.Context(), "j", 0, []byte("1")); err != nil {
		t.Error(err)
	}
	stray, err := os.ReadDir(filepath.Join(dir, "tmp"))
	if err != nil || len(stray) != 0 {
		t.Errorf("tmp holds %v, %v", stray, err)
	}
}

// TestOneIdentity reaches one folder by several paths.
func TestOneIdentity(t *testing.T) {
	base := t.TempDir()
	dir, link := filepath.Join(base, "dir"), filepath.Join(base, "link")
	one := mustOpen(t, dir, healthy)
	if err := os.Symlink(dir, link); err != nil {
		t.Skipf("no symbolic links here: %v", err)
	}
	t.Chdir(base)
	for _, path := range []string{link, "dir", dir + "/../dir/"} {
		two := mustOpen(t, path, healthy)
		if two.folder != one.folder {
			t.Errorf("%s is another folder", path)
		}
		two.Close()
	}
	if _, err := one.Append(t.Context(), "j", 0, []byte("1")); err != nil {
		t.Errorf("Append after another handle was closed = %v", err)
	}
	// A folder that was removed and made again is another, even while a
	// handle on the first is open.
	if err := os.RemoveAll(dir); err != nil {
		t.Skipf("open files cannot be removed here: %v", err)
	}
	again := mustOpen(t, dir, healthy)
	if got, err := contents(t.Context(), again, "j"); err != nil || len(got) != 0 {
		t.Errorf("the new folder holds %q, %v", got, err)
	}
}

// TestChangedLink changes a link to a folder while that is open.
func TestChangedLink(t *testing.T) {
	base := t.TempDir()
	link := filepath.Join(base, "link")
	var handles []*Store
	for _, name := range []string{"a", "b"} {
		mustOpen(t, filepath.Join(base, name), healthy).Close()
		os.Remove(link)
		if err := os.Symlink(filepath.Join(base, name), link); err != nil {
			t.Skipf("no symbolic links here: %v", err)
		}
		handles = append(handles, mustOpen(t, link, healthy))
	}
	for i, s := range handles {
		if _, err := s.Append(t.Context(), "j", 0, []byte{'0' + byte(i)}); err != nil {
			t.Errorf("Append to folder %d = %v", i, err)
		}
		s.Close()
	}
	for i, name := range []string{"a", "b"} {
		got, err := contents(t.Context(), mustOpen(t, filepath.Join(base, name), healthy), "j")
		if want := fmt.Sprint(i); err != nil || len(got) != 1 || got[0] != want {
			t.Errorf("folder %s holds %q, %v, want %q", name, got, err, want)
		}
	}
}

// TestRemovedLock removes LOCK, as one does who takes it for a leftover. The
// store that had it writes no more, since another may.
func TestRemovedLock(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, healthy)
	if _, err := s.Append(t.Context(), "j", 0, []byte("1")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, lockName)); err != nil {
		t.Skipf("open files cannot be removed here: %v", err)
	}
	other := mustOpen(t, dir, healthy)
	for _, write := range []func() error{
		func() error { _, err := s.Append(t.Context(), "j", 1, []byte("2")); return err },
		func() error { _, err := s.Append(t.Context(), "k", 0, []byte("1")); return err },
		func() error { _, err := s.Put(t.Context(), "c", []byte("1"), ""); return err },
	} {
		if err := write(); !errors.Is(err, store.ErrPoisoned) || !strings.Contains(err.Error(), lockName) {
			t.Errorf("a write without the lock = %v, want ErrPoisoned that names LOCK", err)
		}
	}
	if _, err := other.Append(t.Context(), "j", 1, []byte("2")); err != nil {
		t.Errorf("Append of the one who has the lock = %v", err)
	}
}

const childEnv = "FILESTORE_TEST_DIR"

// TestSecondProcess lets another process open the folder.
func TestSecondProcess(t *testing.T) {
	if dir := os.Getenv(childEnv); dir != "" {
		s, err := Open(t.Context(), dir, Options{})
		fmt.Printf("locked=%v error=%v\n", errors.Is(err, store.ErrLocked), err)
		if err == nil {
			s.Close()
		}
		return
	}
	dir := t.TempDir()
	s := mustOpen(t, dir, healthy)
	second := mustOpen(t, dir, healthy)
	child := func() string {
		t.Helper()
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), exe, "-test.run=^TestSecondProcess$")
		cmd.Env = append(os.Environ(), childEnv+"="+dir)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	s.Close() // the other handle keeps the lock
	out := child()
	for _, want := range []string{"locked=true", dir, fmt.Sprintf("process %d", os.Getpid())} {
		if !strings.Contains(out, want) {
			t.Errorf("a second process says %q, want %q in it", out, want)
		}
	}
	second.Close()
	if out := child(); !strings.Contains(out, "error=<nil>") {
		t.Errorf("after the last Close a second process says %q", out)
	}
}
