package observed_test

import (
	"context"
	"testing"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
	"github.com/perdure/perdure/store/observed"
	"github.com/perdure/perdure/store/storetest"
)

func TestStore(t *testing.T) {
	var stats observed.Stats
	storetest.Run(t, func(_ context.Context, dir string) (store.Store, error) {
		return observed.New(memstore.Open(dir), &stats), nil
	})
	t.Logf("\n%s", stats.Snapshot())
}

func TestWraps(t *testing.T) {
	storetest.Wraps(t, func(s store.Store) store.Store { return observed.New(s, &observed.Stats{}) })
}
