package filestore

import (
	"context"
	"testing"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/storetest"
)

func open(ctx context.Context, dir string) (store.Store, error) {
	return Open(ctx, dir, Options{})
}

func TestConformance(t *testing.T) { storetest.Run(t, open) }

// TestConformanceNoSync is left to make long; in the short form, seal.TestEveryDriver
// runs the contract on such stores.
func TestConformanceNoSync(t *testing.T) {
	if testing.Short() {
		t.Skip("part of make long")
	}
	storetest.Run(t, func(ctx context.Context, dir string) (store.Store, error) {
		return Open(ctx, dir, Options{NoSync: true})
	})
}

func TestKill(t *testing.T) {
	storetest.Kill(t, open, storetest.KillOptions{Kills: 200, Acks: 20000})
}

func TestPoison(t *testing.T) {
	storetest.Poison(t, func(ctx context.Context, dir string) (store.Store, func(bool), error) {
		d := newFaultDisk()
		s, err := openFolder(ctx, dir, Options{}, d)
		if err != nil {
			return nil, nil, err
		}
		return s, func(on bool) {
			from := 0
			if on {
				from = 1
			}
			d.set(from, true, half)
		}, nil
	})
}
