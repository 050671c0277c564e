package backup_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/archive"
	"github.com/perdure/perdure/internal/backup"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/migrate"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
)

// TestThreadsThatLeave kills an erase, an archive and a restore after each write, and
// backs up and migrates what that leaves. A thread that lacks values because it is
// leaving is not damaged, and one that lacks them otherwise is named by its id.
func TestThreadsThatLeave(t *testing.T) {
	for what, do := range map[string]func(context.Context, *perdure.Runtime) error{
		"erase": func(ctx context.Context, rt *perdure.Runtime) error {
			return rt.Erase(ctx, "t", perdure.EraseOptions{})
		},
		"archive": func(ctx context.Context, rt *perdure.Runtime) error {
			_, err := rt.Archive(ctx, "t", perdure.Note{})
			return err
		},
		"restore": func(ctx context.Context, rt *perdure.Runtime) error {
			return rt.Restore(ctx, "away", perdure.RestoreOptions{})
		},
	} {
		t.Run(what, func(t *testing.T) {
			cut := 0
			for at, plan := range faulty.Sweep(faulty.CrashAfter) {
				s := openAt(t, "file", filepath.Join(t.TempDir(), "store"))
				o := perdure.Options{Archive: leavers(t, s)}
				ctx, cancel := context.WithCancel(t.Context())
				dying := faulty.New(s, plan)
				dying.OnCrash(cancel)
				rt, err := perdure.New(ctx, dying, o, kit.EchoFlow("echo"))
				if err == nil {
					err = do(ctx, rt)
				}
				cancel()
				if err == nil {
					break
				}
				cut++
				if _, err := backup.Take(t.Context(), s, filepath.Join(t.TempDir(), "b")); err != nil {
					t.Fatalf("%s: %v", at, err)
				}
				if _, err := migrate.Run(t.Context(), s, memstore.New(), migrate.Options{To: "new", Grace: 1}); err != nil {
					t.Fatalf("%s: %v", at, err)
				}
				kit.NoErr(t, s.Close())
			}
			if cut < 5 {
				t.Errorf("there were only %d cuts", cut)
			}
		})
	}
	s := openAt(t, "file", filepath.Join(t.TempDir(), "store"))
	leavers(t, s)
	kit.NoErr(t, store.DeletePrefix(t.Context(), s, "blob/"))
	_, err := backup.Take(t.Context(), s, filepath.Join(t.TempDir(), "b"))
	kit.WantErr(t, "a backup of a damaged store", err, perdure.ErrCorrupt)
	if !strings.Contains(err.Error(), "thread t: ") {
		t.Errorf("the error does not name the thread: %v", err)
	}
}

// leavers fills a store with the thread t, which has a large value, and one like it in
// an archive, which it returns.
func leavers(t *testing.T, s store.Store) archive.Place {
	t.Helper()
	place, err := archive.Dir(t.TempDir())
	kit.NoErr(t, err)
	k := kit.New(t, s, perdure.Options{Archive: place}, kit.EchoFlow("echo"))
	for _, id := range []string{"t", "away"} {
		k.StartOn(id, "echo", kit.Large)
		k.WaitFor(id, perdure.Succeeded)
	}
	_, err = k.Archive(t.Context(), "away", perdure.Note{})
	kit.NoErr(t, err)
	k.Stop()
	return place
}
