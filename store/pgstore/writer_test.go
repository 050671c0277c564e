package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/store"
)

// TestAVetoLeavesItsJournalWritable lets writers share groups in which some appends
// are vetoed by their cells. Each of them can write to its journal afterwards.
func TestAVetoLeavesItsJournalWritable(t *testing.T) {
	t.Parallel()
	s := openSchema(t, pgtest.With(pgtest.URL(t), "schema", pgtest.Name()))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a write that waits for itself
	defer cancel()
	var wg sync.WaitGroup
	for w := range 32 {
		wg.Go(func() {
			journal, key := fmt.Sprint("journal ", w), fmt.Sprint("cell ", w)
			if _, err := s.Put(ctx, key, []byte("there"), ""); err != nil {
				t.Error(err)
				return
			}
			for n := range uint64(10) {
				batch := store.Batch{Journal: journal, After: n, Entries: [][]byte{[]byte("x")}}
				if w%2 == 0 {
					vetoed := batch
					vetoed.Cells = []store.Write{{Key: key, Value: []byte("new")}}
					if _, err := s.AppendBatch(ctx, vetoed); !errors.Is(err, store.ErrConflict) {
						t.Errorf("append %d to %s, whose cell is there, returned %v", n, journal, err)
						return
					}
				}
				if _, err := s.AppendBatch(ctx, batch); err != nil {
					t.Errorf("append %d to %s: %v", n, journal, err)
					return
				}
			}
		})
	}
	wg.Wait()
}
