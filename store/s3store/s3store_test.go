package s3store_test

import (
	"context"
	"testing"

	"github.com/perdure/perdure/internal/s3test"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/s3store"
	"github.com/perdure/perdure/store/storetest"
)

// opener opens the stores of folders in the fake of the tests.
func opener(tb testing.TB) storetest.Opener {
	s3test.URL(tb, "") // starts it, also for child processes
	return func(ctx context.Context, dir string) (store.Store, error) {
		return s3store.Open(ctx, s3test.URL(tb, dir), s3store.Options{})
	}
}

func TestStore(t *testing.T) { storetest.Run(t, opener(t)) }

func TestKill(t *testing.T) {
	storetest.Kill(t, opener(t), storetest.KillOptions{Kills: 50, Acks: 2000})
}
