package sqlitestore

import (
	"context"
	"fmt"

	"github.com/ncruces/go-sqlite3"

	"github.com/perdure/perdure/store"
)

// Append implements store.Store.
func (s *Store) Append(ctx context.Context, journal string, after uint64, entries ...[]byte) (uint64, error) {
	if err := s.usable(ctx); err != nil {
		return 0, err
	}
	if err := store.CheckAppend(journal, entries); err != nil {
		return 0, err
	}
	size := 0
	for _, e := range entries {
		size += len(e)
	}
	err := s.writer.do(&request{ctx: ctx, name: journal, size: size, apply: func(c *conn) error {
		return s.append(c, journal, after, entries)
	}})
	if err != nil {
		return 0, err
	}
	return after + uint64(len(entries)), nil
}

func (s *Store) append(c *conn, journal string, after uint64, entries [][]byte) error {
	k, err := s.claim(c, journal, after, len(entries))
	if err != nil {
		return err
	}
	for i, data := range entries {
		seq := after + uint64(i) + 1
		if err := s.insertEntry(c, journal, k, seq, data); err != nil {
			return err
		}
	}
	return nil
}

// claim moves the end of a journal from after on by n.
func (s *Store) claim(c *conn, journal string, after uint64, n int) (*known, error) {
	w := s.writer
	fits := after <= maxSeq && after+uint64(n) <= maxSeq
	if k := w.known[journal]; k != nil && fits {
		// The checksum stands for the whole head, so one statement looks it
		// up, verifies, compares and writes it.
		moved, err := moveHead(c, k, after, n)
		if err != nil || moved {
			return k, err
		}
	}
	h, err := s.endsAt(c, journal, after)
	switch {
	case err != nil:
		return nil, err
	case !fits:
		return nil, fmt.Errorf("%w: sqlitestore: journal %q cannot hold more than %d entries; continue in another journal", store.ErrTooLarge, journal, uint64(maxSeq))
	}
	made := h.id == 0
	if made {
		if h.id, err = s.newID(c); err != nil {
			return nil, err
		}
	}
	h.last += int64(n)
	name := []byte(journal)
	k := &known{id: h.id, name: name, sum: nameSum(name)}
	w.remember(journal, k) // if this is rolled back, the checksum will tell
	return k, saveHead(c, h, name, made)
}

// endsAt returns the head of a journal, which has to end at after.
func (s *Store) endsAt(c *conn, journal string, after uint64) (head, error) {
	h, err := s.head(c, []byte(journal))
	switch {
	case err != nil:
	case h.dropped():
		err = store.WasDropped(journal)
	case uint64(h.last) != after:
		err = store.NotAtEnd(journal, after, uint64(h.last))
	}
	return h, err
}

// moveHead is false if the head is not exactly as expected.
func moveHead(c *conn, k *known, after uint64, n int) (bool, error) {
	stmt, err := c.prepare("UPDATE journals SET last = ?2, crc = ?3 WHERE id = ?1 AND last = ?4 AND crc = ?5")
	if err != nil {
		return false, err
	}
	last := int64(after)
	stmt.bindInt64(1, k.id)
	stmt.bindInt64(2, last+int64(n))
	stmt.bindInt64(3, headSum(k.id, last+int64(n), k.name))
	stmt.bindInt64(4, last)
	stmt.bindInt64(5, headSum(k.id, last, k.name))
	err = stmt.exec()
	return c.changes() == 1, err
}

// newID returns the id of a new journal. Rows of journals are never removed, so
// none gets the id of another.
func (s *Store) newID(c *conn) (int64, error) {
	stmt, err := c.prepare("SELECT ifnull(max(id), 0) + 1 FROM journals WHERE id <= ?")
	if err != nil {
		return 0, err
	}
	defer stmt.reset()
	stmt.bindInt64(1, maxID)
	if _, err := stmt.step(); err != nil {
		return 0, err
	}
	id := stmt.columnInt64(0)
	if id > maxID {
		return 0, fmt.Errorf("%w: sqlitestore: %s cannot hold more than %d journals; start another store", store.ErrTooLarge, s.file, int64(maxID))
	}
	return id, nil
}

// insertEntry writes an entry.
func (s *Store) insertEntry(c *conn, journal string, k *known, seq uint64, data []byte) error {
	key, crc := entryKey(k.id, seq), entrySum(k.id, k.sum, seq, data)
	err := writeEntry(c, "INSERT INTO entries (key, crc, data) VALUES (?, ?, ?)", key, crc, data)
	if code(err) != sqlite3.CONSTRAINT {
		return err
	}
	// A row stands behind the journal's end. If it is an entry, the end is
	// wrong, and writing over it would lose it. If not, damage elsewhere gave
	// a foreign row this key, and this journal does not suffer for it.
	stmt, err := c.prepare("SELECT crc, data FROM entries WHERE key = ?")
	if err != nil {
		return err
	}
	defer stmt.reset()
	stmt.bindInt64(1, key)
	if _, err := stmt.step(); err != nil {
		return err
	}
	if stmt.columnInt64(0) == entrySum(k.id, k.sum, seq, stmt.columnBytes(1)) {
		return undo{s.behindEnd(journal, k.id, seq)}
	}
	return writeEntry(c, "REPLACE INTO entries (key, crc, data) VALUES (?, ?, ?)", key, crc, data)
}

func (s *Store) behindEnd(journal string, id int64, seq uint64) error {
	return s.badJournal(journal, seq, fmt.Sprintf("table entries, key %d", entryKey(id, seq)), "there is an entry after the end that the journal's head records")
}

func writeEntry(c *conn, query string, key, crc int64, data []byte) error {
	stmt, err := c.prepare(query)
	if err != nil {
		return err
	}
	stmt.bindInt64(1, key)
	stmt.bindInt64(2, crc)
	stmt.bindData(3, data)
	return stmt.exec()
}

// saveHead writes a head that changed or was made.
func saveHead(c *conn, h head, name []byte, made bool) error {
	query := "UPDATE journals SET last = ?2, crc = ?3 WHERE id = ?1"
	if made {
		query = "INSERT INTO journals (id, last, crc, name, sum) VALUES (?1, ?2, ?3, ?4, ?5)"
	}
	stmt, err := c.prepare(query)
	if err != nil {
		return err
	}
	stmt.bindInt64(1, h.id)
	stmt.bindInt64(2, h.last)
	stmt.bindInt64(3, headSum(h.id, h.last, name))
	if made {
		stmt.bindText(4, name)
		stmt.bindInt64(5, nameSum(name))
	}
	return stmt.exec()
}
