package sqlitestore

import (
	"context"
	"fmt"

	"github.com/perdure/perdure/store"
)

// Drop implements store.Store. When it returns nil, the journal's bytes are
// gone from the files, and so are those of cells that were deleted before. An
// error that says so means that the journal is dropped but some of its bytes
// may still be in the WAL; repeating Drop finishes it.
func (s *Store) Drop(ctx context.Context, journal string) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	if err := store.CheckName("journal", journal); err != nil {
		return err
	}
	err := s.writer.do(&request{ctx: ctx, name: journal, erases: true, apply: func(c *conn) error {
		return s.drop(c, []byte(journal))
	}})
	if err != nil {
		return err
	}
	if err := s.writer.erase(ctx); err != nil {
		return fmt.Errorf("sqlitestore: journal %q is dropped, but %s-wal may still contain its bytes; drop it again to remove them: %w", journal, s.file, err)
	}
	return nil
}

func (s *Store) drop(c *conn, name []byte) error {
	h, err := s.head(c, name)
	if err != nil || h.dropped() {
		return err
	}
	delete(s.writer.known, string(name))
	made := h.id == 0
	h.last = -1
	if made {
		if h.id, err = s.newID(c); err != nil {
			return err
		}
		return saveHead(c, h, name, made)
	}
	stmt, err := c.prepare("DELETE FROM entries WHERE key BETWEEN ? AND ?")
	if err != nil {
		return err
	}
	stmt.bindInt64(1, entryKey(h.id, 0))
	stmt.bindInt64(2, entryKey(h.id, maxSeq))
	if err := stmt.exec(); err != nil {
		return err
	}
	return saveHead(c, h, name, made)
}
