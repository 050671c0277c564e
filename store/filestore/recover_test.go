package filestore

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/perdure/perdure/store"
)

// TestTail writes the end of a journal by hand, behind a head that says that
// two entries are synced, and looks at what recovery makes of it.
func TestTail(t *testing.T) {
	const name = "j"
	salt := saltOf(name)
	line := func(seq, part, of uint64) string {
		return string(appendEntry(nil, salt, entry{seq: seq, part: part, of: of}, fmt.Appendf(nil, "%d", seq)))
	}
	torn := line(3, 1, 1)[:20]
	for _, c := range []struct {
		name string
		tail string
		last int    // the entries found
		bad  uint64 // where the damage is, 0 if there is none
	}{
		{"nothing", "", 2, 0},
		{"a whole append", line(3, 1, 1), 3, 0},
		{"two whole appends", line(3, 1, 1) + line(4, 1, 2) + line(5, 2, 2), 5, 0},
		{"a torn line", torn, 2, 0},
		{"a torn line behind a whole one", line(3, 1, 1) + line(4, 1, 1)[:30], 3, 0},
		{"half an append", line(3, 1, 2), 2, 0},
		{"half an append and a torn line", line(3, 1, 3) + line(4, 2, 3) + line(5, 3, 3)[:9], 2, 0},
		{"an append whose first page is missing", strings.Repeat("\x00", 60) + "\n" + line(4, 2, 3) + line(5, 3, 3), 2, 0},
		{"zeroes", strings.Repeat("\x00", 9000), 2, 0},
		{"garbage without newlines, more than a line", strings.Repeat("x", maxLine+100), 2, 0},
		{"a later append behind damage", torn + "\n" + line(4, 1, 1), 2, 3},
		{"a later append behind half an append", line(3, 1, 2) + line(5, 1, 1), 2, 3},
		{"a later append behind a whole one and damage", line(3, 1, 1) + "x\n" + line(5, 1, 1), 3, 4},
		{"a missing append", line(4, 1, 1), 2, 3},
		{"an append again", line(2, 1, 1), 2, 3},
		{"a part out of place", line(3, 2, 2), 2, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			s := mustOpen(t, dir, healthy)
			for i := range 2 {
				if _, err := s.Append(t.Context(), name, uint64(i), fmt.Appendf(nil, "%d", i+1)); err != nil {
					t.Fatal(err)
				}
			}
			path := s.engine.journals.path(placeOf(name))
			s.Close()
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteString(c.tail); err != nil {
				t.Fatal(err)
			}
			f.Close()

			for range 2 { // again, to see that it stays so
				s = mustOpen(t, dir, healthy)
				checkTail(t, s, name, c.last, c.bad)
				s.Close()
			}
			if c.bad != 0 {
				return
			}
			s = mustOpen(t, dir, healthy)
			if _, err := s.Append(t.Context(), name, uint64(c.last), fmt.Appendf(nil, "%d", c.last+1)); err != nil {
				t.Fatal(err)
			}
			checkTail(t, s, name, c.last+1, 0)
		})
	}
}

func checkTail(t *testing.T, s *Store, name string, last int, bad uint64) {
	t.Helper()
	var want []string
	for i := range last {
		want = append(want, fmt.Sprint(i+1))
	}
	got, err := contents(t.Context(), s, name)
	var corrupt *store.CorruptError
	switch {
	case bad == 0 && (err != nil || !slices.Equal(got, want)):
		t.Errorf("Read = %q, %v, want %q", got, err, want)
	case bad == 0:
		b, err := os.ReadFile(s.engine.journals.path(placeOf(name)))
		if lines := bytes.Count(b, []byte("\n")); err != nil || lines != 3+last || b[len(b)-1] != '\n' {
			t.Errorf("the file has %d lines, %v, want 3 and %d entries and nothing torn", lines, err, last)
		}
	case bad != 0 && (!errors.As(err, &corrupt) || corrupt.Seq != bad || !slices.Equal(got, want)):
		t.Errorf("Read = %q, %v, want %q and damage at %d", got, err, want, bad)
	}
}

// TestHeadDisagrees writes sound head lines that say what is not so.
func TestHeadDisagrees(t *testing.T) {
	for _, off := range []head{{seq: 0, end: 1}, {seq: 1}, {seq: ^uint64(0)}} {
		dir := t.TempDir()
		s := mustOpen(t, dir, healthy)
		if _, err := s.Append(t.Context(), "j", 0, []byte("1"), []byte("2")); err != nil {
			t.Fatal(err)
		}
		j := s.engine.loaded["j"]
		s.Close()
		b, err := os.ReadFile(j.path)
		if err != nil {
			t.Fatal(err)
		}
		line := appendHead(nil, j.salt, head{seq: j.tail.seq + off.seq, end: j.tail.end + off.end})
		copy(b[j.body-2*headLen:], append(line, line...))
		if err := os.WriteFile(j.path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		s = mustOpen(t, dir, healthy)
		if got, err := contents(t.Context(), s, "j"); !errors.Is(err, store.ErrCorrupt) || len(got) != 2 {
			t.Errorf("Read with a head off by %v = %q, %v, want both entries and ErrCorrupt", off, got, err)
		}
	}
}

// TestDamageWhileOpen changes a journal's file under an open store.
func TestDamageWhileOpen(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(b []byte) []byte
	}{
		{"a flipped bit", func(b []byte) []byte { b[len(b)-40] ^= 1; return b }},
		{"a cut", func(b []byte) []byte { return b[:len(b)-10] }},
		{"nothing left", func(b []byte) []byte { return nil }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := mustOpen(t, t.TempDir(), healthy)
			for i := range uint64(3) {
				if _, err := s.Append(t.Context(), "j", i, []byte(`{"text":"something longer than the rest"}`)); err != nil {
					t.Fatal(err)
				}
			}
			path := s.engine.journals.path(placeOf("j"))
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, c.damage(b), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err = contents(t.Context(), s, "j")
			if !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("Read = %v, want ErrCorrupt", err)
			}
			if _, err := s.Append(t.Context(), "j", 3, []byte("4")); !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("Append = %v, want ErrCorrupt", err)
			}
			if err := s.Drop(t.Context(), "j"); err != nil {
				t.Errorf("Drop of a damaged journal = %v", err)
			}
		})
	}
}

// TestSwappedFiles puts one name's file in another's place: it is sound in
// itself, but not there.
func TestSwappedFiles(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, healthy)
	for _, name := range []string{"one", "two"} {
		if _, err := s.Append(t.Context(), name, 0, []byte(`"x"`)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Put(t.Context(), name, []byte(`"x"`), ""); err != nil {
			t.Fatal(err)
		}
	}
	for _, sh := range []*shelf{&s.engine.journals, &s.engine.cells} {
		b, err := os.ReadFile(sh.path(placeOf("one")))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(sh.path(placeOf("two")), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
	s = mustOpen(t, dir, healthy)
	if got, err := contents(t.Context(), s, "two"); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("Read of a journal with another's file = %q, %v, want ErrCorrupt", got, err)
	}
	if c, err := s.Get(t.Context(), "two"); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("Get of a cell with another's file = %v, %v, want ErrCorrupt", c, err)
	}
	if got, err := contents(t.Context(), s, "one"); err != nil || len(got) != 1 {
		t.Errorf("Read of the other = %q, %v", got, err)
	}
}
