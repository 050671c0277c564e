package llm

import (
	"fmt"
	"iter"
)

// Fold joins the deltas of a reply. The zero value is ready to use.
type Fold struct {
	reply Reply
}

// Add adds a delta. It fails if the delta does not fit the preceding ones: if it
// skips a part, or gives a part two kinds.
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
	parts := f.reply.Message.Parts
	switch {
	case d.Part == len(parts):
		parts = append(parts, Part{})
		f.reply.Message.Parts = parts
	case d.Part < 0 || d.Part > len(parts):
		return fmt.Errorf("%w: a delta of part %d, when there are %d", ErrInterrupted, d.Part, len(parts))
	}
	return parts[d.Part].add(d)
}

// add adds a delta to a part of its kind.
func (p *Part) add(d Delta) error {
	kinds := 0
	for _, is := range []bool{p.Text != "" || d.Text != "", p.Reasoning != nil || d.Reasoning != "", p.Call != nil || d.Call != nil, p.Media != nil || d.Media != nil} {
		if is {
			kinds++
		}
	}
	if kinds > 1 {
		return fmt.Errorf("%w: a delta of another kind than its part", ErrInterrupted)
	}
	p.Text += d.Text
	if d.Reasoning != "" {
		if p.Reasoning == nil {
			p.Reasoning = new(Reasoning)
		}
		p.Reasoning.Text += d.Reasoning
	}
	if d.Call != nil {
		if p.Call == nil {
			p.Call = new(Call)
		}
		p.Call.ID += d.Call.ID
		p.Call.Name += d.Call.Name
		p.Call.Args += d.Call.Args
	}
	if d.Media != nil {
		m := *d.Media
		p.Media = &m
	}
	if d.Opaque != nil {
		if p.Opaque == nil {
			p.Opaque = &Opaque{Provider: d.Opaque.Provider}
		}
		p.Opaque.Data += d.Opaque.Data
	}
	return nil
}

// Reply returns the whole reply, or [ErrInterrupted] if it has no Stop and so was
// cut off.
func (f *Fold) Reply() (*Reply, error) {
	if f.reply.Stop == "" {
		return nil, fmt.Errorf("%w: the reply ended in the middle", ErrInterrupted)
	}
	f.reply.Message.Role = RoleAssistant
	r := f.reply
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
