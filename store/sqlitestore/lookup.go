package sqlitestore

import (
	"fmt"

	"github.com/perdure/perdure/store"
)

// A head is a journal without its entries.
type head struct {
	id   int64 // 0 if the journal never was
	last int64 // -1 if it was dropped
}

func (h *head) dropped() bool { return h.last < 0 }

const headColumns = "j.id, j.last, j.crc"

// scanHead returns the head in the first columns of a row.
func (s *Store) scanHead(stmt *stmt, name []byte) (head, error) {
	h := head{id: stmt.columnInt64(0), last: stmt.columnInt64(1)}
	if stmt.columnInt64(2) != headSum(h.id, h.last, name) {
		return head{}, s.badJournal(string(name), 1, fmt.Sprintf("table journals, id %d", h.id), "its head does not match its checksum")
	}
	return h, nil
}

// head looks a journal up.
func (s *Store) head(c *conn, name []byte) (head, error) {
	stmt, err := c.prepare("SELECT " + headColumns + " FROM journals j WHERE j.name = ?")
	if err != nil {
		return head{}, err
	}
	defer stmt.reset()
	stmt.bindText(1, name)
	row, err := stmt.step()
	if err != nil {
		return head{}, err
	}
	if row {
		return s.scanHead(stmt, name)
	}
	return head{}, s.checkNoJournal(c, name)
}

// checkNoJournal returns an error if a journal that the index of names does
// not have is there nevertheless.
func (s *Store) checkNoJournal(c *conn, name []byte) error {
	stmt, err := c.prepare("SELECT " + headColumns + ", j.name FROM journals j WHERE j.sum = ?")
	if err != nil {
		return err
	}
	defer stmt.reset()
	stmt.bindInt64(1, nameSum(name))
	for {
		row, err := stmt.step()
		if err != nil || !row {
			return err
		}
		other := stmt.columnBytes(3)
		if _, err := s.scanHead(stmt, other); err != nil || string(other) == string(name) {
			return s.badJournal(string(name), 1, fmt.Sprintf("table journals, id %d", stmt.columnInt64(0)), "its name does not match its checksum")
		}
	}
}

// A cellRow is a cell without its value.
type cellRow struct {
	id      int64 // 0 if there is no such cell
	version store.Version
}

// cell looks a cell up.
func (s *Store) cell(c *conn, name []byte) (cellRow, error) {
	stmt, err := c.prepare("SELECT id, version FROM cells WHERE name = ?")
	if err != nil {
		return cellRow{}, err
	}
	defer stmt.reset()
	stmt.bindText(1, name)
	row, err := stmt.step()
	if err != nil {
		return cellRow{}, err
	}
	if !row {
		return cellRow{}, s.checkNoCell(c, name)
	}
	var version [versionSize]byte
	return cellRow{id: stmt.columnInt64(0), version: toVersion(stmt.columnInto(1, version[:]))}, nil
}

// cellColumns are what scanCell reads.
const cellColumns = "id, name, version, crc, value"

// scanCell returns the cell in the first columns of a row.
func (s *Store) scanCell(stmt *stmt) (store.Cell, error) {
	var buf [versionSize]byte
	name, version, value := stmt.columnText(1), stmt.columnInto(2, buf[:]), stmt.columnBytes(4)
	if stmt.columnInt64(3) == cellSum(name, version, value) {
		return store.Cell{Key: name, Value: value, Version: toVersion(version)}, nil
	}
	err := s.badCell(name, stmt.columnInt64(0), "it does not match its checksum")
	err.Version = toVersion(version) // as cell finds it, which does not look at the value
	return store.Cell{}, err
}

// checkNoCell is checkNoJournal for cells.
func (s *Store) checkNoCell(c *conn, name []byte) error {
	stmt, err := c.prepare("SELECT " + cellColumns + " FROM cells WHERE sum = ?")
	if err != nil {
		return err
	}
	defer stmt.reset()
	stmt.bindInt64(1, nameSum(name))
	for {
		row, err := stmt.step()
		if err != nil || !row {
			return err
		}
		if cell, err := s.scanCell(stmt); err != nil || cell.Key == string(name) {
			return s.badCell(string(name), stmt.columnInt64(0), "its key does not match its checksum")
		}
	}
}

func (s *Store) badJournal(name string, seq uint64, where, reason string) error {
	return &store.CorruptError{Journal: name, Seq: seq, Where: s.file + ", " + where, Reason: reason}
}

func (s *Store) badCell(name string, id int64, reason string) *store.CorruptError {
	return &store.CorruptError{Cell: name, Where: fmt.Sprintf("%s, table cells, id %d", s.file, id), Reason: reason}
}
