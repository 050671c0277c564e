package feed

import (
	"bytes"
	"context"
	"errors"
	"math"
	"sync"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/sse"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

// Sizes of the buffers for the readers of a thread.
const (
	RingFrames  = 1024
	ringBytes   = 512 << 10
	batchFrames = 64 // for a reader at a time
	batchBytes  = 256 << 10
	DeltaBuffer = 64   // for each reader; more are dropped
	voidSteps   = 4096 // ended steps that are remembered
)

// Frame is an event of a stream.
type Frame struct {
	Seq     uint64
	Kind    string
	Run     string
	Path    string
	Attempt int
	Full    []byte // for admins
	Bare    []byte // for others
}

// FrameOf returns a frame without data.
func FrameOf(ev *perdure.Event) Frame {
	return Frame{Seq: ev.Seq, Kind: ev.Kind, Run: ev.Run, Path: ev.Path, Attempt: ev.Attempt}
}

func newFrame(ev *perdure.Event) (Frame, error) {
	f := FrameOf(ev)
	var err error
	if f.Full, err = sse.Encode(string(api.IDOf(ev.Seq, ev.Life, false)), ev.Kind, ev); err != nil {
		return f, err
	}
	f.Bare = f.Full
	if api.Internal(ev.Kind) {
		f.Bare, err = sse.Encode(string(api.IDOf(ev.Seq, ev.Life, false)), ev.Kind, Bare(ev))
	}
	return f, err
}

// MayEnd reports whether a run may have ended, or be gone, with an event. A run that
// is cancelled before it begins has no event ended.
func (f *Frame) MayEnd(run string) bool {
	return f.Run == run && (f.Kind == "ended" || f.Kind == "cancel") || f.Kind == "rewound"
}

// Bare returns the part of an internal event that everyone may see.
func Bare(ev *perdure.Event) *perdure.Event {
	return &perdure.Event{Thread: ev.Thread, Seq: ev.Seq, Life: ev.Life, Kind: ev.Kind, Time: ev.Time, Run: ev.Run, Path: ev.Path}
}

// Tail follows a thread for all readers of its stream in this process: it reads
// the journal and encodes the events once, and readers take them from a ring of the
// newest ones. A reader that falls behind the ring reads the journal itself, so no
// reader waits for another.
type Tail struct {
	key    Place
	cancel context.CancelFunc
	users  int // guarded by Hub.mu

	mu    sync.Mutex
	ring  []Frame // in order, without gaps
	bytes int
	last  uint64        // the last event in the ring, or where it began
	more  chan struct{} // closed when there is more
	err   error         // why it ended

	speaks uint64 // the latest pass with deltas

	void  map[step]int // the last attempt that has ended
	order []step       // of void
	ears  map[*Ear]bool
}

// step is a place in a run; the path "" is the whole run.
type step struct{ run, path string }

// Ear is a reader of deltas.
type Ear struct {
	run    string // "" for all
	Deltas chan Delta
}

// Delta is a live delta of a step.
type Delta struct {
	step
	pass    uint64
	attempt int
	Block   []byte
}

// Join returns the tail of a thread for a reader that has seen the events up to
// after; the recent ones among them may void deltas that are still to come. The
// reader must call Leave.
func (h *Hub) Join(rt *perdure.Runtime, key Place, after uint64, recent []Frame) *Tail {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.tails[key]; t != nil {
		t.users++
		for i := range recent {
			t.CaughtUp(&recent[i])
		}
		return t
	}
	ctx, cancel := context.WithCancel(context.Background())
	t := &Tail{key: key, cancel: cancel, users: 1, last: after, more: make(chan struct{}), void: map[step]int{}, ears: map[*Ear]bool{}}
	for i := range recent {
		t.pass(&recent[i])
	}
	if h.tails == nil {
		h.tails = map[Place]*Tail{}
	}
	h.tails[key] = t
	go t.follow(ctx, h, rt)
	go t.listen(ctx, rt)
	return t
}

// Leave removes a reader. The tail ends with the last one.
func (h *Hub) Leave(t *Tail) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.users--; t.users == 0 {
		h.forget(t)
		t.cancel()
	}
}

// forget removes a tail, so that nobody joins it. The mutex is held.
func (h *Hub) forget(t *Tail) {
	if h.tails[t.key] == t {
		delete(h.tails, t.key)
	}
}

