package migrate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/store"
)

// openWriter is the upgrade of stores that programs write to in transactions of
// their own, see [store.Join].
type openWriter interface {
	// OpenWrites returns the transactions that have written to the store, or are
	// about to, and have not ended: by ids that no other has, words that say whose
	// they are. What others have written can be read.
	OpenWrites(ctx context.Context) (map[string]string, error)
}

// awaitTransactions waits for the end of every transaction that can still commit a
// thread to the source. A program that joins one now sees the source's mark and
// begins nothing, so only those that are open now can.
func (m *migration) awaitTransactions(ctx context.Context) error {
	source, ok := store.As[openWriter](m.from)
	if !ok {
		return nil
	}
	began := time.Now()
	var open map[string]string
	for {
		now, err := source.OpenWrites(ctx)
		if err != nil {
			return err
		}
		if open == nil {
			open = now
		}
		maps.DeleteFunc(open, func(id, _ string) bool { return now[id] == "" })
		if len(open) == 0 {
			return nil
		}
		m.progress = Progress{Stage: "waiting", Open: slices.Compact(slices.Sorted(maps.Values(open)))}
		m.tell()
		if time.Since(began) > m.opts.Patience {
			return fmt.Errorf("%w: transactions that may have started runs in the source are still open after %v: %s; commit them or roll them back, and run the migration again",
				store.ErrBusy, m.opts.Patience, strings.Join(m.progress.Open, ", "))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}
