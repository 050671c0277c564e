package llm

import (
	"fmt"
	"iter"
)

// MaxReply is the maximum size of a reply in bytes, with all its parts. Models stay far
// below it; it keeps a server that never stops from using up memory.
const MaxReply = 32 << 20

// partSize is what a part counts besides what it holds.
const partSize = 64

// Fold joins the deltas of a reply. The zero value is ready to use.
type Fold struct {
	reply Reply // without parts
	parts []*growing
	size  int
}

// growing is a part that deltas are added to. Its texts stand beside it, since a
// reply has thousands of deltas and adding to a string copies it.
type growing struct {
	part                        Part
	text, reasoning, args, data []byte
}

// Add adds a delta. It fails if the delta does not fit the preceding ones: if it
// skips a part, or gives a part two kinds, and with [ErrTooLarge] if the reply
// becomes larger than [MaxReply].
func (f *Fold) Add(d Delta) error {
	if d.Model != "" {
		f.reply.Model = d.Model
	}
	if d.ID != "" {
		f.reply.ID = d.ID
	}
	if d.Usage != nil {
		f.reply.Usage = *d.Usage
	}
	if d.Stop != "" {
		f.reply.Stop = d.Stop
	}
	if d.Text == "" && d.Reasoning == "" && d.Call == nil && d.Media == nil && d.Opaque == nil {
		return nil
	}
	if f.size += d.size(); f.size > MaxReply {
		return fmt.Errorf("%w: more than %d bytes", ErrTooLarge, MaxReply)
	}
	switch {
	case d.Part == len(f.parts):
		f.parts, f.size = append(f.parts, new(growing)), f.size+partSize
	case d.Part < 0 || d.Part > len(f.parts):
		return fmt.Errorf("%w: a delta of part %d, when there are %d", ErrInterrupted, d.Part, len(f.parts))
	}
	return f.parts[d.Part].add(&d)
}

// size returns how many bytes a delta adds to a reply.
func (d *Delta) size() int {
	n := len(d.Text) + len(d.Reasoning)
	if c := d.Call; c != nil {
		n += len(c.ID) + len(c.Name) + len(c.Args)
	}
	if m := d.Media; m != nil {
		n += len(m.MIME) + len(m.Name) + len(m.URL) + len(m.Data)
	}
	if d.Opaque != nil {
		n += len(d.Opaque.Data)
	}
	return n
}

// add adds a delta to a part of its kind.
func (g *growing) add(d *Delta) error {
	p := &g.part
	kinds := 0
	for _, is := range [...]bool{len(g.text) > 0 || d.Text != "", p.Reasoning != nil || d.Reasoning != "", p.Call != nil || d.Call != nil, p.Media != nil || d.Media != nil} {
		if is {
			kinds++
		}
	}
	if kinds > 1 {
		return fmt.Errorf("%w: a delta of another kind than its part", ErrInterrupted)
	}
	g.text = append(g.text, d.Text...)
	if d.Reasoning != "" {
		if p.Reasoning == nil {
			p.Reasoning = new(Reasoning)
		}
		g.reasoning = append(g.reasoning, d.Reasoning...)
	}
	if d.Call != nil {
		if p.Call == nil {
			p.Call = new(Call)
		}
		p.Call.ID += d.Call.ID
		p.Call.Name += d.Call.Name
		g.args = append(g.args, d.Call.Args...)
	}
	if d.Media != nil {
		m := *d.Media
		p.Media = &m
	}
	if d.Opaque != nil {
		if p.Opaque == nil {
			p.Opaque = &Opaque{Provider: d.Opaque.Provider}
		}
		g.data = append(g.data, d.Opaque.Data...)
	}
	return nil
}

// whole returns the part with its texts.
func (g *growing) whole() Part {
	p := g.part
	p.Text = string(g.text)
	if p.Reasoning != nil {
		r := *p.Reasoning
		r.Text = string(g.reasoning)
		p.Reasoning = &r
	}
	if p.Call != nil {
		c := *p.Call
		c.Args = string(g.args)
		p.Call = &c
	}
	if p.Opaque != nil {
		p.Opaque = &Opaque{Provider: p.Opaque.Provider, Data: string(g.data)}
	}
	return p
}

// Reply returns the whole reply, or [ErrInterrupted] if it has no Stop and so was
// cut off.
func (f *Fold) Reply() (*Reply, error) {
	if f.reply.Stop == "" {
		return nil, fmt.Errorf("%w: the reply ended in the middle", ErrInterrupted)
	}
	r := f.reply
	r.Message.Role = RoleAssistant
	for _, g := range f.parts {
		r.Message.Parts = append(r.Message.Parts, g.whole())
	}
	return &r, nil
}

// Collect joins the deltas that Generate yields into a reply.
func Collect(deltas iter.Seq2[Delta, error]) (*Reply, error) {
	var f Fold
	for d, err := range deltas {
		if err != nil {
			return nil, err
		}
		if err := f.Add(d); err != nil {
			return nil, err
		}
	}
	return f.Reply()
}
