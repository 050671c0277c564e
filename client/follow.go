package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"mime"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/sse"
)

// FollowOptions select what to follow of a thread.
type FollowOptions struct {
	After    uint64 // only later events
	Life     string // of the thread, see [perdure.Event]; ErrErased if another thread has the id
	Run      string // only events of this run; [api.Newest] means the run that is newest now
	Wait     bool   // with a run: also end when it waits for someone
	NoDeltas bool   // omit live deltas
}

// Update is something that happened on a thread: one of its fields is set.
type Update struct {
	Event *perdure.Event
	Delta *perdure.DeltaEvent
	Done  *api.Done // with a run: the last update
}

// Follow yields the events and live deltas of a thread over one connection. With
// a run, the last update is the end of the run; without one it continues until the
// context ends, which is not an error. If the thread moves to another store first, the
// last update is an event of kind moved, followed by a *perdure.MovedError.
//
// Each event comes once and in order, even when connections or servers are lost:
// Follow reconnects, up to Options.StreamAttempts times in a row without receiving
// anything. An event out of order is an error, and so is whatever a retry cannot
// change: an unknown or erased thread or run, or a token without permission.
// Deltas may be missing.
func (c *Client) Follow(ctx context.Context, thread string, o FollowOptions) iter.Seq2[Update, error] {
	return func(yield func(Update, error) bool) {
		if o.Run == api.Newest {
			run, err := c.GetRun(ctx, thread, "")
			if err != nil {
				if ctx.Err() == nil {
					yield(Update{}, err)
				}
				return
			}
			o.Run = run.ID
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		f := &follower{Client: c, thread: thread, o: o, seq: o.After, life: o.Life, most: c.opts.Attempts, yield: yield}
		if err := f.follow(ctx); err != nil && ctx.Err() == nil {
			yield(Update{}, err)
		}
	}
}

// maxEvent bounds the size of an event of a stream.
const maxEvent = 64 << 20

// errOver ends a follower without an error.
var errOver = errors.New("over")

// follower is a Follow under way.
type follower struct {
	*Client
	thread string
	o      FollowOptions
	seq    uint64 // of the last event
	life   string // of that event
	fails  int    // connections in a row without an update
	most   int    // how many of them there may be
	yield  func(Update, error) bool
}

func (f *follower) follow(ctx context.Context) error {
	for {
		p, err := f.connect(ctx)
		if err == nil {
			err = f.read(p)
		}
		final, isFinal := errors.AsType[*finalError](err)
		switch {
		case errors.Is(err, errOver) || ctx.Err() != nil:
			return nil
		case isFinal:
			return final.error
		case f.fails >= f.most:
			return err
		}
		if f.pause(ctx, f.fails, p.hint()) != nil {
			return nil
		}
		f.fails++
	}
}

// finalError is an error that a retry would not change.
type finalError struct{ error }

func final(format string, args ...any) error { return &finalError{fmt.Errorf(format, args...)} }

// body is the stream of a connection.
type body struct {
	events *sse.Reader
	io.Closer
}

// hint is how long the stream asks readers to wait before they reconnect.
func (b *body) hint() time.Duration {
	if b == nil {
		return 0
	}
	return b.events.Retry
}

// connect requests the events after the last one.
func (f *follower) connect(ctx context.Context) (*body, error) {
	if strings.ContainsFunc(f.life, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, final("client: %w: no thread has the life %.40q", perdure.ErrInvalid, f.life)
	}
	in := api.ListEvents{Thread: f.thread, Run: f.o.Run}
	if f.o.NoDeltas {
		in.Deltas = "no"
	}
	if f.o.Wait && f.o.Run != "" {
		in.Until = "wait"
	}
	q := &request{op: &api.EventsList.Info, in: reflect.ValueOf(in), accept: api.TypeEvents, once: true,
		header: http.Header{"Last-Event-Id": {string(api.IDOf(f.seq, f.life, false))}}}
	known := f.reached.Load()
	ctx, hangUp := context.WithCancel(ctx)
	resp, err := f.send(ctx, q)
	if err != nil {
		hangUp()
		if lasting(err) || !known && unsent(err) {
			return nil, &finalError{err}
		}
		return nil, err
	}
	resp.Body = &listener{resp.Body, f.opts.Silence, time.AfterFunc(f.opts.Silence, hangUp), hangUp}
	if resp.StatusCode == http.StatusNoContent {
		resp.Body.Close()
		return nil, errOver
	}
	if media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); media != api.TypeEvents {
		resp.Body.Close()
		return nil, final("client: %s: %w", q.op.Name, f.foreign(resp))
	}
	b := &body{sse.NewReader(resp.Body, maxEvent), resp.Body}
	b.events.Alive = func() { f.fails = 0 }
	f.most = f.opts.StreamAttempts
	return b, nil
}

// listener hangs up when a stream is silent for too long: a live server sends
// heartbeats, and a lost peer may never be noticed otherwise.
type listener struct {
	io.ReadCloser
	silence time.Duration
	timer   *time.Timer
	hangUp  func()
}

