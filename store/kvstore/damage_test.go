package kvstore_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/kvstore"
)

// filled returns an engine with two journals of three batches and two cells.
func filled(t *testing.T) *engine {
	t.Helper()
	e := newEngine(false)
	s := kvstore.New(e, kvstore.Options{})
	for _, j := range []string{"sick", "well"} {
		must(t, appended(s, j, 0, "1"))
		must(t, appended(s, j, 1, "2", "3"))
		must(t, appended(s, j, 3, "4"))
		_, err := s.Put(t.Context(), j, []byte("value of "+j), "")
		must(t, err)
	}
	return e
}

// The keys of the sick journal and cell, as they lie in engines everywhere,
// the first sequence that is lost with each, and the reads that need it: those
// behind a sequence before until.
var sickKeys = map[string]struct{ first, until uint64 }{
	"b-edkm6qo-0000000000000001": {1, 1},
	"b-edkm6qo-0000000000000003": {2, 3},
	"h-edkm6qo":                  {4, math.MaxUint64},
	"c-edkm6qo":                  {0, 0},
}

// checkSick demands that what is stored under a damaged key is reported where
// it is, that all before it can be read, and that nothing else suffers.
func checkSick(t *testing.T, e *engine, key, what string) {
	t.Helper()
	ctx := t.Context()
	s := kvstore.New(e, kvstore.Options{})
	for after := range uint64(5) {
		entries, err := store.ReadAll(ctx, s, "sick", after)
		for i, entry := range entries {
			if entry.Seq != after+uint64(i)+1 || string(entry.Data) != fmt.Sprint(entry.Seq) {
				t.Fatalf("%s: a read behind %d has %d: %q", what, after, entry.Seq, entry.Data)
			}
		}
		seq := sickKeys[key].first
		corrupt, ok := errors.AsType[*store.CorruptError](err)
		switch {
		case after >= sickKeys[key].until:
			if err != nil || len(entries) != 4-int(after) {
				t.Fatalf("%s: a read behind %d, which is not touched, has %d entries: %v", what, after, len(entries), err)
			}
		case !ok || corrupt.Journal != "sick" || corrupt.Seq != seq || !strings.Contains(corrupt.Where, "-edkm6qo"):
			t.Fatalf("%s: a read behind %d: %v, want damage at %d", what, after, err, seq)
		case after < seq && len(entries) != int(seq-after)-1:
			t.Fatalf("%s: a read behind %d has %d entries before the damage", what, after, len(entries))
		}
	}
	cell, err := s.Get(ctx, "sick")
	corrupt, ok := errors.AsType[*store.CorruptError](err)
	if sick := key == "c-edkm6qo"; sick && (!ok || corrupt.Cell != "sick") || !sick && (err != nil || string(cell.Value) != "value of sick") {
		t.Fatalf("%s: the cell is %q: %v", what, cell.Value, err)
	}
	if ok {
		_, err := s.Put(ctx, "sick", []byte("anew"), corrupt.Version)
		if cell, getErr := s.Get(ctx, "sick"); err != nil || string(cell.Value) != "anew" {
			t.Fatalf("%s: the cell cannot be written anew: %v, %v", what, err, getErr)
		}
	}
	if entries, err := store.ReadAll(ctx, s, "well", 0); err != nil || len(entries) != 4 {
		t.Fatalf("%s: the other journal has %d entries: %v", what, len(entries), err)
	}
	if _, err := s.Get(ctx, "well"); err != nil {
		t.Fatalf("%s: the other cell: %v", what, err)
	}
	if key == "h-edkm6qo" {
		for _, after := range []uint64{0, 4} {
			if err := appended(s, "sick", after, "x"); !errors.Is(err, store.ErrCorrupt) {
				t.Fatalf("%s: append: %v, want ErrCorrupt", what, err)
			}
		}
	}
}

// restore puts the cells of an engine back as they were.
func (e *engine) restore(cells map[string]store.Cell) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cells = maps.Clone(cells)
}

// damage replaces a value behind the store's back.
func (e *engine) damage(key string, value []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	cell := e.cells[key]
	cell.Value = value
	e.cells[key] = cell
}

func TestEachBitAndEachCut(t *testing.T) {
	e := filled(t)
	good := e.snapshot()
	for key := range sickKeys {
		value := good[key].Value
		if value == nil {
			t.Fatalf("there is no key %s among %q", key, slices.Sorted(maps.Keys(good)))
		}
		for bit := range 8 * len(value) {
			bad := bytes.Clone(value)
			bad[bit/8] ^= 1 << (bit % 8)
			e.damage(key, bad)
			checkSick(t, e, key, fmt.Sprintf("%s with bit %d flipped", key, bit))
		}
		for size := range len(value) {
			e.damage(key, value[:size])
			checkSick(t, e, key, fmt.Sprintf("%s cut to %d bytes", key, size))
		}
		for other, cell := range good {
			if other != key {
				e.damage(key, cell.Value)
				checkSick(t, e, key, fmt.Sprintf("%s with the value of %s", key, other))
			}
		}
		e.damage(key, append(bytes.Clone(value), 0))
		checkSick(t, e, key, key+" with a byte more")
		e.restore(good)
	}
}

