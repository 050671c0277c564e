package anthropic

import (
	"encoding/json"
	"unicode/utf8"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/perdure/perdure/llm"
)

// turn turns the events of one reply into deltas.
type turn struct {
	emit    func(llm.Delta) error
	started bool
	done    bool
	blocks  []*block
	parts   int
	usage   llm.Usage
	stop    llm.Stop
}

// block is a content block. It becomes a part with its first content: an empty
// block is no part.
type block struct {
	kind      string
	part      int // -1: none yet
	closed    bool
	raw       string // as it started
	input     string // of a tool, joined
	signature string
	data      string // of redacted thinking
}

// kept is the opaque data of a block: what the API wants back and no other field
// of its part holds.
type kept struct {
	Type      string `json:"type"`
	Signature string `json:"signature,omitempty"`
	Data      string `json:"data,omitempty"`
}

// event handles an event. Events come in order, one block after the other.
func (t *turn) event(ev sdk.MessageStreamEventUnion) error {
	if ev.Type == "message_start" {
		t.started = true
		u := ev.Message.Usage
		t.count(u.InputTokens, u.CacheReadInputTokens, u.CacheCreationInputTokens, u.OutputTokens, u.OutputTokensDetails.ThinkingTokens)
		return t.emit(llm.Delta{Model: ev.Message.Model, ID: ev.Message.ID, Usage: t.used()})
	}
	if !t.started {
		return interrupted("the reply has no start")
	}
	switch ev.Type {
	case "content_block_start":
		return t.begin(ev)
	case "content_block_delta", "content_block_stop":
		if ev.Index < 0 || ev.Index >= int64(len(t.blocks)) || t.blocks[ev.Index].closed {
			return interrupted("the reply speaks of block %d, which is not open", ev.Index)
		}
		b := t.blocks[ev.Index]
		if ev.Type == "content_block_delta" {
			return t.grow(b, ev.Delta)
		}
		b.closed = true
		return t.end(b)
	case "message_delta":
		u := ev.Usage
		t.count(u.InputTokens, u.CacheReadInputTokens, u.CacheCreationInputTokens, u.OutputTokens, u.OutputTokensDetails.ThinkingTokens)
		if ev.Delta.StopReason != "" {
			t.stop = stop(ev.Delta.StopReason)
		}
		return nil
	case "message_stop":
		for i, b := range t.blocks {
			if !b.closed {
				return interrupted("block %d has no end", i)
			}
		}
		if t.stop == "" {
			return interrupted("the reply does not say why it ended")
		}
		t.done = true
		return t.emit(llm.Delta{Stop: t.stop, Usage: t.used()})
	}
	return nil // the protocol may get other kinds of events
}

// begin opens a block. Some servers put content into it right away.
func (t *turn) begin(ev sdk.MessageStreamEventUnion) error {
	if ev.Index != int64(len(t.blocks)) {
		return interrupted("block %d starts after %d blocks", ev.Index, len(t.blocks))
	}
	c := ev.ContentBlock
	b := &block{kind: c.Type, part: -1, raw: c.RawJSON(), signature: c.Signature, data: c.Data}
	t.blocks = append(t.blocks, b)
	switch b.kind {
	case "":
		return interrupted("block %d has no type", ev.Index)
	case "text":
		return t.add(b, llm.Delta{Text: c.Text})
	case "thinking":
		return t.add(b, llm.Delta{Reasoning: c.Thinking})
	case "tool_use":
		if c.ID == "" || c.Name == "" {
			return interrupted("a tool call without an id or a name")
		}
		return t.add(b, llm.Delta{Call: &llm.Call{ID: c.ID, Name: c.Name}})
	}
	return nil
}

