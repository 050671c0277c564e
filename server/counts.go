package server

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/perdure/perdure"
)

// count is a tenant's threads in numbers. It is not changed once it is made.
type count struct {
	threads  int
	statuses map[string]int
	asks     int
	workers  int
}

// counts keeps the numbers of tenants for a while, since all threads are looked
// at for them.
type counts struct {
	mu      sync.Mutex
	tenants map[string]*counted
}

// counted is the numbers of a tenant.
type counted struct {
	turn  chan struct{} // holds something while someone counts
	last  *count
	until time.Time // they are good
}

// keepCounts is how long numbers are good, or 10 times as long as it took to
// count, so that at most a tenth of the time is spent on it.
const keepCounts = 2 * time.Second

// of returns the numbers of the caller's tenant. Of many who ask at the same
// time one counts.
func (n *counts) of(ctx context.Context, c *Call) (*count, error) {
	own := n.tenant(c.Who.Tenant + "\x00" + c.Who.User)
	select {
	case own.turn <- struct{}{}:
		defer func() { <-own.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	begun := time.Now()
	if own.last != nil && begun.Before(own.until) {
		return own.last, nil
	}
	last, err := countThreads(ctx, c)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	own.last = last
	n.mu.Lock()
	own.until = now.Add(max(keepCounts, 10*now.Sub(begun)))
	n.mu.Unlock()
	return last, nil
}

// maxTenants is how many tenants are remembered.
const maxTenants = 1000

func (n *counts) tenant(name string) *counted {
	n.mu.Lock()
	defer n.mu.Unlock()
	if own := n.tenants[name]; own != nil {
		return own
	}
	if len(n.tenants) >= maxTenants {
		now := time.Now()
		maps.DeleteFunc(n.tenants, func(_ string, c *counted) bool { return now.After(c.until) })
	}
	if n.tenants == nil || len(n.tenants) >= maxTenants {
		n.tenants = map[string]*counted{}
	}
	own := &counted{turn: make(chan struct{}, 1)}
	n.tenants[name] = own
	return own
}

func countThreads(ctx context.Context, c *Call) (*count, error) {
	n := &count{statuses: map[string]int{}}
	for t, err := range c.Runtime.List(ctx, perdure.ListOptions{}) {
		if errors.Is(err, perdure.ErrCorrupt) {
			break // lists tell it
		}
		if err != nil {
			return nil, err
		}
		status := string(t.Status)
		if status == "" {
			status = idle
		}
		n.threads++
		n.statuses[status]++
		n.asks += t.Asks
	}
	workers, err := c.Runtime.Workers(ctx)
	n.workers = len(workers)
	if err == nil {
		err = ctx.Err()
	}
	return n, err
}
