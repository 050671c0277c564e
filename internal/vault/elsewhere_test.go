package vault_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/archive"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
)

// TestCutHereArchivedThere cuts an archiving before every write, and then archives the
// thread to another place. That is refused if the first one may have an object, until
// it is completed and removed there; and an erase that knows only the second one
// leaves nothing in either.
func TestCutHereArchivedThere(t *testing.T) {
	kit.Bubble(t, "", func(t *testing.T) {
		left := 0
		for at, plan := range faulty.Sweep(faulty.CrashBefore) {
			s, p, there := memstore.New(), newPlace(), newPlace()
			there.url = "elsewhere:"
			rt, files := made(t, s, p)
			dying(t, s, p, plan, archiveF)
			left += len(p.names())
			other := kit.Runtime(t, s, perdure.Options{Archive: there}, flows()...)
			if _, err := other.Archive(t.Context(), "f", perdure.Note{}); err != nil {
				if kit.WantErr(t, "Archive elsewhere", err, perdure.ErrInvalid); !strings.Contains(err.Error(), "--archive memory:") {
					t.Errorf("it does not name the archive: %v", err)
				}
			}
			if len(there.names()) == 0 { // it is, or may be, in the first one
				mustArchive(t, rt, "f")
				kit.NoErr(t, rt.Restore(t.Context(), "f", perdure.RestoreOptions{Remove: true}))
				mustArchive(t, other, "f")
			}
			if left := p.names(); len(left) > 0 {
				t.Errorf("left in the first archive: %q", left)
			}
			mustRestore(t, other, "f")
			if !whole(t, other, "f", files["f"]) {
				t.Error("it is not back")
			}
			gone(t, other, s, there)
			if t.Failed() {
				t.Fatalf("%s: see above", at)
			}
		}
		if left == 0 {
			t.Error("no cut left an object")
		}
	})
}

// TestFailedHereArchivedThere: an archive that fails and says so leaves no object, and
// does not keep the thread from going elsewhere.
func TestFailedHereArchivedThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := memstore.New(), newPlace()
		rt, _ := made(t, s, p)
		p.fail = func(op string) error {
			if op == "getting" {
				return errors.New("no luck")
			}
			return nil
		}
		if _, err := rt.Archive(t.Context(), "f", perdure.Note{}); err == nil {
			t.Fatal("it did not fail")
		}
		there := newPlace()
		there.url = "elsewhere:"
		other := kit.Runtime(t, s, perdure.Options{Archive: there}, flows()...)
		mustArchive(t, other, "f")
		if left := p.names(); len(left) > 0 {
			t.Errorf("left in the first archive: %q", left)
		}
		gone(t, other, s, there)
	})
}

// TestAnotherArchiveAtTheSameURL: an erase, a restore and a removal do not take an object
// for deleted because the disk of the archive is not mounted, whether the process began
// before that or after it, nor if the threads were archived by a version that did not note
// which archive the store uses.
func TestAnotherArchiveAtTheSameURL(t *testing.T) {
	t.Run("noted", func(t *testing.T) { anotherArchive(t, true) })
	t.Run("not noted", func(t *testing.T) { anotherArchive(t, false) })
}

