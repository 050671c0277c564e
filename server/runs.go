package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
)

func (s *Server) runRoutes() {
	raw(s, api.RunsNew, func(w http.ResponseWriter, r *http.Request, c *Call, in *api.Start) error {
		return s.startRun(w, r, c, "", in)
	})
	raw(s, api.RunsStart, func(w http.ResponseWriter, r *http.Request, c *Call, in *api.StartRun) error {
		return s.startRun(w, r, c, in.Thread, &in.Start)
	})
	handle(s, api.RunsList, s.listRuns)
	handle(s, api.RunsGet, func(ctx context.Context, c *Call, in *api.OneRun) (*perdure.Run, error) {
		return c.Runtime.GetRun(ctx, in.Thread, runID(in.Run))
	})
	handle(s, api.RunsWait, s.waitRun)
	handle(s, api.RunsPostMortem, func(ctx context.Context, c *Call, in *api.OneRun) (*perdure.PostMortem, error) {
		return c.Runtime.PostMortem(ctx, in.Thread, runID(in.Run))
	})
	raw(s, api.RunsBundle, s.bundleRun)
	handle(s, api.RunsCancel, control((*perdure.Runtime).Cancel))
	handle(s, api.RunsPause, control((*perdure.Runtime).Pause))
	handle(s, api.RunsRetry, control((*perdure.Runtime).Retry))
	handle(s, api.RunsResume, s.resumeRun)
	handle(s, api.RunsAgain, s.startAgain)
}

// runID returns the id of a run for the runtime, in which the newest run is "".
func runID(id string) string {
	if id == api.Newest {
		return ""
	}
	return id
}

// owner returns the owner of a new thread: the named one, or else the caller if
// that is known.
func (s *Server) owner(c *Call, named string) string {
	if named == "" && (s.opts.Auth != nil || c.Who.Subject != local(&http.Request{}).Subject) {
		return c.Who.Subject
	}
	return named
}

// note records who does something, and why.
func (c *Call) note(reason string, seq uint64) perdure.Note {
	return perdure.Note{By: c.Who.Subject, Reason: reason, IfSeq: seq}
}

// started sets the headers that lead to a run that was just started.
func (c *Call) started(run *perdure.Run) {
	c.About(run.Thread)
	c.header.Set("Location", threadPath(run.Thread)+"/runs/"+url.PathEscape(run.ID))
}

// startRun starts a run and responds with it, or with its events if the client
// asks for them.
func (s *Server) startRun(w http.ResponseWriter, r *http.Request, c *Call, thread string, in *api.Start) error {
	q := perdure.StartRequest{Flow: in.Flow, Input: given(in.Input), Thread: thread, Title: in.Title, User: s.owner(c, in.User), Metadata: in.Metadata,
		Key: in.Key, Policy: in.Policy, Budget: in.Budget, Trace: in.Trace, By: c.Who.Subject, IfSeq: in.IfMatch, Attach: in.Attach}
	if wantsStream(r) {
		if err := c.MayRead(); err != nil {
			return err
		}
		if last := r.Header.Get("Last-Event-ID"); last != "" {
			return s.comeBack(w, r, c, thread, api.EventID(last))
		}
	}
	if err := s.checkInput(in.Flow, in.Input); err != nil {
		return err
	}
	if wantsStream(r) {
		c.attend(r.Context()) // before its first delta
	}
	run, err := c.Runtime.Start(r.Context(), q)
	if err != nil {
		return err
	}
	c.started(run)
	c.header.Add("Vary", "Accept")
	if wantsStream(r) {
		return s.streamRun(w, r, c, run)
	}
	return c.sendOrReceipt(w, api.RunsStart.Status, run)
}

// comeBack serves a client that started a run, followed it and reconnects. It
// starts nothing.
func (s *Server) comeBack(w http.ResponseWriter, r *http.Request, c *Call, thread string, last api.EventID) error {
	if thread == "" {
		return api.Invalid("Last-Event-ID: a reconnect starts nothing; follow the events of the thread that Location of the first response names")
	}
	v, err := viewOf(&api.ListEvents{Thread: thread, Run: api.Newest, LastID: last, Until: "wait"})
	if err != nil {
		return err
	}
	return s.follow(w, r, c, v)
}

func (s *Server) startAgain(ctx context.Context, c *Call, in *api.ControlRun) (*perdure.Run, error) {
	run, err := c.Runtime.StartAgain(ctx, in.Thread, runID(in.Run), c.note(in.Reason, in.IfMatch))
	if err != nil {
		return nil, err
	}
	c.started(run)
	return run, nil
}

func (s *Server) listRuns(ctx context.Context, c *Call, in *api.GetThread) (*api.RunList, error) {
	t, err := s.getThread(ctx, c, in)
	if err != nil {
		return nil, err
	}
	return &api.RunList{Runs: some(t.Runs), Earlier: t.Earlier}, nil
}

