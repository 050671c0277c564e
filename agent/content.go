package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/perdure/perdure/llm"
)

// Input is any type that can be given to an agent: a text, parts, or messages.
type Input interface {
	string | []llm.Part | []llm.Message | Content
}

// Content is the input of an agent as the input of a flow: in JSON a text, a list of
// parts, a message, or a list of messages, as package llm encodes them. Messages must
// be those of users and assistants, without tool calls and results.
type Content []llm.Message

// contentOf makes content of an input.
func contentOf[I Input](in I) Content {
	switch in := any(in).(type) {
	case string:
		if in == "" {
			return nil // providers take no empty text
		}
		return Content{llm.User(in)}
	case []llm.Part:
		return Content{{Role: llm.RoleUser, Parts: in}}
	case []llm.Message:
		return in
	case Content:
		return in
	}
	return nil
}

// Text returns the texts of its messages, joined by newlines.
func (c Content) Text() string {
	var texts []string
	for _, m := range c {
		if t := m.Text(); t != "" {
			texts = append(texts, t)
		}
	}
	return strings.Join(texts, "\n")
}

// MarshalJSON implements json.Marshaler.
func (c Content) MarshalJSON() ([]byte, error) {
	if len(c) == 1 && c[0].Role == llm.RoleUser && len(c[0].Parts) == 1 {
		if p := c[0].Parts[0]; p == llm.Text(p.Text) {
			return json.Marshal(p.Text)
		}
	}
	return json.Marshal([]llm.Message(c))
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *Content) UnmarshalJSON(raw []byte) error {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		*c = nil
		return nil
	}
	read := func(v any, what string) error {
		d := json.NewDecoder(bytes.NewReader(raw))
		d.DisallowUnknownFields()
		if err := d.Decode(v); err != nil {
			return fmt.Errorf("agent: the input is not a %s: %w", what, err)
		}
		return nil
	}
	var err error
	switch raw[0] {
	case '"':
		var text string
		err = json.Unmarshal(raw, &text)
		*c = contentOf(text)
	case '{':
		var m llm.Message
		err = read(&m, "message")
		*c = Content{m}
	case '[':
		var first []struct{ Role *string }
		if json.Unmarshal(raw, &first) == nil && len(first) > 0 && first[0].Role != nil {
			var messages []llm.Message
			err = read(&messages, "list of messages")
			*c = messages
			break
		}
		var parts []llm.Part
		err = read(&parts, "list of parts")
		*c = Content{{Role: llm.RoleUser, Parts: parts}}
	default:
		return fmt.Errorf("agent: the input is a text, a list of parts, or messages, not %.40s", raw)
	}
	if err != nil {
		return err
	}
	return c.check()
}

// check refuses roles and parts that only the runtime writes: a caller speaks
// for the user, and may tell what was said before.
func (c Content) check() error {
	for i, m := range c {
		if m.Role != llm.RoleUser && m.Role != llm.RoleAssistant {
			return fmt.Errorf("agent: message %d of the input has the role %q; user and assistant can be given", i, m.Role)
		}
		for j, p := range m.Parts {
			if p.Call != nil || p.Result != nil {
				return fmt.Errorf("agent: part %d of message %d is of a tool call, which an input cannot have", j, i)
			}
		}
	}
	return nil
}