// follow fills the ring.
func (t *Tail) follow(ctx context.Context, h *Hub, rt *perdure.Runtime) {
	end := func(err error) {
		h.mu.Lock()
		h.forget(t)
		h.mu.Unlock()
		t.mu.Lock()
		t.err = err
		close(t.more)
		t.mu.Unlock()
		t.cancel()
	}
	for ev, err := range rt.Events(ctx, t.key.Thread, perdure.EventOptions{After: t.last, Life: t.key.Life}) {
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

func (t *Tail) add(f Frame) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pass(&f)
	t.ring = append(t.ring, f)
	t.bytes += len(f.Full)
	drop := 0
	for len(t.ring)-drop > RingFrames || t.bytes > ringBytes && len(t.ring) > drop {
		t.bytes -= len(t.ring[drop].Full)
		t.ring[drop] = Frame{}
		drop++
	}
	t.ring, t.last = t.ring[drop:], f.Seq
	close(t.more)
	t.more = make(chan struct{})
}

// Since appends events after pos to frames. Behind is set if the ring does not
// reach back to pos. If there are none, more is closed when there may be some, and
// err says why there will be none.
func (t *Tail) Since(pos uint64, frames []Frame) (_ []Frame, behind bool, more <-chan struct{}, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	begin := t.last - uint64(len(t.ring))
	switch {
	case errors.Is(t.err, perdure.ErrErased): // nothing of it may be shown any more
		return frames, false, nil, t.err
	case pos >= t.last:
		return frames, false, t.more, t.err
	case pos < begin:
		return frames, true, nil, nil
	}
	size := 0
	for _, f := range t.ring[pos-begin:] {
		if size += len(f.Full); len(frames) == batchFrames || len(frames) > 0 && size > batchBytes {
			break
		}
		frames = append(frames, f)
	}
	return frames, false, nil, nil
}

// pass notes which deltas an event makes void. The mutex is held.
func (t *Tail) pass(f *Frame) {
	switch f.Kind {
	case "step":
		t.end(step{f.Run, f.Path}, math.MaxInt)
	case "attempt":
		t.end(step{f.Run, f.Path}, f.Attempt)
	case "ended":
		t.end(step{f.Run, ""}, math.MaxInt)
	case "retried", "rewound":
		clear(t.void) // what failed runs again
		t.order = t.order[:0]
	}
}

func (t *Tail) end(s step, attempt int) {
	if _, there := t.void[s]; !there {
		if len(t.order) >= voidSteps {
			delete(t.void, t.order[0])
			t.order = t.order[1:]
		}
		t.order = append(t.order, s)
	}
	t.void[s] = max(t.void[s], attempt)
}

// CaughtUp notes an event that a reader read from the journal itself.
func (t *Tail) CaughtUp(f *Frame) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f.Seq > t.last {
		t.pass(f)
	}
}

// IsVoid reports whether the event that a delta announces has been recorded.
func (t *Tail) IsVoid(d *Delta) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.over(d)
}

func (t *Tail) over(d *Delta) bool {
	return t.void[step{d.run, ""}] > 0 || t.void[d.step] >= max(d.attempt, 1)
}

// Hear adds a reader of deltas.
func (t *Tail) Hear(run string) *Ear {
	e := &Ear{run, make(chan Delta, DeltaBuffer)}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ears[e] = true
	return e
}

// Deafen removes a reader of deltas.
func (t *Tail) Deafen(e *Ear) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.ears, e)
}

// listen passes deltas on to the readers that have room for them.
func (t *Tail) listen(ctx context.Context, rt *perdure.Runtime) {
	var d engine.Delta
	for line := range store.Listen(ctx, threads.Behind(rt).All.Store, engine.DeltaTopic(t.key.Life)) {
		var err error
		if d, err = engine.ReadDelta(line, &d); err == nil && !bytes.ContainsAny(line, "\r\n") {
			// A message is the data of the event as it is.
			t.tell(&Delta{step{d.Run, d.Path}, d.Pass, d.Attempt, sse.Block(api.KindDelta, line)})
		}
	}
}

func (t *Tail) tell(d *Delta) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over(d) || d.pass < t.speaks { // or another worker has taken over
		return
	}
	t.speaks = d.pass
	for e := range t.ears {
		if e.run != "" && e.run != d.run {
			continue
		}
		select {
		case e.Deltas <- *d:
		default: // its reader is too slow
		}
	}
}
