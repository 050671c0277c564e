package sqlitestore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ncruces/go-sqlite3"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/sqlitestore"
)

// sample is a small store whose rows a test damages.
type sample struct {
	*testing.T
	dir      string
	s        *sqlitestore.Store
	raw      *sqlite3.Conn
	journals map[string][]string
	cells    map[string]string
}

func newSample(t *testing.T) *sample {
	p := &sample{T: t, dir: t.TempDir(), cells: map[string]string{"x": "value of x", "y": "", "z": "value of z"}}
	p.journals = map[string][]string{
		"a": {"first of a", "", "third of a"},
		"b": {"first of b", "second of b", "", "fourth of b"},
		"c": {"only one of c"},
	}
	p.s = openTest(t, p.dir)
	for _, name := range []string{"a", "b", "c"} {
		for i, data := range p.journals[name] {
			if _, err := p.s.Append(t.Context(), name, uint64(i), []byte(data)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, key := range []string{"x", "y", "z"} {
		if _, err := p.s.Put(t.Context(), key, []byte(p.cells[key]), ""); err != nil {
			t.Fatal(err)
		}
	}
	p.raw = rawConn(t, p.dir)
	t.Cleanup(func() {
		if p.raw != nil {
			p.raw.Close()
		}
	})
	return p
}

// update runs a statement with arguments on the other connection.
func (p *sample) update(query string, args ...any) error {
	_, err := queryRows(p.raw, query, args...)
	return err
}

func (p *sample) must(query string, args ...any) {
	p.Helper()
	if err := p.update(query, args...); err != nil {
		p.Fatalf("%s: %v", query, err)
	}
}

// damaged undoes what damage does when the check is over.
func (p *sample) damaged(damage func() error, check func()) {
	p.Helper()
	backup := p.dump()
	if err := damage(); err != nil {
		return // SQLite does not keep such a row
	}
	check()
	p.restore(backup)
}

type dump struct {
	entries, journals, cells [][]any
}

func (p *sample) dump() dump {
	rows := func(query string) [][]any {
		all, err := queryRows(p.raw, query)
		if err != nil {
			p.Fatal(err)
		}
		return all
	}
	return dump{rows("SELECT * FROM entries"), rows("SELECT * FROM journals"), rows("SELECT * FROM cells")}
}

func (p *sample) restore(d dump) {
	p.Helper()
	p.must("BEGIN IMMEDIATE")
	for table, rows := range map[string][][]any{"entries": d.entries, "journals": d.journals, "cells": d.cells} {
		p.must("DELETE FROM " + table)
		for _, r := range rows {
			marks := bytes.Repeat([]byte(", ?"), len(r))[2:]
			p.must("INSERT INTO "+table+" VALUES ("+string(marks)+")", r...)
		}
	}
	p.must("COMMIT")
}

// read returns a journal up to an error.
func read(ctx context.Context, s store.Store, journal string) (all []string, err error) {
	entries, err := store.ReadAll(ctx, s, journal, 0)
	for _, e := range entries {
		all = append(all, string(e.Data))
	}
	return all, err
}

// healthy demands that everything but one journal or cell is as it was.
func (p *sample) healthy(what, but string) {
	p.Helper()
	for name, want := range p.journals {
		if got, err := read(p.Context(), p.s, name); name != but && (err != nil || !slices.Equal(got, want)) {
			p.Errorf("%s: journal %s is %q, %v; want %q", what, name, got, err, want)
		}
	}
	for key, want := range p.cells {
		if got, err := p.s.Get(p.Context(), key); key != but && (err != nil || string(got.Value) != want) {
			p.Errorf("%s: cell %s is %q, %v; want %q", what, key, got.Value, err, want)
		}
	}
}

// broken demands that a journal ends with damage located at seq.
func (p *sample) broken(what, journal string, seq uint64) {
	p.Helper()
	got, err := read(p.Context(), p.s, journal)
	var damage *store.CorruptError
	if !errors.As(err, &damage) || damage.Journal != journal || damage.Seq != seq {
		p.Errorf("%s: reading %s gives %q and %v, want damage at %d", what, journal, got, err, seq)
	} else if !slices.Equal(got, p.journals[journal][:seq-1]) {
		p.Errorf("%s: reading %s gives %q before the damage at %d", what, journal, got, seq)
	}
	p.healthy(what, journal)
}

func flipped[T []byte | string](x T, bit int) T {
	b := bytes.Clone([]byte(x))
	b[bit/8] ^= 1 << (bit % 8)
	return T(b)
}

// TestFlippedEntries flips every bit of every column of the entries.
func TestFlippedEntries(t *testing.T) {
	p := newSample(t)
	for i, row := range p.dump().entries {
		key, crc, data := row[0].(int64), row[1].(int64), row[2].(string)
		name, seq := p.entry(i)
		for bit := range 64 {
			p.must("UPDATE entries SET crc = ? WHERE key = ?", crc^1<<bit, key)
			p.broken(fmt.Sprintf("bit %d of the checksum of %s/%d", bit, name, seq), name, seq)
		}
		p.must("UPDATE entries SET crc = ? WHERE key = ?", crc, key)
		for bit := range 8 * len(data) {
			if testing.Short() && bit/8%8 != bit%8 {
				continue
			}
			p.must("UPDATE entries SET data = ? WHERE key = ?", flipped(data, bit), key)
			p.broken(fmt.Sprintf("bit %d of %s/%d", bit, name, seq), name, seq)
		}
		for n := range data {
			p.must("UPDATE entries SET data = ? WHERE key = ?", data[:n], key)
			p.broken(fmt.Sprintf("%s/%d cut to %d bytes", name, seq, n), name, seq)
		}
		p.must("UPDATE entries SET data = ? WHERE key = ?", data+"\x00", key)
		p.broken(fmt.Sprintf("%s/%d with a byte more", name, seq), name, seq)
		p.must("UPDATE entries SET data = ? WHERE key = ?", data, key)
		for bit := range 64 {
			other := key ^ 1<<bit
			if p.update("UPDATE entries SET key = ? WHERE key = ?", other, key) != nil {
				continue // another entry is there
			}
			p.broken(fmt.Sprintf("bit %d of the key of %s/%d", bit, name, seq), name, seq)
			p.must("UPDATE entries SET key = ? WHERE key = ?", key, other)
		}
	}
	p.healthy("at the end", "")
}

// entry returns the journal and sequence of the i-th row of entries.
func (p *sample) entry(i int) (string, uint64) {
	for _, name := range []string{"a", "b", "c"} {
		if i < len(p.journals[name]) {
			return name, uint64(i + 1)
		}
		i -= len(p.journals[name])
	}
	panic("no such entry")
}

// TestMissingEntries removes entries from the end, the middle and the start.
func TestMissingEntries(t *testing.T) {
	p := newSample(t)
	rows := p.dump().entries
	for from := range rows {
		name, seq := p.entry(from)
		for to := from; to < len(rows); to++ {
			if last, _ := p.entry(to); last != name {
				break
			}
			p.damaged(func() error {
				return p.update("DELETE FROM entries WHERE key BETWEEN ? AND ?", rows[from][0], rows[to][0])
			}, func() {
				p.broken(fmt.Sprintf("%s without %d to %d", name, seq, seq+uint64(to-from)), name, seq)
			})
		}
	}
	p.healthy("at the end", "")
}

// TestFlippedHeads flips every bit of what is kept about journals and cells:
// the damage is found, or it changes nothing.
func TestFlippedHeads(t *testing.T) {
	p := newSample(t)
	for _, column := range []struct {
		table, name string
		harmless    bool // where nothing else is damaged
	}{
		{"journals", "id", false}, {"journals", "name", false}, {"journals", "sum", true}, {"journals", "last", false}, {"journals", "crc", false},
		{"cells", "id", true}, {"cells", "name", false}, {"cells", "sum", true}, {"cells", "version", false}, {"cells", "crc", false}, {"cells", "value", false},
	} {
		thing, from := "b", "journals"
		if column.table == "cells" {
			thing, from = "x", "cells"
		}
		id := p.integer("SELECT id FROM "+from+" WHERE name = ?", thing)
		value := p.column(fmt.Sprintf("SELECT %s FROM %s WHERE id = ?", column.name, column.table), id)
		bits := 64
		switch value := value.(type) {
		case []byte:
			bits = 8 * len(value)
		case string:
			bits = 8 * len(value)
		}
		for bit := range bits {
			if testing.Short() && bit/8%8 != bit%8 {
				continue // one bit of each byte
			}
			var other any
			switch value := value.(type) {
			case int64:
				other = value ^ 1<<bit
			case []byte:
				other = flipped(value, bit)
			case string:
				other = flipped(value, bit)
			}
			what := fmt.Sprintf("bit %d of %s.%s", bit, column.table, column.name)
			p.damaged(func() error {
				return p.update(fmt.Sprintf("UPDATE %s SET %s = ? WHERE id = ?", column.table, column.name), other, id)
			}, func() { p.found(what, thing, column.harmless) })
		}
	}
	p.healthy("at the end", "")
}

// found demands that a journal or cell is damaged, or as it was where that is
// harmless, that everything else is as it was, and that it stays so when
// others write.
func (p *sample) found(what, thing string, harmless bool) {
	p.Helper()
	var err error
	if want, ok := p.journals[thing]; ok {
		var got []string
		if got, err = read(p.Context(), p.s, thing); err == nil && !slices.Equal(got, want) {
			p.Errorf("%s: journal %s is %q, silently", what, thing, got)
		}
		if _, err := p.s.Append(p.Context(), thing, 0, []byte("new")); err == nil {
			p.Errorf("%s: journal %s can be begun anew", what, thing)
		}
	} else {
		var got store.Cell
		if got, err = p.s.Get(p.Context(), thing); err == nil && string(got.Value) != p.cells[thing] {
			p.Errorf("%s: cell %s is %q, silently", what, thing, got.Value)
		}
		if _, err := p.s.Put(p.Context(), thing, nil, ""); err == nil {
			p.Errorf("%s: cell %s can be made anew", what, thing)
		}
	}
	if harmless && err != nil || !harmless && !errors.Is(err, store.ErrCorrupt) {
		p.Errorf("%s: reading %s = %v", what, thing, err)
	}
	if _, err := p.s.Put(p.Context(), "new", []byte("new"), ""); err != nil {
		p.Errorf("%s: another cell cannot be written: %v", what, err)
	}
	if _, err := p.s.Append(p.Context(), "new", 0, []byte("new")); err != nil {
		p.Errorf("%s: another journal cannot be written: %v", what, err)
	}
	p.healthy(what, thing)
	bad, _ := errors.AsType[*store.CorruptError](err)
	if mends := strings.HasSuffix(what, "cells.value") || strings.HasSuffix(what, "cells.crc") || strings.HasSuffix(what, "cells.version"); bad != nil && (mends || bad.Version != "") {
		_, err := p.s.Put(p.Context(), thing, []byte("anew"), bad.Version)
		if got, getErr := p.s.Get(p.Context(), thing); err != nil || string(got.Value) != "anew" {
			p.Errorf("%s: the damaged cell cannot be written anew: %v, %v", what, err, getErr)
		}
	}
}

func (p *sample) column(query string, args ...any) any {
	p.Helper()
	rows, err := queryRows(p.raw, query, args...)
	if err != nil || len(rows) == 0 {
		p.Fatalf("%s: no row, %v", query, err)
	}
	return rows[0][0]
}

func (p *sample) integer(query string, args ...any) int64 {
	p.Helper()
	return p.column(query, args...).(int64)
}

// TestOldHead puts a journal's end back to where it was before its last
// append, as a lost write would. The entry behind it was acknowledged.
func TestOldHead(t *testing.T) {
	p := newSample(t)
	last := p.column("SELECT last FROM journals WHERE name = ?", "b")
	crc := p.column("SELECT crc FROM journals WHERE name = ?", "b")
	if _, err := p.s.Append(t.Context(), "b", 4, []byte("fifth of b")); err != nil {
		t.Fatal(err)
	}
	p.must("UPDATE journals SET last = ?, crc = ? WHERE name = ?", last, crc, "b")
	p.broken("an old head", "b", 5)
	if _, err := p.s.Append(t.Context(), "b", 4, []byte("another fifth")); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("Append over an entry behind the end = %v, want ErrCorrupt", err)
	}
	p.broken("after an append", "b", 5)
}

// TestStrayEntry gives a damaged entry of one journal the key that the next
// entry of another will get.
func TestStrayEntry(t *testing.T) {
	p := newSample(t)
	a, b := p.integer("SELECT id FROM journals WHERE name = ?", "a"), p.integer("SELECT id FROM journals WHERE name = ?", "b")
	p.must("UPDATE entries SET key = ? WHERE key = ?", b<<32|5, a<<32|3)
	p.broken("a stray entry", "a", 3)
	if _, err := p.s.Append(t.Context(), "b", 4, []byte("fifth of b")); err != nil {
		t.Errorf("Append where a stray entry is: %v", err)
	}
	p.journals["b"] = append(p.journals["b"], "fifth of b")
	p.broken("after an append", "a", 3)
}

// TestDamagedCellInBatch has damage in the way of one cell of a batch: it is left
// out if it is optional, and otherwise refuses the batch, which alone suffers.
func TestDamagedCellInBatch(t *testing.T) {
	p := newSample(t)
	x, err := p.s.Get(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	index := p.column("SELECT id FROM cells WHERE name = ?", "x")
	const refuses = "what cannot be written"
	for what, damage := range map[string]func() error{
		"a lost name": func() error { return p.update("UPDATE cells SET name = ? WHERE id = ?", "lost", index) },
		refuses: func() error { // found when the entries are written
			return errors.Join(p.update("CREATE TRIGGER u BEFORE UPDATE ON cells WHEN OLD.name = 'x' BEGIN SELECT RAISE(ABORT, 'no'); END"),
				p.update("CREATE TRIGGER d BEFORE DELETE ON cells WHEN OLD.name = 'x' BEGIN SELECT RAISE(ABORT, 'no'); END"))
		},
	} {
		p.damaged(damage, func() {
			for i, w := range []store.Write{
				{Key: "x", Value: []byte("new"), Prev: x.Version}, {Key: "x", Prev: x.Version, Remove: true}, {Key: "x", Value: []byte("new")},
			} {
				if what == refuses && w.Prev == "" {
					continue // a conflict
				}
				batch := func(journal string, after uint64) func() error {
					b := store.Batch{Journal: journal, After: after, Entries: [][]byte{[]byte(what)}, Cells: []store.Write{{Key: "beside " + journal}, w}}
					return func() error { _, err := p.s.AppendBatch(t.Context(), b); return err }
				}
				journal := fmt.Sprint("required ", i)
				answers, _ := gather(t, p.dir, p.s, batch(journal, 0), batch("c", 7), func() error { _, err := p.s.Put(t.Context(), journal, nil, ""); return err })
				damage, ok := errors.AsType[*store.CorruptError](answers[0])
				if !ok || damage.Cell != "x" || !errors.Is(answers[1], store.ErrConflict) || errors.Is(answers[1], store.ErrCorrupt) || answers[2] != nil {
					t.Errorf("%s, write %d: a batch = %v, one behind the end %v, the write beside it %v", what, i, answers[0], answers[1], answers[2])
				}
				w.Optional = true
				if err := batch(fmt.Sprint("optional ", i), 0)(); err != nil {
					t.Errorf("%s, write %d: a batch that needs not write it = %v", what, i, err)
				}
				if _, err := p.s.Get(t.Context(), fmt.Sprint("beside optional ", i)); err != nil {
					t.Errorf("%s, write %d: the cell beside it: %v", what, i, err)
				}
			}
			p.must("DROP TRIGGER IF EXISTS u")
			p.must("DROP TRIGGER IF EXISTS d")
			p.healthy(what, "x")
		})
	}
}

// TestStrayID gives a damaged journal, or a cell, the id that the next will get.
func TestStrayID(t *testing.T) {
	for table, thing := range map[string]string{"journals": "c", "cells": "x"} {
		p := newSample(t)
		next := p.integer("SELECT max(id) + 1 FROM " + table)
		p.must("UPDATE "+table+" SET id = ? WHERE name = ?", next, thing)
		p.found("a stray id in "+table, thing, table == "cells")
	}
}

// TestFlippedFile flips single bits of the file itself, at random. Whatever
// can be read is right, or an error.
func TestFlippedFile(t *testing.T) {
	flips := 150
	if testing.Short() {
		flips = 30
	}
	p := newSample(t)
	for i := range 40 { // several pages of each table
		name := fmt.Sprintf("%s-%d", bytes.Repeat([]byte("n"), 150), i)
		data := string(bytes.Repeat([]byte{byte(i)}, 500+10*i))
		if _, err := p.s.Append(t.Context(), name, 0, []byte(data), []byte(name)); err != nil {
			t.Fatal(err)
		}
		if _, err := p.s.Put(t.Context(), name, []byte(data), ""); err != nil {
			t.Fatal(err)
		}
		p.journals[name], p.cells[name] = []string{data, name}, data
	}
	p.raw.Close()
	p.raw = nil
	p.s.Close()
	file, err := os.ReadFile(filepath.Join(p.dir, "test.db"))
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(3, 4))
	unopened, errs := 0, 0
	path := filepath.Join(t.TempDir(), "test.db")
	for range flips {
		bit := r.IntN(8 * len(file))
		if err := os.WriteFile(path, flipped(file, bit), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := sqlitestore.Open(t.Context(), path, sqlitestore.Options{})
		if err != nil {
			unopened++
			continue
		}
		errs += p.compare(s, fmt.Sprintf("bit %d of page %d", bit%(8*4096), bit/(8*4096)+1))
		s.Close()
	}
	if unopened+errs == 0 {
		t.Error("no flip was found")
	}
	t.Logf("%d flips: %d made the store unreadable, %d errors in the others", flips, unopened, errs)
}

// compare demands that what can be read is right, and counts the errors.
func (p *sample) compare(s store.Store, what string) (errs int) {
	p.Helper()
	for name, want := range p.journals {
		got, err := read(p.Context(), s, name)
		if err != nil {
			errs++
			want = want[:min(len(got), len(want))]
		}
		if !slices.Equal(got, want) {
			p.Errorf("%s: journal %.10s… has %d entries, silently wrong", what, name, len(got))
		}
	}
	for key, want := range p.cells {
		got, err := s.Get(p.Context(), key)
		if err != nil {
			errs++
			if errors.Is(err, store.ErrNotFound) {
				p.Errorf("%s: cell %.10s… is gone, silently", what, key)
			}
		} else if string(got.Value) != want {
			p.Errorf("%s: cell %.10s… is silently wrong", what, key)
		}
	}
	listed, listErrs := 0, 0
	for cell, err := range s.List(p.Context(), "", "") {
		if err != nil {
			listErrs++
		} else if listed++; string(cell.Value) != p.cells[cell.Key] {
			p.Errorf("%s: List gives a wrong cell %.10s…", what, cell.Key)
		}
	}
	if listErrs == 0 && listed != len(p.cells) {
		p.Errorf("%s: List gives %d cells of %d, silently", what, listed, len(p.cells))
	}
	listed, listErrs = 0, 0
	for name, err := range s.Journals(p.Context(), "") {
		if err != nil {
			listErrs++
		} else if listed++; p.journals[name] == nil {
			p.Errorf("%s: Journals gives a wrong name %.10s…", what, name)
		}
	}
	if listErrs == 0 && listed != len(p.journals) {
		p.Errorf("%s: Journals gives %d names of %d, silently", what, listed, len(p.journals))
	}
	return errs + listErrs
}
