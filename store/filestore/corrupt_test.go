package filestore

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/perdure/perdure/store"
)

// The small store that the corruption sweep damages.
var (
	smallJournals = map[string][][]string{
		"letters": {{`{"a":1}`}, {`{"b":2}`}, {`{"c":3}`, `{"d":4}`, `{"e":5}`}, {`{"f":6}`}},
		"bytes":   {{"\x00\xff"}, {""}, {"line\nbreak"}, {`"plain"`, "\xff"}},
		"x\xff/é": {{`1`, `2`}, {`3`}, {`4`}, {`5`}, {`6`}},
	}
	smallCells = map[string]string{"lease": `{"holder":"w1"}`, "raw\x80": "\x01\x02"}
)

// file is one file of the small store.
type file struct {
	path    string
	bytes   []byte
	journal string // which of these it is
	cell    string
	tomb    bool
}

func smallStore(t *testing.T) (dir string, files []file) {
	t.Helper()
	dir = t.TempDir()
	s := mustOpen(t, dir, healthy)
	e := s.engine
	for name, appends := range smallJournals {
		after := uint64(0)
		for _, batch := range appends {
			data := [][]byte{}
			for _, entry := range batch {
				data = append(data, []byte(entry))
			}
			var err error
			if after, err = s.Append(t.Context(), name, after, data...); err != nil {
				t.Fatal(err)
			}
		}
		files = append(files, file{journal: name, path: e.journals.path(placeOf(name))})
	}
	for key, value := range smallCells {
		if _, err := s.Put(t.Context(), key, []byte(value), ""); err != nil {
			t.Fatal(err)
		}
		files = append(files, file{cell: key, path: e.cells.path(placeOf(key))})
	}
	if err := s.Drop(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	files = append(files, file{journal: "gone", tomb: true, path: e.journals.path(placeOf("gone"))})
	s.Close()
	for i := range files {
		b, err := os.ReadFile(files[i].path)
		if err != nil {
			t.Fatal(err)
		}
		files[i].bytes = b
	}
	return dir, files
}

// bare returns a handle on the folder without its lock, which is quick to
// make.
func bare(dir string) *Store {
	lock, _ := os.Stat(filepath.Join(dir, lockName))
	e := newEngine(dir, healthy, lock)
	return &Store{Hub: store.NewHub(), folder: &folder{dir: dir, engine: e}, engine: e}
}

// TestEveryBitFlip flips each bit of each file, and cuts each file at each
// byte. All damage is found and located, or all is read as it was written;
// the latter only where one of the two head lines of a journal is hit, since
// the other one is enough.
func TestEveryBitFlip(t *testing.T) {
	dir, files := smallStore(t)
	flips, cuts, harmless := 0, 0, 0
	for _, f := range files {
		for at := range f.bytes {
			whole := at%5 == 0 || !testing.Short()
			for bit := range 8 {
				if testing.Short() && bit != at%8 {
					continue
				}
				damaged := slices.Clone(f.bytes)
				damaged[at] ^= 1 << bit
				flips++
				// One bit of each byte is looked at through a whole store, or of each fifth byte.
				found, readable := damageFound(t, dir, f, damaged, files, whole && bit == at%8)
				if !found {
					harmless++
				}
				if found == inHead(f, at) || readable != sound(f, at, false) {
					t.Fatalf("%s: a flip of bit %d at offset %d: found %v, %d entries readable", filepath.Base(f.path), bit, at, found, readable)
				}
			}
			cuts++
			found, readable := damageFound(t, dir, f, f.bytes[:at], files, whole)
			if !found || readable != sound(f, at, true) {
				t.Fatalf("%s: a cut at offset %d: found %v, %d entries readable", filepath.Base(f.path), at, found, readable)
			}
		}
	}
	t.Logf("%d flips and %d cuts; %d flips hit one of two head lines and were harmless, all other damage was found", flips, cuts, harmless)
	if least := map[bool]int{false: 10_000, true: 1_250}[testing.Short()]; flips < least || harmless == 0 {
		t.Error("the sweep is smaller than it should be")
	}
}

func inHead(f file, at int) bool {
	if f.journal == "" || f.tomb {
		return false
	}
	header := len(headerOf(f.journal))
	return at >= header && at < header+2*int(headLen)
}

// sound returns how many entries stand before damage at an offset, and so can
// be read. Damage of the first lines hides none, unless all behind is cut.
func sound(f file, at int, cut bool) int {
	if f.journal == "" || f.tomb {
		return 0
	}
	body := len(headerOf(f.journal)) + 2*int(headLen)
	switch {
	case at < body && cut:
		return 0
	case at < body:
		at = len(f.bytes)
	}
	return strings.Count(string(f.bytes[body:at]), "\n")
}

// damageFound writes the damaged bytes, reads the store, and puts the file
// back. It reports whether damage was found and how many entries could be
// read, and fails the test if anything but the file suffered.
func damageFound(t *testing.T, dir string, f file, damaged []byte, files []file, whole bool) (found bool, readable int) {
	t.Helper()
	if err := os.WriteFile(f.path, damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	defer os.WriteFile(f.path, f.bytes, 0o600)
	s := bare(dir)
	defer s.engine.files.closeAll()
	found, readable = readDamaged(t, s, f)
	for _, other := range files {
		if !whole || other.path == f.path {
			continue
		}
		if spread, _ := readDamaged(t, s, other); spread {
			t.Fatalf("damage of %s spread to %s", f.path, other.path)
		}
	}
	if whole {
		listDamaged(t, s, f, found)
	}
	if whole && f.cell != "" && len(damaged)%16 == 0 { // who knows what it should hold writes it anew
		_, err := store.Update(t.Context(), store.Derived(s), f.cell, func(store.Cell) ([]byte, error) { return []byte(smallCells[f.cell]), nil })
		if err != nil {
			t.Fatalf("the damaged cell %q cannot be written anew: %v", f.cell, err)
		}
		listDamaged(t, s, f, false)
	}
	return found, readable
}

// readDamaged reads what f holds and reports whether damage was found, and
// how many entries came before it.
func readDamaged(t *testing.T, s *Store, f file) (found bool, readable int) {
	t.Helper()
	var corrupt *store.CorruptError
	if f.cell != "" {
		c, err := s.Get(t.Context(), f.cell)
		if errors.As(err, &corrupt) && corrupt.Cell == f.cell && corrupt.Where == f.path {
			return true, 0
		}
		if err != nil || string(c.Value) != smallCells[f.cell] {
			t.Fatalf("Get of %q = %q, %v", f.cell, c.Value, err)
		}
		return false, 0
	}
	want := slices.Concat(smallJournals[f.journal]...)
	got, err := contents(t.Context(), s, f.journal)
	switch {
	case f.tomb && errors.Is(err, store.ErrDropped):
		return false, len(got)
	case err == nil && !f.tomb && slices.Equal(got, want):
		return false, len(got)
	case !errors.As(err, &corrupt):
		t.Fatalf("Read of %q = %q, %v", f.journal, got, err)
	case corrupt.Journal != f.journal || corrupt.Seq != uint64(len(got))+1 || !strings.HasPrefix(corrupt.Where, f.path):
		t.Fatalf("Read of %q yields %d entries and %v", f.journal, len(got), err)
	case len(got) > len(want) || !slices.Equal(got, want[:len(got)]):
		t.Fatalf("Read of %q = %q, want a beginning of %q", f.journal, got, want)
	}
	if _, err := s.Append(t.Context(), f.journal, uint64(len(got)), []byte("1")); !errors.Is(err, store.ErrCorrupt) {
		t.Fatalf("Append to the damaged journal %q = %v, want ErrCorrupt", f.journal, err)
	}
	return true, len(got)
}

// listDamaged demands that Journals and List yield all that is sound, and an
// error if they do not yield all there is.
func listDamaged(t *testing.T, s *Store, f file, found bool) {
	t.Helper()
	names := 0
	for name, err := range s.Journals(t.Context(), "") {
		if err != nil && !(found && f.journal != "" && errors.Is(err, store.ErrCorrupt)) {
			t.Fatalf("Journals = %v", err)
		}
		if err == nil && smallJournals[name] == nil {
			t.Fatalf("Journals yields %q, which is not there", name)
		}
		names++ // the error stands for the one without a name
	}
	if names < len(smallJournals) || names == len(smallJournals) && f.tomb && found {
		t.Fatalf("Journals yields %d of %d, and no error", names, len(smallJournals))
	}
	cells := 0
	for c, err := range s.List(t.Context(), "", "") {
		if err != nil && !(found && f.cell != "" && errors.Is(err, store.ErrCorrupt)) {
			t.Fatalf("List = %v", err)
		}
		if err == nil && string(c.Value) != smallCells[c.Key] {
			t.Fatalf("List yields %q", c)
		}
		cells++
	}
	if cells != len(smallCells) {
		t.Fatalf("List yields %d of %d, and no error", cells, len(smallCells))
	}
}

// TestANamelessFileIsToldToItsOwn damages the keys of cells. Lists of what
// their files' names cannot belong to do not tell it.
func TestANamelessFileIsToldToItsOwn(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, healthy)
	keys := []string{"id/a", "thread/0123456789abcdef.x", "thread/0123456789abcdeg.x", "shelf/rule/x"}
	for _, key := range keys {
		if _, err := s.Put(t.Context(), key, []byte("1"), ""); err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
	path := s.engine.cells.path(placeOf(keys[1]))
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[strings.Index(string(b), "thread")] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, dir, healthy)
	for prefix, told := range map[string]bool{"": true, "t": true, "thread/": true, "thread/0123456789abcdef.": true, "thread/0123456789abcdeg.": false, "id/": false, "shelf/rule/": false} {
		var last error
		for _, err := range s.List(t.Context(), prefix, "") {
			last = err
		}
		if errors.Is(last, store.ErrCorrupt) != told {
			t.Errorf("the list of %q ends with %v", prefix, last)
		}
	}
	if err := store.DeletePrefix(t.Context(), s, "thread/0123456789abcdeg."); err != nil {
		t.Error(err)
	}
}

// TestEveryBitFlipOfFormat does the same to FORMAT. LOCK may hold anything.
func TestEveryBitFlipOfFormat(t *testing.T) {
	dir, _ := smallStore(t)
	path := filepath.Join(dir, "FORMAT")
	sound, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := range sound {
		for bit := range 9 {
			damaged := sound[:at]
			if bit < 8 {
				damaged = slices.Clone(sound)
				damaged[at] ^= 1 << bit
			}
			if err := os.WriteFile(path, damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			s, err := Open(t.Context(), dir, Options{})
			if err == nil {
				s.Close()
			}
			if !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), path) {
				t.Fatalf("Open with byte %d of FORMAT damaged = %v, want ErrCorrupt", at, err)
			}
		}
	}
	if err := os.WriteFile(path, sound, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "LOCK"), []byte("\xff\x00garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	mustOpen(t, dir, healthy).Close()
}

// TestUnreadableFile has files that the disk does not give back. They do not
// hide the others.
func TestUnreadableFile(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, healthy)
	for _, name := range []string{"a", "b", "c"} {
		if _, err := s.Append(t.Context(), name, 0, []byte("1")); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Put(t.Context(), name, []byte("1"), ""); err != nil {
			t.Fatal(err)
		}
	}
	check := func(what string) {
		t.Helper()
		var names, keys string
		var namesErr, keysErr error
		for name, err := range s.Journals(t.Context(), "") {
			names, namesErr = names+name, err
		}
		for c, err := range s.List(t.Context(), "", "") {
			keys, keysErr = keys+c.Key, err
		}
		if names != "ac" || namesErr == nil || keys != "ac" || keysErr == nil {
			t.Errorf("%s: Journals yields %q, %v and List %q, %v; want a and c, and then the error", what, names, namesErr, keys, keysErr)
		}
	}
	for range s.List(t.Context(), "", "") { // so that the keys are known, and the journals' names not
	}
	for _, shelf := range []*shelf{&s.engine.journals, &s.engine.cells} {
		path := shelf.path(placeOf("b"))
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(path, 0o700); err != nil { // can be opened, and not be read
			t.Fatal(err)
		}
	}
	check("while open")
	s.Close()
	s = mustOpen(t, dir, healthy)
	check("after reopening")
}

// TestEveryLineIsJSON reads the files of the small store as any program can.
func TestEveryLineIsJSON(t *testing.T) {
	dir, _ := smallStore(t)
	lines := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "LOCK" {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(b)) {
			checkJSON(t, []byte(line))
			lines++
		}
		return nil
	})
	if err != nil || lines < 25 {
		t.Errorf("%d lines, %v", lines, err)
	}
}
