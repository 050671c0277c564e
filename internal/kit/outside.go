package kit

import (
	"context"
	"fmt"
	"iter"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/redistest"
	"github.com/perdure/perdure/internal/sweeps"
	"github.com/perdure/perdure/store"
)

// Postgres returns a function that makes empty stores on the tests' PostgreSQL
// server, for use in virtual time: see [Outside]. The test imports the driver, and
// it is skipped without a server. Commits do not wait for the disk, as no test in
// virtual time cuts the power.
func Postgres(t *testing.T) func() store.Store {
	t.Helper()
	url := pgtest.With(pgtest.Schema(pgtest.URL(t), t.TempDir()), "synchronous_commit", "off")
	return Outside(t, must(store.Open(context.Background(), url))(t))
}

// Redis is Postgres for a Redis server, which keeps nothing on disk.
func Redis(t *testing.T) func() store.Store {
	t.Helper()
	return At(func(tb testing.TB) string { return redistest.Prefix(redistest.Volatile(tb), t.TempDir()) })(t)
}

// At is Postgres for the empty store at the URL that a function returns.
func At(url func(testing.TB) string) func(*testing.T) func() store.Store {
	return func(t *testing.T) func() store.Store {
		t.Helper()
		return Outside(t, must(store.Open(context.Background(), url(t)))(t))
	}
}

// Costly adds a store to those of all sweeps, if tests may take hours: each of its calls
// costs much.
func Costly(name string, create func(*testing.T) func() store.Store) {
	if os.Getenv("PERDURE_TORTURE") != "" {
		sweeps.Stores[name] = create
	}
}

// Outside returns a function that makes empty stores within another one, for use
// in the bubbles of [synctest], where nobody may wait for a network: the calls are
// made by goroutines outside of all bubbles. As the bubble does not count on what
// they do, virtual time stands still until a call has returned. Waking and casting
// stay within the bubble.
//
// The other store is closed when the test ends.
func Outside(t *testing.T, s store.Store) func() store.Store {
	const lanes = 8
	o := &outside{Store: s, batcher: store.BatcherOf(s), free: make(chan lane, lanes)}
	for range lanes {
		l := lane{make(chan func()), make(chan struct{})}
		o.free <- l
		go func() {
			for call := range l.calls {
				call()
				l.done <- struct{}{}
			}
		}()
	}
	t.Cleanup(func() {
		for range lanes {
			close((<-o.free).calls)
		}
		NoErr(t, s.Close())
	})
	return func() store.Store {
		in := insider{Hub: store.NewHub(), o: o, prefix: fmt.Sprintf("%d/", o.made.Add(1))}
		if o.batcher == nil {
			return in
		}
		return batchInsider{in}
	}
}

// outside makes calls of a store.
type outside struct {
	store.Store
	batcher store.Batcher // nil if it has no batches
	free    chan lane
	made    atomic.Int64 // stores within this one
}

// lane is a goroutine that makes one call at a time.
type lane struct {
	calls chan func()
	done  chan struct{}
}

