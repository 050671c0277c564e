package seal_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// changed returns a copy of a store, in which entry and cell may change what
// is stored.
func changed(t *testing.T, from store.Store, entry func(journal string, e store.Entry) []byte, cell func(store.Cell) []byte) store.Store {
	t.Helper()
	to := memstore.New()
	for journal, err := range from.Journals(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		for e, err := range from.Read(t.Context(), journal, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if entry != nil {
				e.Data = entry(journal, e)
			}
			if _, err := to.Append(t.Context(), journal, e.Seq-1, e.Data); err != nil {
				t.Fatal(err)
			}
		}
	}
	for c, err := range from.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		if cell != nil {
			c.Value = cell(c)
		}
		if _, err := to.Put(t.Context(), c.Key, c.Value, ""); err != nil {
			t.Fatal(err)
		}
	}
	return to
}

// damages are all single-bit flips and truncations of data.
func damages(data []byte) [][]byte {
	var all [][]byte
	for bit := range len(data) * 8 {
		flipped := bytes.Clone(data)
		flipped[bit/8] ^= 1 << (bit % 8)
		all = append(all, flipped)
	}
	for n := range data {
		all = append(all, data[:n])
	}
	return append(all, append(bytes.Clone(data), 0))
}

func TestDamagedEntry(t *testing.T) {
	inner := memstore.New()
	s := sealed(t, inner, ring(t, "a"))
	add(t, s, "j", 0, "one", "two", "three")
	add(t, s, "other", 0, "fine")
	stored, err := store.ReadAll(t.Context(), inner, "j", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range damages(stored[1].Data) {
		s := sealed(t, changed(t, inner, func(journal string, e store.Entry) []byte {
			if journal == "j" && e.Seq == 2 {
				return bad
			}
			return e.Data
		}, nil), ring(t, "a"))
		got, err := text(t.Context(), s, "j")
		wantCorrupt(t, err, store.CorruptError{Journal: "j", Seq: 2}, "")
		if got != "one" {
			t.Errorf("read %q before the damage, want the entry before it", got)
		}
		wantText(t, s, "other", "fine")
		if rest, err := store.ReadAll(t.Context(), s, "j", 2); err != nil || len(rest) != 1 || string(rest[0].Data) != "three" {
			t.Errorf("behind the damage: %v, %v", rest, err)
		}
	}
}

func TestDamagedCell(t *testing.T) {
	inner := memstore.New()
	s := sealed(t, inner, ring(t, "a"))
	put(t, s, "bad", "value")
	put(t, s, "good", "fine")
	stored, err := inner.Get(t.Context(), "bad")
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range damages(stored.Value) {
		s := sealed(t, changed(t, inner, nil, func(c store.Cell) []byte {
			if c.Key == "bad" {
				return bad
			}
			return c.Value
		}), ring(t, "a"))
		_, err := s.Get(t.Context(), "bad")
		wantCorrupt(t, err, store.CorruptError{Cell: "bad"}, "")
		var listed []string
		for c, listErr := range s.List(t.Context(), "", "") {
			listed, err = append(listed, c.Key), listErr
		}
		wantCorrupt(t, err, store.CorruptError{Cell: "bad"}, "")
		if want := []string{"good", ""}; !slices.Equal(listed, want) {
			t.Fatalf("List yields %q, want what is sound and then the damage", listed)
		}
		if c, err := s.Get(t.Context(), "good"); err != nil || string(c.Value) != "fine" {
			t.Errorf("another cell: %q, %v", c.Value, err)
		}
	}
}

// Damage to a data key makes one journal unreadable, and says so.
func TestDamagedDataKey(t *testing.T) {
	inner := memstore.New()
	s := sealed(t, inner, ring(t, "a"))
	before := cells(t, inner)
	add(t, s, "j", 0, "x")
	var cell string
	for _, key := range cells(t, inner) {
		if key != before[0] {
			cell = key
		}
	}
	add(t, s, "other", 0, "fine")
	stored, err := inner.Get(t.Context(), cell)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range damages(stored.Value) {
		s := sealed(t, changed(t, inner, nil, func(c store.Cell) []byte {
			if c.Key == cell {
				return bad
			}
			return c.Value
		}), ring(t, "a"))
		if got, err := text(t.Context(), s, "j"); !errors.Is(err, store.ErrKey) {
			t.Fatalf("read %q, %v; want ErrKey", got, err)
		}
		if _, err := s.Append(t.Context(), "j", 1, []byte("y")); !errors.Is(err, store.ErrKey) {
			t.Fatalf("Append = %v; want ErrKey", err)
		}
		wantText(t, s, "other", "fine")
	}
}

// Whatever is stored in one place is refused in another.
func TestMovedBytes(t *testing.T) {
	inner := memstore.New()
	s := sealed(t, inner, ring(t, "a"))
	add(t, s, "j", 0, "one", "two")
	add(t, s, "k", 0, "uno", "dos")
	put(t, s, "c", "1")
	put(t, s, "d", "2")
	entry := func(journal string, seq uint64) []byte {
		for e, err := range inner.Read(t.Context(), journal, seq-1) {
			if err != nil {
				t.Fatal(err)
			}
			return e.Data
		}
		return nil
	}
	value := func(key string) []byte {
		c, err := inner.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		return c.Value
	}
	for name, test := range map[string]struct {
		at   store.CorruptError
		with []byte
	}{
		"an entry at another sequence": {store.CorruptError{Journal: "j", Seq: 1}, entry("j", 2)},
		"an entry repeated":            {store.CorruptError{Journal: "j", Seq: 2}, entry("j", 1)},
		"an entry of another journal":  {store.CorruptError{Journal: "j", Seq: 1}, entry("k", 1)},
		"a value as an entry":          {store.CorruptError{Journal: "j", Seq: 1}, value("c")},
		"another cell's value":         {store.CorruptError{Cell: "c"}, value("d")},
		"an entry as a value":          {store.CorruptError{Cell: "c"}, entry("j", 1)},
	} {
		t.Run(name, func(t *testing.T) {
			s := sealed(t, changed(t, inner, func(journal string, e store.Entry) []byte {
				if journal == test.at.Journal && e.Seq == test.at.Seq {
					return test.with
				}
				return e.Data
			}, func(c store.Cell) []byte {
				if c.Key == test.at.Cell {
					return test.with
				}
				return c.Value
			}), ring(t, "a"))
			_, err := text(t.Context(), s, "j")
			if test.at.Cell != "" {
				_, err = s.Get(t.Context(), test.at.Cell)
			}
			wantCorrupt(t, err, test.at, "the seal is broken")
		})
	}

	t.Run("another journal's data key", func(t *testing.T) {
		var keys []string
		for _, key := range cells(t, inner) {
			if len(key) > 64 {
				keys = append(keys, key)
			}
		}
		swapped := map[string][]byte{keys[0]: value(keys[1]), keys[1]: value(keys[0])}
		s := sealed(t, changed(t, inner, nil, func(c store.Cell) []byte {
			if with, ok := swapped[c.Key]; ok {
				return with
			}
			return c.Value
		}), ring(t, "a"))
		if got, err := text(t.Context(), s, "j"); !errors.Is(err, store.ErrKey) {
			t.Errorf("read %q, %v; want ErrKey", got, err)
		}
	})
}
