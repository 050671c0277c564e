package sqlitestore

import (
	"context"
	"crypto/rand"
	"encoding/hex"

	"github.com/perdure/perdure/store"
)

func toVersion(b []byte) store.Version {
	var text [2 * versionSize]byte
	return store.Version(hex.AppendEncode(text[:0], b))
}

// Put implements store.Store.
func (s *Store) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	return s.putCell(ctx, key, value, prev, false)
}

// PutUnsynced implements store.Unsynced. It waits for the disk only if it shares
// a commit with a write that does.
func (s *Store) PutUnsynced(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	return s.putCell(ctx, key, value, prev, true)
}

func (s *Store) putCell(ctx context.Context, key string, value []byte, prev store.Version, unsynced bool) (store.Version, error) {
	if err := s.usable(ctx); err != nil {
		return "", err
	}
	if err := store.CheckPut(key, value); err != nil {
		return "", err
	}
	var version [versionSize]byte
	rand.Read(version[:])
	err := s.writer.do(&request{ctx: ctx, name: key, cell: true, unsynced: unsynced, size: len(value), apply: func(c *conn) error {
		return s.put(c, key, value, prev, version[:])
	}})
	if err != nil {
		return "", err
	}
	return toVersion(version[:]), nil
}

func (s *Store) put(c *conn, key string, value []byte, prev store.Version, version []byte) error {
	r, err := s.expect(c, key, prev)
	if err != nil {
		return err
	}
	return writeCell(c, r, []byte(key), value, version)
}

// expect looks a cell up, which has to have a version.
func (s *Store) expect(c *conn, key string, prev store.Version) (cellRow, error) {
	r, err := s.cell(c, []byte(key))
	if err == nil && r.version != prev {
		err = store.NotVersion(key, prev, r.version)
	}
	return r, err
}

// writeCell writes the cell that was found as r.
func writeCell(c *conn, r cellRow, name, value, version []byte) error {
	query := "UPDATE cells SET version = ?1, crc = ?2, value = ?3 WHERE id = ?4"
	made := r.id == 0
	if made {
		query = "INSERT INTO cells (version, crc, value, name, sum) VALUES (?1, ?2, ?3, ?4, ?5)"
	}
	stmt, err := c.prepare(query)
	if err != nil {
		return err
	}
	stmt.bindBytes(1, version)
	stmt.bindInt64(2, cellSum(name, version, value))
	stmt.bindData(3, value)
	if made {
		stmt.bindText(4, name)
		stmt.bindInt64(5, nameSum(name))
	} else {
		stmt.bindInt64(4, r.id)
	}
	return stmt.exec()
}

// Delete implements store.Store. The cell's bytes are gone from the files
// when a later Drop returns, or within a minute, see the package comment.
func (s *Store) Delete(ctx context.Context, key string, prev store.Version) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	if err := store.CheckDelete(key, prev); err != nil {
		return err
	}
	err := s.writer.do(&request{ctx: ctx, name: key, cell: true, erases: true, apply: func(c *conn) error {
		return s.delete(c, key, prev)
	}})
	if err == nil {
		s.writer.eraseLater()
	}
	return err
}

func (s *Store) delete(c *conn, key string, prev store.Version) error {
	r, err := s.expect(c, key, prev)
	if err != nil {
		return err
	}
	return removeCell(c, r)
}

func removeCell(c *conn, r cellRow) error {
	stmt, err := c.prepare("DELETE FROM cells WHERE id = ?")
	if err != nil {
		return err
	}
	stmt.bindInt64(1, r.id)
	return stmt.exec()
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, key string) (store.Cell, error) {
	if err := s.usable(ctx); err != nil {
		return store.Cell{}, err
	}
	if err := store.CheckName("cell", key); err != nil {
		return store.Cell{}, err
	}
	var cell store.Cell
	err := s.readers.do(ctx, func(c *conn) (err error) { cell, err = s.get(c, []byte(key)); return err })
	switch {
	case err == nil:
		return cell, nil
	case isDamage(err):
		return store.Cell{}, &store.CorruptError{Cell: key, Where: s.file, Reason: reason(err)}
	}
	return store.Cell{}, s.readFailed(err)
}

func (s *Store) get(c *conn, name []byte) (store.Cell, error) {
	stmt, err := c.prepare("SELECT " + cellColumns + " FROM cells WHERE name = ?")
	if err != nil {
		return store.Cell{}, err
	}
	defer stmt.reset()
	stmt.bindText(1, name)
	row, err := stmt.step()
	if err != nil {
		return store.Cell{}, err
	}
	if !row {
		if err := s.checkNoCell(c, name); err != nil {
			return store.Cell{}, err
		}
		return store.Cell{}, store.NoCell(string(name))
	}
	return s.scanCell(stmt)
}
