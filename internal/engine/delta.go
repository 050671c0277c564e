package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"iter"
	"strconv"

	"github.com/perdure/perdure/internal/scrub"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

// Delta is a piece of live output: see perdure.DeltaEvent.
type Delta struct {
	Run     string          `json:"run"`
	Path    string          `json:"path"`
	Pass    uint64          `json:"pass"`
	Attempt int             `json:"attempt"`
	Offset  int64           `json:"offset"`
	Data    json.RawMessage `json:"data"`
}

// DeltaTopic returns the topic to which a thread's deltas are cast. A message
// is the JSON of a Delta on one line.
func DeltaTopic(thread string) string { return "delta/" + thread }

// SendDelta sends live output to those who listen.
func SendDelta(ctx context.Context, v any) {
	f, err := inside(ctx)
	if err != nil {
		return
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return
	}
	raw = scrub.From(ctx).JSON(raw)
	if topic, line := f.nextDelta(raw); line != nil {
		_ = store.Cast(ctx, f.pass.engine.threads.Store, topic, line) // it may be lost
	}
}

// speech is what a frame sends.
type speech struct {
	topic  string
	head   []byte // what each delta begins with
	offset int64  // of the next delta
	said   *threads.Saying
}

// nextDelta returns the message of the frame's next delta and its topic. The message
// is nil if the frame has ended.
func (f *frame) nextDelta(data []byte) (topic string, line []byte) {
	p := f.pass
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sealed != nil || f.done {
		return "", nil
	}
	s := f.speech
	if s == nil {
		head := deltaHead(&Delta{Run: p.run.ID, Path: f.path(), Pass: p.epoch, Attempt: max(1, f.attempt)})
		s = &speech{topic: DeltaTopic(p.name), head: head, said: p.engine.threads.Said.Begin(p.name)}
		f.speech = s
	}
	line = make([]byte, 0, len(s.head)+len(data)+32)
	line = strconv.AppendInt(append(line, s.head...), s.offset, 10)
	line = append(append(append(line, deltaData...), data...), '}')
	s.offset++
	s.said.Add(line)
	return s.topic, line
}

// forgetDeltas is called when the frame ends. The caller holds mu.
func (f *frame) forgetDeltas() {
	if f.speech != nil {
		f.speech.said.End()
	}
}

// maxHeard is how many steps a listener remembers.
const maxHeard = 1024

// HearDeltas calls hear with the deltas of a thread until the context ends:
// first what the running steps of this process have said so far, as far as it
// is kept, and then new ones. The message passed with a delta is valid until
// hear returns. The deltas of one attempt come in order and once; if some are
// missing that this process has, they come first. Hear must return soon: a step
// may be waiting for it.
func HearDeltas(ctx context.Context, t *threads.Threads, thread string, hear func(*Delta, []byte)) {
	o := deltaOrder{said: &t.Said, thread: thread, tell: func(d *Delta, line []byte) bool { hear(d, line); return true }}
	o.catchUp()
	store.Hear(ctx, t.Store, DeltaTopic(thread), func(line []byte) { o.next(line) })
}

// Deltas yields what HearDeltas hears. A slow loop may miss some.
func Deltas(ctx context.Context, t *threads.Threads, thread string) iter.Seq[Delta] {
	return func(yield func(Delta) bool) {
		o := deltaOrder{said: &t.Said, thread: thread, tell: func(d *Delta, _ []byte) bool { return yield(*d) }}
		if !o.catchUp() {
			return
		}
		for line := range store.Listen(ctx, t.Store, DeltaTopic(thread)) {
			if !o.next(line) {
				return
			}
		}
	}
}

// deltaOrder passes deltas on in order.
type deltaOrder struct {
	said   *threads.Said
	thread string
	tell   func(*Delta, []byte) (more bool)
	heard  map[deltaPlace]*Delta // the last delta of each step, without its data
	last   *Delta                // the newest of them
	read   Delta                 // the one that is passed on
}

type deltaPlace struct{ run, path string }

