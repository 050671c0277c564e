package openai

import (
	"fmt"

	sdk "github.com/openai/openai-go/v3"

	"github.com/perdure/perdure/llm"
)

// call is a tool call while it is read.
type call struct {
	part   int
	id     string // as the server calls it
	told   bool   // the id
	name   string
	args   pieces
	opaque bool
}

// call takes a piece of a tool call. Pieces of a call have the same index; a
// server that gives all the same one tells them apart by their ids or names.
func (r *reply) call(p *sdk.ChatCompletionChunkChoiceDeltaToolCall) error {
	c := r.calls[p.Index]
	if c == nil || p.ID != "" && c.id != "" && p.ID != c.id ||
		!p.JSON.Index.Valid() && p.ID == "" && p.Function.Name != "" && c.name != "" {
		c = &call{part: r.part()}
		r.calls[p.Index] = c
		r.inOrder = append(r.inOrder, c)
	}
	var out llm.Call
	if p.ID != "" && c.id == "" {
		c.id = p.ID
		out.ID = r.unique(p.ID)
		c.told = true
	}
	if p.Function.Name != "" && c.name == "" { // some servers repeat it
		c.name = p.Function.Name
		out.Name = c.name
	}
	args, err := c.args.next(p.Function.JSON.Arguments.Raw())
	if err != nil {
		return r.nonsense("the stream has a tool call whose arguments are no text")
	}
	out.Args = args
	d := llm.Delta{Part: c.part, Call: &out}
	// Gemini keeps the signature of its thought here, behind servers that
	// translate.
	if extra := p.JSON.ExtraFields["extra_content"].Raw(); extra != "" && extra != "null" && !c.opaque {
		c.opaque = true
		d.Opaque = &llm.Opaque{Provider: provider, Data: extra}
	}
	if out == (llm.Call{}) && d.Opaque == nil && (c.told || c.name != "") {
		return nil
	}
	return r.emit(d)
}

// finishCall adds what is missing: servers that do not name their calls are
// given names.
func (r *reply) finishCall(c *call) error {
	if c.name == "" {
		return r.nonsense("the reply has a tool call without a name")
	}
	out := llm.Call{Args: c.args.rest()}
	if !c.told {
		out.ID = r.unique(fmt.Sprintf("call_%d", c.part))
	}
	if out == (llm.Call{}) {
		return nil
	}
	return r.emit(llm.Delta{Part: c.part, Call: &out})
}

// unique returns an id that no other call of the reply has.
func (r *reply) unique(id string) string {
	try := id
	for n := 2; r.ids[try]; n++ {
		try = fmt.Sprintf("%s_%d", id, n)
	}
	r.ids[try] = true
	return try
}
