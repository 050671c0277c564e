package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure/store"
)

func init() {
	store.Register("sqlite", func(ctx context.Context, url string) (store.Store, error) {
		url, shared := strings.CutSuffix(url, store.SharedFolder)
		path, err := pathOf(url)
		if err != nil {
			return nil, err
		}
		return Open(ctx, path, Options{SharedFolder: shared})
	})
}

// pathOf returns the path in sqlite:FILE or sqlite:///FILE.
func pathOf(url string) (string, error) {
	path := strings.TrimPrefix(url, "sqlite:")
	if strings.HasPrefix(path, "///") {
		return path[2:], nil
	}
	if strings.HasPrefix(path, "//") {
		return "", fmt.Errorf("%w: sqlitestore: %q names a host; use sqlite:app.db, or sqlite:///folder/app.db for an absolute path", store.ErrInvalid, url)
	}
	return path, nil
}

// Synchronous says when SQLite waits for the disk.
type Synchronous int

const (
	// Full waits at every commit, so that writes survive a power failure.
	Full Synchronous = iota

	// Normal waits only at checkpoints. A power failure may undo the last
	// writes; the death of the process does not.
	Normal
)

// Options configures Open. The zero value is the most durable.
type Options struct {
	Synchronous Synchronous

	// BusyTimeout is how long a call waits while another process holds the
	// database's lock; 0 means 10 seconds.
	BusyTimeout time.Duration

	// SharedFolder allows a new store to be created in a folder to which every
	// user of the machine may write: see [store.CheckFolder].
	SharedFolder bool
}

// Store is a handle on a database file.
type Store struct {
	*store.Hub
	file       string      // absolute, and without links on the way to it
	place      fs.FileInfo // of the file when it was opened
	opts       Options
	durability store.Durability
	closed     atomic.Bool
	closing    chan struct{} // closed by Close: ends all waiting
	writer     *writer
	readers    *readers
	poller     poller
	peers      *peers
}

var (
	_ store.Store   = (*Store)(nil)
	_ store.Watcher = (*Store)(nil)
	_ store.Caster  = (*Store)(nil)
	_ store.Durable = (*Store)(nil)
	_ store.Batcher = (*Store)(nil)

	_ store.Unsynced = (*Store)(nil)

	_ store.Transactor = (*Store)(nil)
)

// Open opens the store in the database file path, and creates the file, accessible
// only to its owner, if it does not exist. Its folder must exist. Open returns
// ErrForeign if the file holds something else, and ErrNewer if its format is
// newer; neither file is changed.
func Open(ctx context.Context, path string, o Options) (*Store, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if o.BusyTimeout <= 0 {
		o.BusyTimeout = 10 * time.Second
	}
	file, err := checkPath(path)
	if err != nil {
		return nil, err
	}
	s := &Store{Hub: store.NewHub(), file: file, opts: o, closing: make(chan struct{})}
	if err := s.createFile(); err != nil {
		return nil, err
	}
	// What is beside the database is beside the file itself, not beside a link.
	if s.file, err = filepath.EvalSymlinks(file); err != nil {
		return nil, fmt.Errorf("sqlitestore: cannot open %s, or what it is a link to: %w", file, err)
	}
	if s.place, err = os.Stat(s.file); err != nil {
		return nil, s.failed("open", err)
	}
	if n := countNames(s.place); n > 1 {
		return nil, fmt.Errorf("%w: sqlitestore: %s has %d names, which are hard links; SQLite would keep a WAL beside each, and writes would be lost; remove the others", store.ErrInvalid, s.file, n)
	}
	remains, err := s.findRemains()
	if err != nil {
		return nil, s.cannotOpen(err)
	}
	conn, err := s.openFirst(ctx)
	if err != nil {
		return nil, err
	}
	s.writer = newWriter(s, conn)
	s.readers = newReaders(s)
	s.peers = newPeers(s)
	s.durability = store.Power
	if o.Synchronous != Full || inMemory(s.file) {
		s.durability = store.Process
	}
	// A process that died may have left erased bytes in the WAL, and a commit
	// that it did not live to sync. Who opens the store first after it removes
	// the ones and syncs the other before anyone reads it.
	if remains {
		err = s.retry(ctx, time.Now(), func() error { return s.removeRemains(conn) })
	}
	if err == nil {
		_, err = s.writer.copyWAL("TRUNCATE", 0)
	}
	if err == nil {
		err = syncFolder(s.file)
	}
	if err != nil {
		s.Close()
		return nil, s.cannotOpen(err)
	}
	return s, nil
}

// createFile makes an empty file that only its owner may read and write,
// unless there is a file. SQLite gives the files beside it the same mode.
func (s *Store) createFile() error {
	if _, err := os.Stat(s.file); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if !s.opts.SharedFolder {
		if err := store.CheckFolder(filepath.Dir(s.file)); err != nil {
			return fmt.Errorf("sqlitestore: %w", err)
		}
	}
	f, err := os.OpenFile(s.file, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil // another process was faster
	}
	if err == nil {
		err = errors.Join(f.Chmod(0o600), f.Close()) // whatever the umask is
	}
	if err != nil {
		return s.failed("create", err)
	}
	return nil
}

// checkPath answers what a stranger gets wrong, without opening the file.
func checkPath(path string) (string, error) {
	if path == "" {
		return "", fmt.Errorf("%w: sqlitestore: the path of the database is empty; use one like sqlite:app.db", store.ErrInvalid)
	}
	if strings.ContainsRune(path, 0) {
		return "", fmt.Errorf("%w: sqlitestore: the path %q contains a NUL byte", store.ErrInvalid, path)
	}
	// An absolute path is never one of SQLite's special names, like :memory:.
	file, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("sqlitestore: cannot make the path %s absolute: %w", path, err)
	}
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Stat(filepath.Dir(file)); err != nil {
			return "", fmt.Errorf("sqlitestore: cannot create %s; create its folder first: %w", file, err)
		}
	case err != nil:
		return "", fmt.Errorf("sqlitestore: cannot open %s: %w", file, err)
	case info.IsDir():
		return "", fmt.Errorf("%w: sqlitestore: %s is a folder; choose a file in it, such as %s", store.ErrInvalid, file, filepath.Join(path, "app.db"))
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%w: sqlitestore: %s is not a regular file; choose another path", store.ErrForeign, file)
	}
	return file, nil
}

// Durability implements store.Durable.
func (s *Store) Durability() store.Durability { return s.durability }

func (s *Store) usable(ctx context.Context) error {
	if s.closed.Load() {
		return store.ErrClosed
	}
	return ctx.Err()
}

// Close implements store.Store. It waits for writes that are being committed;
// those that wait for another process's lock fail. An error means that the bytes
// of deleted cells may still be in the WAL.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.Stop()
	close(s.closing)
	s.poller.wait()
	s.readers.close()
	err := s.writer.close()
	s.clearMark()
	s.peers.close() // after the last write
	return err
}
