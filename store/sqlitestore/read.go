package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/perdure/perdure/store"
)

// The bounds of what is read from one snapshot. Tails are mostly short, so a
// loop begins with few rows.
const (
	firstRows = 32
	mostRows  = 512 // also in the queries: a bound LIMIT is planned again for each value
	mostBytes = 1 << 20
)

// Read implements store.Store. It reads in pieces and holds no lock or
// snapshot while the loop's body runs.
func (s *Store) Read(ctx context.Context, journal string, after uint64) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		if err := s.usable(ctx); err != nil {
			yield(store.Entry{}, err)
			return
		}
		if err := store.CheckName("journal", journal); err != nil {
			yield(store.Entry{}, err)
			return
		}
		r := reading{s: s, journal: journal, name: []byte(journal), seen: after}
		for rows := firstRows; !r.end; rows = min(4*rows, mostRows) {
			err := s.readers.do(ctx, func(c *conn) error { return r.next(c, rows) })
			for _, e := range r.entries {
				if err := s.usable(ctx); err != nil {
					yield(store.Entry{}, err)
					return
				}
				if !yield(e, nil) {
					return
				}
			}
			if err != nil {
				yield(store.Entry{}, r.explain(err))
				return
			}
		}
	}
}

// reading is a Read under way.
type reading struct {
	s       *Store
	journal string
	name    []byte
	seen    uint64        // the last sequence that was read
	entries []store.Entry // of the piece
	end     bool          // there is no piece behind it
}

// next reads the next piece: the head and the entries behind seen from one
// snapshot. Entries before damage are in the piece.
func (r *reading) next(c *conn, rows int) error {
	r.entries, r.end = r.entries[:0], true
	if r.seen >= maxSeq {
		return r.checkAlive(c)
	}
	stmt, err := c.prepare("SELECT " + headColumns + `, e.key, e.crc, e.data
		FROM journals j LEFT JOIN entries e ON e.key > (j.id << 32 | ?2) AND e.key <= (j.id << 32 | 4294967295)
		WHERE j.name = ?1 ORDER BY e.key`)
	if err != nil {
		return err
	}
	defer stmt.reset()
	stmt.bindText(1, r.name)
	stmt.bindInt64(2, int64(r.seen))
	row, err := stmt.step()
	if err != nil {
		return err
	}
	if !row {
		return r.s.checkNoJournal(c, r.name)
	}
	h, err := r.s.scanHead(stmt, r.name)
	if err != nil {
		return err
	}
	if h.dropped() {
		return store.WasDropped(r.journal)
	}
	return r.scan(stmt, h, rows)
}

func (r *reading) scan(stmt *stmt, h head, rows int) error {
	sum, size := nameSum(r.name), 0
	for n, more := 1, !stmt.isNull(3); more; n++ {
		seq := uint64(stmt.columnInt64(3)) & maxSeq
		data := stmt.columnBytes(5)
		ok := stmt.columnInt64(4) == entrySum(h.id, sum, seq, data)
		switch {
		case seq > uint64(h.last):
			if ok {
				return r.s.behindEnd(r.journal, h.id, seq)
			}
			return r.checkEnd(h) // a row that strayed here from elsewhere
		case seq != r.seen+1:
			return r.missing(h)
		case !ok:
			return r.s.badJournal(r.journal, seq, fmt.Sprintf("table entries, key %d", entryKey(h.id, seq)), "the entry does not match its checksum")
		}
		r.entries = append(r.entries, store.Entry{Seq: seq, Data: data})
		r.seen = seq
		if size += len(data); n >= rows || size >= mostBytes {
			r.end = false
			return nil
		}
		var err error
		if more, err = stmt.step(); err != nil {
			return err
		}
	}
	return r.checkEnd(h)
}

// checkEnd returns an error if the journal goes on where its rows do not.
func (r *reading) checkEnd(h head) error {
	if r.seen < uint64(h.last) {
		return r.missing(h)
	}
	return nil
}

func (r *reading) missing(h head) error {
	return r.s.badJournal(r.journal, r.seen+1, fmt.Sprintf("table entries, key %d", entryKey(h.id, r.seen+1)),
		fmt.Sprintf("the entry is missing, although the journal ends at %d", h.last))
}

// checkAlive is next where no entry can be.
func (r *reading) checkAlive(c *conn) error {
	h, err := r.s.head(c, r.name)
	if err == nil && h.dropped() {
		return store.WasDropped(r.journal)
	}
	return err
}

// explain locates SQLite's own reports of damage.
func (r *reading) explain(err error) error {
	if isDamage(err) {
		return r.s.badPages(r.journal, r.seen+1, err)
	}
	return r.s.readFailed(err)
}

// readFailed wraps what is not for the caller to match.
func (s *Store) readFailed(err error) error {
	for _, known := range []error{store.ErrCorrupt, store.ErrDropped, store.ErrNotFound, store.ErrClosed, store.ErrBusy, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, known) {
			return err
		}
	}
	return s.failed("read", err)
}
