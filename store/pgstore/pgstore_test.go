package pgstore_test

import (
	"context"
	"testing"

	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/pgstore"
	"github.com/perdure/perdure/store/storetest"
)

// opener opens the stores of folders on the tests' server.
func opener(tb testing.TB) storetest.Opener {
	base := pgtest.URL(tb)
	return func(ctx context.Context, dir string) (store.Store, error) {
		return pgstore.Open(ctx, pgtest.Schema(base, dir), pgstore.Options{})
	}
}

// The longest tests mostly wait for the server's disk, so they run in parallel.

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, opener(t))
}

func TestKill(t *testing.T) {
	t.Parallel()
	storetest.Kill(t, opener(t), storetest.KillOptions{Kills: 200, Acks: 20_000})
}
