package feed

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/sse"
	"github.com/perdure/perdure/internal/threads"
)

// Sizes of the buffers for the readers of a thread.
const (
	RingFrames  = 1024
	ringBytes   = 512 << 10
	batchFrames = 64 // for a reader at a time
	batchBytes  = 256 << 10
	earBytes    = 128 << 10 // of deltas for each reader; more are dropped
	keepDeltas  = 64        // room for deltas that a reader keeps
	keepBytes   = 2 << 10
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

// MayIdle reports whether a run may wait for someone after an event.
func (f *Frame) MayIdle(run string) bool {
	return f.Run == run && slices.Contains([]string{"suspended", "paused", "blocked", "quarantined"}, f.Kind)
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
	key     Place
	threads *threads.Threads
	cancel  context.CancelFunc
	users   int // guarded by Hub.mu

	mu    sync.Mutex
	ring  []Frame // in order, without gaps
	bytes int
	last  uint64        // the last event in the ring, or where it began
	more  chan struct{} // closed when there is more
	err   error         // why it ended

	speaks uint64 // the latest pass with deltas

	void  map[step]int   // the last attempt that has ended
	order []step         // of void
	told  map[step]*mark // the last delta of each step
	ears  []*Ear
}

// step is a place in a run; the path "" is the whole run.
type step struct{ run, path string }

// Ear is a reader of deltas.
type Ear struct {
	Ready chan struct{} // there are deltas to take
	run   string        // "" for all
	queue []Deltas
	size  int // in bytes
}

// Deltas are what a step has said in a row.
type Deltas struct {
	step
	attempt int
	Blocks  []byte
}

// mark is the place of a delta among those of its step.
type mark struct {
	pass    uint64
	attempt int
	offset  int64
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
	t := &Tail{key: key, threads: threads.Behind(rt).All, cancel: cancel, users: 1, last: after, more: make(chan struct{}),
		void: map[step]int{}, told: map[step]*mark{}}
	for i := range recent {
		t.note(&recent[i])
	}
	if h.tails == nil {
		h.tails = map[Place]*Tail{}
	}
	h.tails[key] = t
	go t.follow(ctx, h, rt)
	go t.listen(ctx)
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
		if errors.Is(err, perdure.ErrMoved) {
			<-ctx.Done() // readers know it by the event
			break
		}
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
	t.note(&f)
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
	case errors.Is(t.err, perdure.ErrErased), errors.Is(t.err, perdure.ErrArchived): // nothing of it may be shown any more
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

// note notes which deltas an event makes void. The mutex is held.
func (t *Tail) note(f *Frame) {
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
	if delete(t.told, s); s.path == "" {
		maps.DeleteFunc(t.told, func(told step, _ *mark) bool { return told.run == s.run })
	}
}

// CaughtUp notes an event that a reader read from the journal itself.
func (t *Tail) CaughtUp(f *Frame) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f.Seq > t.last {
		t.note(f)
	}
}

// isRecorded reports whether the event that deltas of an attempt announce has been
// recorded. The mutex is held.
func (t *Tail) isRecorded(s step, attempt int) bool {
	return t.void[step{s.run, ""}] > 0 || t.void[s] >= max(attempt, 1)
}

// Hear adds a reader of deltas. It gets those that the tail has told before.
func (t *Tail) Hear(run string) *Ear {
	e := &Ear{run: run, Ready: make(chan struct{}, 1)}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ears = append(t.ears, e)
	var d engine.Delta
	for _, line := range t.threads.Said.Lines(t.key.Life) {
		var err error
		if d, err = engine.ReadDelta(line, &d); err != nil {
			continue
		}
		if told := t.told[step{d.Run, d.Path}]; told != nil && d.Pass == told.pass && d.Attempt == told.attempt && d.Offset <= told.offset {
			e.hear(&d, line)
		}
	}
	return e
}

// Deafen removes a reader of deltas.
func (t *Tail) Deafen(e *Ear) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ears = slices.DeleteFunc(t.ears, func(other *Ear) bool { return other == e })
}

// Take returns the deltas that a reader has not taken yet, unless their events have
// been recorded. They are in place of those that it gives back.
func (t *Tail) Take(e *Ear, used []Deltas) []Deltas {
	if cap(used) > keepDeltas {
		used = nil
	}
	if len(used) > 0 {
		room := used[0].Blocks
		if clear(used); cap(room) <= keepBytes {
			used[0].Blocks = room[:0]
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	taken := slices.DeleteFunc(e.queue, func(d Deltas) bool { return t.isRecorded(d.step, d.attempt) })
	e.queue, e.size = used[:0], 0
	return taken
}

// listen passes deltas on to the readers that have room for them.
func (t *Tail) listen(ctx context.Context) {
	engine.HearDeltas(ctx, t.threads, t.key.Life, func(d *engine.Delta, line []byte) {
		if bytes.IndexByte(line, '\n') < 0 && bytes.IndexByte(line, '\r') < 0 { // as no step writes it
			t.tell(d, line)
		}
	})
}

func (t *Tail) tell(d *engine.Delta, line []byte) {
	s := step{d.Run, d.Path}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isRecorded(s, d.Attempt) || d.Pass < t.speaks { // or another worker has taken over
		return
	}
	t.speaks = d.Pass
	told := t.told[s]
	if told == nil {
		told = new(mark)
		t.told[s] = told
	}
	*told = mark{d.Pass, d.Attempt, d.Offset}
	for _, e := range t.ears {
		e.hear(d, line)
	}
}

// hear gives a delta to the reader, unless that is too slow. Its message is the data
// of its event as it is. The tail's mutex is held.
func (e *Ear) hear(d *engine.Delta, line []byte) {
	if e.run != "" && e.run != d.Run || e.size > earBytes {
		return
	}
	s, last := step{d.Run, d.Path}, len(e.queue)-1
	if last < 0 || e.queue[last].step != s || e.queue[last].attempt != d.Attempt {
		last++
		var room []byte
		if cap(e.queue) > last { // that was given back
			room = e.queue[:last+1][last].Blocks
		}
		e.queue = append(e.queue, Deltas{s, d.Attempt, room})
	}
	said := &e.queue[last]
	before := len(said.Blocks)
	said.Blocks = sse.AppendBlock(said.Blocks, api.KindDelta, line)
	e.size += len(said.Blocks) - before
	select {
	case e.Ready <- struct{}{}:
	default:
	}
}
