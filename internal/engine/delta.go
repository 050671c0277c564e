package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"strconv"

	"github.com/perdure/perdure/internal/scrub"
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
	p := f.pass
	p.mu.Lock()
	if f.deltaHead == nil {
		f.deltaHead = deltaHead(&Delta{Run: p.run.ID, Path: f.path(), Pass: p.epoch, Attempt: max(1, f.attempt)})
	}
	head, offset := f.deltaHead, f.offset
	f.offset++
	over := p.sealed != nil || f.done
	p.mu.Unlock()
	if over {
		return
	}
	line := make([]byte, 0, len(head)+len(raw)+32)
	line = strconv.AppendInt(append(line, head...), offset, 10)
	line = append(append(append(line, deltaData...), raw...), '}')
	_ = store.Cast(ctx, p.engine.threads.Store, DeltaTopic(p.name), line) // it may be lost
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
	// Another version wrote it.
	d = Delta{}
	err := json.Unmarshal(line, &d)
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