// control makes an operation from a method that controls a run.
func control(do func(*perdure.Runtime, context.Context, string, string, perdure.Note) error) func(context.Context, *Call, *api.ControlRun) (*perdure.Run, error) {
	return func(ctx context.Context, c *Call, in *api.ControlRun) (*perdure.Run, error) {
		run, err := c.theRun(ctx, in.OneRun)
		if err != nil {
			return nil, err
		}
		if err := do(c.Runtime, ctx, in.Thread, run.ID, c.note(in.Reason, in.IfMatch)); err != nil {
			return nil, err
		}
		c.load.letGo()
		return c.Runtime.GetRun(ctx, in.Thread, run.ID)
	}
}

// theRun returns the run that a request names, so that newest stays the same run
// for the whole request.
func (c *Call) theRun(ctx context.Context, in api.OneRun) (*perdure.Run, error) {
	defer c.load.letGo() // only the id is needed
	return c.Runtime.GetRun(ctx, in.Thread, runID(in.Run))
}

// resumeRun lifts a pause. If there is none, the response says so.
func (s *Server) resumeRun(ctx context.Context, c *Call, in *api.ControlRun) (*api.Resumed, error) {
	run, err := c.theRun(ctx, in.OneRun)
	if err != nil {
		return nil, err
	}
	err = c.Runtime.Resume(ctx, in.Thread, run.ID, c.note(in.Reason, in.IfMatch))
	nothing := errors.Is(err, perdure.ErrNothingToDo)
	if err != nil && !nothing {
		return nil, err
	}
	c.load.letGo()
	out := &api.Resumed{Resumed: !nothing}
	if out.Run, err = c.Runtime.GetRun(ctx, in.Thread, run.ID); err != nil {
		return nil, err
	}
	if nothing {
		out.Note = whyNot(out.Run)
	}
	return out, nil
}

var notPaused = map[perdure.Status]string{
	perdure.Succeeded:   "the run has succeeded",
	perdure.Failed:      "the run has failed: retry it, or start it again",
	perdure.Cancelled:   "the run was cancelled: start it again",
	perdure.Blocked:     "the run is blocked, since the code no longer fits it: deploy code that does, and retry it",
	perdure.Quarantined: "the run is quarantined, since its workers died: retry it when the cause is gone",
	perdure.Running:     "the run is running",
	perdure.Queued:      "the run waits for its turn and a worker, and begins by itself",
}

// whyNot says why there is no pause to lift.
func whyNot(run *perdure.Run) string {
	if why, ok := notPaused[run.Status]; ok {
		return why
	}
	for _, kind := range []string{"ask", "signal", "child", "timer", "retry"} {
		for _, w := range run.Waits {
			if w.Kind == kind {
				return waitsFor(w)
			}
		}
	}
	return fmt.Sprintf("the run is %s, and continues by itself", run.Status)
}

func waitsFor(w perdure.Wait) string {
	switch w.Kind {
	case "ask":
		return fmt.Sprintf("it waits for ask %s: answer it", w.Ask)
	case "signal":
		return fmt.Sprintf("it waits for the signal %q: send it", w.Signal)
	case "child":
		return fmt.Sprintf("it waits for the end of its child, thread %s", w.Child)
	}
	return fmt.Sprintf("it continues by itself at %s", w.Due.UTC().Format(time.RFC3339))
}

// How long a wait may be, in seconds.
const (
	defaultWait = 30
	maxWait     = 60
)

// waitRun responds when a run needs someone, has ended, or the time is over.
func (s *Server) waitRun(ctx context.Context, c *Call, in *api.WaitRun) (*api.Waited, error) {
	if in.Seconds > maxWait {
		return nil, api.Invalid("query seconds: it must be at most %d", maxWait)
	}
	run, err := c.theRun(ctx, in.OneRun)
	if err != nil {
		return nil, err
	}
	leave, err := c.load.stream() // it stays open like one
	if err != nil {
		return nil, err
	}
	defer leave()
	bounded, cancel := context.WithTimeout(ctx, time.Duration(cmp.Or(in.Seconds, defaultWait))*time.Second)
	defer cancel()
	go func() {
		select {
		case <-s.stop:
			cancel()
		case <-bounded.Done():
		}
	}()
	wait := c.Runtime.Wait
	if in.End {
		wait = c.Runtime.WaitEnd
	}
	over, err := wait(bounded, in.Thread, run.ID)
	if err := c.recheck(ctx); err != nil {
		return nil, err
	}
	switch {
	case err == nil:
		return &api.Waited{Run: over, Over: true}, nil
	case bounded.Err() == nil || ctx.Err() != nil:
		return nil, err
	case s.stopped():
		return nil, api.ErrStopping
	}
	if run, err = c.Runtime.GetRun(ctx, in.Thread, run.ID); err != nil {
		return nil, err
	}
	return &api.Waited{Run: run}, nil
}

// stopped reports whether Close was called.
func (s *Server) stopped() bool {
	select {
	case <-s.stop:
		return true
	default:
		return false
	}
}
