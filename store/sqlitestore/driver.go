package sqlitestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
	"unsafe"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/vfs"
)

// conn is a connection that keeps the statements it has prepared. It is for
// one goroutine at a time.
type conn struct {
	c     *sqlite3.Conn
	stmts map[string]*stmt
	wal   *walFile // nil before findWAL

	hasGuard bool   // see guard
	guarded  bool   // a statement of the program runs
	defines  bool   // it defines a table
	denied   string // what it may not do
}

// connMemory is the most memory that a connection may have. It is reserved, so
// that a process whose address space is limited can have some connections.
// SQLite keeps 2 MB of pages, and needs little besides.
const connMemory = 32 << 20

// openConn opens a connection through disk, see there, in one of SQLite's
// modes: ro, rw, or rwc to create the file.
func openConn(file, mode string) (c *conn, err error) {
	defer func() {
		if p := recover(); p != nil { // there may be no memory to reserve
			err = fmt.Errorf("SQLite's driver panicked: %v", p)
		}
	}()
	ctx := sqlite3.WithMaxMemory(context.Background(), connMemory)
	raw, err := sqlite3.OpenContext(ctx, uri(file, mode))
	if err != nil {
		return nil, err
	}
	return &conn{c: raw, stmts: map[string]*stmt{}}, nil
}

// uri names an absolute path to SQLite, whatever characters it has.
func uri(file, mode string) string {
	path := filepath.ToSlash(file)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // C:/folder
	}
	u := url.URL{Scheme: "file", Path: path, RawQuery: "mode=" + mode + "&vfs=" + diskName}
	return u.String()
}

// close finalizes the statements and closes the connection.
func (c *conn) close() error {
	for _, s := range slices.Collect(c.c.Stmts()) {
		s.Close()
	}
	return c.c.Close()
}

// interruptible lets the end of ctx interrupt statements from now on.
func (c *conn) interruptible(ctx context.Context) { c.c.SetInterrupt(ctx) }

// setBusyTimeout is how long SQLite itself waits for a lock.
func (c *conn) setBusyTimeout(d time.Duration) { c.c.BusyTimeout(d) }

// prepare returns a statement, ready to be bound, that stays prepared.
func (c *conn) prepare(query string) (*stmt, error) {
	if s := c.stmts[query]; s != nil {
		s.reset()
		return s, nil
	}
	s, _, err := c.c.PrepareFlags(query, sqlite3.PREPARE_PERSISTENT)
	if err != nil {
		return nil, err
	}
	c.stmts[query] = &stmt{s: s}
	return c.stmts[query], nil
}

// run executes a statement that is not needed again.
func (c *conn) run(query string) error { return c.c.Exec(query) }

// exec runs a statement without parameters and rows that matter.
func (c *conn) exec(query string) error {
	s, err := c.prepare(query)
	if err != nil {
		return err
	}
	return s.exec()
}

func (c *conn) pragma(text string) (string, error) { return c.value("PRAGMA " + text) }

// value runs a statement once and returns the first column of its first row.
func (c *conn) value(query string) (string, error) {
	s, _, err := c.c.Prepare(query)
	if err != nil {
		return "", err
	}
	defer s.Close()
	if !s.Step() {
		return "", s.Err()
	}
	return s.ColumnText(0), nil
}

// findWAL finds the WAL of a connection that has read or written.
func (c *conn) findWAL() error {
	found, err := c.c.FileControl("main", sqlite3.FCNTL_JOURNAL_POINTER)
	if err != nil {
		return err
	}
	for {
		switch f := found.(type) {
		case *walFile:
			c.wal = f
			return nil
		case vfs.FileUnwrap:
			found = f.Unwrap()
		default:
			return fmt.Errorf("the WAL has the unexpected type %T", f)
		}
	}
}

// commit commits a transaction, and writes its frames together. Only a commit may
// do so: what a transaction wrote to the WAL before can be rolled back, and must
// not be written when another process has the lock.
func (c *conn) commit() error {
	c.wal.gather = true
	err := c.exec("COMMIT")
	c.wal.gather = false
	if err != nil {
		c.wal.held = c.wal.held[:0]
		return err
	}
	return c.wal.flush() // nothing, since the commit's last frame was written
}

// rollback ends a transaction whose outcome is that nothing is written.
// SQLite has already done so after some errors.
func (c *conn) rollback() {
	if !c.c.GetAutocommit() {
		c.exec("ROLLBACK")
	}
}

// forgetPages empties the cache of pages.
func (c *conn) forgetPages() error {
	_, err := c.c.FileControl("main", sqlite3.FCNTL_RESET_CACHE)
	return err
}

// changes returns how many rows the last statement changed.
func (c *conn) changes() int64 { return c.c.Changes() }

// stmt is a prepared statement. What goes wrong in binding it, step tells.
type stmt struct {
	s   *sqlite3.Stmt
	bad error
}

func (s *stmt) bindInt64(param int, value int64)  { s.bound(s.s.BindInt64(param, value)) }
func (s *stmt) bindBytes(param int, value []byte) { s.bound(s.s.BindBlob(param, value)) }

// bindText does not copy value into a string: SQLite has its own copy when the
// call returns.
func (s *stmt) bindText(param int, value []byte) {
	s.bound(s.s.BindText(param, unsafe.String(unsafe.SliceData(value), len(value))))
}

// bindData binds what a person can read in SQLite's shell as text.
func (s *stmt) bindData(param int, value []byte) {
	if utf8.Valid(value) && bytes.IndexByte(value, 0) < 0 {
		s.bindText(param, value)
	} else {
		s.bindBytes(param, value)
	}
}

func (s *stmt) bound(err error) {
	if s.bad == nil {
		s.bad = err
	}
}

// step goes to the next row, and reports whether there is one.
func (s *stmt) step() (row bool, err error) {
	if s.bad != nil {
		return false, s.bad
	}
	if s.s.Step() {
		return true, nil
	}
	if err := s.s.Err(); err != nil {
		s.s.Reset()
		return false, err
	}
	return false, nil
}

// exec runs a statement whose rows do not matter.
func (s *stmt) exec() error {
	if s.bad != nil {
		return s.bad
	}
	return s.s.Exec()
}

// reset ends the statement's hold on the database.
func (s *stmt) reset() {
	s.s.Reset() // its error is that of the last step
	s.bad = nil
}

func (s *stmt) isNull(col int) bool       { return s.s.ColumnType(col) == sqlite3.NULL }
func (s *stmt) columnInt64(col int) int64 { return s.s.ColumnInt64(col) }
func (s *stmt) columnText(col int) string { return s.s.ColumnText(col) }

// columnInto returns a column in buf, if it is large enough.
func (s *stmt) columnInto(col int, buf []byte) []byte { return s.s.ColumnBlob(col, buf[:0]) }

// columnBytes returns a column in memory of its own.
func (s *stmt) columnBytes(col int) []byte { return s.s.ColumnBlob(col, []byte{}) }

// code returns SQLite's primary code for an error, 0 if it is none of its own.
func code(err error) sqlite3.ErrorCode {
	var c sqlite3.ErrorCode
	errors.As(err, &c)
	return c
}
