package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/perdure/perdure"
)

// adkTurn is the part of a run that a request is answered with.
type adkTurn struct {
	app       string
	run       *perdure.Run
	tag       string          // of the thread's life, in ids
	after     uint64          // events up to this one are left out
	asks      map[string]bool // but for those of these asks
	streaming bool
}

// adkBegin does what a request asks for, and returns what it is answered with.
func (c *call) adkBegin(ctx context.Context, q *adkRequest) (*adkTurn, error) {
	t, err := c.adkThread(ctx, q.app, q.user, q.session)
	if err != nil {
		return nil, err
	}
	follows(ctx, t.ID)
	if q.last == nil {
		if err := c.adkChange(ctx, q.app, t, q.delta); err != nil {
			return nil, err
		}
	}
	turn := &adkTurn{app: q.app, tag: t.Life, streaming: q.streaming}
	switch {
	case q.last != nil: // a reconnect starts and answers nothing
		turn.after = *q.last
		turn.run, err = c.adkRunAt(ctx, t, q)
	case len(q.responses) > 0:
		err = c.adkRespond(ctx, t, q, turn)
	case q.message:
		turn.run, err = c.Start(ctx, perdure.StartRequest{Flow: q.app, Input: q.input, Thread: t.ID, Key: q.key, Policy: perdure.Beside, By: c.who.Subject})
	default:
		err = c.adkResume(ctx, t, q, turn)
	}
	return turn, err
}

// adkFind returns the run that is an invocation of a session.
func adkFind(t *perdure.Thread, id string) (*perdure.Run, error) {
	for _, run := range t.Runs {
		if run.ID == id {
			return run, nil
		}
	}
	return nil, fmt.Errorf("%w: session %q has no invocation %.80q", perdure.ErrRunNotFound, t.ID, id)
}

// adkRunAt returns the run whose events a client was reading when it was cut
// off.
func (c *call) adkRunAt(ctx context.Context, t *perdure.Thread, q *adkRequest) (*perdure.Run, error) {
	id := q.invocation
	if *q.last > 0 && q.tag != t.Life {
		return nil, fmt.Errorf("%w: %q has been used again since", perdure.ErrErased, t.ID)
	}
	for e, err := range c.Events(ctx, t.ID, perdure.EventOptions{After: max(*q.last, 1) - 1, Replay: true}) {
		if err != nil {
			return nil, err
		}
		if id == "" {
			id = e.Run
		}
		break
	}
	if *q.last > t.Seq {
		if now, err := c.Get(ctx, t.ID); err != nil || *q.last > now.Seq {
			return nil, firstError(err, fmt.Errorf("%w: session %q has no event %d", perdure.ErrAhead, t.ID, *q.last))
		}
	}
	if id != "" {
		return adkFind(t, id)
	}
	if len(t.Runs) == 0 {
		return nil, fmt.Errorf("%w: session %q has no invocation", perdure.ErrRunNotFound, t.ID)
	}
	return t.Runs[len(t.Runs)-1], nil
}

// adkResume lets a run go on that was stopped: what was paused goes on, and
// what failed is tried again. One that a crash cut off goes on by itself. The
// client gets what has happened since a worker took it up last, and what it
// waits for.
func (c *call) adkResume(ctx context.Context, t *perdure.Thread, q *adkRequest, turn *adkTurn) error {
	run, err := adkFind(t, q.invocation)
	if err != nil {
		return err
	}
	turn.run = run
	note := perdure.Note{By: c.who.Subject, Reason: "resumed by its invocation id"}
	err = nil
	switch {
	case !run.Paused.IsZero():
		err = c.Resume(ctx, t.ID, run.ID, note)
	case run.Status == perdure.Failed || run.Status == perdure.Blocked || run.Status == perdure.Quarantined:
		err = c.Retry(ctx, t.ID, run.ID, note)
	}
	if err != nil && !errors.Is(err, perdure.ErrNothingToDo) {
		return err
	}
	turn.asks = map[string]bool{}
	for _, ask := range run.Asks {
		turn.asks[ask.ID] = true
	}
	for e, err := range c.Events(ctx, t.ID, perdure.EventOptions{After: run.Seq - 1, Run: run.ID, Replay: true}) {
		if err != nil {
			return err
		}
		if e.Kind == "claimed" || e.Kind == "resumed" || e.Kind == "retried" {
			turn.after = e.Seq
		}
	}
	return nil
}
