package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/perdure/perdure/store"
)

// openFirst opens the connection that writes. It looks at the file before it
// changes anything, and creates the schema in an empty one.
func (s *Store) openFirst(ctx context.Context) (*conn, error) {
	c, err := openConn(s.file, "rwc")
	if err != nil {
		return nil, s.cannotOpen(err)
	}
	c.setBusyTimeout(0)
	err = s.prepareFirst(ctx, c)
	if err == nil {
		err = c.findWAL()
	}
	if err != nil {
		c.close()
		s.clearMark()
		return nil, err
	}
	return c, nil
}

func (s *Store) prepareFirst(ctx context.Context, c *conn) error {
	complete := false
	err := s.retry(ctx, time.Now(), func() (err error) { complete, err = s.identify(c); return err })
	if err == nil {
		err = s.setMark()
	}
	if err != nil {
		return s.cannotOpen(err)
	}
	if err := s.retry(ctx, time.Now(), func() error { return s.configure(c) }); err != nil {
		return s.cannotOpen(err)
	}
	if !complete {
		if err := s.retry(ctx, time.Now(), func() error { return s.upgrade(c) }); err != nil {
			return s.cannotOpen(err)
		}
		return nil
	}
	// SQLite opens a file that may not be written all the same, and says so at
	// the first write, even of nothing. If the file is only locked, it may be.
	if err := c.exec("DELETE FROM entries WHERE false"); err != nil && !isBusy(err) {
		return s.cannotOpen(err)
	}
	return nil
}

// openReader opens a further connection.
func (s *Store) openReader(ctx context.Context) (*conn, error) {
	c, err := openConn(s.file, "rw")
	if err != nil {
		return nil, s.cannotOpen(err)
	}
	c.setBusyTimeout(0)
	err = s.retry(ctx, time.Now(), func() error { return s.configure(c) })
	if err == nil {
		_, err = c.pragma("query_only=ON")
	}
	if err != nil {
		c.close()
		return nil, s.cannotOpen(err)
	}
	return c, nil
}

// Inspect opens a database file read-only and returns the first value that each
// query yields, or the text of its error. It is for tools that look at a store
// from outside, even one that Open refuses.
func Inspect(path string, queries ...string) ([]string, error) {
	file, err := checkPath(path)
	if err != nil {
		return nil, err
	}
	c, err := openConn(file, "ro")
	if err != nil {
		return nil, fmt.Errorf("sqlitestore: open %s: %w", file, err)
	}
	defer c.close()
	answers := make([]string, len(queries))
	for i, query := range queries {
		if answers[i], err = c.value(query); err != nil {
			answers[i] = err.Error()
		}
	}
	return answers, nil
}

// configure sets what a connection depends on, and reads back what its
// durability does: a pragma that SQLite does not like is no error to it.
func (s *Store) configure(c *conn) error {
	type setting struct{ set, name, want string }
	settings := []setting{
		{"journal_mode=WAL", "journal_mode", "wal"},
		{"synchronous=FULL", "synchronous", "2"},
		{"secure_delete=ON", "secure_delete", "1"},
		{"wal_autocheckpoint=0", "wal_autocheckpoint", "0"}, // see writer.checkpoint
		{"journal_size_limit=67108864", "", ""},
		{fmt.Sprintf("max_page_count=%d", maxPages), "", ""},
		{"cell_size_check=ON", "", ""},
		{"trusted_schema=OFF", "", ""},
	}
	if s.opts.Synchronous == Normal {
		settings[1] = setting{"synchronous=NORMAL", "synchronous", "1"}
	}
	if runtime.GOOS == "darwin" {
		settings = append(settings,
			setting{"fullfsync=ON", "fullfsync", "1"},
			setting{"checkpoint_fullfsync=ON", "checkpoint_fullfsync", "1"})
	}
	for _, x := range settings {
		if _, err := c.pragma(x.set); err != nil {
			return err
		}
		if x.name == "" {
			continue
		}
		got, err := c.pragma(x.name)
		if err != nil {
			return err
		}
		if got != x.want {
			return fmt.Errorf("PRAGMA %s had no effect, the value is still %q; put the file on a local disk", x.set, got)
		}
	}
	return nil
}

func pragmaInt(c *conn, text string) (int64, error) {
	value, err := c.pragma(text)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(value, 10, 64)
}

// The pauses of retry.
const (
	leastPause = 50 * time.Microsecond
	mostPause  = 500 * time.Microsecond
)

// retry repeats op while another process's lock is in its way: in short,
// random and never growing steps, so that who came first has the better
// chance. It ends with the context, with the store, or when BusyTimeout has
// passed since the call began.
func (s *Store) retry(ctx context.Context, since time.Time, op func() error) error {
	for {
		err := op()
		if !isBusy(err) {
			return err
		}
		waited := time.Since(since)
		if waited > s.opts.BusyTimeout {
			return fmt.Errorf("%w: sqlitestore: %s is busy, for %v by now; look for a program that keeps a transaction open",
				store.ErrBusy, s.file, waited.Round(time.Millisecond))
		}
		if err := s.pause(ctx, leastPause+rand.N(mostPause-leastPause)); err != nil {
			return err
		}
	}
}

// pause waits for d, unless the context or the store ends before.
func (s *Store) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closing:
		return store.ErrClosed
	}
}

func isBusy(err error) bool {
	c := code(err)
	return c == sqlite3.BUSY || c == sqlite3.PROTOCOL
}

// isDamage reports whether SQLite found its file in disorder.
func isDamage(err error) bool {
	c := code(err)
	return c == sqlite3.CORRUPT || c == sqlite3.NOTADB
}

// cannotOpen explains an error of opening to whoever chose the path.
func (s *Store) cannotOpen(err error) error {
	for _, known := range []error{store.ErrForeign, store.ErrNewer, store.ErrCorrupt, store.ErrTooLarge, store.ErrFull, store.ErrClosed, store.ErrBusy, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, known) {
			return err
		}
	}
	if full(err) {
		return s.failed("open", err)
	}
	switch code(err) {
	case sqlite3.NOTADB:
		return s.foreign("because it is not a SQLite database")
	case sqlite3.CORRUPT:
		return &store.CorruptError{Where: s.file, Reason: "its first pages are damaged"}
	case sqlite3.CANTOPEN, sqlite3.PERM, sqlite3.AUTH, sqlite3.READONLY:
		return fmt.Errorf("sqlitestore: cannot write to %s or its folder; check the permissions of both: %w (%s)", s.file, fs.ErrPermission, reason(err))
	}
	return s.failed("open", err)
}

func (s *Store) foreign(why string) error {
	return fmt.Errorf("%w: sqlitestore: %s is not a Perdure store %s; choose another path", store.ErrForeign, s.file, why)
}

// failed wraps an error of SQLite that is neither the caller's nor damage.
func (s *Store) failed(doing string, err error) error {
	if full(err) {
		return fmt.Errorf("%w: sqlitestore: %s %s: %s; free some disk space", store.ErrFull, doing, s.file, reason(err))
	}
	return fmt.Errorf("sqlitestore: %s %s: %w", doing, s.file, err)
}

func full(err error) bool { return code(err) == sqlite3.FULL || noRoom(err) }

// reason is SQLite's own text for an error, with its code.
func reason(err error) string {
	var extended sqlite3.ExtendedErrorCode
	errors.As(err, &extended)
	return fmt.Sprintf("%s (SQLite's code %d)", strings.TrimPrefix(err.Error(), "sqlite3: "), extended)
}
