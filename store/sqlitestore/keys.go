package sqlitestore

import (
	"crypto/rand"
	"fmt"

	"zombiezen.com/go/sqlite"

	"github.com/perdure/perdure/store"
)

// addKey adds a key at the end of its table and returns its id. The other
// tables are asked too: a damaged row that strayed to the next id must not be
// in the way of all that is new.
func (s *Store) addKey(c *sqlite.Conn, key [keySize]byte) (int64, error) {
	stmt, err := c.Prepare(`SELECT max(
		ifnull((SELECT max(id) FROM keys WHERE id <= ?1), 0),
		ifnull((SELECT max(id) FROM journals WHERE id <= ?1), 0),
		ifnull((SELECT max(id) FROM cells WHERE id <= ?1), 0))`)
	if err != nil {
		return 0, err
	}
	stmt.BindInt64(1, maxID)
	if _, err := stmt.Step(); err != nil {
		return 0, err
	}
	id := stmt.ColumnInt64(0) + 1
	stmt.Reset()
	if id > maxID {
		return 0, fmt.Errorf("%w: sqlitestore: %s has held %d journals, the most it can; begin another", store.ErrTooLarge, s.file, int64(maxID))
	}
	return id, insert(c, "INSERT INTO keys (id, free, key) VALUES (?1, 0, ?2)", id, key[:])
}

// setKey overwrites a key in place.
func setKey(c *sqlite.Conn, id int64, free bool, key [keySize]byte) error {
	stmt, err := c.Prepare("UPDATE keys SET free = ?2, key = ?3 WHERE id = ?1")
	if err != nil {
		return err
	}
	stmt.BindInt64(1, id)
	stmt.BindBool(2, free)
	stmt.BindBytes(3, key[:])
	_, err = stmt.Step()
	return err
}

// cellKey makes a new key for a cell, where a deleted one was if there is such
// a place.
func (s *Store) cellKey(c *sqlite.Conn) (id int64, key [keySize]byte, err error) {
	rand.Read(key[:])
	// Whether it is free is asked twice: a damaged row or index must not cost
	// another its key.
	stmt, err := c.Prepare(`SELECT id FROM keys k WHERE free
		AND NOT EXISTS (SELECT 1 FROM journals j WHERE j.id = k.id)
		AND NOT EXISTS (SELECT 1 FROM cells c WHERE c.id = k.id) LIMIT 1`)
	if err != nil {
		return 0, key, err
	}
	row, err := stmt.Step()
	if err != nil {
		return 0, key, err
	}
	if !row {
		id, err = s.addKey(c, key)
		return id, key, err
	}
	id = stmt.ColumnInt64(0)
	stmt.Reset()
	return id, key, setKey(c, id, false, key)
}
