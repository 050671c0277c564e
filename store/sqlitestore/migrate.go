package sqlitestore

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"

	"github.com/perdure/perdure/store"
)

// schema1 is the schema of format 1, which masked the bytes of each journal and
// cell with a key of its own.
var schema1 = []string{
	`CREATE TABLE journals (id INTEGER PRIMARY KEY, name BLOB NOT NULL UNIQUE, sum INTEGER NOT NULL, last INTEGER NOT NULL, crc INTEGER NOT NULL)`,
	`CREATE INDEX journals_sum ON journals (sum)`,
	`CREATE TABLE entries (key INTEGER PRIMARY KEY, data BLOB NOT NULL)`,
	`CREATE TABLE cells (id INTEGER PRIMARY KEY, name BLOB NOT NULL UNIQUE, sum INTEGER NOT NULL, version BLOB NOT NULL, value BLOB NOT NULL)`,
	`CREATE INDEX cells_sum ON cells (sum)`,
	`CREATE TABLE keys (id INTEGER PRIMARY KEY, free INTEGER NOT NULL, key BLOB NOT NULL)`,
	`CREATE INDEX keys_free ON keys (id) WHERE free`,
}

// badSum is the checksum of a row that was damaged before it was migrated: no
// CRC is negative.
const badSum = -1

// migrate copies all rows of format 1 into new tables and removes the old ones.
// What was damaged stays so.
func (s *Store) migrate(c *conn) error {
	for _, sql := range []string{
		"DROP INDEX journals_sum", "DROP INDEX cells_sum", "DROP INDEX keys_free",
		"ALTER TABLE journals RENAME TO journals1", "ALTER TABLE entries RENAME TO entries1", "ALTER TABLE cells RENAME TO cells1",
	} {
		if err := c.run(sql); err != nil {
			return err
		}
	}
	if err := create(c); err != nil {
		return err
	}
	if err := migrateJournals(c); err != nil {
		return err
	}
	if err := migrateCells(c); err != nil {
		return err
	}
	// With secure_delete, each page that is freed is written once more. The old
	// entries do without: nobody can read them once their keys are gone.
	if _, err := c.pragma("secure_delete=OFF"); err != nil {
		return err
	}
	if err := c.run("DROP TABLE entries1"); err != nil {
		return err
	}
	if on, err := c.pragma("secure_delete=ON"); err != nil || on != "1" {
		return errors.Join(err, errors.New("PRAGMA secure_delete=ON had no effect"))
	}
	for _, table := range []string{"journals1", "cells1", "keys"} {
		if err := c.run("DROP TABLE " + table); err != nil {
			return err
		}
	}
	return s.checkRoom(c)
}

// freeSpace returns how many bytes can be written to the file system of a file,
// and a negative number where that is not known. Tests replace it.
var freeSpace = freeSpaceOf

// checkRoom returns ErrFull unless the database has room to grow by what the
// transaction adds to it: once that is committed, older binaries cannot go on with
// the file, and without room nor can this one.
func (s *Store) checkRoom(c *conn) error {
	pages, err := pragmaInt(c, "page_count")
	if err != nil {
		return err
	}
	info, err := os.Stat(s.file)
	if err != nil {
		return err
	}
	const reserve = 16 << 20 // SQLite's cache, which goes to the WAL at the commit, and what others write
	need := pages*pageSize - info.Size() + reserve
	if free := freeSpace(s.file); free >= 0 && free < need {
		return fmt.Errorf("%w: sqlitestore: %s cannot be migrated to format %d: %d MiB more are needed; nothing was changed", store.ErrFull, s.file, format, (need-free)>>20+1)
	}
	return nil
}

func migrateJournals(c *conn) error {
	from, err := c.prepare("SELECT j.id, j.last, j.crc, j.name, j.sum, k.key FROM journals1 j LEFT JOIN keys k ON k.id = j.id ORDER BY j.id")
	if err != nil {
		return err
	}
	defer from.reset()
	for {
		row, err := from.step()
		if err != nil || !row {
			return err
		}
		id, last, name, key := from.columnInt64(0), from.columnInt64(1), from.columnBytes(3), from.columnBytes(5)
		crc := headSum(id, last, name)
		if from.columnInt64(2) != headSum1(id, last, key, name) {
			crc = badSum
		}
		to, err := c.prepare("INSERT INTO journals (id, last, crc, name, sum) VALUES (?, ?, ?, ?, ?)")
		if err != nil {
			return err
		}
		to.bindInt64(1, id)
		to.bindInt64(2, last)
		to.bindInt64(3, crc)
		to.bindText(4, name)
		to.bindInt64(5, from.columnInt64(4))
		if err := to.exec(); err != nil {
			return err
		}
		// If SQLite cannot read some entries, the others of the journal are
		// missing from there on, as they were.
		if err := migrateEntries(c, id, name, key); err != nil && !isDamage(err) {
			return err
		}
	}
}

