package natsstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/natstest"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/natsstore"
	"github.com/perdure/perdure/store/storetest"
)

// opener opens the stores of folders on the tests' server.
func opener(tb testing.TB) storetest.Opener {
	base := natstest.URL(tb)
	return func(ctx context.Context, dir string) (store.Store, error) {
		return natsstore.Open(ctx, natstest.Stream(base, dir), natsstore.Options{})
	}
}

// The longest tests mostly wait for the server, so they run in parallel.

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, opener(t))
}

// TestKill kills writers. The server may still have writes of a killed one before it, so
// each opening waits until the server knows that it is gone, and for a write of its own,
// which comes after them.
func TestKill(t *testing.T) {
	t.Parallel()
	base, plain := natstest.URL(t), opener(t)
	storetest.Kill(t, func(ctx context.Context, dir string) (store.Store, error) {
		url := natstest.Stream(base, dir)
		_, stream, _ := strings.Cut(url, "stream=")
		if err := natstest.Settle(ctx, base, "perdure "+stream+" "); err != nil {
			return nil, err
		}
		s, err := plain(ctx, dir)
		if err != nil {
			return nil, err
		}
		if err := s.Delete(ctx, "no such cell", "18446744073709551615"); !errors.Is(err, store.ErrConflict) {
			return nil, fmt.Errorf("a write that must be refused: %w", err)
		}
		return s, nil
	}, storetest.KillOptions{Kills: 100, Acks: 5_000})
}
