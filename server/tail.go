package server

import (
	"context"
	"errors"
	"math"
	"sync"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/sse"
)

// Sizes of what is kept for the readers of a thread.
const (
	ringFrames  = 1024
	ringBytes   = 512 << 10
	batchFrames = 64 // that a reader takes at a time
	batchBytes  = 256 << 10
	deltaBuffer = 64   // of one reader; more are dropped
	voidSteps   = 4096 // steps that are remembered as over
)

// frame is an event as a stream has it.
type frame struct {
	seq     uint64
	kind    string
	run     string
	path    string
	attempt int
	full    []byte // for admins
	bare    []byte // for others
}

// frameOf returns a frame without data.
func frameOf(ev *perdure.Event) frame {
	return frame{seq: ev.Seq, kind: ev.Kind, run: ev.Run, path: ev.Path, attempt: ev.Attempt}
}

func newFrame(ev *perdure.Event) (frame, error) {
	f := frameOf(ev)
	var err error
	if f.full, err = sse.Encode(string(api.IDOf(ev.Seq, ev.Life, false)), ev.Kind, ev); err != nil {
		return f, err
	}
	f.bare = f.full
	if api.Internal(ev.Kind) {
		f.bare, err = sse.Encode(string(api.IDOf(ev.Seq, ev.Life, false)), ev.Kind, bare(ev))
	}
	return f, err
}

// mayEnd reports whether a run may be over with an event, or gone. One that is
// cancelled before it has begun has no event ended.
func (f *frame) mayEnd(run string) bool {
	return f.run == run && (f.kind == "ended" || f.kind == "cancel") || f.kind == "rewound"
}

// bare returns what those who are no admins see of an internal event.
func bare(ev *perdure.Event) *perdure.Event {
	return &perdure.Event{Thread: ev.Thread, Seq: ev.Seq, Life: ev.Life, Kind: ev.Kind, Time: ev.Time, Run: ev.Run, Path: ev.Path}
}

// tail follows a thread for all who read its stream here: one of them reads the
// journal and encodes, and all take from a ring of the newest events. Who is
// behind the ring reads the journal itself, so nothing waits for anyone.
type tail struct {
	key    place
	cancel context.CancelFunc
	users  int // guarded by eventState.mu

	mu    sync.Mutex
	ring  []frame // in order, without gaps
	bytes int
	last  uint64        // the last event that was in the ring, or where it began
	more  chan struct{} // closed when there is more
	err   error         // why it ended

	speaks uint64 // the latest pass that was heard

	void  map[step]int // attempts up to this one are over
	order []step       // of void
	ears  map[*ear]bool
}

// step is a place in a run; the path "" is the whole run.
type step struct{ run, path string }

// ear is a reader of deltas.
type ear struct {
	run    string // "" for all
	deltas chan delta
}

type delta struct {
	step
	pass    uint64
	attempt int
	block   []byte
}

// join returns the tail of a thread for a reader that has seen the events up to
// after, the recent ones of which may make deltas void that are under way. It
// has to leave.
func (s *Server) join(rt *perdure.Runtime, key place, after uint64, recent []frame) *tail {
	s.events.mu.Lock()
	defer s.events.mu.Unlock()
	if t := s.events.tails[key]; t != nil {
		t.users++
		for i := range recent {
			t.caughtUp(&recent[i])
		}
		return t
	}
	ctx, cancel := context.WithCancel(context.Background())
	t := &tail{key: key, cancel: cancel, users: 1, last: after, more: make(chan struct{}), void: map[step]int{}, ears: map[*ear]bool{}}
	for i := range recent {
		t.pass(&recent[i])
	}
	if s.events.tails == nil {
		s.events.tails = map[place]*tail{}
	}
	s.events.tails[key] = t
	go t.follow(ctx, s, rt)
	go t.listen(ctx, rt)
	return t
}

// leave ends the tail with its last reader.
func (s *Server) leave(t *tail) {
	s.events.mu.Lock()
	defer s.events.mu.Unlock()
	if t.users--; t.users == 0 {
		s.forget(t)
		t.cancel()
	}
}

// forget lets no one join a tail. The mutex is held.
func (s *Server) forget(t *tail) {
	if s.events.tails[t.key] == t {
		delete(s.events.tails, t.key)
	}
}

