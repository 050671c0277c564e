package sqlitestore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
)

// dbFile is the database itself. Pages reach it at checkpoints only, see
// writer.checkpoint, and are scrubbed there.
//
// With secure_delete, SQLite overwrites rows that are deleted and pages that are
// no longer used. When it moves rows between pages, however, it leaves the old
// bytes in the unallocated space of a page, where later the rows of others may
// outlive them. What they mean is nothing to SQLite, so they are cleared.
type dbFile struct {
	file
	page []byte
}

// WriteAt implements vfs.File.
func (f *dbFile) WriteAt(p []byte, off int64) (int, error) {
	if from, to := unallocated(p, off); from < to {
		f.page = append(f.page[:0], p...)
		clear(f.page[from:to])
		p = f.page
	}
	return f.file.WriteAt(p, off)
}

// maxPages bounds a database to 128 GiB. Pages of other kinds than those that
// unallocated looks for begin with the number of a page, of 4 bytes, whose first
// byte is then 0 or 1: a page full of an entry cannot be taken for another.
const maxPages = 1<<25 - 1

// The kinds of pages in a tree of rows, by their first byte. This and what
// follows is SQLite's file format, https://sqlite.org/fileformat2.html.
const (
	indexInterior = 2
	tableInterior = 5
	indexLeaf     = 10
	tableLeaf     = 13
)

// unallocated returns the space between the directory of a page, which grows
// upwards, and its rows, which grow downwards. It is empty if these bytes are no
// such page.
func unallocated(page []byte, off int64) (from, to int) {
	const minPage, fileHead = 512, 100
	if len(page) < minPage || off%int64(len(page)) != 0 {
		return 0, 0
	}
	head := 0
	if off == 0 {
		head = fileHead
	}
	size := 8
	switch page[head] {
	case tableLeaf, indexLeaf:
	case tableInterior, indexInterior:
		size = 12
	default:
		return 0, 0
	}
	rows := int(binary.BigEndian.Uint16(page[head+3:]))
	from, to = head+size+2*rows, int(binary.BigEndian.Uint16(page[head+5:]))
	if to == 0 {
		to = 1 << 16
	}
	if to > len(page) {
		return 0, 0
	}
	return from, to
}

// The mark of a database is a file beside it, which is there while a store is
// open, and after a crash. If it is there but the WAL is not, another program was
// the last to close the database, and has copied pages as they were: SQLite's
// shell does that after a crash. The mark is empty, unless such pages were found
// and are still to be scrubbed.
func (s *Store) mark() string { return s.file + "-scrub" }

// findRemains reports whether the database has pages that are to be scrubbed. The
// database is not open yet.
func (s *Store) findRemains() (bool, error) {
	info, err := os.Stat(s.mark())
	switch {
	case err != nil:
		return false, nil
	case info.Size() > 0:
		return true, nil
	case s.hasWAL():
		return false, nil
	}
	found, err := hasRemains(s.file)
	if err != nil || !found {
		return false, err
	}
	f, err := os.OpenFile(s.mark(), os.O_WRONLY, 0)
	if err != nil {
		return false, err
	}
	defer f.Close()
	if _, err := f.WriteString("pages of " + s.file + " are to be scrubbed\n"); err != nil {
		return false, err
	}
	return true, f.Sync()
}

// removeRemains writes the whole database anew.
func (s *Store) removeRemains(c *conn) error {
	if err := c.run("VACUUM"); err != nil {
		return err
	}
	err := os.Truncate(s.mark(), 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // another process has done the same
	}
	return err
}

// setMark sets the mark when there is a WAL, or as good as.
func (s *Store) setMark() error { return createLike(s.mark(), s.file) }

// clearMark removes the mark if this store was the last to be closed, also among
// other processes: then SQLite has removed the WAL.
func (s *Store) clearMark() {
	info, err := os.Stat(s.mark())
	if err != nil || info.Size() > 0 || s.hasWAL() {
		return
	}
	os.Remove(s.mark())
	if s.hasWAL() {
		s.setMark() // it has just been opened again
	}
}

func (s *Store) hasWAL() bool {
	_, err := os.Stat(s.file + "-wal")
	return !errors.Is(err, fs.ErrNotExist)
}

// hasRemains reports whether a database of our format has bytes where no page
// needs them.
func hasRemains(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	var head [100]byte
	if _, err := io.ReadFull(f, head[:]); err != nil {
		return false, nil // it is no database
	}
	const magic, sizeAt, formatAt, idAt = "SQLite format 3\x00", 16, 60, 68
	size := int(binary.BigEndian.Uint16(head[sizeAt:]))
	if size == 1 {
		size = 1 << 16
	}
	if string(head[:len(magic)]) != magic || size < 512 ||
		binary.BigEndian.Uint32(head[idAt:]) != applicationID || binary.BigEndian.Uint32(head[formatAt:]) != format {
		return false, nil
	}
	pages := make([]byte, max(1<<20, size))
	for at := int64(0); ; {
		n, err := f.ReadAt(pages, at)
		for i := 0; i+size <= n; i += size {
			page := pages[i : i+size]
			if from, to := unallocated(page, at+int64(i)); from < to && len(bytes.Trim(page[from:to], "\x00")) > 0 {
				return true, nil
			}
		}
		if at += int64(n); err == io.EOF {
			return false, nil
		} else if err != nil {
			return false, err
		}
	}
}
