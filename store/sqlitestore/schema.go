package sqlitestore

import (
	"fmt"

	"github.com/perdure/perdure/store"
)

// applicationID is "PRDR", in the header of every file of ours.
const applicationID = 0x50524452

// format is the version of the schema. It is raised when an older binary
// could no longer read or write the file rightly.
const format = 1

// schema, as SQLite keeps it in sqlite_schema, where it is compared at open.
//
// Names are found by their unique index. What is not found there is looked up
// by sum, the checksum of the name, too: a damaged index must not make a
// journal look as if it never was.
//
// An entry's key is its journal's id and its sequence, see entryKey. Its data
// is its checksum and its bytes, masked with the journal's key. So is a cell's
// value. A journal's last is its last sequence, -1 if it was dropped.
//
// Rows of keys are added at the end, overwritten by others of the same size,
// and never removed, so that SQLite never moves one and leaves a copy behind.
// A journal's id is that of its key, and so is a cell's; a deleted cell's is
// used again.
var schema = []string{
	`CREATE TABLE journals (id INTEGER PRIMARY KEY, name BLOB NOT NULL UNIQUE, sum INTEGER NOT NULL, last INTEGER NOT NULL, crc INTEGER NOT NULL)`,
	`CREATE INDEX journals_sum ON journals (sum)`,
	`CREATE TABLE entries (key INTEGER PRIMARY KEY, data BLOB NOT NULL)`,
	`CREATE TABLE cells (id INTEGER PRIMARY KEY, name BLOB NOT NULL UNIQUE, sum INTEGER NOT NULL, version BLOB NOT NULL, value BLOB NOT NULL)`,
	`CREATE INDEX cells_sum ON cells (sum)`,
	`CREATE TABLE keys (id INTEGER PRIMARY KEY, free INTEGER NOT NULL, key BLOB NOT NULL)`,
	`CREATE INDEX keys_free ON keys (id) WHERE free`,
}

// identify reports whether the file is empty and still to be made a store, or
// an error unless it is a store already. It changes nothing.
func (s *Store) identify(c *conn) (fresh bool, err error) {
	// In one transaction, lest another process creates the schema in between.
	if err := c.exec("BEGIN"); err != nil {
		return false, err
	}
	defer c.rollback()
	return s.inspect(c)
}

func (s *Store) inspect(c *conn) (fresh bool, err error) {
	id, err := pragmaInt(c, "application_id")
	if err != nil {
		return false, err
	}
	version, err := pragmaInt(c, "user_version")
	if err != nil {
		return false, err
	}
	found, err := tables(c)
	switch {
	case err != nil:
		return false, err
	case id == 0 && version == 0 && len(found) == 0:
		return true, nil
	case id != applicationID:
		return false, s.foreign("but the database of another program")
	case version > format:
		return false, fmt.Errorf("%w: sqlitestore: %s has format %d and this binary knows %d; use a newer binary", store.ErrNewer, s.file, version, format)
	case version != format:
		return false, &store.CorruptError{Where: s.file, Reason: fmt.Sprintf("its format is %d, which never was", version)}
	}
	for _, sql := range schema {
		if !found[sql] {
			return false, &store.CorruptError{Where: s.file, Reason: "its schema is not as it was created: no " + sql}
		}
	}
	return false, nil
}

// tables returns the statements of all tables and indexes. There may be
// others than ours: backup tools add some.
func tables(c *conn) (map[string]bool, error) {
	stmt, err := c.prepare("SELECT sql FROM sqlite_schema")
	if err != nil {
		return nil, err
	}
	defer stmt.reset()
	found := map[string]bool{}
	for {
		row, err := stmt.step()
		if err != nil || !row {
			return found, err
		}
		found[stmt.columnText(0)] = true
	}
}

// create makes an empty file a store, unless another process did meanwhile.
func (s *Store) create(c *conn) error {
	if err := c.exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	defer c.rollback()
	fresh, err := s.inspect(c)
	if err != nil || !fresh {
		return err
	}
	for _, sql := range schema {
		if err := c.exec(sql); err != nil {
			return err
		}
	}
	if _, err := c.pragma(fmt.Sprintf("application_id=%d", applicationID)); err != nil {
		return err
	}
	if _, err := c.pragma(fmt.Sprintf("user_version=%d", format)); err != nil {
		return err
	}
	return c.exec("COMMIT")
}
