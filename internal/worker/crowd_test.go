package worker_test

import (
	"context"
	"fmt"
	"iter"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store"
)

// scaled returns the smaller of two sizes, or the larger one when there is time.
func scaled(small, large int) int {
	if os.Getenv("PERDURE_TORTURE") != "" {
		return large
	}
	return small
}

// countStore counts the calls of a store, and the cells that were listed.
type countStore struct {
	store.Store
	calls, listed atomic.Int64
}

func (c *countStore) Unwrap() store.Store { return c.Store }

// reset returns what was counted since the last time.
func (c *countStore) reset() (calls, listed int64) { return c.calls.Swap(0), c.listed.Swap(0) }

func (c *countStore) Append(ctx context.Context, journal string, after uint64, entries ...[]byte) (uint64, error) {
	c.calls.Add(1)
	return c.Store.Append(ctx, journal, after, entries...)
}

func (c *countStore) Read(ctx context.Context, journal string, after uint64) iter.Seq2[store.Entry, error] {
	c.calls.Add(1)
	return c.Store.Read(ctx, journal, after)
}

func (c *countStore) Get(ctx context.Context, key string) (store.Cell, error) {
	c.calls.Add(1)
	return c.Store.Get(ctx, key)
}

func (c *countStore) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	c.calls.Add(1)
	return c.Store.Put(ctx, key, value, prev)
}

func (c *countStore) Delete(ctx context.Context, key string, prev store.Version) error {
	c.calls.Add(1)
	return c.Store.Delete(ctx, key, prev)
}

func (c *countStore) List(ctx context.Context, prefix, after string) iter.Seq2[store.Cell, error] {
	c.calls.Add(1)
	return func(yield func(store.Cell, error) bool) {
		for cell, err := range c.Store.List(ctx, prefix, after) {
			c.listed.Add(1)
			if !yield(cell, err) {
				return
			}
		}
	}
}

// crowd knows who is inside at the moment, and who came in.
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

// first returns the first of those who came.
func (c *crowd) first(n int) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.order[:n])
}

// crowdFlow is a flow with a step that takes a moment. Its input says who it is.
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
		if _, err := rt.Start(t.Context(), perdure.StartRequest{Thread: fmt.Sprint(flow, "-", user, "-", i), Flow: flow, User: user, Input: user}); err != nil {
			t.Fatal(err)
		}
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
