package openai

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/internal/history"
)

// The request has types of this package rather than the SDK's: those keep schemas
// as maps and extra fields in no order, so that the same request would not always
// be the same bytes.
type (
	request struct {
		Model               string         `json:"model"`
		Messages            []message      `json:"messages"`
		Tools               []tool         `json:"tools,omitempty"`
		ToolChoice          llm.Choice     `json:"tool_choice,omitempty"`
		ResponseFormat      *format        `json:"response_format,omitempty"`
		MaxTokens           int64          `json:"max_tokens,omitempty"`
		MaxCompletionTokens int64          `json:"max_completion_tokens,omitempty"`
		Temperature         *float64       `json:"temperature,omitempty"`
		Stop                []string       `json:"stop,omitempty"`
		ReasoningEffort     llm.Effort     `json:"reasoning_effort,omitempty"`
		Stream              bool           `json:"stream"`
		StreamOptions       *streamOptions `json:"stream_options"`
	}
	streamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	}
	message struct {
		Role             string            `json:"role"`
		Content          any               `json:"content"` // string, []part or nil
		Reasoning        string            `json:"reasoning,omitempty"`
		ReasoningContent string            `json:"reasoning_content,omitempty"`
		ReasoningDetails []json.RawMessage `json:"reasoning_details,omitempty"`
		ToolCalls        []toolCall        `json:"tool_calls,omitempty"`
		ToolCallID       string            `json:"tool_call_id,omitempty"`
	}
	toolCall struct {
		ID           string          `json:"id"`
		Type         string          `json:"type"`
		Function     callFunction    `json:"function"`
		ExtraContent json.RawMessage `json:"extra_content,omitempty"`
	}
	callFunction struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	}
	tool struct {
		Type     string       `json:"type"`
		Function toolFunction `json:"function"`
	}
	toolFunction struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters"`
	}
	format struct {
		Type       string        `json:"type"`
		JSONSchema *formatSchema `json:"json_schema,omitempty"`
	}
	formatSchema struct {
		Name   string          `json:"name"`
		Schema json.RawMessage `json:"schema"`
		Strict bool            `json:"strict,omitempty"`
	}
)

// body encodes a request. The same request is always the same bytes, so that the
// server finds it in its prompt cache.
func (s *server) body(model string, r *llm.Request) ([]byte, error) {
	out := request{
		Model:         model,
		Temperature:   r.Temperature,
		Stop:          r.Stop,
		Stream:        true,
		StreamOptions: &streamOptions{IncludeUsage: true},
	}
	if s.compatible {
		out.MaxTokens = r.MaxTokens
	} else {
		out.MaxCompletionTokens = r.MaxTokens
	}
	if s.compatible || thinks(model) {
		out.ReasoningEffort = r.Effort
	}
	for _, t := range r.Tools {
		schema := t.Schema
		if !given(schema) {
			schema = json.RawMessage(`{"type":"object","properties":{}}`)
		}
		out.Tools = append(out.Tools, tool{Type: "function", Function: toolFunction{t.Name, t.Description, schema}})
	}
	if len(r.Tools) > 0 {
		out.ToolChoice = r.Choice
	}
	if o := r.Output; o != nil && !given(o.Schema) {
		out.ResponseFormat = &format{Type: "json_object"}
	} else if o != nil {
		out.ResponseFormat = &format{"json_schema", &formatSchema{cmp.Or(o.Name, "output"), o.Schema, strict(o.Schema)}}
	}
	messages, failure := s.messages(r)
	if failure != nil {
		return nil, failure
	}
	out.Messages = messages
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(out); err != nil {
		return nil, invalid("the request cannot be written as JSON: %v", err)
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// given reports whether a value is there. One that was left out reads as null once
// it was recorded.
func given(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// thinks reports whether a model of OpenAI knows an effort. Those that do not
// refuse a request that has one.
func thinks(model string) bool {
	return !slices.ContainsFunc([]string{"gpt-3.5", "gpt-4", "chatgpt-4"}, func(old string) bool { return strings.HasPrefix(model, old) })
}

func (s *server) messages(r *llm.Request) ([]message, *llm.Error) {
	var out []message
	if r.System != "" {
		out = append(out, message{Role: "system", Content: r.System})
	}
	// In this protocol only a user can send media, and nothing may come between a
	// call and its results. So the media of results and of the model follow in a
	// message of the user.
	var shown []part
	flush := func() {
		if len(shown) > 0 {
			out = append(out, message{Role: "user", Content: shown})
			shown = nil
		}
	}
	messages := history.Names(r)
	if !s.compatible {
		// Others want their ids back as they are, such as Kimi, which counts in them.
		messages = history.IDs(messages)
	}
	for i, m := range messages {
		var err *llm.Error
		switch m.Role {
		case llm.RoleUser:
			flush()
			var content any
			if content, err = s.content(m.Parts); err == nil {
				out = append(out, message{Role: "user", Content: content})
			}
		case llm.RoleAssistant:
			flush()
			var a message
			if a, shown, err = s.assistant(m.Parts); err == nil {
				out = append(out, a)
			}
		case llm.RoleTool:
			for _, p := range m.Parts {
				if p.Result == nil {
					err = invalid("a message of role tool has a part that is not a result")
					break
				}
				out = append(out, message{Role: "tool", ToolCallID: p.Result.Call, Content: resultText(p.Result)})
				var media []part
				if media, err = s.show(fmt.Sprintf("The result of tool call %s (%s) shows:", p.Result.Call, p.Result.Name), p.Result.Media); err != nil {
					break
				}
				shown = append(shown, media...)
			}
		default:
			err = invalid("there is no role %q", m.Role)
		}
		if err != nil {
			return nil, invalid("message %d: %s", i, err.Message)
		}
	}
	flush()
	return out, nil
}

// resultText is what the model reads. The protocol has no mark for an error.
func resultText(r *llm.Result) string {
	if r.Error {
		return "Error: " + r.Text
	}
	return r.Text
}

// assistant returns a message of the model, and the media that it cannot hold.
func (s *server) assistant(parts []llm.Part) (message, []part, *llm.Error) {
	m := message{Role: "assistant"}
	var text strings.Builder
	var media []llm.Media
	var thought thought
	for _, p := range parts {
		switch {
		case p.Result != nil:
			return m, nil, invalid("a message of the assistant has a result")
		case p.Call != nil:
			call := toolCall{ID: p.Call.ID, Type: "function", Function: callFunction{p.Call.Name, p.Call.Args}}
			if call.Function.Arguments == "" {
				call.Function.Arguments = "{}" // servers that parse it refuse the empty text
			}
			if s.compatible && own(p.Opaque) {
				if !json.Valid([]byte(p.Opaque.Data)) {
					return m, nil, invalid("what the provider said beside tool call %s is damaged", p.Call.ID)
				}
				call.ExtraContent = json.RawMessage(p.Opaque.Data)
			}
			m.ToolCalls = append(m.ToolCalls, call)
		case p.Media != nil:
			media = append(media, *p.Media)
		case p.Text != "":
			text.WriteString(p.Text)
		case s.compatible && own(p.Opaque):
			if err := thought.add(p); err != nil {
				return m, nil, err
			}
		}
	}
	if text.Len() > 0 || len(m.ToolCalls) == 0 {
		m.Content = text.String()
	}
	if err := thought.into(&m); err != nil {
		return m, nil, err
	}
	shown, err := s.show("The assistant showed:", media)
	return m, shown, err
}

func own(o *llm.Opaque) bool { return o != nil && o.Provider == provider }
