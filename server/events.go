package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/server/internal/feed"
	"github.com/perdure/perdure/store"
)

func (s *Server) eventRoutes() {
	raw(s, api.EventsList, s.listEvents)
	raw(s, api.EventsWatch, s.watchThreads)
}

// Limits of a page of events.
const (
	pageEvents = 100
	mostEvents = 1000
	pageBytes  = 8 << 20 // a page of this size is not extended
)

func (s *Server) listEvents(w http.ResponseWriter, r *http.Request, c *Call, in *api.ListEvents) error {
	v, err := viewOf(in)
	if err != nil {
		return err
	}
	w.Header().Add("Vary", "Accept")
	if wantsStream(r) {
		err := s.follow(w, r, c, v)
		if errors.Is(err, perdure.ErrNoThread) && v.after > 0 && v.back {
			// It once existed: the reader has an id of it.
			err = fmt.Errorf("%w: %q", perdure.ErrErased, in.Thread)
		}
		return err
	}
	return sendEvents(w, r, c, v, in.Limit)
}

// view is what a reader wants to see of a thread.
type view struct {
	thread string
	run    string       // id; "": all
	found  *perdure.Run // that run, if it has just been started
	after  uint64
	tag    string // of the life that after is in
	life   string // of the thread
	ours   bool   // the server chose after, not the reader
	back   bool   // the reader reconnects: it has seen the events up to after
	done   bool   // the reader has seen the end of the stream after it
	wait   bool   // the stream ends also when the run waits for someone
	deltas bool
}

// viewOf returns the view that a request asks for, if that is valid.
func viewOf(in *api.ListEvents) (view, error) {
	v := view{thread: in.Thread, run: in.Run, deltas: in.Deltas != "no"}
	var err error
	if in.LastID != "" {
		if v.after, v.tag, v.done, err = in.LastID.Parse(); err != nil {
			return v, fmt.Errorf("Last-Event-ID: %w", err)
		}
	} else if in.After != "" {
		if v.after, v.tag, v.done, err = in.After.Parse(); err != nil {
			return v, fmt.Errorf("after: %w", err)
		}
	}
	v.back = v.after > 0
	switch {
	case in.Until == "wait" && in.Run != "":
		v.wait = true
	case in.Until != "" && (in.Until != "end" || in.Run == ""):
		return v, api.Invalid("until is end or wait, and needs run")
	case in.Deltas != "" && in.Deltas != "no" && in.Deltas != "yes":
		return v, api.Invalid("deltas is yes or no")
	case in.Limit > mostEvents:
		return v, api.Invalid("limit is at most %d", mostEvents)
	}
	return v, nil
}

// known finds out which thread has the id, and fails if the reader has seen
// events of an earlier one.
func (v *view) known(ctx context.Context, c *Call) (err error) {
	t := threads.Behind(c.Runtime)
	if v.life, err = t.Find(ctx, v.thread); err != nil {
		return err
	}
	seen := v.tag
	if v.tag, err = t.Tag(ctx, v.life, v.thread); err == nil && (v.after > 0 || seen != "") && seen != v.tag && !v.ours {
		if t.All.WasRestored() {
			return fmt.Errorf("%w: the id %s of thread %q is from before that; read the thread again, without an id", perdure.ErrRestored, api.IDOf(v.after, seen, v.done), v.thread)
		}
		err = fmt.Errorf("%w: the id %s belongs to an earlier thread, not to the one that is now called %q", perdure.ErrErased, api.IDOf(v.after, seen, v.done), v.thread)
	}
	return err
}

// find looks up the run.
func (v *view) find(ctx context.Context, c *Call) (*perdure.Run, error) {
	if v.run == "" || v.found != nil {
		return v.found, nil
	}
	name := v.run
	if name == api.Newest {
		var err error
		if name, err = v.seen(ctx, c); err != nil {
			return nil, err
		}
	}
	run, err := c.Runtime.GetRun(ctx, v.thread, name)
	if err != nil {
		return nil, err
	}
	v.run = run.ID
	return run, nil
}

