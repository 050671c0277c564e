package client

import (
	"context"
	"iter"

	"github.com/perdure/perdure"
)

// Events yields the events of a thread in order, each once: those that are
// there, and then the new ones, until the context ends. It goes on by itself
// when a connection or the server is lost: see Follow.
//
// With a Run it ends after that run's last event, where a Runtime's would wait
// on; an unknown run is ErrRunNotFound.
func (c *Client) Events(ctx context.Context, thread string, o perdure.EventOptions) iter.Seq2[perdure.Event, error] {
	return func(yield func(perdure.Event, error) bool) {
		if o.Replay {
			c.replay(ctx, thread, o, yield)
			return
		}
		for u, err := range c.Follow(ctx, thread, FollowOptions{After: o.After, Life: o.Life, Run: o.Run, NoDeltas: true}) {
			switch {
			case err != nil:
				yield(perdure.Event{}, err)
				return
			case u.Event != nil && !yield(*u.Event, nil):
				return
			}
		}
	}
}

// replay yields the events up to where the thread is now.
func (c *Client) replay(ctx context.Context, thread string, o perdure.EventOptions, yield func(perdure.Event, error) bool) {
	t, err := c.Get(ctx, thread)
	if err != nil {
		if ctx.Err() == nil {
			yield(perdure.Event{}, err)
		}
		return
	}
	if o.After == t.Seq && (o.After == 0 && o.Life == "" || o.Life == t.Life) {
		return
	}
	for u, err := range c.Follow(ctx, thread, FollowOptions{After: o.After, Life: o.Life, NoDeltas: true}) {
		if err != nil {
			yield(perdure.Event{}, err)
			return
		}
		if u.Event == nil {
			continue
		}
		if (o.Run == "" || u.Event.Run == o.Run) && !yield(*u.Event, nil) || u.Event.Seq >= t.Seq {
			return
		}
	}
}

// Deltas yields the live news of a thread from now on, until the context ends.
// It may miss some.
func (c *Client) Deltas(ctx context.Context, thread string) iter.Seq2[perdure.DeltaEvent, error] {
	return func(yield func(perdure.DeltaEvent, error) bool) {
		t, err := c.Get(ctx, thread)
		if err != nil {
			if ctx.Err() == nil {
				yield(perdure.DeltaEvent{}, err)
			}
			return
		}
		for u, err := range c.Follow(ctx, thread, FollowOptions{After: t.Seq, Life: t.Life}) {
			switch {
			case err != nil:
				yield(perdure.DeltaEvent{}, err)
				return
			case u.Delta != nil && !yield(*u.Delta, nil):
				return
			}
		}
	}
}
