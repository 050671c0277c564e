package lifecycle_test

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/filestore"
	"github.com/perdure/perdure/store/pgstore"
	"github.com/perdure/perdure/store/sqlitestore"
)

// Nothing that a user gave is in a name, and none of it is in any file when a
// thread was erased, while its neighbours stay as they are. For PostgreSQL's files
// nothing is promised, see package pgstore.
func TestNothingOfAnErasedThreadIsLeftInAnyFile(t *testing.T) {
	for name, open := range map[string]func(dir string) (store.Store, error){
		"sqlite": func(dir string) (store.Store, error) {
			return sqlitestore.Open(t.Context(), filepath.Join(dir, "db"), sqlitestore.Options{})
		},
		"file": func(dir string) (store.Store, error) {
			return filestore.Open(t.Context(), filepath.Join(dir, "store"), filestore.Options{NoSync: true})
		},
		"postgres": func(dir string) (store.Store, error) {
			return pgstore.Open(t.Context(), pgtest.Schema(pgtest.URL(t), dir), pgstore.Options{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s, err := open(dir)
			kit.NoErr(t, err)
			gone, stays := kit.NewCanary(), kit.NewCanary()
			t.Cleanup(func() { s.Close() })
			k := kit.New(t, s, perdure.Options{Validator: kit.Accepting{}}, gone.Flow("gone"), stays.Flow("stays"))
			of := k.Tenant(gone.In("tenant"))
			gone.Live(t, of, "gone")
			stays.Live(t, k.Tenant(stays.In("tenant")), "stays")

			data, names := kit.Contents(t, s)
			if gone.FoundIn(names) || stays.FoundIn(names) {
				t.Error("names of cells or journals hold what a user gave")
			}
			text := strings.ReplaceAll(string(data), `\"`, `"`)
			for _, field := range gone.Fields() {
				if !strings.Contains(text, gone.In(field)) {
					t.Errorf("%s was never written: its erasure shows nothing", field)
				}
			}
			if len(gone.Fields()) < 50 {
				t.Errorf("only %d fields were given", len(gone.Fields()))
			}

			kit.NoErr(t, of.Erase(t.Context(), gone.In("thread"), perdure.EraseOptions{Note: perdure.Note{By: gone.In("who erased"), Reason: gone.In("why erased")}}))
			if data, names := kit.Contents(t, s); gone.FoundIn(data) || gone.FoundIn(names) || !stays.FoundIn(data) {
				t.Error("the store holds the wrong thread")
			}
			if _, err := k.Tenant(stays.In("tenant")).Get(t.Context(), stays.In("thread")); err != nil {
				t.Errorf("the other thread: %v", err)
			}
			if name == "postgres" { // there are no files below
				return
			}
			if found := gone.FoundBelow(t, dir); len(found) > 0 {
				t.Errorf("when Erase has returned, it is in %q", found)
			}
			k.Stop()
			kit.NoErr(t, s.Close())
			if found := gone.FoundBelow(t, dir); len(found) > 0 {
				t.Errorf("after Close it is in %q", found)
			}
			// The scan can find: sqlitestore masks what it holds, so there in
			// a file that is not masked.
			if name == "sqlite" {
				kit.NoErr(t, os.WriteFile(filepath.Join(dir, "control"), []byte("..."+base64.StdEncoding.EncodeToString(append([]byte("x"), stays.Raw...))), 0o666))
			}
			if found := stays.FoundBelow(t, dir); len(found) == 0 {
				t.Error("the scan finds nothing of the thread that stays")
			}
		})
	}
}
