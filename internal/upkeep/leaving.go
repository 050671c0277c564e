package upkeep

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/perdure/perdure/internal/lifecycle"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

// leavingInterval is the time between two looks for threads that are leaving.
const leavingInterval = 30 * time.Second

// FinishLeaving completes erases and archives of threads whose process has died, until
// the context ends. Those that it sees for the first time are presumably under way.
func FinishLeaving(ctx context.Context, t *threads.Threads) {
	seen := map[string]store.Version{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(leavingInterval + rand.N(leavingInterval/5)):
		}
		cells, err := t.Leaving(ctx, "")
		if err == nil {
			now := map[string]store.Version{}
			for name, cell := range cells {
				now[name] = cell.Version
				if seen[name] == cell.Version {
					err = errors.Join(err, finishLeaving(ctx, t, name, cell, true))
				}
			}
			seen = now
		}
		if err != nil && ctx.Err() == nil {
			t.Warn("completing interrupted erases", err)
		}
	}
}

// finishLeaving completes the erase or the archive of a thread. If neither was decided,
// whoever began it has died, or failed, and the thread stays if it may.
func finishLeaving(ctx context.Context, t *threads.Threads, name string, cell store.Cell, mayStay bool) error {
	gone, err := t.IsLeaving(ctx, name)
	switch {
	case err != nil:
	case gone:
		err = lifecycle.New(t.Tenant(""), 0, nil).FinishFound(ctx, name, threads.LeavingID(cell))
	case mayStay:
		err = t.StaysAfterAll(ctx, name)
	}
	if err != nil {
		return fmt.Errorf("thread %s: %w", name, err)
	}
	return nil
}

// finishLeaving completes what has been decided and is not complete.
func (b *rebuilder) finishLeaving(ctx context.Context) error {
	cells, err := b.threads.Leaving(ctx, "")
	for name, cell := range cells {
		if err == nil {
			err = b.goOn(finishLeaving(ctx, b.threads, name, cell, false))
		}
	}
	return err
}
