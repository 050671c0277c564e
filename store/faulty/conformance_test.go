package faulty_test

import (
	"context"
	"testing"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
	"github.com/perdure/perdure/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(_ context.Context, dir string) (store.Store, error) {
		return faulty.New(memstore.Open(dir), nil), nil
	})
}

func TestWraps(t *testing.T) {
	storetest.Wraps(t, func(s store.Store) store.Store { return faulty.New(s, nil) })
}
