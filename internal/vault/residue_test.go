package vault_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/archive"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store/memstore"
	"github.com/perdure/perdure/store/sqlitestore"
)

// TestEraseLeavesNoNames erases threads of a SQLite store that is in use, one in the
// archive and one that came back: nothing of whose they were is in the files afterwards.
func TestEraseLeavesNoNames(t *testing.T) {
	for name, back := range map[string]bool{"archived": false, "restored": true} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			s, err := sqlitestore.Open(t.Context(), filepath.Join(folder, "store.db"), sqlitestore.Options{})
			kit.NoErr(t, err)
			t.Cleanup(func() { s.Close() })
			k := kitOn(t, s, newPlace())
			id := canary + "-id"
			run := k.MustStart(perdure.StartRequest{Thread: id, Flow: "echo", Input: "x", Title: canary, User: canary, Metadata: map[string]string{"mark": canary}})
			k.WaitForRun(id, run.ID, perdure.Succeeded)
			mustArchive(t, k.Runtime, id)
			if back {
				mustRestore(t, k.Runtime, id)
			}
			if !strings.Contains(filesIn(t, folder), canary) {
				t.Fatal("nothing of the thread is in the files, so this proves nothing")
			}
			kit.NoErr(t, k.Erase(t.Context(), id, perdure.EraseOptions{}))
			if found := filesIn(t, folder); strings.Contains(found, canary) {
				at := strings.Index(found, canary)
				t.Errorf("the files still have %q", found[max(at-200, 0):min(at+200, len(found))])
			}
		})
	}
}

// filesIn returns the content of all files in a folder.
func filesIn(t *testing.T, folder string) string {
	t.Helper()
	var all bytes.Buffer
	names, err := filepath.Glob(filepath.Join(folder, "store.db*"))
	kit.NoErr(t, err)
	for _, name := range names {
		if info, err := os.Stat(name); err != nil || info.IsDir() {
			continue
		}
		data, err := os.ReadFile(name)
		kit.NoErr(t, err)
		all.Write(data)
	}
	return all.String()
}

// TestObjectInAnotherArchive: a thread that was restored from one archive does not go to
// another while its object is in the first, where no erase would find it.
func TestObjectInAnotherArchive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, first := memstore.New(), newPlace()
		rt, _ := made(t, s, first)
		mustArchive(t, rt, "f")
		mustRestore(t, rt, "f")
		second, err := archive.Dir(t.TempDir())
		kit.NoErr(t, err)
		other := kit.Runtime(t, s, perdure.Options{Archive: second}, flows()...)
		for what, err := range map[string]error{
			"Archive": func() error { _, err := other.Archive(t.Context(), "f", perdure.Note{}); return err }(),
			"Remove":  other.Restore(t.Context(), "f", perdure.RestoreOptions{Remove: true}),
		} {
			if kit.WantErr(t, what, err, perdure.ErrInvalid); !strings.Contains(err.Error(), first.URL()) {
				t.Errorf("%s does not name the archive: %v", what, err)
			}
		}
		if len(first.names()) != 1 {
			t.Errorf("the first archive has %q", first.names())
		}
		kit.NoErr(t, rt.Restore(t.Context(), "f", perdure.RestoreOptions{Remove: true}))
		mustArchive(t, other, "f")
		kit.NoErr(t, other.Erase(t.Context(), "f", perdure.EraseOptions{}))
		gone(t, rt, s, first)
		for name, err := range second.List(t.Context(), "", "") {
			t.Errorf("left in the second archive: %q, %v", name, err)
		}
	})
}
