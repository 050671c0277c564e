package archive_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
	_ "github.com/perdure/perdure/store/filestore"
	_ "github.com/perdure/perdure/store/sqlitestore"
)

// recordAudit returns the export of a thread of entries of all kinds.
func recordAudit(t *testing.T, r *ran, o perdure.ExportOptions) (file []byte) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, auditFlow(r))
		playAudit(k, "t")
		file = k.MustExport("t", o)
	})
	return file
}

func TestEveryFlippedBitOfAnExportIsFound(t *testing.T) {
	for name, o := range map[string]perdure.ExportOptions{"whole": {}, "redacted": {Redact: true}} {
		t.Run(name, func(t *testing.T) {
			file := recordAudit(t, &ran{small: true}, o)
			whole := kit.VerifyFile(t, file)
			if !whole.OK() {
				t.Fatal(whole.Problem)
			}
			entry := func(at int) uint64 { // the entry that a byte belongs to, 0 for none
				if line := bytes.Count(file[:at], []byte("\n")); line > 0 && line <= int(whole.Entries) {
					return uint64(line)
				}
				return 0
			}
			for bit := range sweepBits(len(file)) {
				bad := bytes.Clone(file)
				bad[bit/8] ^= 1 << (bit % 8)
				v := kit.VerifyFile(t, bad)
				// A line break that is gone damages the entry before it.
				if n := entry(bit / 8); v.OK() || n > 0 && file[bit/8] != '\n' && v.Good != n-1 {
					t.Fatalf("bit %d, in entry %d: %+v", bit, n, v)
				}
			}
			for bit := range sweepBits(len(file)) {
				n := bit / 8
				if v := kit.VerifyFile(t, file[:n]); v.OK() || v.Good > entry(min(n, len(file)-1)) && entry(n) != 0 {
					t.Fatalf("cut at %d of %d: %+v", n, len(file), v)
				}
			}
			if v := kit.VerifyFile(t, append(bytes.Clone(file), '\n')); v.OK() {
				t.Error("an export with another line is verified")
			}
		})
	}
}

func TestMovedLinesOfAnExportAreFound(t *testing.T) {
	file := recordAudit(t, new(ran), perdure.ExportOptions{})
	lines := slices.Collect(bytes.Lines(file))
	verify := func(what string, i int, lines [][]byte) {
		t.Helper()
		if v := kit.VerifyFile(t, bytes.Join(lines, nil)); v.OK() || !strings.Contains(v.Problem, "line ") {
			t.Errorf("line %d is %s: %+v", i+1, what, v)
		}
	}
	blobs := 0
	for i, line := range lines {
		verify("missing", i, slices.Delete(slices.Clone(lines), i, i+1))
		verify("doubled", i, slices.Insert(slices.Clone(lines), i, line))
		verify("cut", i, slices.Replace(slices.Clone(lines), i, i+1, line[:len(line)-1]))
		if i > 0 {
			swapped := slices.Clone(lines)
			swapped[i], swapped[i-1] = swapped[i-1], swapped[i]
			verify("swapped", i, swapped)
		}
		if bytes.HasPrefix(line, []byte(`{"data":`)) {
			blobs++
			for _, at := range []int{12, len(line) / 2, len(line) - 5} {
				bad := bytes.Clone(line)
				bad[at] ^= 2
				verify("flipped", i, slices.Replace(slices.Clone(lines), i, i+1, bad))
			}
		}
	}
	if blobs == 0 {
		t.Error("the export has no blobs")
	}
	long := slices.Insert(slices.Clone(lines), 3, append(bytes.Repeat([]byte(" "), 2<<20), '\n'))
	verify("too long", 3, long)
}