// follow fills the ring.
func (t *tail) follow(ctx context.Context, s *Server, rt *perdure.Runtime) {
	end := func(err error) {
		s.events.mu.Lock()
		s.forget(t)
		s.events.mu.Unlock()
		t.mu.Lock()
		t.err = err
		close(t.more)
		t.mu.Unlock()
		t.cancel()
	}
	for ev, err := range rt.Events(ctx, t.key.thread, perdure.EventOptions{After: t.last, Life: t.key.life}) {
		if err != nil {
			end(err)
			return
		}
		f, err := newFrame(&ev)
		if err != nil {
			end(err)
			return
		}
		t.add(f)
	}
	end(context.Canceled)
}

func (t *tail) add(f frame) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pass(&f)
	t.ring = append(t.ring, f)
	t.bytes += len(f.full)
	drop := 0
	for len(t.ring)-drop > ringFrames || t.bytes > ringBytes && len(t.ring) > drop {
		t.bytes -= len(t.ring[drop].full)
		t.ring[drop] = frame{}
		drop++
	}
	t.ring, t.last = t.ring[drop:], f.seq
	close(t.more)
	t.more = make(chan struct{})
}

// since appends events behind pos to frames. Behind is set if the ring does
// not reach back to pos. Without any, more is closed when there may be some,
// and err says why there will not be.
func (t *tail) since(pos uint64, frames []frame) (_ []frame, behind bool, more <-chan struct{}, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	begin := t.last - uint64(len(t.ring))
	switch {
	case errors.Is(t.err, perdure.ErrErased): // nothing of it is to be seen any more
		return frames, false, nil, t.err
	case pos >= t.last:
		return frames, false, t.more, t.err
	case pos < begin:
		return frames, true, nil, nil
	}
	size := 0
	for _, f := range t.ring[pos-begin:] {
		if size += len(f.full); len(frames) == batchFrames || len(frames) > 0 && size > batchBytes {
			break
		}
		frames = append(frames, f)
	}
	return frames, false, nil, nil
}

// pass notes what an event makes void. The mutex is held.
func (t *tail) pass(f *frame) {
	switch f.kind {
	case "step":
		t.end(step{f.run, f.path}, math.MaxInt)
	case "attempt":
		t.end(step{f.run, f.path}, f.attempt)
	case "ended":
		t.end(step{f.run, ""}, math.MaxInt)
	case "retried", "rewound":
		clear(t.void) // what failed runs again
		t.order = t.order[:0]
	}
}

func (t *tail) end(s step, attempt int) {
	if _, there := t.void[s]; !there {
		if len(t.order) >= voidSteps {
			delete(t.void, t.order[0])
			t.order = t.order[1:]
		}
		t.order = append(t.order, s)
	}
	t.void[s] = max(t.void[s], attempt)
}

// caughtUp notes events that a reader took from the journal itself.
func (t *tail) caughtUp(f *frame) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f.seq > t.last {
		t.pass(f)
	}
}

// isVoid reports whether the event that a delta announces is there already.
func (t *tail) isVoid(d *delta) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.over(d)
}

func (t *tail) over(d *delta) bool {
	return t.void[step{d.run, ""}] > 0 || t.void[d.step] >= max(d.attempt, 1)
}

// hear adds a reader of deltas.
func (t *tail) hear(run string) *ear {
	e := &ear{run, make(chan delta, deltaBuffer)}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ears[e] = true
	return e
}

func (t *tail) deafen(e *ear) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.ears, e)
}

// listen passes deltas on to those who have room for them.
func (t *tail) listen(ctx context.Context, rt *perdure.Runtime) {
	for d, err := range rt.Deltas(ctx, t.key.thread) {
		if err != nil {
			return
		}
		b, err := sse.Encode("", api.KindDelta, &d)
		if err != nil {
			continue
		}
		t.tell(&delta{step{d.Run, d.Path}, d.Pass, d.Attempt, b})
	}
}

func (t *tail) tell(d *delta) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over(d) || d.pass < t.speaks { // or its worker has been replaced
		return
	}
	t.speaks = d.pass
	for e := range t.ears {
		if e.run != "" && e.run != d.run {
			continue
		}
		select {
		case e.deltas <- *d:
		default: // its reader is slow
		}
	}
}