func anotherArchive(t *testing.T, noted bool) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "mnt")
		open := func() archive.Place {
			p, err := archive.Dir(path)
			kit.NoErr(t, err)
			return p
		}
		move := func(from, to string) {
			t.Helper()
			kit.NoErr(t, os.Rename(path+from, path+to))
		}
		s, p := memstore.New(), open()
		k := kitOn(t, s, p)
		for _, id := range []string{"a", "b", "c"} {
			k.WaitForRun(id, k.MustStart(perdure.StartRequest{Thread: id, Flow: "echo", Input: "x", User: "ada"}).ID, perdure.Succeeded)
			mustArchive(t, k.Runtime, id)
		}
		mustRestore(t, k.Runtime, "b")
		k.WaitForRun("f", k.StartOn("f", "echo", "x").ID, perdure.Succeeded)
		mustArchive(t, k.Runtime, "f")
		k.WaitForRun("d", k.StartOn("d", "echo", "x").ID, perdure.Succeeded)
		k.WaitForRun("e", k.MustStart(perdure.StartRequest{Thread: "e", Flow: "echo", Input: "x", User: "eve"}).ID, perdure.Succeeded)
		export, err := k.StartBulk(t.Context(), perdure.BulkRequest{Verb: perdure.BulkExport, Filter: perdure.ListOptions{User: "eve"}})
		kit.NoErr(t, err)
		for export.Done < 1 {
			time.Sleep(time.Second)
			export, err = k.Bulk(t.Context(), export.ID)
			kit.NoErr(t, err)
		}
		k.Stop()
		for cell, err := range s.List(t.Context(), "perdure/archive/", "") {
			kit.NoErr(t, err)
			if !noted {
				kit.NoErr(t, s.Delete(t.Context(), cell.Key, cell.Version))
			}
		}
		move("", ".disk")
		kit.NoErr(t, os.Mkdir(path, 0o700))
		refused := func(rt *perdure.Runtime) {
			t.Helper()
			kit.WantErr(t, "Restore", rt.Restore(t.Context(), "a", perdure.RestoreOptions{}), archive.ErrUnavailable)
			kit.WantErr(t, "Remove", rt.Restore(t.Context(), "b", perdure.RestoreOptions{Remove: true}), archive.ErrUnavailable)
			for _, id := range []string{"a", "b"} { // which is in the archive, and back from it
				kit.WantErr(t, "Erase", rt.Erase(t.Context(), id, perdure.EraseOptions{}), archive.ErrUnavailable)
			}
			for _, user := range []string{"ada", "eve"} { // who has an export there
				_, err := rt.EraseUser(t.Context(), user, perdure.EraseUserOptions{})
				kit.WantErr(t, "EraseUser", err, archive.ErrUnavailable)
				_, err = rt.UserReceipt(t.Context(), user)
				kit.WantErr(t, "UserReceipt", err, perdure.ErrBusy)
			}
			mustArchive(t, rt, "f") // which is there already
		}
		late := kit.Runtime(t, s, perdure.Options{Archive: open()}, flows()...) // it has never seen the disk
		refused(late)
		_, err = late.Archive(t.Context(), "d", perdure.Note{})
		kit.WantErr(t, "Archive", err, archive.ErrUnavailable)
		kit.NoErr(t, os.Remove(path)) // to which nothing was written
		kit.NoErr(t, os.Mkdir(path, 0o700))
		_, err = k.Archive(t.Context(), "d", perdure.Note{})
		kit.WantErr(t, "Archive", err, archive.ErrUnavailable)
		refused(k.Runtime)
		kit.NoErr(t, os.Remove(path)) // to which nothing was written
		move(".disk", "")
		rt := late // it need not be started again
		for _, user := range []string{"ada", "eve"} {
			_, err = rt.EraseUser(t.Context(), user, perdure.EraseUserOptions{})
			kit.NoErr(t, err)
		}
		kit.NoErr(t, rt.Erase(t.Context(), "f", perdure.EraseOptions{}))
		for name, err := range p.List(t.Context(), "", "") {
			t.Errorf("left: %s, %v", name, err)
		}
		kit.NoErr(t, rt.Erase(t.Context(), "d", perdure.EraseOptions{}))
	})
}

// forgetful loses the answer to the n-th write of a cell that says where a thread is.
type forgetful struct {
	store.Store
	n int
}

func (f *forgetful) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	v, err := f.Store.Put(ctx, key, value, prev)
	if err == nil && strings.HasPrefix(key, "archived/") {
		if f.n--; f.n == 0 {
			return "", fmt.Errorf("the connection broke: %w", store.ErrUnknown)
		}
	}
	return v, err
}

// TestLostAnswerAboutTheCell: a process that does not know whether it has recorded an
// object does not delete it.
func TestLostAnswerAboutTheCell(t *testing.T) {
	for n := range 4 {
		kit.Bubble(t, fmt.Sprint("write ", n+1), func(t *testing.T) {
			s, p := memstore.New(), newPlace()
			rt, files := made(t, s, p)
			mustArchive(t, kit.Runtime(t, &forgetful{s, n + 1}, perdure.Options{Archive: p}, flows()...), "f")
			mustRestore(t, rt, "f")
			if !whole(t, rt, "f", files["f"]) {
				t.Error("it is not back")
			}
			gone(t, rt, s, p)
		})
	}
}
