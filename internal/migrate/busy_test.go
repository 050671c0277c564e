package migrate_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/migrate"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// outgrown is a target whose source grows faster than the target is written, until
// the source is marked.
type outgrown struct {
	store.Store
	t            *testing.T
	from         store.Store
	names, cells atomic.Int64
}

// mostGrowth is when a source stops growing even if it is never marked.
const mostGrowth = 8000

func (o *outgrown) Unwrap() store.Store { return o.Store }

func (o *outgrown) Append(ctx context.Context, journal string, after uint64, entries ...[]byte) (uint64, error) {
	o.grow(ctx, &o.names, func(n int64) error {
		_, err := o.from.Append(ctx, fmt.Sprintf("zz/%08d", n), 0, []byte("x"))
		return err
	})
	return o.Store.Append(ctx, journal, after, entries...)
}

func (o *outgrown) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	o.grow(ctx, &o.cells, func(n int64) error {
		_, err := o.from.Put(ctx, fmt.Sprintf("zz/%08d", n), []byte("x"), "")
		return err
	})
	return o.Store.Put(ctx, key, value, prev)
}

func (o *outgrown) grow(ctx context.Context, n *atomic.Int64, add func(int64) error) {
	if m, err := threads.ReadCopy(ctx, o.from, threads.MovedCell); m != nil || err != nil || n.Load() >= mostGrowth {
		return
	}
	for range 2 {
		if err := add(n.Add(1)); err != nil {
			o.t.Error(err)
		}
	}
}

// TestBusySource migrates a store that grows faster than it is copied.
func TestBusySource(t *testing.T) {
	from := memstore.New()
	for i := range 400 {
		_, err := from.Put(t.Context(), fmt.Sprint("cell/", i), []byte("x"), "")
		kit.NoErr(t, err)
		_, err = from.Append(t.Context(), fmt.Sprint("journal/", i), 0, []byte("x"))
		kit.NoErr(t, err)
	}
	kit.Runtime(t, from, perdure.Options{})
	to := &outgrown{Store: memstore.New(), t: t, from: from}
	_, err := migrate.Run(t.Context(), from, to, migrate.Options{To: "there", Grace: 1})
	kit.NoErr(t, err)
	names, cells := to.names.Load(), to.cells.Load()
	if names == 0 || cells == 0 || names >= mostGrowth || cells >= mostGrowth {
		t.Errorf("the source was marked after %d journals and %d cells more", names, cells)
	}
	wantSame(t, contents(t, from), contents(t, to))
}
