package backup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/perdure/perdure/internal/archive"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

// urlIn returns the URL of a backup's store in a folder.
func (m *Manifest) urlIn(dir string) string {
	scheme, name, _ := strings.Cut(m.Store, ":")
	return scheme + ":" + filepath.Join(dir, name)
}

// check opens a copy, reads everything in it, and fills in how much that is.
func (m *Manifest) check(ctx context.Context, dir string) error {
	s, err := store.Open(ctx, m.urlIn(dir))
	if err != nil {
		return err
	}
	err = m.count(ctx, s)
	if err == nil {
		err = m.verify(ctx, s)
	}
	if err := errors.Join(err, s.Close()); err != nil {
		return err
	}
	// A file store leaves the id of this process, which is not synced and of no use.
	_, path, _ := strings.Cut(m.urlIn(dir), ":")
	err = os.Remove(filepath.Join(path, "LOCK"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	if err == nil {
		err = syncFolder(path)
	}
	return err
}

// count reads all entries and cells. Those of a damaged store are an error, so that
// nobody learns of it when the backup is needed.
func (m *Manifest) count(ctx context.Context, s store.Store) error {
	for name, err := range s.Journals(ctx, "") {
		if err != nil {
			return err
		}
		m.Journals++
		for _, err := range s.Read(ctx, name, 0) {
			if err != nil {
				return err
			}
			m.Entries++
		}
	}
	for cell, err := range s.List(ctx, "", "") {
		if err != nil {
			return err
		}
		m.Cells++
		m.Sealed = m.Sealed || strings.HasPrefix(cell.Key, "~seal/")
	}
	return nil
}

// verify checks every thread along its hash chain, with its blobs.
func (m *Manifest) verify(ctx context.Context, s store.Store) error {
	_, err := s.Get(ctx, threads.SaltCell)
	if m.Sealed || errors.Is(err, store.ErrNotFound) {
		return nil // nothing that can be read, or no threads
	}
	t, err := threads.NewCopy(ctx, s, slog.New(slog.DiscardHandler), time.Second)
	if err != nil {
		return err
	}
	a := archive.New(t.Tenant(""), nil)
	for key, err := range s.Journals(ctx, threads.JournalKey("")) {
		name, ok := strings.CutPrefix(key, threads.JournalKey(""))
		if err != nil || !ok {
			return err
		}
		v, err := a.VerifyNamed(ctx, name)
		switch {
		case errors.Is(err, fault.ErrErased): // upkeep finishes the erase
			continue
		case err != nil:
			return fmt.Errorf("verifying %s: %w", key, err)
		case !v.OK():
			return fmt.Errorf("%w: thread %s: %s", fault.ErrCorrupt, cmp.Or(v.Thread, key), v.Problem)
		}
		m.Threads++
	}
	return nil
}
