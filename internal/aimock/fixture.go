package aimock

// Fixture is an answer and what it answers.
type Fixture struct {
	Match    Match    `json:"match"`
	Response Response `json:"response"`

	ChunkSize           int `json:"chunkSize,omitempty"`           // characters in a piece of the stream, 20 if 0
	TruncateAfterChunks int `json:"truncateAfterChunks,omitempty"` // cuts the connection after so many events
	Latency             int `json:"latency,omitempty"`             // milliseconds before each event
}

// Match says which requests a fixture answers: those that fit everything that
// is set.
type Match struct {
	UserMessage    string `json:"userMessage,omitempty"`    // part of the last message of the user
	Model          string `json:"model,omitempty"`          // exactly
	ResponseFormat string `json:"responseFormat,omitempty"` // "json_schema"
	HasToolResult  *bool  `json:"hasToolResult,omitempty"`  // since the last message of the user
}

// Response is what the server answers: text, tool calls, both, or an error.
type Response struct {
	Content   string     `json:"content,omitempty"`
	ToolCalls []ToolCall `json:"toolCalls,omitempty"`
	Error     *Error     `json:"error,omitempty"`

	Reasoning          string   `json:"reasoning,omitempty"`
	ReasoningSignature string   `json:"reasoningSignature,omitempty"` // of Anthropic's thinking
	RedactedThinking   []string `json:"redactedThinking,omitempty"`   // of Anthropic's thinking

	ID           string         `json:"id,omitempty"`
	Model        string         `json:"model,omitempty"`
	FinishReason string         `json:"finishReason,omitempty"` // as OpenAI calls it; the server translates
	Usage        map[string]any `json:"usage,omitempty"`        // as the provider of the request calls it

	Status     int `json:"status,omitempty"`     // of HTTP, with Error
	RetryAfter int `json:"retryAfter,omitempty"` // seconds, with Status 429
}

// ToolCall is a call of a tool.
type ToolCall struct {
	ID        string `json:"id,omitempty"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"` // JSON
}

// Error is an error as OpenAI words it; the server translates.
type Error struct {
	Message string `json:"message"`
	Type    string `json:"type,omitempty"`
	Code    string `json:"code,omitempty"`
}
