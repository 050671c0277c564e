package llm

import "strings"

// Role says whose message it is.
type Role string

// The roles. What a model is told about its task is no message but
// [Request.System].
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

// Media is an image or another file: by its bytes, at a URL, or kept elsewhere
// under a name. Models take Data and URL; whoever keeps media elsewhere puts
// the bytes in before it asks a model.
type Media struct {
	MIME string `json:"mime,omitempty"` // "image/png"; may be left out of a URL
	Name string `json:"name,omitempty"` // of the file
	URL  string `json:"url,omitempty"`
	Data []byte `json:"data,omitempty"`
	Blob string `json:"blob,omitempty"` // where the bytes are kept, for who keeps them
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

// Result is what came of a tool call.
type Result struct {
	Call  string  `json:"call"` // id
	Name  string  `json:"name"` // of the tool
	Text  string  `json:"text"`
	Media []Media `json:"media,omitempty"`
	Error bool    `json:"error,omitempty"` // Text says what went wrong
}

// Reasoning is what a model thought, as far as its provider shows it.
type Reasoning struct {
	Text string `json:"text,omitempty"`
}

// Opaque is data of a provider that goes back to it unchanged with the part
// that it came with. Other providers leave it out.
type Opaque struct {
	Provider string `json:"provider"`
	Data     string `json:"data"`
}

// Text returns a part of text.
func Text(s string) Part { return Part{Text: s} }

// Image returns a part that is an image, by its bytes.
func Image(mime string, data []byte) Part { return Part{Media: &Media{MIME: mime, Data: data}} }

// ImageURL returns a part that is an image at a URL.
func ImageURL(url string) Part { return Part{Media: &Media{URL: url}} }

// User returns a message of a user with one part of text.
func User(text string) Message { return Message{Role: RoleUser, Parts: []Part{Text(text)}} }

// Assistant returns a message of a model with one part of text.
func Assistant(text string) Message {
	return Message{Role: RoleAssistant, Parts: []Part{Text(text)}}
}

// Text returns the parts of text, joined.
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
