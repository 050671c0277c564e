package perdure_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/archive"
	"github.com/perdure/perdure/store/memstore"
)

// A thread that is done leaves the store for a folder. It comes back as it was.
func ExampleRuntime_Archive() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "archive")
	noErr(err)
	defer os.RemoveAll(folder)
	place, err := archive.Dir(folder)
	noErr(err)
	s := memstore.New()
	n := startNode(s, orderFlow("pack", "ship"))
	n.do("order-7", "order", "a lamp")
	n.stop()

	rt, err := perdure.New(ctx, s, perdure.Options{Archive: place}, orderFlow("pack", "ship"))
	noErr(err)
	_, err = rt.Archive(ctx, "order-7", perdure.Note{By: "retention"})
	noErr(err)
	for a, err := range rt.Archived(ctx, perdure.ArchivedOptions{}) {
		fmt.Println("in the archive:", a.ID, a.Flow, a.Status, err)
	}
	_, err = rt.Get(ctx, "order-7")
	fmt.Println("archived?", errors.Is(err, perdure.ErrArchived))

	noErr(rt.Restore(ctx, "order-7", perdure.RestoreOptions{}))
	run, err := rt.GetRun(ctx, "order-7", "")
	noErr(err)
	fmt.Println(string(run.Output))
	// Output:
	// in the archive: order-7 order succeeded <nil>
	// archived? true
	// "a lamp is on its way"
}