// call makes a call. Its context is without an end, which belongs to a bubble.
func (o *outside) call(ctx context.Context, f func(ctx context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var err error
	l := <-o.free
	l.calls <- func() { err = f(context.WithoutCancel(ctx)) }
	<-l.done
	o.free <- l
	return err
}

// insider is a store in a bubble: the names in another one that have a prefix.
type insider struct {
	*store.Hub
	o      *outside
	prefix string
}

// batchInsider is an insider of a store with batches.
type batchInsider struct{ insider }

var (
	_ store.Batcher  = batchInsider{}
	_ store.Unsynced = insider{}
	_ store.Durable  = insider{}
	_ store.Caster   = insider{}
	_ store.Watcher  = insider{}
)

func (s insider) Durability() store.Durability { return store.DurabilityOf(s.o.Store) }

// Close stops what waits in the bubble.
func (s insider) Close() error {
	s.Stop()
	return nil
}

// write makes a call and wakes those who wait for it.
func (s insider) write(ctx context.Context, f func(ctx context.Context) error, names ...string) error {
	err := s.o.call(ctx, f)
	for _, name := range names {
		s.Wake(name)
	}
	return err
}

func (s insider) Append(ctx context.Context, journal string, after uint64, entries ...[]byte) (last uint64, err error) {
	err = s.write(ctx, func(ctx context.Context) (err error) {
		last, err = s.o.Append(ctx, s.prefix+journal, after, entries...)
		return err
	}, journal)
	return last, err
}

func (s batchInsider) AppendBatch(ctx context.Context, b store.Batch) (last uint64, err error) {
	names := []string{b.Journal}
	cells := make([]store.Write, len(b.Cells))
	for i, c := range b.Cells {
		names = append(names, c.Key)
		cells[i] = c
		cells[i].Key = s.prefix + c.Key
	}
	if b.Journal != "" {
		b.Journal = s.prefix + b.Journal
	}
	b.Cells = cells
	err = s.write(ctx, func(ctx context.Context) (err error) {
		last, err = s.o.batcher.AppendBatch(ctx, b)
		return err
	}, names...)
	if c, ok := err.(*store.CellConflict); ok {
		c.Key = strings.TrimPrefix(c.Key, s.prefix)
	}
	return last, err
}

func (s insider) Drop(ctx context.Context, journal string) error {
	return s.write(ctx, func(ctx context.Context) error { return s.o.Drop(ctx, s.prefix+journal) }, journal)
}

func (s insider) Put(ctx context.Context, key string, value []byte, prev store.Version) (v store.Version, err error) {
	err = s.write(ctx, func(ctx context.Context) (err error) {
		v, err = s.o.Put(ctx, s.prefix+key, value, prev)
		return err
	}, key)
	return v, err
}

func (s insider) PutUnsynced(ctx context.Context, key string, value []byte, prev store.Version) (v store.Version, err error) {
	err = s.write(ctx, func(ctx context.Context) (err error) {
		v, err = store.PutUnsynced(ctx, s.o.Store, s.prefix+key, value, prev)
		return err
	}, key)
	return v, err
}

func (s insider) Delete(ctx context.Context, key string, prev store.Version) error {
	return s.write(ctx, func(ctx context.Context) error { return s.o.Delete(ctx, s.prefix+key, prev) }, key)
}

func (s insider) Get(ctx context.Context, key string) (c store.Cell, err error) {
	err = s.o.call(ctx, func(ctx context.Context) (err error) {
		c, err = s.o.Get(ctx, s.prefix+key)
		return err
	})
	c.Key = strings.TrimPrefix(c.Key, s.prefix)
	return c, err
}

func (s insider) Read(ctx context.Context, journal string, after uint64) iter.Seq2[store.Entry, error] {
	return gather(ctx, s.o, func(ctx context.Context) iter.Seq2[store.Entry, error] {
		return s.o.Read(ctx, s.prefix+journal, after)
	})
}

func (s insider) List(ctx context.Context, prefix, after string) iter.Seq2[store.Cell, error] {
	if after != "" {
		after = s.prefix + after
	}
	return gather(ctx, s.o, func(ctx context.Context) iter.Seq2[store.Cell, error] {
		return func(yield func(store.Cell, error) bool) {
			for c, err := range s.o.List(ctx, s.prefix+prefix, after) {
				c.Key = strings.TrimPrefix(c.Key, s.prefix)
				if !yield(c, err) {
					return
				}
			}
		}
	})
}

func (s insider) Journals(ctx context.Context, after string) iter.Seq2[string, error] {
	return gather(ctx, s.o, func(ctx context.Context) iter.Seq2[string, error] {
		return func(yield func(string, error) bool) {
			for name, err := range s.o.Journals(ctx, s.prefix+after) {
				own, ok := strings.CutPrefix(name, s.prefix)
				if err == nil && !ok || !yield(own, err) {
					return
				}
			}
		}
	})
}

// gather yields what a loop outside yields, after the loop has ended.
func gather[T any](ctx context.Context, o *outside, loop func(context.Context) iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var all []T
		err := o.call(ctx, func(ctx context.Context) error {
			for v, err := range loop(ctx) {
				if err != nil {
					return err
				}
				all = append(all, v)
			}
			return nil
		})
		for _, v := range all {
			if !yield(v, nil) {
				return
			}
		}
		if err != nil {
			var none T
			yield(none, err)
		}
	}
}
