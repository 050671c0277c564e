package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/perdure/perdure/llm"
)

// Compatible servers show reasoning, which OpenAI's own chat completions do not,
// in fields of their own. What is needed to send it back is the [llm.Opaque] of
// the part: JSON values one after the other. A string is the name of the field
// that the text came in; an object is one of OpenRouter's details, as it was sent.

// The fields that hold the text of reasoning.
const (
	fieldContent = "reasoning_content" // DeepSeek, vLLM, Moonshot
	fieldPlain   = "reasoning"         // OpenRouter, vLLM, Ollama
	fieldDetails = "reasoning_details" // OpenRouter
)

// thought is the reasoning of one message on its way back.
type thought struct {
	field   string
	text    strings.Builder
	details []json.RawMessage
}

func (t *thought) add(p llm.Part) *llm.Error {
	if p.Reasoning != nil {
		t.text.WriteString(p.Reasoning.Text)
	}
	dec := json.NewDecoder(strings.NewReader(p.Opaque.Data))
	for {
		var v json.RawMessage
		if err := dec.Decode(&v); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return invalid("what the provider said beside its reasoning is damaged")
		}
		if v[0] == '"' {
			_ = json.Unmarshal(v, &t.field)
		} else {
			t.details = append(t.details, v)
		}
	}
}

// into puts the reasoning into a message. Details always go back. Plain text only
// does with tool calls: servers that use it want it there, and some refuse it
// elsewhere.
func (t *thought) into(m *message) *llm.Error {
	switch {
	case len(t.details) > 0:
		details, err := join(t.details)
		if err != nil {
			return invalid("what the provider said beside its reasoning is damaged")
		}
		m.ReasoningDetails = details
	case len(m.ToolCalls) == 0:
	case t.field == fieldContent:
		m.ReasoningContent = t.text.String()
	case t.field == fieldPlain:
		m.Reasoning = t.text.String()
	}
	return nil
}

// join joins details that came in pieces. Those that came whole stay as they are,
// byte for byte.
func join(pieces []json.RawMessage) ([]json.RawMessage, error) {
	type head struct {
		Type  string          `json:"type"`
		Index json.RawMessage `json:"index"`
	}
	inPieces := map[string]string{"reasoning.text": "text", "reasoning.summary": "summary"}
	var out []json.RawMessage
	var last head
	for _, piece := range pieces {
		var h head
		if err := json.Unmarshal(piece, &h); err != nil {
			return nil, err
		}
		field := inPieces[h.Type]
		if len(out) > 0 && field != "" && h.Type == last.Type && bytes.Equal(h.Index, last.Index) {
			joined, err := joinTwo(out[len(out)-1], piece, field)
			if err != nil {
				return nil, err
			}
			out[len(out)-1] = joined
		} else {
			out = append(out, piece)
		}
		last = h
	}
	return out, nil
}

// detailText returns the text in a detail, for servers that show the reasoning
// nowhere else.
func detailText(detail json.RawMessage) string {
	var d struct{ Text, Summary string }
	_ = json.Unmarshal(detail, &d)
	return d.Text + d.Summary
}

// joinTwo appends the text in a field; of other fields the later one counts.
func joinTwo(a, b json.RawMessage, field string) (json.RawMessage, error) {
	var x, y map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(a, &x), json.Unmarshal(b, &y)); err != nil {
		return nil, err
	}
	for key, v := range y {
		if key == field {
			first := x[key]
			if first == nil {
				first = json.RawMessage(`""`)
			}
			var s, t string
			if err := errors.Join(json.Unmarshal(first, &s), json.Unmarshal(v, &t)); err != nil {
				return nil, err
			}
			v, _ = json.Marshal(s + t)
		}
		if _, there := x[key]; !there || string(v) != "null" {
			x[key] = v
		}
	}
	return json.Marshal(x)
}
