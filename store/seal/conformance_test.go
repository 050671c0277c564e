package seal_test

import (
	"context"
	"testing"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
	"github.com/perdure/perdure/store/seal"
	"github.com/perdure/perdure/store/storetest"
)

func TestSealedTwice(t *testing.T) {
	first, second := ring(t, "a"), ring(t, "b")
	storetest.Run(t, func(ctx context.Context, dir string) (store.Store, error) {
		s, err := seal.New(ctx, memstore.Open(dir), first)
		if err != nil {
			return nil, err
		}
		return seal.New(ctx, s, second)
	})
}

func TestWraps(t *testing.T) {
	storetest.Wraps(t, func(s store.Store) store.Store { return sealed(t, s, ring(t, "a")) })
}
