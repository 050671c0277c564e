package gemini

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/internal/history"
)

// content is one or more messages of one side.
type content struct {
	Role  string `json:"role"`
	Parts []any  `json:"parts"`
}

// contents translates the messages. Results of tools belong to the user's side and
// come first: the API wants them right after the calls.
func (c *Client) contents(messages []llm.Message) ([]content, error) {
	var out []content
	theirs := make(map[string]bool) // ids of calls that come from the provider
	for i, m := range messages {
		role := "user"
		switch m.Role {
		case llm.RoleUser, llm.RoleTool:
		case llm.RoleAssistant:
			role = "model"
		default:
			return nil, invalid("message %d has the role %q", i, m.Role)
		}
		parts, err := c.parts(m, theirs)
		if err != nil {
			return nil, err
		}
		if len(parts) == 0 {
			continue
		}
		if n := len(out); n == 0 || out[n-1].Role != role {
			out = append(out, content{Role: role})
		}
		last := &out[len(out)-1]
		for _, p := range parts {
			at := len(last.Parts)
			if isResult(p) {
				for at > 0 && !isResult(last.Parts[at-1]) {
					at--
				}
			}
			last.Parts = slices.Insert(last.Parts, at, p)
		}
	}
	return out, nil
}

// isResult reports whether a part is the result of a call.
func isResult(p any) bool {
	q, ok := p.(part)
	return ok && q.FunctionResponse != nil
}

// parts translates the parts of a message, without data of other providers.
func (c *Client) parts(m llm.Message, theirs map[string]bool) ([]any, error) {
	var out []any
	signed := false // the reply is this provider's, with all signatures it needs
	for _, p := range m.Parts {
		signed = signed || p.Opaque != nil && p.Opaque.Provider == provider
	}
	for _, p := range m.Parts {
		var k kept
		if p.Opaque != nil && p.Opaque.Provider == provider {
			if err := json.Unmarshal([]byte(p.Opaque.Data), &k); err != nil {
				return nil, invalid("opaque data of a part is damaged: %v", err)
			}
		}
		q := part{Signature: k.Signature}
		switch {
		case p.Text != "":
			q.Text = &p.Text
		case p.Media != nil:
			media, err := translate(p.Media)
			if err != nil {
				return nil, err
			}
			q.InlineData, q.FileData = media.InlineData, media.FileData
		case p.Call != nil:
			q.FunctionCall = &call{Name: p.Call.Name, Args: history.Arguments(p.Call.Args)}
			if k.ID {
				q.FunctionCall.ID = p.Call.ID
				theirs[p.Call.ID] = true
			}
			if !signed && third.MatchString(c.name) {
				// Google documents this for calls that another model made.
				q.Signature = "skip_thought_signature_validator"
				signed = true
			}
		case p.Result != nil:
			results, err := c.result(p.Result, theirs[p.Result.Call])
			if err != nil {
				return nil, err
			}
			out = append(out, results...)
			continue
		case len(k.Part) > 0:
			out = append(out, k.Part)
			continue
		case k.Signature != "":
			text := ""
			if p.Reasoning != nil {
				text = p.Reasoning.Text
			}
			q.Text, q.Thought = &text, k.Thought
		default:
			continue // thoughts without a signature, and others' data
		}
		out = append(out, q)
	}
	return out, nil
}

// result translates the result of a call. Media are part of it if the model takes
// that, and follow it otherwise.
func (c *Client) result(r *llm.Result, withID bool) ([]any, error) {
	key := "output"
	if r.Error {
		key = "error"
	}
	f := &response{Name: r.Name, Response: map[string]string{key: r.Text}}
	if withID {
		f.ID = r.Call
	}
	var beside []any
	for i := range r.Media {
		p, err := translate(&r.Media[i])
		if err != nil {
			return nil, err
		}
		if third.MatchString(c.name) {
			f.Parts = append(f.Parts, p)
		} else {
			beside = append(beside, p)
		}
	}
	return append([]any{part{FunctionResponse: f}}, beside...), nil
}

// translate translates an image or a file.
func translate(m *llm.Media) (part, error) {
	mime, _, _ := strings.Cut(m.MIME, ";")
	switch {
	case len(m.Data) > 0 && mime == "":
		return part{}, invalid("media %q has bytes without a type", m.Name)
	case len(m.Data) > 0:
		return part{InlineData: &inline{MIMEType: mime, Data: m.Data}}, nil
	case m.URL != "":
		return part{FileData: &file{MIMEType: mime, URI: m.URL}}, nil
	case m.Blob != "":
		return part{}, invalid("media %q is kept in blob %q: its bytes have to be put in before a model is asked", m.Name, m.Blob)
	}
	return part{}, invalid("media %q has neither bytes nor a URL", m.Name)
}