// grow adds to an open block.
func (t *turn) grow(b *block, d sdk.MessageStreamEventUnionDelta) error {
	switch {
	case d.Type == "text_delta" && b.kind == "text":
		return t.add(b, llm.Delta{Text: d.Text})
	case d.Type == "thinking_delta" && b.kind == "thinking":
		return t.add(b, llm.Delta{Reasoning: d.Thinking})
	case d.Type == "signature_delta" && b.kind == "thinking":
		b.signature += d.Signature
	case d.Type == "input_json_delta" && b.kind == "tool_use":
		b.input += d.PartialJSON
		if d.PartialJSON == "" {
			return nil
		}
		return t.add(b, llm.Delta{Call: &llm.Call{Args: d.PartialJSON}})
	case d.Type == "input_json_delta":
		b.input += d.PartialJSON
	case d.Type == "text_delta", d.Type == "thinking_delta", d.Type == "signature_delta", d.Type == "":
		return interrupted("a %q in a block of type %s", d.Type, b.kind)
	}
	return nil // also citations, and what the protocol may get
}

// end emits what is known of a block only when it closes.
func (t *turn) end(b *block) error {
	switch b.kind {
	case "text":
		return nil
	case "tool_use":
		if b.input != "" {
			return nil
		}
		return t.add(b, llm.Delta{Call: &llm.Call{Args: startInput(b.raw)}})
	case "thinking":
		return t.keep(b, kept{Type: b.kind, Signature: b.signature})
	case "redacted_thinking":
		return t.keep(b, kept{Type: b.kind, Data: b.data})
	}
	// A block that this package does not know goes back as it came.
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(b.raw), &fields); err != nil {
		return interrupted("a block of type %s is not an object", b.kind)
	}
	if !json.Valid([]byte(b.input)) {
		return t.keep(b, json.RawMessage(b.raw))
	}
	fields["input"] = json.RawMessage(b.input)
	return t.keep(b, fields)
}

// keep emits opaque data.
func (t *turn) keep(b *block, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return interrupted("a block of type %s: %v", b.kind, err)
	}
	return t.add(b, llm.Delta{Opaque: &llm.Opaque{Provider: provider, Data: string(data)}})
}

// add emits a delta of a block, which is a part from then on.
func (t *turn) add(b *block, d llm.Delta) error {
	if d.Text == "" && d.Reasoning == "" && d.Call == nil && d.Opaque == nil {
		return nil
	}
	args := ""
	if d.Call != nil {
		args = d.Call.ID + d.Call.Name + d.Call.Args
	}
	if !utf8.ValidString(d.Text) || !utf8.ValidString(d.Reasoning) || !utf8.ValidString(args) {
		return interrupted("the reply is not UTF-8")
	}
	if b.part < 0 {
		b.part = t.parts
		t.parts++
	}
	d.Part = b.part
	return t.emit(d)
}

// startInput returns the arguments of a call that came with its start.
func startInput(raw string) string {
	var b struct {
		Input json.RawMessage `json:"input"`
	}
	if json.Unmarshal([]byte(raw), &b) != nil || len(b.Input) == 0 || b.Input[0] != '{' {
		return "{}"
	}
	return string(b.Input)
}

// count adds the tokens of an event. They are totals, some of which an event may
// leave out.
func (t *turn) count(fresh, read, write, output, thinking int64) {
	if fresh+read+write > 0 {
		t.usage.Input, t.usage.CacheRead, t.usage.CacheWrite = fresh+read+write, read, write
	}
	t.usage.Output = max(t.usage.Output, output)
	t.usage.Reasoning = max(t.usage.Reasoning, thinking)
}

// used returns a copy of the usage.
func (t *turn) used() *llm.Usage {
	u := t.usage
	return &u
}

// stop translates a reason.
func stop(r sdk.StopReason) llm.Stop {
	switch r {
	case sdk.StopReasonEndTurn, sdk.StopReasonStopSequence:
		return llm.StopEnd
	case sdk.StopReasonToolUse:
		return llm.StopCalls
	case sdk.StopReasonMaxTokens, sdk.StopReasonModelContextWindowExceeded:
		return llm.StopLength
	case sdk.StopReasonRefusal:
		return llm.StopRefused
	}
	return llm.StopOther
}
