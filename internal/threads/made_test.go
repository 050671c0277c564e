package threads_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// getter notes the cells that are read.
type getter struct {
	*memstore.Store
	mu   sync.Mutex
	keys []string
}

func (g *getter) Get(ctx context.Context, key string) (store.Cell, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.keys = append(g.keys, key)
	return g.Store.Get(ctx, key)
}

// The end of a run reads none of the cells that its start wrote, unless another writer
// has come to them.
func TestAnEndKnowsTheCellsOfItsStart(t *testing.T) {
	for _, touched := range []string{"", "thread/", "index/", "due/"} {
		t.Run(strings.Trim(touched, "/"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &getter{Store: memstore.New()}
				cells := func(prefix string) (found []store.Cell) {
					for cell, err := range g.List(context.Background(), prefix, "") {
						if err != nil {
							t.Error(err)
						}
						found = append(found, cell)
					}
					return found
				}
				flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
					return perdure.Step(ctx, "s", func(ctx context.Context) (string, error) {
						for _, cell := range cells(touched) {
							if touched == "" {
								break
							}
							if _, err := g.Put(ctx, cell.Key, cell.Value, cell.Version); err != nil {
								return "", err
							}
						}
						g.mu.Lock()
						defer g.mu.Unlock()
						g.keys = nil
						return "x", nil
					})
				})
				k := kit.New(t, g, perdure.Options{}, flow)
				time.Sleep(time.Second) // the worker is there
				k.StartOn("t", "f", "")
				k.WaitFor("t", perdure.Succeeded)
				time.Sleep(time.Second)
				g.mu.Lock()
				read := slices.ContainsFunc(g.keys, func(key string) bool {
					return strings.HasPrefix(key, "index/") || strings.HasPrefix(key, "due/")
				})
				g.mu.Unlock()
				if read != (touched != "") {
					t.Errorf("the end has read %q", g.keys)
				}
				if left := cells("due/"); len(left) != 0 {
					t.Errorf("the hint is still there: %v", left)
				}
				// All, status and flow.
				if left := cells("index/"); len(left) != 3 {
					t.Errorf("the index has %d cells, want 3: %v", len(left), left)
				}
				for status, want := range map[perdure.Status]int{perdure.Succeeded: 1, perdure.Running: 0} {
					n := 0
					for _, err := range k.List(context.Background(), perdure.ListOptions{Status: status}) {
						if n++; err != nil {
							t.Error(err)
						}
					}
					if n != want {
						t.Errorf("%d threads are %s, want %d", n, status, want)
					}
				}
			})
		})
	}
}
