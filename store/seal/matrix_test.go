package seal_test

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/perdure/perdure/internal/natstest"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/redistest"
	"github.com/perdure/perdure/internal/resttest"
	"github.com/perdure/perdure/internal/s3test"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/filestore"
	"github.com/perdure/perdure/store/kvstore"
	"github.com/perdure/perdure/store/memstore"
	"github.com/perdure/perdure/store/natsstore"
	"github.com/perdure/perdure/store/observed"
	"github.com/perdure/perdure/store/pgstore"
	"github.com/perdure/perdure/store/redisstore"
	"github.com/perdure/perdure/store/s3store"
	"github.com/perdure/perdure/store/seal"
	"github.com/perdure/perdure/store/sqlitestore"
	"github.com/perdure/perdure/store/storetest"
	_ "github.com/perdure/perdure/store/upstashstore"
)

// drivers opens a store of every driver, without syncs where it can: what is
// tested here is how wrappers and drivers fit together.
var drivers = map[string]storetest.Opener{
	"memstore": func(_ context.Context, dir string) (store.Store, error) { return memstore.Open(dir), nil },
	"filestore": func(ctx context.Context, dir string) (store.Store, error) {
		return filestore.Open(ctx, dir, filestore.Options{NoSync: true})
	},
	"sqlitestore": func(ctx context.Context, dir string) (store.Store, error) {
		return sqlitestore.Open(ctx, filepath.Join(dir, "test.db"), sqlitestore.Options{Synchronous: sqlitestore.Normal})
	},
	"pgstore": func(ctx context.Context, dir string) (store.Store, error) {
		return pgstore.Open(ctx, pgtest.Schema(os.Getenv(pgtest.Env), dir), pgstore.Options{})
	},
	"redisstore": func(ctx context.Context, dir string) (store.Store, error) {
		return redisstore.Open(ctx, redistest.Prefix(os.Getenv(redistest.Env), dir), redisstore.Options{})
	},
	"natsstore": func(ctx context.Context, dir string) (store.Store, error) {
		return natsstore.Open(ctx, natstest.Stream(os.Getenv(natstest.Env), dir), natsstore.Options{Memory: true})
	},
	"s3store": func(ctx context.Context, dir string) (store.Store, error) {
		return s3store.Open(ctx, s3test.StoreURL(os.Getenv(s3test.Env), dir), s3store.Options{})
	},
	"upstashstore": func(ctx context.Context, dir string) (store.Store, error) {
		return store.Open(ctx, redistest.Prefix(os.Getenv(resttest.Env), dir))
	},
	"kvstore": func(_ context.Context, dir string) (store.Store, error) {
		engine, _ := engines.LoadOrStore(dir, &table{cells: map[string]store.Cell{}})
		return kvstore.New(engine.(*table), kvstore.Options{}), nil
	},
}

// TestEveryDriver runs the whole contract over every driver in every wrapper, or
// with -short in all of them at once.
func TestEveryDriver(t *testing.T) {
	keys := ring(t, "a")
	wrappers := map[string]func(context.Context, store.Store) (store.Store, error){
		"seal": func(ctx context.Context, s store.Store) (store.Store, error) { return seal.New(ctx, s, keys) },
		"observed": func(_ context.Context, s store.Store) (store.Store, error) {
			return observed.New(s, &observed.Stats{}), nil
		},
	}
	if testing.Short() {
		inner, outer := wrappers["seal"], wrappers["observed"]
		wrappers = map[string]func(context.Context, store.Store) (store.Store, error){
			"both": func(ctx context.Context, s store.Store) (store.Store, error) {
				s, err := inner(ctx, s)
				if err != nil {
					return nil, err
				}
				return outer(ctx, s)
			},
		}
	}
	for driver, open := range drivers {
		for wrapper, wrap := range wrappers {
			t.Run(wrapper+"/"+driver, func(t *testing.T) {
				t.Parallel()
				switch driver {
				case "pgstore":
					pgtest.URL(t)
				case "s3store":
					s3test.URL(t, "")
				case "upstashstore":
					resttest.URL(t, "")
				case "redisstore":
					redistest.URL(t)
				}
				if driver == "natsstore" {
					natstest.URL(t)
				}
				storetest.Run(t, func(ctx context.Context, dir string) (store.Store, error) {
					s, err := open(ctx, dir)
					if err != nil {
						return nil, err
					}
					return wrap(ctx, s)
				})
			})
		}
	}
}

// engines holds a table for each folder, as a remote engine has one for each
// address.
var engines sync.Map

// table is a key-value engine in a map.
type table struct {
	mu     sync.Mutex
	cells  map[string]store.Cell
	writes int
}

func (e *table) Get(_ context.Context, key string) (store.Cell, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c, ok := e.cells[key]
	if !ok {
		return c, store.NoCell(key)
	}
	c.Value = bytes.Clone(c.Value)
	return c, nil
}

func (e *table) Put(_ context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if now := e.cells[key].Version; now != prev {
		return "", store.NotVersion(key, prev, now)
	}
	e.writes++
	version := store.Version(fmt.Sprint(e.writes))
	e.cells[key] = store.Cell{Key: key, Value: bytes.Clone(value), Version: version}
	return version, nil
}

func (e *table) Delete(_ context.Context, key string, prev store.Version) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if now := e.cells[key].Version; now != prev || now == "" {
		return store.NotVersion(key, prev, now)
	}
	delete(e.cells, key)
	return nil
}

func (e *table) List(ctx context.Context, prefix, after string) iter.Seq2[store.Cell, error] {
	return func(yield func(store.Cell, error) bool) {
		e.mu.Lock()
		keys := slices.Sorted(maps.Keys(e.cells))
		e.mu.Unlock()
		for _, key := range keys {
			if key <= after || !strings.HasPrefix(key, prefix) {
				continue
			}
			if c, err := e.Get(ctx, key); err == nil && !yield(c, nil) {
				return
			}
		}
	}
}
