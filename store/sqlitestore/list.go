package sqlitestore

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"github.com/perdure/perdure/store"
)

// Journals implements store.Store.
func (s *Store) Journals(ctx context.Context, after string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		l := listing{s: s, table: "journals", from: after + "\x00"}
		for !l.end {
			var names []string
			err := s.readers.do(ctx, func(c *conn) (err error) { names, err = l.names(c); return err })
			for _, name := range names {
				if err := s.usable(ctx); err != nil {
					yield("", err)
					return
				}
				if !yield(name, nil) {
					return
				}
			}
			if err := l.skip(ctx, err); err != nil {
				yield("", s.readFailed(err))
				return
			}
		}
		if l.damage != nil {
			yield("", l.damage)
		}
	}
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[store.Cell, error] {
	return func(yield func(store.Cell, error) bool) {
		l := listing{s: s, table: "cells", prefix: prefix, from: prefix}
		if after >= prefix && after != "" {
			l.from = after + "\x00"
		}
		for rows := firstRows; !l.end; rows = min(4*rows, mostRows) {
			var cells []store.Cell
			err := s.readers.do(ctx, func(c *conn) (err error) { cells, err = l.cells(c, rows); return err })
			for _, cell := range cells {
				if err := s.usable(ctx); err != nil {
					yield(store.Cell{}, err)
					return
				}
				if !yield(cell, nil) {
					return
				}
			}
			if err := l.skip(ctx, err); err != nil {
				yield(store.Cell{}, s.readFailed(err))
				return
			}
		}
		if l.damage != nil {
			yield(store.Cell{}, l.damage)
		}
	}
}

// Count implements store.Counter.
func (s *Store) Count(ctx context.Context, prefix string) (n int, err error) {
	if err := s.usable(ctx); err != nil {
		return 0, err
	}
	err = s.readers.do(ctx, func(c *conn) error {
		// The index of names is all that it reads.
		stmt, err := c.prepare("SELECT count(*) FROM cells WHERE name >= ? AND name < ?")
		if err != nil {
			return err
		}
		defer stmt.reset()
		stmt.bindText(1, []byte(prefix))
		stmt.bindText(2, store.PrefixEnd(prefix))
		if _, err = stmt.step(); err == nil {
			n = int(stmt.columnInt64(0))
		}
		return err
	})
	if err != nil {
		return 0, s.readFailed(err)
	}
	return n, nil
}

// listing is a Journals or List under way. It passes over what is damaged, and
// tells it at its end.
type listing struct {
	s      *Store
	table  string
	prefix string
	from   string // the next possible name
	damage error  // the first that was met
	end    bool
}

// names returns the next names. Dropped journals count as rows, so that a
// piece is bounded however many there are.
func (l *listing) names(c *conn) (names []string, err error) {
	start := l.from
	if err := l.checkBefore(c); err != nil {
		return nil, err
	}
	stmt, err := c.prepare("SELECT " + headColumns + ", j.name, j.sum FROM journals j WHERE j.name >= ? ORDER BY j.name LIMIT 512")
	if err != nil {
		return nil, err
	}
	defer stmt.reset()
	stmt.bindText(1, []byte(l.from))
	for range mostRows {
		row, err := stmt.step()
		if err != nil || !row {
			l.end = err == nil
			return names, err
		}
		name := stmt.columnBytes(3)
		h, err := l.s.scanHead(stmt, name)
		if l.pass(string(name), stmt.columnInt64(4), err) && !h.dropped() {
			names = append(names, string(name))
		}
	}
	l.end = l.from == start // nothing but rows without a place
	return names, nil
}

