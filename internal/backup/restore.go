package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

// beside are the endings of files that belong to a SQLite database. One that an
// earlier database left behind would be taken for part of the restored one.
var beside = []string{"", "-wal", "-shm", "-journal", "-scrub", "-peers"}

// Restore copies the store of a backup to the new path of a URL, sqlite:FILE or
// file:DIR, as url and path say, and marks it as restored. Open opens the copy, with
// the keys of a sealed store. Whoever interrupts it finds nothing at the path.
func Restore(ctx context.Context, dir, url, path string, open func(ctx context.Context, url string) (store.Store, error)) (*Manifest, error) {
	m, err := Read(dir)
	if err != nil {
		return nil, err
	}
	if err := asFull(m.restore(ctx, dir, url, path, open)); err != nil {
		return nil, fmt.Errorf("backup: restore %s: %w", dir, err)
	}
	return m, nil
}

func (m *Manifest) restore(ctx context.Context, dir, url, path string, open func(ctx context.Context, url string) (store.Store, error)) error {
	scheme, name, _ := strings.Cut(m.Store, ":")
	if !strings.HasPrefix(url, scheme+":") || path == "" {
		return fmt.Errorf("%w: it is a backup of a store %s:, and can only be restored to another: give --store %s:PATH, and move that with perdure migrate", fault.ErrInvalid, scheme, scheme)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	for _, ending := range beside {
		if err := CheckNew(path + ending); err != nil {
			return err
		}
	}
	partial, err := os.MkdirTemp(filepath.Dir(path), "."+filepath.Base(path)+"-partial-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(partial)
	if err := m.copyTo(ctx, dir, partial); err != nil {
		return err
	}
	s, err := open(ctx, m.urlIn(partial))
	if err != nil {
		return err
	}
	if err := errors.Join(threads.MarkRestored(ctx, s, m.Taken), s.Close()); err != nil {
		return err
	}
	for _, ending := range beside[1:4] {
		if err := CheckNew(filepath.Join(partial, name+ending)); err != nil {
			return fmt.Errorf("the copy is still in use: %w", err)
		}
	}
	if err := CheckNew(path); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(partial, name), path); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path))
}

// copyTo copies the files of a backup, and compares them with what was written.
func (m *Manifest) copyTo(ctx context.Context, from, to string) error {
	found, sum := new(Manifest), sha256.New()
	folders := map[string]bool{to: true}
	err := each(from, func(name, path string, info fs.FileInfo) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		target := filepath.Join(to, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
			return err
		}
		for d := filepath.Dir(target); !folders[d]; d = filepath.Dir(d) {
			folders[d] = true
		}
		fmt.Fprintf(sum, "%q %d\n", name, info.Size())
		n, err := copyFile(target, path, sum)
		found.Files, found.Bytes = found.Files+1, found.Bytes+n
		return err
	})
	if err != nil {
		return err
	}
	for _, empty := range emptyFolders(from) { // that a store needs to have
		if err := os.MkdirAll(filepath.Join(to, empty), 0o700); err != nil {
			return err
		}
	}
	for d := range folders {
		if err := syncFolder(d); err != nil {
			return err
		}
	}
	found.SHA256 = hex.EncodeToString(sum.Sum(nil))
	return m.matches(found)
}

// emptyFolders returns the folders in a backup, at any depth.
func emptyFolders(dir string) (names []string) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if name, relErr := filepath.Rel(dir, path); err == nil && relErr == nil && d.IsDir() {
			names = append(names, name)
		}
		return nil
	})
	return names
}

// copyFile copies a file, also to sum, and syncs the copy.
func copyFile(to, from string, sum io.Writer) (n int64, err error) {
	in, err := os.Open(from)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	n, err = io.Copy(io.MultiWriter(out, sum), in)
	return n, errors.Join(err, out.Sync(), out.Close())
}
