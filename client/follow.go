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
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/sse"
)

// FollowOptions choose what of a thread is followed.
type FollowOptions struct {
	After    uint64 // only later events
	Life     string // of the thread, as [perdure.Event] has it; another one under the id is ErrErased
	Run      string // only those of this run; [api.Newest] is the one that is the newest now
	Wait     bool   // of a run: end also when it waits for someone
	NoDeltas bool   // leave live deltas out
}

// Update is news of a thread: one of its fields is set.
type Update struct {
	Event *perdure.Event
	Delta *perdure.DeltaEvent
	Done  *api.Done // of a run: the last one
}

// Follow yields the events and live deltas of a thread over one connection, and
// of a run also its end, which is the last thing then. Without a run it goes on
// until the context ends, which is no error.
//
// Each event comes once and in order, whatever becomes of connections and
// servers meanwhile: a lost one is connected again, Options.Attempts times in a
// row without hearing anything. An event that is not the next one is an error,
// and so is what trying again cannot change: an unknown thread or run, one that
// was erased, a token that is not allowed to. Deltas may be missing.
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
		f := &follower{Client: c, thread: thread, o: o, seq: o.After, life: o.Life, yield: yield}
		if err := f.follow(ctx); err != nil && ctx.Err() == nil {
			yield(Update{}, err)
		}
	}
}

// maxEvent bounds what is kept of one event of a stream.
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
	fails  int    // connections in a row without news
	yield  func(Update, error) bool
}

func (f *follower) follow(ctx context.Context) error {
	for {
		p, err := f.connect(ctx)
		if err == nil {
			err = f.read(p)
		}
		var final *finalError
		switch {
		case errors.Is(err, errOver) || ctx.Err() != nil:
			return nil
		case errors.As(err, &final):
			return final.error
		case f.fails >= f.opts.Attempts:
			return err
		}
		if f.pause(ctx, f.fails, p.hint()) != nil {
			return nil
		}
		f.fails++
	}
}

// finalError is one that trying again does not change.
type finalError struct{ error }

func final(format string, args ...any) error { return &finalError{fmt.Errorf(format, args...)} }

// body is the stream of a connection.
type body struct {
	events *sse.Reader
	io.Closer
}

// hint is how long the stream asks to wait before the next one.
func (b *body) hint() time.Duration {
	if b == nil {
		return 0
	}
	return b.events.Retry
}

// connect asks for what comes behind the last event.
func (f *follower) connect(ctx context.Context) (*body, error) {
	in := api.ListEvents{Thread: f.thread, Run: f.o.Run}
	if f.o.NoDeltas {
		in.Deltas = "no"
	}
	if f.o.Wait && f.o.Run != "" {
		in.Until = "wait"
	}
	q := &request{op: &api.EventsList.Info, in: reflect.ValueOf(in), accept: api.TypeEvents, once: true,
		header: http.Header{"Last-Event-Id": {string(f.last())}}}
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
	resp.Body = listen(resp.Body, f.opts.Silence, hangUp)
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
	return b, nil
}

// last returns the id of the last event.
func (f *follower) last() api.EventID { return api.IDOf(f.seq, f.life, false) }

// listener hangs up when a stream is silent for too long: a server that is there
// says so now and then, and a peer that is gone may never be heard of.
type listener struct {
	io.ReadCloser
	silence time.Duration
	timer   *time.Timer
	hangUp  func()
}

func listen(body io.ReadCloser, silence time.Duration, hangUp func()) *listener {
	return &listener{body, silence, time.AfterFunc(silence, hangUp), hangUp}
}

// Read reads, and waits anew.
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

// lasting reports whether an answer will be the same if it is asked for again.
func lasting(err error) bool {
	var p *api.Problem
	var strange *strangeError
	status := 0
	switch {
	case errors.As(err, &p):
		status = p.Status
	case errors.As(err, &strange):
		status = strange.status
	}
	return status >= 300 && status < 500 && status != http.StatusTooManyRequests && status != http.StatusRequestTimeout
}

// read yields what a connection brings.
func (f *follower) read(b *body) error {
	defer b.Close()
	for {
		m, err := b.events.Next()
		switch {
		case errors.Is(err, sse.ErrTooLong):
			return final("client: the events of thread %s behind %d: %w", f.thread, f.seq, err)
		case errors.Is(err, io.EOF):
			return fmt.Errorf("client: the events of thread %s behind %d: the server ended the stream", f.thread, f.seq)
		case err != nil:
			return fmt.Errorf("client: the events of thread %s behind %d: %w", f.thread, f.seq, f.lost(err, false))
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
	}
}

// update returns what a message says, and checks that it is next.
func (f *follower) update(m sse.Event) (u Update, err error) {
	bad := func(what string, args ...any) (Update, error) {
		return Update{}, final("client: the events of thread %s behind %d: %s", f.thread, f.seq, fmt.Sprintf(what, args...))
	}
	switch {
	case m.Kind == "delta":
		err = json.Unmarshal(m.Data, &u.Delta)
	case m.Kind == "done":
		err = json.Unmarshal(m.Data, &u.Done)
		if seq, _, _, _ := api.EventID(m.ID).Parse(); seq > f.seq {
			return bad("the run is done at %d", seq)
		}
	case m.Kind == "erased":
		return Update{}, &finalError{fmt.Errorf("%w: %s", perdure.ErrErased, f.thread)}
	case m.Kind == api.KindCorrupt:
		p := new(api.Problem)
		if err := json.Unmarshal(m.Data, p); err != nil {
			p.Detail = "the thread is damaged"
		}
		return Update{}, &finalError{fmt.Errorf("%w: thread %s, behind event %d: %s", perdure.ErrCorrupt, f.thread, f.seq, p.Detail)}
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
	// With a run there are gaps where others did something.
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