// left reports whether the last event that the reader has seen is the last one there
// will be, as the thread has moved. A run that has ended is still to be told.
func (v *view) left(ctx context.Context, c *Call, run *perdure.Run) (bool, error) {
	if !v.back || run != nil && run.Status.Final() || !errors.Is(threads.Behind(c.Runtime).All.CheckMoved(ctx), perdure.ErrMoved) {
		return false, nil
	}
	for ev, err := range c.Runtime.Events(ctx, v.thread, perdure.EventOptions{After: v.after - 1, Replay: true, Life: v.life}) {
		return err == nil && ev.Kind == kindMoved, err
	}
	return false, ctx.Err()
}

// seen returns the run of the last event that a reconnecting reader has seen: the
// newest run may be another by now. It is "" if there is none.
func (v *view) seen(ctx context.Context, c *Call) (run string, err error) {
	if !v.back {
		return "", nil
	}
	for ev, err := range c.Runtime.Events(ctx, v.thread, perdure.EventOptions{After: v.after - 1, Replay: true, Life: v.life}) {
		if err == nil {
			return ev.Run, nil
		}
		break
	}
	for _, err := range c.Runtime.Events(ctx, v.thread, perdure.EventOptions{After: v.after, Replay: true, Life: v.life}) {
		return "", err // why there is none
	}
	return "", ctx.Err()
}

// sendEvents responds with a page of events, one after the other: a page may be
// large and its reader slow. If the thread cannot be read further, the page ends,
// and the next one reports why.
func sendEvents(w http.ResponseWriter, r *http.Request, c *Call, v view, limit int) error {
	ctx := r.Context()
	if err := v.known(ctx, c); err != nil {
		return err
	}
	if _, err := v.find(ctx, c); err != nil {
		return err
	}
	c.load.letGo()
	if limit == 0 {
		limit = pageEvents
	}
	out := bufio.NewWriterSize(w, streamBuffer)
	n, size, last, next := 0, 0, uint64(0), uint64(0)
	for ev, err := range c.Runtime.Events(ctx, v.thread, perdure.EventOptions{After: v.after, Run: v.run, Replay: true, Life: v.life}) {
		if err != nil && n == 0 {
			return err
		}
		if err != nil || n == limit || size > pageBytes {
			next = last
			break
		}
		if api.Internal(ev.Kind) && !c.Who.May(api.ScopeAdmin) {
			ev = *feed.Bare(&ev)
		}
		data, err := json.Marshal(&ev)
		if err != nil {
			return err
		}
		before := ","
		if n == 0 {
			w.Header().Set("Content-Type", api.TypeJSON)
			before = `{"events":[`
		}
		out.WriteString(before)
		if _, err := out.Write(data); err != nil {
			return nil // the caller is gone
		}
		n, size, last = n+1, size+len(data), ev.Seq
		c.load.letGo()
	}
	if ctx.Err() != nil && out.Buffered() < size {
		panic(http.ErrAbortHandler) // it must not look complete
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case n == 0:
		return c.Send(w, http.StatusOK, &api.EventPage{Events: []perdure.Event{}})
	case next > 0:
		fmt.Fprintf(out, `],"next":%d}`+"\n", next)
	default:
		out.WriteString("]}\n")
	}
	_ = out.Flush() // the caller may be gone
	return nil
}

// streamRun responds with the events of a run that was just started, up to its
// end or until it waits for someone. If there is no room for a stream it responds
// with the run, which has been started.
func (s *Server) streamRun(w http.ResponseWriter, r *http.Request, c *Call, run *perdure.Run) error {
	leave, err := s.admitStream(c)
	if err != nil {
		return c.Send(w, http.StatusAccepted, run)
	}
	defer leave()
	return s.stream(w, r, c, view{thread: run.Thread, run: run.ID, found: run, after: run.Seq - 1, ours: true, wait: true, deltas: true})
}

// attendTime bounds how long a stream waits to hear the deltas of other processes. It
// begins without them if the store's engine does not respond.
const attendTime = 2 * time.Second

// attend waits until this process hears what others say.
func (c *Call) attend(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, attendTime)
	defer cancel()
	store.Attend(ctx, threads.Behind(c.Runtime).All.Store)
}

