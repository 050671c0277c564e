package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/perdure/perdure/store"
)

var _ store.Backuper = (*Store)(nil)

// backupName is the name of the database in a backup.
const backupName = "store.db"

// Backup implements store.Backuper. It includes the program's own tables. SQLite
// builds the copy row by row from one snapshot, so that it holds no remains of
// erased rows. Until that is done the WAL cannot be emptied: it grows, and a Drop
// may return ErrBusy.
func (s *Store) Backup(ctx context.Context, dir string) (url string, err error) {
	if err := s.usable(ctx); err != nil {
		return "", err
	}
	path := filepath.Join(dir, backupName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		err = f.Close()
	}
	if err == nil {
		err = s.copyInto(ctx, path)
	}
	if err == nil {
		err = syncCopy(path)
	}
	if err != nil {
		return "", s.backupFailed(ctx, dir, err)
	}
	return "sqlite:" + backupName, nil
}

// copyInto copies the database into an empty file.
func (s *Store) copyInto(ctx context.Context, path string) error {
	c, err := openConn(s.file, "rw") // SQLite refuses to copy on one that may only query
	if err != nil {
		return err
	}
	defer c.close()
	c.setBusyTimeout(0)
	if err := s.retry(ctx, time.Now(), func() error { return s.configure(c) }); err != nil {
		return err
	}
	quoted := "'" + strings.ReplaceAll(uri(path, "rw"), "'", "''") + "'"
	return s.retry(ctx, time.Now(), func() error {
		c.interruptible(ctx)
		defer c.interruptible(context.Background())
		return c.run("VACUUM INTO " + quoted)
	})
}

// syncCopy makes a copy survive a power failure.
func syncCopy(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	return syncFolder(path)
}

func (s *Store) backupFailed(ctx context.Context, dir string, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case code(err) == sqlite3.FULL || noRoom(err):
		return fmt.Errorf("%w: sqlitestore: back up %s to %s: %w; free some space there", store.ErrFull, s.file, dir, err)
	case errors.Is(err, store.ErrBusy), errors.Is(err, store.ErrClosed):
		return err
	case isDamage(err):
		return &store.CorruptError{Where: s.file, Reason: reason(err)}
	}
	return fmt.Errorf("sqlitestore: back up %s to %s: %w", s.file, dir, err)
}
