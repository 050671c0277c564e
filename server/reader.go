package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/sse"
	"github.com/perdure/perdure/server/internal/feed"
)

// reader follows a thread, or one of its runs, for a client.
type reader struct {
	*stream // nil until there is something to send
	s       *Server
	w       http.ResponseWriter
	c       *Call
	thread  string
	tag     string // of that life, in ids
	life    string // of the thread: a later thread with its id is not shown
	admin   bool
	watch   *watch // rechecks whether the client may read

	pos     uint64       // the last event that was sent or passed over
	last    uint64       // the last event that was sent
	nowhere bool         // last is of no use for reconnecting until something is sent
	tail    *feed.Tail   // nil until the existing events are sent
	recent  []feed.Frame // steps that ended in the existing events, without their data

	run   string       // the run at whose end the stream ends; "": only when the thread moves
	only  string       // the run whose events are sent; "": all
	wait  bool         // the stream also ends when the run waits for someone
	await bool         // only waiting shows when that happens
	idles bool         // it may have happened
	check bool         // the stream may have to end now
	stood *perdure.Run // the run as it was seen waiting; nil: it was not
	left  []byte       // the event `moved`, with which the stream ends unless the run has; nil: none yet
}

// catchUp sends the events of the journal after pos.
func (rd *reader) catchUp(ctx context.Context) error {
	out := sse.TakeEncoder()
	defer out.Release()
	var one perdure.Event // reused, since each is encoded at once
	for ev, err := range rd.c.Runtime.Events(ctx, rd.thread, perdure.EventOptions{After: rd.pos, Replay: true, Life: rd.life}) {
		if err != nil {
			return err
		}
		if err := rd.mayGoOn(ctx); err != nil {
			return err
		}
		one = ev
		if err := rd.event(out, &one); err != nil {
			return err
		}
		rd.c.load.letGo()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return rd.begin()
}

// mayGoOn is called between events: a slow reader may take hours for a long past,
// and one that is always behind never waits.
func (rd *reader) mayGoOn(ctx context.Context) error {
	if rd.s.stopped() {
		return api.ErrStopping
	}
	return rd.watch.due(ctx)
}

// begin writes the headers, once.
func (rd *reader) begin() (err error) {
	if rd.stream == nil {
		id := api.IDOf(rd.last, rd.tag, false)
		if rd.nowhere {
			id = ""
		}
		rd.stream, err = rd.s.begin(rd.w, id)
	}
	return err
}

// event sends an event that the reader read from the journal itself.
func (rd *reader) event(out *sse.Encoder, ev *perdure.Event) error {
	if err := rd.begin(); err != nil {
		return err
	}
	f := feed.FrameOf(ev)
	if rd.only == "" || rd.only == ev.Run || ev.Kind == kindMoved {
		if api.Internal(ev.Kind) && !rd.admin {
			ev = feed.Bare(ev)
		}
		data, err := out.Encode(string(api.IDOf(ev.Seq, ev.Life, false)), ev.Kind, ev)
		if err != nil {
			return err
		}
		f.Full, f.Bare = data, data
	}
	if rd.tail != nil {
		rd.tail.CaughtUp(&f)
	} else {
		rd.note(&f)
	}
	return rd.frame(&f)
}

// note remembers the deltas that an event of the past makes void.
func (rd *reader) note(f *feed.Frame) {
	switch f.Kind {
	case "retried", "rewound":
		rd.recent = rd.recent[:0] // what had ended may run again
	case "step", "attempt", "ended":
		if len(rd.recent) == cap(rd.recent) && len(rd.recent) >= feed.RingFrames {
			rd.recent = append(rd.recent[:0], rd.recent[feed.RingFrames/2:]...)
		}
		rd.recent = append(rd.recent, feed.Frame{Seq: f.Seq, Kind: f.Kind, Run: f.Run, Path: f.Path, Attempt: f.Attempt})
	}
}

// frame sends an event.
func (rd *reader) frame(f *feed.Frame) error {
	if f.Seq <= rd.pos {
		return nil
	}
	rd.pos = f.Seq
	if f.Kind == kindMoved && rd.run != "" {
		rd.left = bytes.Clone(f.Full)
		rd.check, rd.idles = !rd.await, true
		return nil
	}
	if rd.run != "" && f.MayEnd(rd.run) {
		rd.check = true
	}
	rd.idles = rd.idles || f.MayIdle(rd.run)
	if rd.only != "" && f.Run != rd.only {
		return nil
	}
	rd.last = f.Seq
	rd.s.events.sent.Add(1)
	data := f.Bare
	if rd.admin {
		data = f.Full
	}
	err := rd.add(data)
	if err == nil && f.Kind == kindMoved {
		err = errOver // nothing can follow
	}
	return err
}

// kindMoved is the last event of a thread in this store. It has no run.
const kindMoved = "moved"

// leave ends the stream of a run whose thread has moved, if it has.
func (rd *reader) leave(ctx context.Context) error {
	if rd.left == nil {
		if err := rd.catchUp(ctx); err != nil {
			return err
		}
	}
	if rd.left == nil {
		return nil
	}
	rd.s.events.sent.Add(1)
	if err := rd.add(rd.left); err != nil {
		return err
	}
	return errOver
}

// live sends new events until the stream ends.
func (rd *reader) live(ctx context.Context, deltas bool) error {
	rd.tail = rd.s.hub.Join(rd.c.Runtime, feed.Place{Tenant: rd.c.Who.Tenant, Thread: rd.thread, Life: rd.life}, rd.pos, rd.recent)
	defer rd.s.hub.Leave(rd.tail)
	rd.recent = nil
	var ear *feed.Ear
	var heard <-chan struct{}
	if deltas {
		ear = rd.tail.Hear(rd.only)
		defer rd.tail.Deafen(ear)
		heard = ear.Ready
	}
	var waited <-chan stand
	pause := time.Duration(0)
	var frames []feed.Frame
	var said []feed.Deltas
	for {
		if err := rd.watch.due(ctx); err != nil {
			return err
		}
		var behind bool
		var more <-chan struct{}
		var err error
		frames, behind, more, err = rd.tail.Since(rd.pos, frames[:0])
		switch {
		case behind:
			err = rd.catchUp(ctx)
		case len(frames) > 0:
			for i := range frames {
				if err = rd.frame(&frames[i]); err != nil {
					break
				}
			}
			clear(frames)
			if err == nil {
				err = rd.mayGoOn(ctx)
			}
		}
		if err != nil {
			return err
		}
		if rd.check {
			if err := rd.finish(ctx); err != nil {
				return err
			}
			continue
		}
		if more == nil {
			continue
		}
		if rd.await && rd.idles && waited == nil {
			waited, pause = rd.waiting(ctx, pause), waitPause
		}
		if deltas { // after the events that are there: one may make them void
			if said, err = rd.deltas(ear, said); err != nil {
				return err
			}
		}
		if err := rd.flush(); err != nil {
			return err
		}
		rd.idle()
		select {
		case <-more:
		case <-heard:
		case stands := <-waited:
			waited, err = nil, stands.err
			if errors.Is(err, perdure.ErrMoved) {
				err = rd.leave(ctx)
			} else if err == nil {
				rd.run, rd.stood, rd.check = stands.run.ID, stands.run, true
			}
		case <-rd.quiet.C:
			err = rd.heartbeat()
		case <-rd.watch.C:
			err = rd.watch.recheck(ctx)
		case <-rd.s.stop:
			return api.ErrStopping
		case <-ctx.Done():
			return ctx.Err()
		}
		if err != nil {
			return err
		}
	}
}

// deltas sends the deltas that have arrived, and returns them for the next call.
func (rd *reader) deltas(ear *feed.Ear, said []feed.Deltas) ([]feed.Deltas, error) {
	said = rd.tail.Take(ear, said)
	for i := range said {
		if err := rd.add(said[i].Blocks); err != nil {
			return said, err
		}
	}
	return said, nil
}

// waitPause limits how often a reader checks a run that repeatedly stops and goes
// on.
const waitPause = 50 * time.Millisecond

// errOver ends a stream regularly.
var errOver = errors.New("server: the stream is over")

// stand is a run that has ended or waits, or the error of waiting for that.
type stand struct {
	run *perdure.Run
	err error
}

// waiting reports when the run may have ended or cannot go on without outside
// input.
func (rd *reader) waiting(ctx context.Context, pause time.Duration) <-chan stand {
	told := make(chan stand, 1)
	wait := rd.c.Runtime.WaitEnd
	if rd.wait {
		wait = rd.c.Runtime.Wait
	}
	run := rd.run
	go func() {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		found, err := wait(ctx, rd.thread, run)
		told <- stand{found, err}
	}()
	return told
}

// finish ends the stream if the run has ended or, if that suffices, waits. It
// reads the thread and then sends everything up to there, so that the end fits what
// was sent before it.
func (rd *reader) finish(ctx context.Context) error {
	stood := rd.stood
	rd.check, rd.stood = false, nil
	t, err := rd.c.Runtime.GetPage(ctx, rd.thread, perdure.RunPage{Limit: defaultRuns})
	if err == nil && t.Earlier > 0 && runOf(t, rd.run) == nil {
		t, err = rd.c.Runtime.Get(ctx, rd.thread)
	}
	if err != nil {
		return err
	}
	run := runOf(t, rd.run)
	if run == nil { // a rewind removed it
		return fmt.Errorf("%w: %s", perdure.ErrRunNotFound, rd.run)
	}
	if !run.Status.Final() && !(rd.wait && stood != nil && same(stood, run)) && rd.left == nil {
		return nil
	}
	if rd.pos < t.Seq {
		if err := rd.catchUp(ctx); err != nil {
			return err
		}
	}
	if rd.last > t.Seq { // the run has gone on meanwhile
		rd.check, rd.idles = !rd.await, true
		return nil
	}
	if rd.left != nil && !run.Status.Final() {
		return rd.leave(ctx)
	}
	if err := rd.encode(api.IDOf(rd.last, rd.tag, true), api.KindDone, doneOf(run)); err != nil {
		return err
	}
	return errOver
}

// same reports whether a run still waits as it did. One that went on may now wait
// for a timer, which does not end the stream.
func same(a, b *perdure.Run) bool {
	return a.Status == b.Status && a.Resumes == b.Resumes && a.Retries == b.Retries && a.Since.Equal(b.Since) && len(a.Asks) == len(b.Asks)
}

// end tells the reader why the stream ends, where that helps.
func (rd *reader) end(err error) {
	defer rd.stream.end()
	switch {
	case errors.Is(err, api.ErrStopping):
		rd.bye()
		return
	case errors.Is(err, perdure.ErrErased):
		gone := &perdure.Event{Thread: rd.thread, Seq: rd.pos + 1, Kind: "erased", Time: time.Now().UTC()}
		_ = rd.encode("", gone.Kind, gone)
	case errors.Is(err, perdure.ErrArchived):
		gone := &perdure.Event{Thread: rd.thread, Seq: rd.pos + 1, Kind: "erased", Name: "archive", Time: time.Now().UTC()}
		_ = rd.encode("", gone.Kind, gone)
	case errors.Is(err, perdure.ErrCorrupt):
		// Reconnecting would change nothing.
		_ = rd.encode("", api.KindCorrupt, api.ProblemOf(err))
		rd.s.opts.Logger.Warn("an event stream ended at damage", "thread", rd.thread, "error", err)
	case !errors.Is(err, errOver) && !errors.Is(err, context.Canceled):
		// The cause is not for the reader, who reconnects.
		rd.s.opts.Logger.Warn("an event stream ended", "thread", rd.thread, "error", err)
	}
	_ = rd.flush()
}
