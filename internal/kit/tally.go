package kit

import (
	"context"
	"maps"
	"sync"

	"github.com/perdure/perdure"
)

// Tally counts what happened, by name.
type Tally struct {
	mu sync.Mutex
	n  map[string]int
}

// Hit counts something, and returns how often it has happened.
func (c *Tally) Hit(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[name]++
	return c.n[name]
}

// Of returns how often something has happened.
func (c *Tally) Of(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[name]
}

// All returns what has happened, and how often.
func (c *Tally) All() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.n)
}

// Step runs a leaf that is counted, and returns what the leaf is given to
// return, one result an attempt; the last one repeats.
func (c *Tally) Step(ctx context.Context, name string, results []error, opts ...perdure.StepOption) error {
	_, err := perdure.Step(ctx, name, func(context.Context) (int, error) {
		n := c.Hit(name)
		if len(results) == 0 {
			return n, nil
		}
		return n, results[min(n, len(results))-1]
	}, opts...)
	return err
}

// OK runs a leaf that is counted and succeeds.
func (c *Tally) OK(ctx context.Context, name string, opts ...perdure.StepOption) error {
	return c.Step(ctx, name, nil, opts...)
}
