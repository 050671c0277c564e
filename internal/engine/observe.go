package engine

import (
	"context"

	"github.com/perdure/perdure/internal/journal"
)

func (c *Engine) stepStarted(ctx context.Context, f *frame) (context.Context, func(error)) {
	if c.opts.Observer == nil {
		return ctx, func(error) {}
	}
	p := f.pass
	over := func(error) {}
	_, err := invoke(ctx, func(context.Context) (bool, error) {
		inner, ended := c.opts.Observer.StepStarted(ctx, StepInfo{Thread: p.thread.ID, Run: p.run.ID, Flow: p.run.Flow,
			Path: f.path(), Attempt: f.attempt, Trace: p.run.Trace})
		if inner != nil {
			ctx = inner
		}
		if ended != nil {
			over = ended
		}
		return true, nil
	})
	c.observerFailed(err)
	return ctx, func(outcome error) {
		_, err := invoke(ctx, func(context.Context) (bool, error) {
			over(outcome)
			return true, nil
		})
		c.observerFailed(err)
	}
}

// observerFailed logs that an observer panicked, which is no failure of a run.
func (c *Engine) observerFailed(err error) {
	if err != nil {
		c.threads.Log.Error("the observer", "error", err)
	}
}

func (c *Engine) observe(p *Pass, entries []journal.Entry) {
	if c.opts.Observer == nil {
		return
	}
	for _, e := range entries {
		_, err := invoke(p.ctx, func(context.Context) (bool, error) {
			c.opts.Observer.Committed(p.name, p.thread.ID, p.run.ID, e)
			return true, nil
		})
		c.observerFailed(err)
	}
}
