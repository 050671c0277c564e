package sqlitestore_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/perdure/perdure/store"
)

// list returns the keys that List yields, and its error.
func list(t *testing.T, s store.Store, prefix string) (keys []string, err error) {
	for cell, err := range s.List(t.Context(), prefix, "") {
		if err != nil {
			return keys, err
		}
		keys = append(keys, cell.Key)
	}
	return keys, nil
}

// TestListPassesDamage demands that listings yield all that is sound, tell the
// damage behind it, and have nothing to do with damage beside their prefix.
func TestListPassesDamage(t *testing.T) {
	p := newSample(t)
	p.must("UPDATE cells SET value = ? WHERE name = ?", "something else", "y")
	p.must("UPDATE journals SET crc = crc + 1 WHERE name = ?", "b")

	var damage *store.CorruptError
	if keys, err := list(t, p.s, ""); !slices.Equal(keys, []string{"x", "z"}) || !errors.As(err, &damage) || damage.Cell != "y" {
		t.Errorf("List = %q, %v; want x, z and the damage of y", keys, err)
	}
	for _, prefix := range []string{"x", "z"} {
		if keys, err := list(t, p.s, prefix); !slices.Equal(keys, []string{prefix}) || err != nil {
			t.Errorf("List of %s beside a damaged cell = %q, %v", prefix, keys, err)
		}
	}
	var names []string
	for name, err := range p.s.Journals(t.Context(), "") {
		if errors.As(err, &damage) && damage.Journal == "b" {
			name = "damage of b"
		} else if err != nil {
			t.Errorf("Journals: %v", err)
		}
		names = append(names, name)
	}
	if !slices.Equal(names, []string{"a", "c", "damage of b"}) {
		t.Errorf("Journals = %q; want a, c and the damage of b", names)
	}
}

// TestListPassesPage makes one page of cells unreadable to SQLite.
func TestListPassesPage(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	var page []byte
	for i := range 40 {
		version, err := s.Put(t.Context(), fmt.Sprintf("%02d", i), make([]byte, 500), "")
		if err != nil {
			t.Fatal(err)
		}
		if i == 20 { // its version is in its page and nowhere else
			page, _ = hex.DecodeString(string(version))
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "test.db")
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(file, page) &^ (4096 - 1)
	clear(file[at : at+8])
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}

	s = openTest(t, dir)
	var sound []string
	for i := range 40 {
		key := fmt.Sprintf("%02d", i)
		if _, err := s.Get(t.Context(), key); err == nil {
			sound = append(sound, key)
		} else if !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("Get %s = %v", key, err)
		}
	}
	if len(sound) == 0 || len(sound) == 40 {
		t.Fatalf("%d of 40 cells are sound, want some", len(sound))
	}
	if keys, err := list(t, s, ""); !slices.Equal(keys, sound) || !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("List = %q, %v; want %q and damage", keys, err, sound)
	}
	if keys, err := list(t, s, "0"); len(keys) != 10 || err != nil {
		t.Errorf("List of other pages = %q, %v", keys, err)
	}
}
