package worker_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
)

// countStore counts the calls of a store, and the cells that were listed.
type countStore struct {
	store.Store
	calls, listed atomic.Int64
}

func newCountStore(s store.Store) *countStore {
	c := &countStore{}
	c.Store = faulty.New(s, func(faulty.Call) faulty.Fault {
		c.calls.Add(1)
		return faulty.None
	})
	return c
}

func (c *countStore) Unwrap() store.Store { return c.Store }

// reset returns what was counted since the last time.
func (c *countStore) reset() (calls, listed int64) { return c.calls.Swap(0), c.listed.Swap(0) }

func (c *countStore) List(ctx context.Context, prefix, after string) iter.Seq2[store.Cell, error] {
	return func(yield func(store.Cell, error) bool) {
		for cell, err := range c.Store.List(ctx, prefix, after) {
			c.listed.Add(1)
			if !yield(cell, err) {
				return
			}
		}
	}
}

// crowd knows which runs are inside at the moment, and which came in.
type crowd struct {
	mu     sync.Mutex
	inside map[string]int // by worker
	most   int
	order  []string
}

// enter notes that one came in, until leave is called.
func (c *crowd) enter(worker, who string) (leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inside == nil {
		c.inside = map[string]int{}
	}
	c.order = append(c.order, who)
	c.inside[worker]++
	c.most = max(c.most, c.inside[worker])
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.inside[worker]--
	}
}

// came returns how many came in.
func (c *crowd) came() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.order)
}

// first returns the first of those that came in.
func (c *crowd) first(n int) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.order[:n])
}

// flow returns a flow with a step that takes a moment. Its input is its name.
func (c *crowd) flow(name, worker string, d time.Duration) perdure.Flow {
	return perdure.NewFlow(name, func(ctx context.Context, who string) (string, error) {
		return perdure.Step(ctx, "work", func(context.Context) (string, error) {
			defer c.enter(worker, who)()
			time.Sleep(d)
			return who, nil
		})
	})
}

// queueUp starts runs of a flow on new threads of a user.
func queueUp(t *testing.T, rt *perdure.Runtime, flow, user string, n int) {
	t.Helper()
	for i := range n {
		kit.Start(t, rt, perdure.StartRequest{Thread: fmt.Sprint(flow, "-", user, "-", i), Flow: flow, User: user, Input: user})
	}
}

// until lets virtual time pass until something holds, an hour at most.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for range 36_000 {
		if holds() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("within an hour it never holds that %s", what)
}