// next passes on a delta, after any missing ones before it.
func (o *deltaOrder) next(line []byte) (more bool) {
	missing, more := o.pass(line, false)
	if missing {
		if more = o.catchUp(); more {
			_, more = o.pass(line, true)
		}
	}
	return more
}

// catchUp passes on what the steps of this process have said.
func (o *deltaOrder) catchUp() (more bool) {
	for _, line := range o.said.Lines(o.thread) {
		if _, more := o.pass(line, false); !more {
			return false
		}
	}
	return true
}

// pass passes on a delta, unless some before it are missing and skip is false.
func (o *deltaOrder) pass(line []byte, skip bool) (missing, more bool) {
	if o.last == nil {
		o.last = new(Delta)
	}
	var err error
	if o.read, err = ReadDelta(line, o.last); err != nil {
		return false, true
	}
	d, before := &o.read, o.last
	if before.Run != d.Run || before.Path != d.Path {
		before = o.heard[deltaPlace{d.Run, d.Path}]
	}
	switch {
	case before == nil || d.Pass > before.Pass || d.Pass == before.Pass && d.Attempt > before.Attempt:
		if d.Offset > 0 && !skip {
			return true, true
		}
	case d.Pass != before.Pass || d.Attempt != before.Attempt || d.Offset <= before.Offset:
		return false, true // it is void, or was already passed on
	case d.Offset > before.Offset+1 && !skip:
		return true, true
	}
	if before == nil {
		if before = new(Delta); o.heard == nil || len(o.heard) >= maxHeard {
			o.heard = map[deltaPlace]*Delta{} // running steps will be passed on again from their beginning
		}
		o.heard[deltaPlace{d.Run, d.Path}] = before
	}
	*before = *d
	before.Data = nil // it belongs to the message
	o.last = before
	return false, o.tell(d, line)
}

const deltaData = `,"data":`

// deltaHead returns the JSON of a delta up to its offset, which is the same for
// all deltas of a frame.
func deltaHead(d *Delta) []byte {
	d.Data = json.RawMessage("0")
	whole, err := json.Marshal(d)
	if err != nil {
		panic(err) // cannot happen: only strings and numbers
	}
	return bytes.TrimSuffix(whole, []byte(`0`+deltaData+`0}`))
}

// ReadDelta parses a message of a DeltaTopic. The result shares equal strings
// with the delta before it, and its data with the message.
func ReadDelta(line []byte, before *Delta) (Delta, error) {
	c := deltaCutter{line}
	d := Delta{Run: c.text(`{"run":"`, before.Run), Path: c.text(`,"path":"`, before.Path),
		Pass: uint64(c.number(`,"pass":`)), Attempt: int(c.number(`,"attempt":`)), Offset: c.number(`,"offset":`)}
	if data, ok := bytes.CutPrefix(c.rest, []byte(deltaData)); ok {
		if d.Data, ok = bytes.CutSuffix(data, []byte("}")); ok && json.Valid(d.Data) {
			return d, nil
		}
	}
	return readOtherDelta(line)
}

// readOtherDelta parses a message that another version wrote.
func readOtherDelta(line []byte) (d Delta, err error) {
	err = json.Unmarshal(line, &d)
	return d, err
}

// deltaCutter cuts one member after another off a delta as SendDelta writes it.
// After a mismatch nothing is left.
type deltaCutter struct{ rest []byte }

// text cuts off a string without escapes.
func (c *deltaCutter) text(name, before string) string {
	rest, ok := bytes.CutPrefix(c.rest, []byte(name))
	text, rest, closed := bytes.Cut(rest, []byte(`"`))
	if c.rest = rest; !ok || !closed || bytes.IndexByte(text, '\\') >= 0 {
		c.rest = nil
	}
	if string(text) == before {
		return before
	}
	return string(text)
}

// number cuts off a number.
func (c *deltaCutter) number(name string) int64 {
	rest, ok := bytes.CutPrefix(c.rest, []byte(name))
	end := bytes.IndexByte(rest, ',')
	if c.rest = nil; !ok || end < 0 {
		return 0
	}
	n, err := strconv.ParseInt(string(rest[:end]), 10, 64)
	if err == nil {
		c.rest = rest[end:]
	}
	return n
}
