package archive_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/perdure/perdure/archive"
	"github.com/perdure/perdure/archive/archivetest"
)

func TestDir(t *testing.T) {
	var paths sync.Map
	archivetest.Run(t, func(tb testing.TB) archive.Place {
		path, _ := paths.LoadOrStore(tb, filepath.Join(tb.TempDir(), "deep", "place"))
		p, err := archive.Dir(path.(string))
		if err != nil {
			tb.Fatal(err)
		}
		return p
	})
}

// TestDirHidesAndClearsParts: what a killed writer left is no object, and goes with
// the next delete in its folder.
func TestDirHidesAndClearsParts(t *testing.T) {
	path := t.TempDir()
	p, err := archive.Dir(path)
	if err == nil {
		err = p.Put(t.Context(), "a/x", strings.NewReader("x"))
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(path, "a", ".part-123"), []byte("half"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, err := range p.List(t.Context(), "", "") {
		if err != nil || name != "a/x" {
			t.Errorf("List yields %q, %v", name, err)
		}
	}
	if err := p.Delete(t.Context(), "a/x"); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(path); err != nil || len(left) != 1 || left[0].Name() != archive.MarkFile {
		t.Errorf("a delete left %v, %v", left, err)
	}
}

// away moves a folder elsewhere, as if its disk were unmounted, and leaves a mount point
// unless the folder is below one. It returns what brings it back.
func away(t *testing.T, path string, below bool) (back func()) {
	t.Helper()
	move := func(from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	move(path, path+".disk")
	if !below {
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		t.Helper()
		if !below {
			if left, err := os.ReadDir(path); err != nil || len(left) != 0 {
				t.Errorf("the mount point has %v, %v", left, err)
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		} else if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the folder was created: %v", err)
		}
		move(path+".disk", path)
	}
}

// TestDirThatVanishes: a folder whose disk is gone has no objects, and nothing is taken
// for deleted, or written, until the disk is back.
func TestDirThatVanishes(t *testing.T) {
	for name, below := range map[string]bool{"mount point": false, "below it": true} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "place")
			p, err := archive.Dir(path)
			if err == nil {
				err = p.Put(t.Context(), "a/x", strings.NewReader("x"))
			}
			if err != nil {
				t.Fatal(err)
			}
			back := away(t, path, below)
			_, getErr := archivetest.Read(t.Context(), p, "a/x")
			var listErr error
			for name, err := range p.List(t.Context(), "a/", "") {
				if listErr = err; err == nil {
					t.Errorf("List yields %q", name)
				}
			}
			for what, err := range map[string]error{
				"Put": p.Put(t.Context(), "a/y", strings.NewReader("y")), "Delete": p.Delete(t.Context(), "a/x"), "Get": getErr, "List": listErr,
			} {
				if !errors.Is(err, archive.ErrUnavailable) || !strings.Contains(err.Error(), "mount its disk") {
					t.Errorf("%s: %v; want ErrUnavailable", what, err)
				}
			}
			back()
			// It vanishes while an object is written: nobody may rely on that.
			err = p.Put(t.Context(), "b/z", during(func() error { back = away(t, path, below); return io.EOF }))
			if !errors.Is(err, archive.ErrUnavailable) {
				t.Errorf("Put meanwhile: %v; want ErrUnavailable", err)
			}
			back()
			if got, err := archivetest.Read(t.Context(), p, "a/x"); err != nil || string(got) != "x" {
				t.Errorf("it holds %q, %v", got, err)
			}
			if err := p.Delete(t.Context(), "a/x"); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestDirIsMarkedOnce: processes that open a folder at the same time agree on its id.
func TestDirIsMarkedOnce(t *testing.T) {
	path := t.TempDir()
	ids := make([]string, 8)
	var all sync.WaitGroup
	for i := range ids {
		all.Go(func() {
			p, err := archive.Dir(path)
			if err != nil {
				t.Error(err)
				return
			}
			if err := p.(archive.Identified).Begin(t.Context()); err != nil {
				t.Error(err)
			}
			ids[i] = p.(archive.Identified).ID()
		})
	}
	all.Wait()
	if one := slices.Compact(ids); len(one) != 1 || one[0] == "" {
		t.Errorf("the ids are %q", ids)
	}
}

// TestDirThatIsOpenedIsLeftAlone: a folder may be a mount point without its disk, and gets
// its mark when it is used. A process that opened it before knows it then.
func TestDirThatIsOpenedIsLeftAlone(t *testing.T) {
	path := t.TempDir()
	open := func() archive.Place {
		p, err := archive.Dir(path)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p, other := open(), open()
	for range p.List(t.Context(), "", "") {
		t.Error("it has objects")
	}
	if files, err := os.ReadDir(path); err != nil || len(files) > 0 || p.(archive.Identified).ID() != "" {
		t.Fatalf("opening the folder wrote %v: %v", files, err)
	}
	if err := p.Put(t.Context(), "a/b", strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	if id := other.(archive.Identified).ID(); id == "" || id != p.(archive.Identified).ID() {
		t.Errorf("its id is %q", id)
	}
}

// TestDirDeleteLeavesWriters: several processes may write objects of a thread, and those
// that are not needed are deleted meanwhile.
func TestDirDeleteLeavesWriters(t *testing.T) {
	p, err := archive.Dir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a/kept", "a/useless"} {
		if err := p.Put(t.Context(), name, strings.NewReader("x")); err != nil {
			t.Fatal(err)
		}
	}
	content := io.MultiReader(strings.NewReader("x"), during(func() error { return p.Delete(t.Context(), "a/useless") }))
	if err := p.Put(t.Context(), "a/new", content); err != nil {
		t.Errorf("Put while another object is deleted: %v", err)
	}
	if got, err := archivetest.Read(t.Context(), p, "a/new"); err != nil || string(got) != "x" {
		t.Errorf("it holds %q, %v", got, err)
	}
}

// during is the end of a reader, which does something when it is reached.
type during func() error

func (do during) Read([]byte) (int, error) {
	if err := do(); err != nil {
		return 0, err
	}
	return 0, io.EOF
}

func TestOpenRefuses(t *testing.T) {
	for url, want := range map[string]string{"/tmp/x": "no scheme", "file:": "no folder", "file:" + filepath.Join(t.TempDir(), "unmounted"): "there is no folder", "s3://bucket": "archive/s3archive", "ftp://x": "ftp"} {
		if _, err := archive.Open(t.Context(), url); !errors.Is(err, archive.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("Open(%q) = %v; want one that says %q", url, err, want)
		}
	}
}

// TestDirFillsAnEmptyMark, which one that was killed has left on a file system without
// links. All who do so at the same time get the same id, and so do those who come later.
func TestDirFillsAnEmptyMark(t *testing.T) {
	for range 20 {
		path := t.TempDir()
		if err := os.WriteFile(filepath.Join(path, archive.MarkFile), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		open := func() archive.Identified {
			p, err := archive.Dir(path)
			if err != nil {
				t.Fatal(err)
			}
			return p.(archive.Identified)
		}
		var all [8]archive.Identified
		for i := range all {
			all[i] = open()
		}
		var marking sync.WaitGroup
		for _, p := range all {
			marking.Go(func() {
				if err := p.Begin(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		marking.Wait()
		for _, p := range append(all[:], open()) {
			if p.ID() == "" || p.ID() != all[0].ID() {
				t.Fatalf("the ids are %q and %q", all[0].ID(), p.ID())
			}
		}
	}
}
