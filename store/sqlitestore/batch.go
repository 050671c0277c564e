package sqlitestore

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/ncruces/go-sqlite3"

	"github.com/perdure/perdure/store"
)

// AppendBatch implements store.Batcher. It shares a commit with other writes, as
// an append does.
func (s *Store) AppendBatch(ctx context.Context, b store.Batch) (uint64, error) {
	if err := s.usable(ctx); err != nil {
		return 0, err
	}
	if err := store.CheckBatch(b); err != nil {
		return 0, err
	}
	r := &request{ctx: ctx, name: b.Journal}
	for _, e := range b.Entries {
		r.size += len(e)
	}
	for _, w := range b.Cells {
		r.size += len(w.Value)
	}
	optional := len(b.Cells)
	r.apply = func(c *conn) error { return s.appendBatch(c, r, b, &optional) }
	if err := s.writer.do(r); err != nil {
		return 0, err
	}
	if r.erases {
		s.writer.eraseLater()
	}
	b.Tell(r.made)
	return b.After + uint64(len(b.Entries)), nil
}

// appendBatch looks at all cells before it writes, so that a refused batch leaves
// the transaction as it was. From the place optional on, optional cells are
// left out because one cannot be written.
func (s *Store) appendBatch(c *conn, r *request, b store.Batch, optional *int) error {
	r.cells, r.erases, r.made = nil, false, make([]store.Version, len(b.Cells))
	rows, stop := make([]cellRow, len(b.Cells)), *optional
	for i, w := range b.Cells {
		if w.Optional && i >= stop {
			continue
		}
		row, err := s.expect(c, w.Key, w.Prev)
		if only, err := s.refusedCell(w.Key, err); err != nil {
			if only && w.Optional {
				stop = i
				continue
			}
			if only { // the journal comes first: if it ends elsewhere, cells do not matter
				if _, end := s.endsAt(c, b.Journal, b.After); end != nil {
					return end
				}
			}
			return err
		}
		rows[i] = row
	}
	if err := s.append(c, b.Journal, b.After, b.Entries); err != nil {
		return err
	}
	for i, w := range b.Cells {
		if w.Optional && i >= stop {
			continue
		}
		var version [versionSize]byte
		rand.Read(version[:])
		r.made[i] = toVersion(version[:])
		if only, err := s.refusedCell(w.Key, write(c, rows[i], w, version[:])); err != nil {
			if only && w.Optional {
				*optional = i
				return errAgain
			}
			return err
		}
		if !w.Quiet {
			r.cells = append(r.cells, w.Key)
		}
		r.erases = r.erases || w.Remove
	}
	return nil
}

// write makes a write of a batch to the cell that was found as r.
func write(c *conn, r cellRow, w store.Write, version []byte) error {
	if w.Remove {
		return removeCell(c, r)
	}
	return writeCell(c, r, []byte(w.Key), w.Value, version)
}

// refusedCell returns the error of a batch that met err at one of its cells, and
// whether it says something about this cell only.
func (s *Store) refusedCell(key string, err error) (only bool, _ error) {
	switch {
	case err == nil:
		return false, nil
	case errors.Is(err, store.ErrConflict):
		return true, &store.CellConflict{Key: key, Err: err}
	case isDamage(err), code(err) == sqlite3.CONSTRAINT:
		return true, undo{&store.CorruptError{Cell: key, Where: s.file, Reason: reason(err)}}
	case refused(err):
		return true, undo{err}
	}
	return false, err
}