// cells returns the next cells.
func (l *listing) cells(c *conn, rows int) (cells []store.Cell, err error) {
	start := l.from
	if err := l.checkBefore(c); err != nil {
		return nil, err
	}
	stmt, err := c.prepare("SELECT " + cellColumns + ", sum FROM cells WHERE name >= ? ORDER BY name LIMIT 512")
	if err != nil {
		return nil, err
	}
	defer stmt.reset()
	stmt.bindText(1, []byte(l.from))
	size := 0
	for range rows {
		row, err := stmt.step()
		if err != nil || !row {
			l.end = err == nil
			return cells, err
		}
		cell, err := l.s.scanCell(stmt)
		name := cell.Key
		if err != nil {
			name = stmt.columnText(1)
		}
		if ok := l.pass(name, stmt.columnInt64(5), err); l.end {
			return cells, nil
		} else if !ok {
			continue
		}
		cells = append(cells, cell)
		if size += len(cell.Value); size >= mostBytes {
			break
		}
	}
	l.end = l.from == start
	return cells, nil
}

// pass moves the listing behind a row, of which scanning said err, and reports
// whether it is sound. A name that matches its checksum tells where the
// listing goes on, whatever else of the row is damaged; another may be
// anywhere.
func (l *listing) pass(name string, sum int64, err error) (sound bool) {
	if err == nil || nameSum([]byte(name)) == sum {
		switch {
		case !strings.HasPrefix(name, l.prefix) && name > l.prefix:
			l.end = true
			return false
		case name < l.from:
			err = l.badIndex(fmt.Sprintf("%.40q is out of order", name))
		default:
			l.from = name + "\x00"
		}
	}
	l.meet(err)
	return err == nil
}

func (l *listing) meet(err error) {
	if l.damage == nil {
		l.damage = err
	}
}

// skip passes over a row that SQLite itself cannot read, where err says so.
// The index knows its name.
func (l *listing) skip(ctx context.Context, err error) error {
	if !isDamage(err) {
		return err
	}
	damage := l.badPages(err)
	var name []byte
	err = l.s.readers.do(ctx, func(c *conn) error {
		stmt, err := c.prepare("SELECT name FROM " + l.table + " WHERE name >= ? ORDER BY name LIMIT 1")
		if err != nil {
			return err
		}
		defer stmt.reset()
		stmt.bindText(1, []byte(l.from))
		if _, err = stmt.step(); err == nil {
			name = stmt.columnBytes(0)
		}
		return err
	})
	switch {
	case isDamage(err), err == nil && string(name) < l.from:
		return damage
	case err != nil:
		return err
	case !strings.HasPrefix(string(name), l.prefix):
		l.end = true
		return nil
	}
	l.meet(damage)
	l.from = string(name) + "\x00"
	return nil
}

// checkBefore looks whether the index of names is right about the row before
// from. A search that a damaged index leads astray ends beside the damage:
// behind it, where it would skip rows, or before it, where the damage is what
// it finds.
func (l *listing) checkBefore(c *conn) error {
	stmt, err := c.prepare("SELECT i.name, t.name, t.sum FROM " + l.table + " i LEFT JOIN " + l.table + " t ON t.id = i.id WHERE i.name < ? ORDER BY i.name DESC LIMIT 1")
	if err != nil {
		return err
	}
	defer stmt.reset()
	stmt.bindText(1, []byte(l.from))
	row, err := stmt.step()
	if isDamage(err) {
		return nil // of the row; if it is of the index, the listing meets it too
	}
	if err != nil || !row {
		return err
	}
	in, out := stmt.columnBytes(0), stmt.columnBytes(1)
	if string(in) != string(out) && nameSum(in) != stmt.columnInt64(2) {
		l.meet(l.badIndex(fmt.Sprintf("it has %.40q for %.40q", in, out)))
	}
	return nil
}

func (l *listing) badIndex(reason string) error {
	return &store.CorruptError{Where: l.s.file + ", index of names of table " + l.table, Reason: reason}
}

func (l *listing) badPages(err error) error {
	return &store.CorruptError{Where: fmt.Sprintf("%s, table %s from %.40q on", l.s.file, l.table, l.from), Reason: reason(err)}
}
