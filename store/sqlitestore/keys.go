package sqlitestore

import (
	"crypto/rand"
	"fmt"

	"github.com/perdure/perdure/store"
)

// addKey adds a key at the end of its table and returns its id. The other
// tables are asked too: a damaged row that strayed to the next id must not be
// in the way of all that is new.
func (s *Store) addKey(c *conn, key [keySize]byte) (int64, error) {
	stmt, err := c.prepare(`SELECT max(
		ifnull((SELECT max(id) FROM keys WHERE id <= ?1), 0),
		ifnull((SELECT max(id) FROM journals WHERE id <= ?1), 0),
		ifnull((SELECT max(id) FROM cells WHERE id <= ?1), 0))`)
	if err != nil {
		return 0, err
	}
	stmt.bindInt64(1, maxID)
	if _, err := stmt.step(); err != nil {
		return 0, err
	}
	id := stmt.columnInt64(0) + 1
	stmt.reset()
	if id > maxID {
		return 0, fmt.Errorf("%w: sqlitestore: %s has held %d journals, the most it can; begin another", store.ErrTooLarge, s.file, int64(maxID))
	}
	return id, insert(c, "INSERT INTO keys (id, free, key) VALUES (?1, 0, ?2)", id, key[:])
}

// setKey overwrites a key in place.
func setKey(c *conn, id, free int64, key [keySize]byte) error {
	stmt, err := c.prepare("UPDATE keys SET free = ?2, key = ?3 WHERE id = ?1")
	if err != nil {
		return err
	}
	stmt.bindInt64(1, id)
	stmt.bindInt64(2, free)
	stmt.bindBytes(3, key[:])
	return stmt.exec()
}

// cellKey makes a new key for a cell, where a deleted one was if there is such
// a place.
func (s *Store) cellKey(c *conn) (id int64, key [keySize]byte, err error) {
	rand.Read(key[:])
	// Whether it is free is asked twice: a damaged row or index must not cost
	// another its key.
	stmt, err := c.prepare(`SELECT id FROM keys k WHERE free
		AND NOT EXISTS (SELECT 1 FROM journals j WHERE j.id = k.id)
		AND NOT EXISTS (SELECT 1 FROM cells c WHERE c.id = k.id) LIMIT 1`)
	if err != nil {
		return 0, key, err
	}
	row, err := stmt.step()
	if err != nil {
		return 0, key, err
	}
	if !row {
		id, err = s.addKey(c, key)
		return id, key, err
	}
	id = stmt.columnInt64(0)
	stmt.reset()
	return id, key, setKey(c, id, 0, key)
}
