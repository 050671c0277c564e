package sqlitestore

import (
	"fmt"

	"github.com/perdure/perdure/store"
)

// applicationID is "PRDR", in the header of every file of ours.
const applicationID = 0x50524452

// format is the version of the schema. It is raised when an older binary
// could no longer read or write the file rightly.
const format = 2

// schema, as SQLite keeps it in sqlite_schema, where it is compared at open.
//
// Names are found by their unique index. What is not found there is looked up
// by sum, the checksum of the name, too: a damaged index must not make a
// journal look as if it never was.
//
// An entry's key is its journal's id and its sequence, see entryKey. Its crc, and
// a cell's, covers where it belongs too. A journal's last is its last sequence,
// -1 if it was dropped; its row stays. Data and values are text, unless they are
// no UTF-8.
var schema = []string{
	`CREATE TABLE journals (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, sum INTEGER NOT NULL, last INTEGER NOT NULL, crc INTEGER NOT NULL)`,
	`CREATE INDEX journals_sum ON journals (sum)`,
	`CREATE TABLE entries (key INTEGER PRIMARY KEY, crc INTEGER NOT NULL, data TEXT NOT NULL)`,
	`CREATE TABLE cells (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, sum INTEGER NOT NULL, version BLOB NOT NULL, crc INTEGER NOT NULL, value TEXT NOT NULL)`,
	`CREATE INDEX cells_sum ON cells (sum)`,
}

// identify reports whether the file is a store in our format with all its views,
// and returns an error if it can never be one. It changes nothing.
func (s *Store) identify(c *conn) (complete bool, err error) {
	// In one transaction, lest another process creates the schema in between.
	if err := c.exec("BEGIN"); err != nil {
		return false, err
	}
	defer c.rollback()
	_, complete, err = s.inspect(c)
	return complete, err
}

// inspect returns the format of the file, 0 if it is empty and still to be made a
// store, and whether it is ours and has all views.
func (s *Store) inspect(c *conn) (version int64, complete bool, err error) {
	id, err := pragmaInt(c, "application_id")
	if err != nil {
		return 0, false, err
	}
	if version, err = pragmaInt(c, "user_version"); err != nil {
		return 0, false, err
	}
	pages, err := pragmaInt(c, "page_count")
	if err != nil {
		return 0, false, err
	}
	encoding, err := c.pragma("encoding")
	if err != nil {
		return 0, false, err
	}
	found, err := tables(c)
	switch {
	case err != nil:
		return 0, false, err
	case encoding != "UTF-8": // SQLite would convert names and data
		return 0, false, s.foreign("because its text encoding is " + encoding)
	case id == 0 && version == 0 && len(found) == 0:
		return 0, false, nil
	case id != applicationID:
		return 0, false, s.foreign("but a database of another program")
	case version > format:
		return 0, false, fmt.Errorf("%w: sqlitestore: %s has format %d, and this binary supports formats up to %d; use a newer binary", store.ErrNewer, s.file, version, format)
	case version < 1:
		return 0, false, &store.CorruptError{Where: s.file, Reason: fmt.Sprintf("its format is %d, which does not exist", version)}
	case pages > maxPages:
		return 0, false, fmt.Errorf("%w: sqlitestore: %s has %d pages, and a store can have at most %d; move some of its threads to another store", store.ErrTooLarge, s.file, pages, maxPages)
	}
	want := schema
	if version == 1 {
		want = schema1
	}
	for _, sql := range want {
		if !found[sql] {
			return 0, false, &store.CorruptError{Where: s.file, Reason: "its schema has changed, it lacks " + sql}
		}
	}
	for _, v := range views {
		if !found[v.sql()] {
			return version, false, nil
		}
	}
	return version, version == format, nil
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

// upgrade makes an empty file, or one in an older format, a store in ours, unless
// another process did meanwhile, and replaces its views by this binary's. It is one
// transaction: if it is interrupted, the file is as it was.
func (s *Store) upgrade(c *conn) error {
	if err := c.exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	defer c.rollback()
	version, complete, err := s.inspect(c)
	if err != nil || complete {
		return err
	}
	switch version {
	case format:
	case 0:
		err = create(c)
	default:
		err = s.migrate(c)
	}
	if err == nil && version != format {
		_, err = c.pragma(fmt.Sprintf("user_version=%d", format))
	}
	for i := 0; i < len(views) && err == nil; i++ {
		err = views[i].replace(c)
	}
	if err != nil {
		return err
	}
	return c.exec("COMMIT")
}

// create makes the tables.
func create(c *conn) error {
	for _, sql := range schema {
		if err := c.run(sql); err != nil {
			return err
		}
	}
	_, err := c.pragma(fmt.Sprintf("application_id=%d", applicationID))
	return err
}