// follow responds with a stream.
func (s *Server) follow(w http.ResponseWriter, r *http.Request, c *Call, v view) error {
	leave, err := s.admitStream(c)
	if err != nil {
		return err
	}
	defer leave()
	return s.stream(w, r, c, v)
}

// stream sends the events of a view. The stream has been admitted.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, c *Call, v view) error {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	rd := &reader{s: s, w: w, c: c, thread: v.thread, admin: c.Who.May(api.ScopeAdmin), pos: v.after, last: v.after}
	rd.watch = c.watch()
	defer rd.watch.Stop()
	if err := v.known(ctx, c); err != nil {
		return err
	}
	rd.life, rd.tag = v.life, v.tag
	if v.deltas {
		c.attend(ctx)
	}
	rd.nowhere = v.run == api.Newest && !v.back
	run, err := v.find(ctx, c)
	if err != nil {
		return err
	}
	if run != nil {
		over, err := rd.setRun(ctx, run, v)
		if err != nil {
			return err
		}
		if over {
			w.WriteHeader(http.StatusNoContent)
			return nil
		}
	}
	if over, err := v.left(ctx, c, run); err != nil {
		return err
	} else if over {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	if r.Method == http.MethodHead {
		for _, err := range c.Runtime.Events(ctx, v.thread, perdure.EventOptions{After: rd.pos, Replay: true, Life: rd.life}) {
			if err != nil {
				return err
			}
			break
		}
		w.Header().Set("Content-Type", api.TypeEvents)
		w.WriteHeader(http.StatusOK)
		return nil
	}
	if v.found != nil { // a run that has just begun has hardly a past
		err = rd.begin()
		c.load.letGo()
	} else {
		err = rd.catchUp(ctx)
	}
	if err != nil && rd.stream == nil {
		return err
	}
	if err == nil {
		err = rd.live(ctx, v.deltas)
	}
	rd.end(err)
	return nil
}

// setRun makes a reader follow a run. Over is set if the reader has seen all of it
// and nothing has happened since.
func (rd *reader) setRun(ctx context.Context, run *perdure.Run, v view) (over bool, err error) {
	rd.run, rd.only, rd.wait = run.ID, run.ID, v.wait
	if run.Steering {
		rd.only = "" // it becomes part of another run, or one of its own
	}
	rd.await = v.wait || run.Steering
	rd.idles = run.Steering || run.Status != perdure.Queued && run.Status != perdure.Running
	rd.check = run.Status.Final()
	if v.done && (v.wait || run.Steering || run.Status.Final()) {
		moved, err := rd.moved(ctx, v)
		if err != nil || !moved {
			return true, err
		}
	}
	// Nothing before the run's own first event is of interest.
	rd.pos = max(rd.pos, run.Seq-1)
	return false, nil
}

// takerTime is how long to look for the run that took an input. A run that has
// ended or waits is found at once.
const takerTime = time.Second

// moved reports whether the run has gone on after the end that the reader has seen.
func (rd *reader) moved(ctx context.Context, v view) (bool, error) {
	run := rd.only
	if run == "" { // events of other runs say nothing about the one that took the input
		brief, cancel := context.WithTimeout(ctx, takerTime)
		defer cancel()
		wait := rd.c.Runtime.WaitEnd
		if v.wait {
			wait = rd.c.Runtime.Wait
		}
		taker, err := wait(brief, v.thread, rd.run)
		if err != nil {
			return brief.Err() != nil, ctx.Err()
		}
		run = taker.ID
	}
	for _, err := range rd.c.Runtime.Events(ctx, v.thread, perdure.EventOptions{After: v.after, Run: run, Replay: true, Life: rd.life}) {
		return true, err
	}
	return false, ctx.Err()
}

// doneOf returns the data of the event that ends a stream.
func doneOf(run *perdure.Run) *api.Done {
	return &api.Done{Thread: run.Thread, Run: run.ID, Status: run.Status, Output: run.Output, Error: run.Error, Spent: run.Spent, Asks: run.Asks}
}

// runOf returns a run of a thread, nil if it has none with this id.
func runOf(t *perdure.Thread, id string) *perdure.Run {
	i := slices.IndexFunc(t.Runs, func(r *perdure.Run) bool { return r.ID == id })
	if i < 0 {
		return nil
	}
	return t.Runs[i]
}