func TestEachKeyLost(t *testing.T) {
	e := filled(t)
	good := e.snapshot()
	for key := range sickKeys {
		if key == "c-edkm6qo" {
			continue // a cell that is gone cannot be told from one that was deleted
		}
		e.mu.Lock()
		delete(e.cells, key)
		e.mu.Unlock()
		checkSick(t, e, key, key+" lost")
		e.restore(good)
	}
}

// A head that goes back in time does not overwrite what came behind it.
func TestRolledBackHead(t *testing.T) {
	e := newEngine(false)
	s := kvstore.New(e, kvstore.Options{})
	must(t, appended(s, "sick", 0, "1"))
	old := e.snapshot()["h-edkm6qo"]
	must(t, appended(s, "sick", 1, "2"))
	must(t, appended(s, "sick", 2, "3"))
	e.mu.Lock()
	e.cells["h-edkm6qo"] = old
	e.mu.Unlock()
	s = kvstore.New(e, kvstore.Options{})
	must(t, appended(s, "sick", 1, "another 2"))
	if err := appended(s, "sick", 2, "another 3"); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("the append behind a rolled back head: %v, want ErrCorrupt", err)
	}
}

// What is damaged can still be erased, and a drop of it is like any other.
func TestDropOfDamaged(t *testing.T) {
	e := filled(t)
	good := e.snapshot()
	for key := range sickKeys {
		if key == "c-edkm6qo" {
			continue
		}
		e.damage(key, []byte("garbage"))
		s := kvstore.New(e, kvstore.Options{})
		must(t, s.Drop(t.Context(), "sick"))
		if err := appended(s, "sick", 4, "x"); !errors.Is(err, store.ErrDropped) {
			t.Errorf("append behind the drop: %v", err)
		}
		for key := range e.snapshot() {
			if strings.HasPrefix(key, "b-edkm6qo") {
				t.Errorf("key %s is left", key)
			}
		}
		e.restore(good)
	}
}

// Damage does not hide journals from those who enumerate them.
func TestJournalsWithADamagedHead(t *testing.T) {
	e := filled(t)
	e.damage("h-edkm6qo", []byte("garbage"))
	var names []string
	for name, err := range kvstore.New(e, kvstore.Options{}).Journals(t.Context(), "") {
		must(t, err)
		names = append(names, name)
	}
	if !slices.Equal(names, []string{"sick", "well"}) {
		t.Errorf("the journals are %q, want both", names)
	}
}

// Damage does not hide other cells from those who list them: it is told behind
// them.
func TestListWithADamagedCell(t *testing.T) {
	for _, key := range []string{"c-edkm6qo", "c-0"} { // the first of two, and one that is foreign
		e := filled(t)
		e.cells[key] = store.Cell{Key: key, Value: []byte("garbage"), Version: "1"}
		var keys []string
		var last error
		for cell, err := range kvstore.New(e, kvstore.Options{}).List(t.Context(), "", "") {
			if last != nil {
				t.Errorf("%s: List goes on behind its error", key)
			}
			if last = err; err == nil {
				keys = append(keys, cell.Key)
			}
		}
		if !slices.Contains(keys, "well") || !errors.Is(last, store.ErrCorrupt) {
			t.Errorf("with %s damaged List yields %q and then %v, want what is well and then ErrCorrupt", key, keys, last)
		}
	}
}

func TestForeignKeys(t *testing.T) {
	for _, key := range []string{"c-0", "c-edkm6qv", "c-zebra", "h-"} {
		e := filled(t)
		e.cells[key] = store.Cell{Key: key, Value: []byte("foreign"), Version: "1"}
		s := kvstore.New(e, kvstore.Options{})
		var got error
		for _, err := range s.List(t.Context(), "", "") {
			got = errors.Join(got, err)
		}
		for _, err := range s.Journals(t.Context(), "") {
			got = errors.Join(got, err)
		}
		if !errors.Is(got, store.ErrCorrupt) || !strings.Contains(got.Error(), key) {
			t.Errorf("with a foreign key %s: %v, want ErrCorrupt that names it", key, got)
		}
	}
}

// A value with a good checksum and another format was written by a newer
// version: it is refused, not overwritten.
func TestNewerFormat(t *testing.T) {
	e := filled(t)
	ctx := t.Context()
	for key := range sickKeys {
		value := e.snapshot()[key].Value
		value[4]++
		sum := crc32.Checksum(append([]byte(key), value[4:]...), crc32.MakeTable(crc32.Castagnoli))
		binary.BigEndian.PutUint32(value, sum)
		e.damage(key, value)
	}
	s := kvstore.New(e, kvstore.Options{})
	_, readErr := store.ReadAll(ctx, s, "sick", 0)
	_, getErr := s.Get(ctx, "sick")
	var listErr, journalsErr error
	for _, err := range s.List(ctx, "", "") {
		listErr = errors.Join(listErr, err)
	}
	for _, err := range s.Journals(ctx, "") {
		journalsErr = errors.Join(journalsErr, err)
	}
	for what, err := range map[string]error{
		"Read": readErr, "Get": getErr, "List": listErr, "Journals": journalsErr,
		"Append": appended(s, "sick", 4, "x"), "Drop": s.Drop(ctx, "sick"),
	} {
		if !errors.Is(err, store.ErrNewer) {
			t.Errorf("%s: %v, want ErrNewer", what, err)
		}
	}
}
