package adk

import (
	"context"
	"errors"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/server"
)

// resolveValue sets the value of an event that refers to another event's.
func resolveValue(ctx context.Context, c *server.Call, e *perdure.Event) error {
	for at := e.ValueOf; e.Kind == "ended" && e.Value == nil && at > 0; {
		var found perdure.Event
		for other, err := range c.Runtime.Events(ctx, e.Thread, perdure.EventOptions{After: at - 1, Replay: true}) {
			if err != nil {
				return err
			}
			found = other
			break
		}
		e.Value = found.Value
		if found.ValueOf >= at {
			break // each refers to an earlier one
		}
		at = found.ValueOf
	}
	return nil
}

// followRun yields the events of a turn, with what a client sees of each, until
// the run has ended or waits for input. The user's messages are left out: the
// client knows them.
func followRun(ctx context.Context, c *server.Call, turn *excerpt, yield func(perdure.Event, *wireEvent) bool) error {
	run := turn.run
	view := newView(turn.app)
	last := run.Seq - 1
	show := func(e perdure.Event, err error) (bool, error) {
		if err == nil {
			err = resolveValue(ctx, c, &e)
		}
		if err != nil {
			return false, err
		}
		last = e.Seq
		shown := view.event(e)
		if shown != nil && (shown.Author == "user" && e.Kind != "step" || e.Seq <= turn.after && !(e.Kind == "asked" && turn.asks[e.Ask])) {
			shown = nil
		}
		return yield(e, shown), nil
	}

	live, stop := context.WithCancel(ctx)
	defer stop()
	stands := make(chan error, 1)
	go func() {
		_, err := c.Runtime.Wait(live, run.Thread, run.ID)
		stop()
		stands <- err
	}()
	for e, err := range c.Runtime.Events(live, run.Thread, perdure.EventOptions{After: last, Run: run.ID}) {
		if err != nil && live.Err() != nil && ctx.Err() == nil || errors.Is(err, perdure.ErrMoved) {
			break // the run stands, or its thread has moved, unless it ended before
		}
		if more, err := show(e, err); !more || err != nil {
			stop()
			<-stands
			return err
		}
	}
	err := <-stands
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	// What was appended before it stood, and has not been read.
	for e, err := range c.Runtime.Events(ctx, run.Thread, perdure.EventOptions{After: last, Run: run.ID, Replay: true}) {
		if more, err := show(e, err); !more || err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}
