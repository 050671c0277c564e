package redisstore_test

import (
	"context"
	"testing"

	"github.com/perdure/perdure/internal/redistest"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/redisstore"
	"github.com/perdure/perdure/store/storetest"
)

// opener opens the stores of folders on the tests' server.
func opener(tb testing.TB) storetest.Opener {
	base := redistest.URL(tb)
	return func(ctx context.Context, dir string) (store.Store, error) {
		return redisstore.Open(ctx, redistest.Prefix(base, dir), redisstore.Options{})
	}
}

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, opener(t))
}

func TestKill(t *testing.T) {
	t.Parallel()
	storetest.Kill(t, opener(t), storetest.KillOptions{Kills: 200, Acks: 20_000})
}
