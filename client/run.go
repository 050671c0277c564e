package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
)

// Start queues a run and returns at once. Workers of the server execute it.
//
// If the request has no Key, Start adds one, so that it can be repeated after a lost
// connection and still starts only one run. By is the token's subject, whatever the
// request says.
func (c *Client) Start(ctx context.Context, q perdure.StartRequest) (*perdure.Run, error) {
	input, err := encode("the input of "+q.Flow, q.Input)
	if err != nil {
		return nil, err
	}
	start := api.Start{Key: cmp.Or(q.Key, newID()), IfMatch: q.IfSeq, Trace: q.Trace,
		Flow: q.Flow, Input: input, Policy: q.Policy, Title: q.Title, User: q.User, Metadata: q.Metadata, Budget: q.Budget, Attach: q.Attach}
	if q.Thread == "" {
		run, err := Do(ctx, c, api.RunsNew, start)
		return withError(run), err
	}
	run, err := Do(ctx, c, api.RunsStart, api.StartRun{Thread: q.Thread, Start: start})
	return withError(run), err
}

// newID returns a unique id.
func newID() string { return strings.ToLower(rand.Text()) }

// StartAgain starts a new run on a thread with the flow, the input and the budget of an
// earlier one; "" means the newest.
func (c *Client) StartAgain(ctx context.Context, thread, run string, n perdure.Note) (*perdure.Run, error) {
	again, err := Do(ctx, c, api.RunsAgain, control(thread, run, n))
	return withError(again), err
}

// GetRun returns everything about a run; "" means the newest one of the thread.
func (c *Client) GetRun(ctx context.Context, thread, run string) (*perdure.Run, error) {
	found, err := Do(ctx, c, api.RunsGet, one(thread, run))
	return withError(found), err
}

// PostMortem gathers what the journal says about a run: see
// [perdure.Runtime.PostMortem].
func (c *Client) PostMortem(ctx context.Context, thread, run string) (*perdure.PostMortem, error) {
	return Do(ctx, c, api.RunsPostMortem, one(thread, run))
}

// Bundle writes a zip file about a run: see [perdure.Runtime.Bundle]. About is ignored:
// the server describes itself. After an error the file is incomplete.
func (c *Client) Bundle(ctx context.Context, thread, run string, w io.Writer, o perdure.BundleOptions) error {
	return download(ctx, c, api.RunsBundle, api.BundleRun{OneRun: one(thread, run), Names: o.Names, Hosts: o.Hosts, Contents: o.Contents}, w, "the bundle of thread "+thread)
}

// Wait waits until a run has ended or cannot continue without input: see
// [perdure.Runtime.Wait].
func (c *Client) Wait(ctx context.Context, thread, run string) (*perdure.Run, error) {
	return c.wait(ctx, thread, run, false)
}

// WaitEnd waits until a run has ended, even while the run waits for someone.
func (c *Client) WaitEnd(ctx context.Context, thread, run string) (*perdure.Run, error) {
	return c.wait(ctx, thread, run, true)
}

func (c *Client) wait(ctx context.Context, thread, run string, end bool) (*perdure.Run, error) {
	status, hasty := perdure.Status(""), 0
	for {
		begun := time.Now()
		w, err := do[api.Waited](ctx, c, &request{op: &api.RunsWait.Info, in: reflect.ValueOf(api.WaitRun{OneRun: one(thread, run), End: end}), waits: true})
		switch {
		case err != nil && ctx.Err() != nil && status != "":
			return nil, fmt.Errorf("client: waited for run %s, which is %s: %w", run, status, context.Cause(ctx))
		case err != nil && ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err != nil:
			return nil, err
		case w.Run == nil:
			return nil, errors.New("client: the answer of " + api.RunsWait.Name + " has no run")
		case w.Over:
			return withError(w.Run), nil
		}
		// Stay with the run that was the newest when the wait began.
		run, status = w.Run.ID, w.Run.Status
		if hasty++; time.Since(begun) > time.Second {
			hasty = 0
		} else if c.pause(ctx, hasty, 0) != nil { // a stopping server does not wait
			continue // with the error of the context
		}
	}
}

// Cancel cancels a run: no new step starts, only cleanups do.
func (c *Client) Cancel(ctx context.Context, thread, run string, n perdure.Note) error {
	_, err := Do(ctx, c, api.RunsCancel, control(thread, run, n))
	return err
}

// Pause stops a run before its next step, until Resume.
func (c *Client) Pause(ctx context.Context, thread, run string, n perdure.Note) error {
	_, err := Do(ctx, c, api.RunsPause, control(thread, run, n))
	return err
}

// Resume lifts a pause. If there is none, the error is ErrNothingToDo.
func (c *Client) Resume(ctx context.Context, thread, run string, n perdure.Note) error {
	r, err := Do(ctx, c, api.RunsResume, control(thread, run, n))
	if err == nil && !r.Resumed {
		return fmt.Errorf("%w: %s", perdure.ErrNothingToDo, cmp.Or(r.Note, "the run is not paused"))
	}
	return err
}

// Retry continues a failed, blocked or quarantined run.
func (c *Client) Retry(ctx context.Context, thread, run string, n perdure.Note) error {
	_, err := Do(ctx, c, api.RunsRetry, control(thread, run, n))
	return err
}

func one(thread, run string) api.OneRun {
	return api.OneRun{Thread: thread, Run: cmp.Or(run, api.Newest)}
}

func control(thread, run string, n perdure.Note) api.ControlRun {
	return api.ControlRun{OneRun: one(thread, run), IfMatch: n.IfSeq, Reason: n.Reason}
}

// withError sets the error of a run from its text.
func withError(run *perdure.Run) *perdure.Run {
	if run != nil && run.Error != "" {
		run.Err = &fault.Recorded{Fail: journal.Failure{Msg: run.Error, Codes: run.Codes}}
	}
	return run
}

func withErrors(t *perdure.Thread) *perdure.Thread {
	if t != nil {
		for _, run := range t.Runs {
			withError(run)
		}
	}
	return t
}