// Read reads, and restarts the wait.
func (l *listener) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	l.timer.Reset(l.silence)
	return n, err
}

// Close hangs up.
func (l *listener) Close() error {
	l.timer.Stop()
	err := l.ReadCloser.Close()
	l.hangUp()
	return err
}

// lasting reports whether a retry would end in the same error.
func lasting(err error) bool {
	status := 0
	if p, ok := errors.AsType[*api.Problem](err); ok {
		status = p.Status
	} else if strange, ok := errors.AsType[*strangeError](err); ok {
		status = strange.status
	}
	return status >= 300 && status < 500 && status != http.StatusTooManyRequests && status != http.StatusRequestTimeout
}

// read yields the updates of a connection.
func (f *follower) read(b *body) error {
	defer b.Close()
	for {
		m, err := b.events.Next()
		switch {
		case errors.Is(err, sse.ErrTooLong):
			return final("client: the events of thread %s after %d: %w", f.thread, f.seq, err)
		case errors.Is(err, io.EOF):
			return fmt.Errorf("client: the events of thread %s after %d: the server ended the stream", f.thread, f.seq)
		case err != nil:
			return fmt.Errorf("client: the events of thread %s after %d: %w", f.thread, f.seq, f.explainLost(err, false))
		}
		u, err := f.update(m)
		if err != nil {
			return err
		}
		if u == (Update{}) {
			continue
		}
		f.fails = 0
		if !f.yield(u, nil) || u.Done != nil {
			return errOver
		}
		if u.Event != nil && u.Event.Kind == "moved" {
			return &finalError{&perdure.MovedError{Thread: f.thread, To: u.Event.Name}}
		}
	}
}

// update decodes a message and checks that it is the next one.
func (f *follower) update(m sse.Event) (u Update, err error) {
	bad := func(what string, args ...any) (Update, error) {
		return Update{}, final("client: the events of thread %s after %d: %s", f.thread, f.seq, fmt.Sprintf(what, args...))
	}
	switch {
	case m.Kind == "delta":
		err = json.Unmarshal(m.Data, &u.Delta)
	case m.Kind == "done":
		err = json.Unmarshal(m.Data, &u.Done)
		if seq, _, _, _ := api.EventID(m.ID).Parse(); seq > f.seq {
			return bad("the run is done at %d", seq)
		}
	case m.Kind == "erased" && isArchived(m.Data):
		return Update{}, &finalError{fmt.Errorf("%w: %s", perdure.ErrArchived, f.thread)}
	case m.Kind == "erased":
		return Update{}, &finalError{fmt.Errorf("%w: %s", perdure.ErrErased, f.thread)}
	case m.Kind == api.KindCorrupt:
		p := new(api.Problem)
		if err := json.Unmarshal(m.Data, p); err != nil {
			p.Detail = "the thread is damaged"
		}
		return Update{}, &finalError{fmt.Errorf("%w: thread %s, after event %d: %s", perdure.ErrCorrupt, f.thread, f.seq, p.Detail)}
	case m.ID == "":
		return Update{}, nil // of a later version
	default:
		err = json.Unmarshal(m.Data, &u.Event)
	}
	switch {
	case err != nil:
		return bad("the event %s %q: %v", m.ID, m.Kind, err)
	case u.Delta == nil && u.Done == nil && u.Event == nil:
		return bad("the event %s %q is null", m.ID, m.Kind)
	case u.Event == nil:
		return u, nil
	}
	// With a run there are gaps where other runs have events.
	e := u.Event
	next := e.Seq == f.seq+1 || f.o.Run != "" && e.Seq > f.seq
	if f.seq == 0 && f.o.Life == "" {
		f.life = e.Life
	}
	if !next || e.Life != f.life || m.ID != string(api.IDOf(e.Seq, f.life, false)) || e.Thread != f.thread {
		return bad("the next one is %s, event %d of thread %s", m.ID, e.Seq, e.Thread)
	}
	f.seq = e.Seq
	return u, nil
}

// Events yields the events of a thread in order, each once: the existing ones, and then
// new ones, until the context ends. It reconnects by itself when a connection or the
// server is lost: see Follow.
//
// With a Run it ends after that run's last event, whereas [perdure.Runtime.Events] keeps
// waiting; an unknown run is ErrRunNotFound. After an event of kind moved it ends with a
// *perdure.MovedError.
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

// replay yields the events up to the thread's current sequence.
func (c *Client) replay(ctx context.Context, thread string, o perdure.EventOptions, yield func(perdure.Event, error) bool) {
	t, err := c.GetPage(ctx, thread, perdure.RunPage{Limit: 1})
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

// Deltas yields the live deltas of a thread from now on, until the context ends.
// It may miss some.
func (c *Client) Deltas(ctx context.Context, thread string) iter.Seq2[perdure.DeltaEvent, error] {
	return func(yield func(perdure.DeltaEvent, error) bool) {
		t, err := c.GetPage(ctx, thread, perdure.RunPage{Limit: 1})
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
