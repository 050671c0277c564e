package migrate_test

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/archive"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/migrate"
	"github.com/perdure/perdure/store/memstore"
)

// TestArchivedThreadsAreTakenAlong: what is in the archive when the store moves, and
// what came back from there before, is in the archive of the new store, and the same.
func TestArchivedThreadsAreTakenAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		place, err := archive.Dir(t.TempDir())
		kit.NoErr(t, err)
		from, to := memstore.New(), memstore.New()
		k := kit.New(t, from, perdure.Options{Archive: place}, kit.EchoFlow("echo"))
		before := map[string]string{}
		for _, id := range []string{"away", "back"} {
			k.StartOn(id, "echo", kit.Large)
			k.WaitFor(id, perdure.Succeeded)
			before[id] = exported(t, k.Runtime, id)
			_, err := k.Archive(t.Context(), id, perdure.Note{})
			kit.NoErr(t, err)
		}
		kit.NoErr(t, k.Restore(t.Context(), "back", perdure.RestoreOptions{}))
		k.Stop()
		_, err = migrate.Run(t.Context(), from, to, migrate.Options{To: "new"})
		kit.NoErr(t, err)
		rt := kit.Runtime(t, to, perdure.Options{Archive: place}, kit.EchoFlow("echo"))
		_, err = rt.Get(t.Context(), "away")
		kit.WantErr(t, "Get", err, perdure.ErrArchived)
		kit.NoErr(t, rt.Restore(t.Context(), "away", perdure.RestoreOptions{}))
		for id, file := range before {
			if exported(t, rt, id) != file {
				t.Errorf("thread %s has another export", id)
			}
			kit.NoErr(t, rt.Erase(t.Context(), id, perdure.EraseOptions{}))
		}
		for name, err := range place.List(t.Context(), "", "") {
			t.Errorf("left in the archive: %q, %v", name, err)
		}
		_, err = kit.Runtime(t, from, perdure.Options{Archive: place}).Archive(context.Background(), "back", perdure.Note{})
		kit.WantErr(t, "Archive in the source", err, perdure.ErrMoved)
	})
}

func exported(t *testing.T, rt *perdure.Runtime, thread string) string {
	t.Helper()
	var b bytes.Buffer
	kit.NoErr(t, rt.Export(t.Context(), thread, &b, perdure.ExportOptions{}))
	return b.String()
}
