package archive_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
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
	if left, err := os.ReadDir(path); err != nil || len(left) != 0 {
		t.Errorf("a delete left %v, %v", left, err)
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
