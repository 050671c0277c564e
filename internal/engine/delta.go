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

// Delta is a piece of live news: see perdure.DeltaEvent.
type Delta struct {
	Run     string          `json:"run"`
	Path    string          `json:"path"`
	Pass    uint64          `json:"pass"`
	Attempt int             `json:"attempt"`
	Offset  int64           `json:"offset"`
	Data    json.RawMessage `json:"data"`
}

// DeltaTopic is where the deltas of a thread are cast. A message is the JSON of a
// Delta on one line.
func DeltaTopic(thread string) string { return "delta/" + thread }

// SendDelta sends live news to those who watch.
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
	if line := f.nextDelta(raw); line != nil {
		_ = store.Cast(ctx, f.pass.engine.threads.Store, DeltaTopic(f.pass.name), line) // it may be lost
	}
}

// nextDelta returns the message of the frame's next delta, nil if the frame is over.
func (f *frame) nextDelta(data []byte) []byte {
	p := f.pass
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sealed != nil || f.done {
		return nil
	}
	if f.deltaHead == nil {
		f.deltaHead = deltaHead(&Delta{Run: p.run.ID, Path: f.path(), Pass: p.epoch, Attempt: max(1, f.attempt)})
	}
	line := make([]byte, 0, len(f.deltaHead)+len(data)+32)
	line = strconv.AppendInt(append(line, f.deltaHead...), f.offset, 10)
	line = append(append(append(line, deltaData...), data...), '}')
	f.offset++
	p.engine.threads.Said.Add(p.name, f, line)
	return line
}

// forgetDeltas is called when the frame is over. mu is held.
func (f *frame) forgetDeltas() {
	if f.deltaHead != nil {
		f.pass.engine.threads.Said.Forget(f.pass.name, f)
	}
}

// maxHeard is how many steps a listener remembers.
const maxHeard = 1024

// Deltas yields the deltas of a thread with their messages until the context ends:
// what the running steps of this process have said so far, as far as it is kept, and
// then the new ones. Those of one attempt are yielded in order and once. Where some
// are missing, and this process has them, they are yielded first.
func Deltas(ctx context.Context, t *threads.Threads, thread string) iter.Seq2[Delta, []byte] {
	return func(yield func(Delta, []byte) bool) {
		type step struct{ run, path string }
		heard := map[step]Delta{} // the last one of each
		var last Delta
		// tell yields a delta. Unless it is asked to skip, it does not where some
		// are missing before it.
		tell := func(line []byte, skip bool) (missing, more bool) {
			d, err := ReadDelta(line, &last)
			if err != nil {
				return false, true
			}
			last = d
			before, there := heard[step{d.Run, d.Path}]
			if !there || d.Pass > before.Pass || d.Pass == before.Pass && d.Attempt > before.Attempt {
				before = Delta{Pass: d.Pass, Attempt: d.Attempt, Offset: -1}
			}
			switch {
			case d.Pass != before.Pass || d.Attempt != before.Attempt || d.Offset <= before.Offset:
				return false, true // it is void, or has been yielded
			case d.Offset > before.Offset+1 && !skip:
				return true, true
			}
			if len(heard) >= maxHeard {
				clear(heard) // a step that goes on is yielded from its beginning again
			}
			heard[step{d.Run, d.Path}] = d
			return false, yield(d, line)
		}
		catchUp := func() bool {
			for _, line := range t.Said.Lines(thread) {
				if _, more := tell(line, false); !more {
					return false
				}
			}
			return true
		}
		if !catchUp() {
			return
		}
		for line := range store.Listen(ctx, t.Store, DeltaTopic(thread)) {
			missing, more := tell(line, false)
			if missing {
				if more = catchUp(); more {
					_, more = tell(line, true)
				}
			}
			if !more {
				return
			}
		}
	}
}

const deltaData = `,"data":`

// deltaHead returns the JSON of a delta up to its offset, which is the same for all
// of a frame.
func deltaHead(d *Delta) []byte {
	d.Data = json.RawMessage("0")
	whole, err := json.Marshal(d)
	if err != nil {
		panic(err) // texts and numbers
	}
	return bytes.TrimSuffix(whole, []byte(`0`+deltaData+`0}`))
}

// ReadDelta reads a message of a DeltaTopic. Texts that are those of the delta
// before it are shared with it, and data with the message.
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

// readOtherDelta reads a message that another version wrote.
func readOtherDelta(line []byte) (d Delta, err error) {
	err = json.Unmarshal(line, &d)
	return d, err
}

// deltaCutter cuts the members off a delta as SendDelta writes it. After one that
// does not fit nothing is left.
type deltaCutter struct{ rest []byte }

// text cuts off a text without escapes.
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
