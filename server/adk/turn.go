package adk

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/server"
)

// excerpt is the part of a run that a request is answered with.
type excerpt struct {
	app       string
	run       *perdure.Run
	tag       string          // of the thread's life, in ids
	after     uint64          // events up to this one are left out
	asks      map[string]bool // but for those of these asks
	streaming bool
}

// beginTurn does what a request asks for, and returns the excerpt to respond with.
func beginTurn(ctx context.Context, c *server.Call, q *runRequest) (*excerpt, error) {
	t, err := findSession(ctx, c, q.app, q.user, q.session)
	if err != nil {
		return nil, err
	}
	c.About(t.ID)
	if q.last == nil {
		if err := changeState(ctx, c, q.app, t, q.delta); err != nil {
			return nil, err
		}
	}
	turn := &excerpt{app: q.app, tag: t.Life, streaming: q.streaming}
	switch {
	case q.last != nil: // a reconnect starts and answers nothing
		turn.after = *q.last
		turn.run, err = runAt(ctx, c, t, q)
	case len(q.responses) > 0:
		err = respond(ctx, c, t, q, turn)
	case q.message:
		turn.run, err = c.Runtime.Start(ctx, perdure.StartRequest{Flow: q.app, Input: q.input, Thread: t.ID, Key: q.key, Policy: perdure.Beside, By: c.Who.Subject})
	default:
		err = resumeRun(ctx, c, t, q, turn)
	}
	return turn, err
}

// findRun returns the run that is an invocation of a session.
func findRun(ctx context.Context, c *server.Call, t *perdure.Thread, id string) (*perdure.Run, error) {
	for _, run := range t.Runs {
		if run.ID == id {
			return run, nil
		}
	}
	if t.Earlier > 0 && id != "" {
		if run, err := c.Runtime.GetRun(ctx, t.ID, id); !errors.Is(err, perdure.ErrRunNotFound) {
			return run, err
		}
	}
	return nil, fmt.Errorf("%w: session %q has no invocation %.80q", perdure.ErrRunNotFound, t.ID, id)
}

// runAt returns the run whose events a client was reading when it was cut
// off.
func runAt(ctx context.Context, c *server.Call, t *perdure.Thread, q *runRequest) (*perdure.Run, error) {
	id := q.invocation
	if *q.last > 0 && q.tag != t.Life {
		return nil, fmt.Errorf("%w: the id %q has been reused since", perdure.ErrErased, t.ID)
	}
	for e, err := range c.Runtime.Events(ctx, t.ID, perdure.EventOptions{After: max(*q.last, 1) - 1, Replay: true}) {
		if err != nil {
			return nil, err
		}
		id = cmp.Or(id, e.Run)
		break
	}
	if *q.last > t.Seq {
		if now, err := c.Runtime.GetPage(ctx, t.ID, perdure.RunPage{Limit: 1}); err != nil || *q.last > now.Seq {
			return nil, cmp.Or(err, fmt.Errorf("%w: session %q has no event %d", perdure.ErrAhead, t.ID, *q.last))
		}
	}
	if id != "" {
		return findRun(ctx, c, t, id)
	}
	if len(t.Runs) == 0 {
		return nil, fmt.Errorf("%w: session %q has no invocation", perdure.ErrRunNotFound, t.ID)
	}
	return t.Runs[len(t.Runs)-1], nil
}

// resumeRun continues a stopped run: a paused one is resumed, a failed one retried.
// After a crash runs continue on their own. The client gets what has happened since
// a worker last took the run, and what the run waits for.
func resumeRun(ctx context.Context, c *server.Call, t *perdure.Thread, q *runRequest, turn *excerpt) error {
	run, err := findRun(ctx, c, t, q.invocation)
	if err != nil {
		return err
	}
	turn.run = run
	note := perdure.Note{By: c.Who.Subject, Reason: "resumed by its invocation id"}
	switch {
	case !run.Paused.IsZero():
		err = c.Runtime.Resume(ctx, t.ID, run.ID, note)
	case run.Status == perdure.Failed || run.Status == perdure.Blocked || run.Status == perdure.Quarantined:
		err = c.Runtime.Retry(ctx, t.ID, run.ID, note)
	}
	if err != nil && !errors.Is(err, perdure.ErrNothingToDo) {
		return err
	}
	turn.asks = map[string]bool{}
	for _, ask := range run.Asks {
		turn.asks[ask.ID] = true
	}
	for e, err := range c.Runtime.Events(ctx, t.ID, perdure.EventOptions{After: run.Seq - 1, Run: run.ID, Replay: true}) {
		if err != nil {
			return err
		}
		if e.Kind == "claimed" || e.Kind == "resumed" || e.Kind == "retried" {
			turn.after = e.Seq
		}
	}
	return nil
}