// migrateEntries copies the entries of a journal, also those after its end.
func migrateEntries(c *conn, id int64, name, key []byte) error {
	from, err := c.prepare("SELECT key, data FROM entries1 WHERE key BETWEEN ? AND ? ORDER BY key")
	if err != nil {
		return err
	}
	defer from.reset()
	from.bindInt64(1, entryKey(id, 0))
	from.bindInt64(2, entryKey(id, maxSeq))
	for {
		row, err := from.step()
		if err != nil || !row {
			return err
		}
		at, crc := from.columnInt64(0), int64(badSum)
		seq := uint64(at) & maxSeq
		data, ok := unmaskEntry(key, id, seq, from.columnBytes(1))
		if ok {
			crc = entrySum(id, nameSum(name), seq, data)
		}
		if err := writeEntry(c, "INSERT INTO entries (key, crc, data) VALUES (?, ?, ?)", at, crc, data); err != nil {
			return err
		}
	}
}

func migrateCells(c *conn) error {
	from, err := c.prepare("SELECT c.id, c.name, c.sum, c.version, c.value, k.key FROM cells1 c LEFT JOIN keys k ON k.id = c.id ORDER BY c.id")
	if err != nil {
		return err
	}
	defer from.reset()
	for {
		row, err := from.step()
		if err != nil || !row {
			return err
		}
		name, version, crc := from.columnBytes(1), from.columnBytes(3), int64(badSum)
		value, ok := unmaskCell(from.columnBytes(5), name, version, from.columnBytes(4))
		if ok {
			crc = cellSum(name, version, value)
		}
		to, err := c.prepare("INSERT INTO cells (id, name, sum, version, crc, value) VALUES (?, ?, ?, ?, ?, ?)")
		if err != nil {
			return err
		}
		to.bindInt64(1, from.columnInt64(0))
		to.bindText(2, name)
		to.bindInt64(3, from.columnInt64(2))
		to.bindBytes(4, version)
		to.bindInt64(5, crc)
		to.bindData(6, value)
		if err := to.exec(); err != nil {
			return err
		}
	}
}

// headSum1 is headSum of format 1.
func headSum1(id, last int64, key, name []byte) int64 {
	var b [17]byte
	b[0] = 'j'
	binary.LittleEndian.PutUint64(b[1:], uint64(id))
	binary.LittleEndian.PutUint64(b[9:], uint64(last))
	crc := crc32.Checksum(b[:], castagnoli)
	crc = crc32.Update(crc, castagnoli, key)
	return int64(crc32.Update(crc, castagnoli, name))
}

// unmaskEntry returns the data of an entry of format 1, and false if these are
// not the bytes that were written there.
func unmaskEntry(key []byte, id int64, seq uint64, kept []byte) ([]byte, bool) {
	var place [17]byte
	place[0] = 'e'
	binary.LittleEndian.PutUint64(place[1:], uint64(id))
	binary.LittleEndian.PutUint64(place[9:], seq)
	var iv [aes.BlockSize]byte
	binary.BigEndian.PutUint64(iv[:], seq)
	return unmask(key, iv, crc32.Checksum(place[:], castagnoli), kept)
}

// unmaskCell is unmaskEntry for cells.
func unmaskCell(key, name, version, kept []byte) ([]byte, bool) {
	var place [17]byte
	place[0] = 'c'
	copy(place[1:], version)
	var iv [aes.BlockSize]byte
	copy(iv[:], version)
	data, ok := unmask(key, iv, crc32.Update(crc32.Checksum(place[:], castagnoli), castagnoli, name), kept)
	return data, ok && len(version) == versionSize
}

func unmask(key []byte, iv [aes.BlockSize]byte, sum uint32, kept []byte) ([]byte, bool) {
	const keySize, sumSize = 16, 4
	if len(key) != keySize || len(kept) < sumSize {
		return kept, false
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return kept, false
	}
	cipher.NewCTR(block, iv[:]).XORKeyStream(kept, kept)
	data := kept[sumSize:]
	return data, binary.LittleEndian.Uint32(kept) == crc32.Update(sum, castagnoli, data)
}
