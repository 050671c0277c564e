package llm

import "strings"

// Role says whose message it is.
type Role string

// The roles. Instructions for the model are not a message but [Request.System].
const (
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool" // results of tool calls, and nothing else
)

// Message is one message of a conversation.
type Message struct {
	Role  Role   `json:"role"`
	Parts []Part `json:"parts,omitempty"`
}

// Part is a part of a message: one of Text, Media, Call, Result and Reasoning
// is set. Opaque may stand beside each, or alone.
type Part struct {
	Text      string     `json:"text,omitempty"`
	Media     *Media     `json:"media,omitempty"`
	Call      *Call      `json:"call,omitempty"`
	Result    *Result    `json:"result,omitempty"`
	Reasoning *Reasoning `json:"reasoning,omitempty"`
	Opaque    *Opaque    `json:"opaque,omitempty"`
}

// Media is an image or another file: its bytes, a URL, or the name of a blob stored
// elsewhere. Models accept Data and URL; code that stores media elsewhere sets Data
// before it asks a model.
type Media struct {
	MIME string `json:"mime,omitempty"` // "image/png"; optional with a URL
	Name string `json:"name,omitempty"` // of the file
	URL  string `json:"url,omitempty"`
	Data []byte `json:"data,omitempty"`
	Blob string `json:"blob,omitempty"` // where the bytes are kept
}

// Image reports whether it is an image. A URL without a type counts as one.
func (m *Media) Image() bool {
	return strings.HasPrefix(m.MIME, "image/") || m.MIME == "" && m.URL != ""
}

// Call is a model's call of a tool.
type Call struct {
	ID   string `json:"id"` // unique in its message
	Name string `json:"name"`
	Args string `json:"args,omitempty"` // JSON, exactly as the model wrote it; it may be invalid
}

// Result is the result of a tool call.
type Result struct {
	Call  string  `json:"call"` // id
	Name  string  `json:"name"` // of the tool
	Text  string  `json:"text"`
	Media []Media `json:"media,omitempty"`
	Error bool    `json:"error,omitempty"` // Text says what went wrong
}

// Reasoning is a model's thinking, as far as its provider shows it.
type Reasoning struct {
	Text string `json:"text,omitempty"`
}

// Opaque is a provider's data that is sent back to it unchanged with its part.
// Other providers leave it out.
type Opaque struct {
	Provider string `json:"provider"`
	Data     string `json:"data"`
}

// Text returns a text part.
func Text(s string) Part { return Part{Text: s} }

// Image returns a part with an image, given as bytes.
func Image(mime string, data []byte) Part { return Part{Media: &Media{MIME: mime, Data: data}} }

// ImageURL returns a part with an image at a URL.
func ImageURL(url string) Part { return Part{Media: &Media{URL: url}} }

// User returns a user message with one text part.
func User(text string) Message { return Message{Role: RoleUser, Parts: []Part{Text(text)}} }

// Assistant returns a model's message with one text part.
func Assistant(text string) Message {
	return Message{Role: RoleAssistant, Parts: []Part{Text(text)}}
}

// Text returns the text parts, joined.
func (m Message) Text() string {
	var b strings.Builder
	for _, p := range m.Parts {
		b.WriteString(p.Text)
	}
	return b.String()
}

// Calls returns the tool calls of a message, in order.
func (m Message) Calls() []Call {
	var calls []Call
	for _, p := range m.Parts {
		if p.Call != nil {
			calls = append(calls, *p.Call)
		}
	}
	return calls
}