func TestADamagedExportLeavesNothingBehind(t *testing.T) {
	file := recordAudit(t, new(ran), perdure.ExportOptions{})
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, auditFlow(new(ran)))
		before := kit.Holdings(t, k.Store)
		for at := 0; at < len(file); at += len(file)/60 + 1 {
			bad := bytes.Clone(file)
			bad[at] ^= 4
			_, err := k.Import(t.Context(), bytes.NewReader(bad), perdure.ImportOptions{})
			kit.WantErr(t, fmt.Sprint("a flip at ", at), err, perdure.ErrCorrupt)
			_, err = k.Import(t.Context(), bytes.NewReader(file[:at]), perdure.ImportOptions{})
			kit.WantErr(t, fmt.Sprint("cut at ", at), err, perdure.ErrCorrupt)
			down := errors.New("the line is down")
			_, err = k.Import(t.Context(), cutReader(file, at, down), perdure.ImportOptions{})
			kit.WantErr(t, fmt.Sprint("a reader that fails at ", at), err, down)
		}
		now := kit.Holdings(t, k.Store)
		for key := range now {
			if _, ok := before[key]; !ok {
				t.Errorf("%s is left", key)
			}
		}
		k.MustImport(file, "")
		k.MustVerify("t")
	})
}

// TestDamagedFilesAreFound flips bits in the files of real stores. What Verify
// calls good has to be what was written.
func TestDamagedFilesAreFound(t *testing.T) {
	file := recordAudit(t, new(ran), perdure.ExportOptions{})
	for _, c := range []struct {
		scheme, path string
		flips        int // in each file
		least        int // so many of them have to be found
	}{{"file:", "", kit.Sized(6, 12, 12), kit.Sized(50, 100, 100)}, {"sqlite:", "/db", kit.Sized(75, 150, 150), kit.Sized(50, 100, 100)}} {
		t.Run(strings.TrimSuffix(c.scheme, ":"), func(t *testing.T) {
			dir := t.TempDir()
			url := c.scheme + dir + c.path
			heads := map[string]string{}
			with := func(do func(rt *perdure.Runtime)) error {
				s, err := store.Open(t.Context(), url)
				if err != nil {
					return err
				}
				defer s.Close()
				rt, err := perdure.New(t.Context(), s, perdure.Options{Version: "test"}, auditFlow(new(ran)))
				if err == nil {
					do(rt)
				}
				return err
			}
			if err := with(func(rt *perdure.Runtime) {
				for _, id := range []string{"bad", "good"} {
					if _, err := rt.Import(t.Context(), bytes.NewReader(file), perdure.ImportOptions{As: id}); err != nil {
						t.Fatal(err)
					}
					v, err := rt.Verify(t.Context(), id)
					if err != nil || !v.OK() {
						t.Fatalf("%+v, %v", v, err)
					}
					heads[id] = v.Head
				}
			}); err != nil {
				t.Fatal(err)
			}
			found, flips := 0, 0
			check := func(what string) {
				flips++
				seen := 0
				err := with(func(rt *perdure.Runtime) {
					for id, head := range heads {
						v, err := rt.Verify(t.Context(), id)
						switch {
						case err != nil || !v.OK():
							seen++
						case v.Head != head:
							t.Errorf("%s: thread %s is called good with another head: %+v", what, id, v)
						}
					}
				})
				if err != nil || seen > 0 {
					found++
				}
				if err == nil && seen > 1 && strings.Contains(what, "journals") {
					t.Errorf("%s: both threads are damaged", what)
				}
			}
			err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() || strings.Contains(name, "LOCK") || strings.Contains(name, "lease") || strings.HasSuffix(name, "-shm") {
					return err
				}
				data, err := os.ReadFile(name)
				if err != nil {
					return err
				}
				for at := 100; at < len(data); at += len(data)/c.flips + 1 {
					bad := bytes.Clone(data)
					bad[at] ^= 1
					if err := os.WriteFile(name, bad, 0o666); err != nil {
						return err
					}
					check(fmt.Sprintf("byte %d of %s", at, name))
				}
				return os.WriteFile(name, data, 0o666)
			})
			kit.NoErr(t, err)
			if found < c.least {
				t.Errorf("of %d flips %d were found", flips, found)
			}
			t.Logf("of %d flips %d were found", flips, found)
		})
	}
}
