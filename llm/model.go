package llm

import (
	"context"
	"encoding/json"
	"iter"
)

// Model replies to a conversation.
type Model interface {
	// Generate yields the reply in pieces, which a [Fold] joins. The last one has
	// a Stop. After an error it yields nothing more; if the provider or the
	// connection failed, the error is an [*Error]. A stream that ends without either
	// was cut off.
	//
	// It makes one request and does not retry. When ctx or the loop ends, the
	// request is cancelled.
	Generate(ctx context.Context, r *Request) iter.Seq2[Delta, error]
}

// ModelFunc is a function as a Model.
type ModelFunc func(ctx context.Context, r *Request) iter.Seq2[Delta, error]

// Generate calls the function.
func (f ModelFunc) Generate(ctx context.Context, r *Request) iter.Seq2[Delta, error] {
	return f(ctx, r)
}

// Request is a request to a model, which does not change it.
type Request struct {
	System      string    `json:"system,omitempty"`
	Messages    []Message `json:"messages"`
	Tools       []Tool    `json:"tools,omitempty"`
	Choice      Choice    `json:"choice,omitempty"`
	Output      *Output   `json:"output,omitempty"` // the reply's text is JSON of this schema
	MaxTokens   int64     `json:"max_tokens,omitempty"`
	Temperature *float64  `json:"temperature,omitempty"`
	Stop        []string  `json:"stop,omitempty"`   // texts at which the model stops
	Effort      Effort    `json:"effort,omitempty"` // of reasoning
}

// Tool is a tool that a model may call.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema"` // JSON Schema of its arguments, an object
}

// Output asks for JSON instead of free text.
type Output struct {
	Name   string          `json:"name"` // letters, digits, - and _
	Schema json.RawMessage `json:"schema"`
}

// Choice says whether the model has to call a tool.
type Choice string

// The choices.
const (
	ChoiceAuto     Choice = "" // the model decides
	ChoiceNone     Choice = "none"
	ChoiceRequired Choice = "required"
)

// Effort says how long a model may think. Models that do not think, or cannot be
// told how long, come as close as they can.
type Effort string

// The efforts.
const (
	EffortDefault Effort = "" // the provider's default
	EffortLow     Effort = "low"
	EffortMedium  Effort = "medium"
	EffortHigh    Effort = "high"
)

// Delta is a piece of a reply.
type Delta struct {
	Part      int     `json:"part"` // index of the part that it adds to
	Text      string  `json:"text,omitempty"`
	Reasoning string  `json:"reasoning,omitempty"`
	Call      *Call   `json:"call,omitempty"` // ID and Name come once, Args in pieces
	Media     *Media  `json:"media,omitempty"`
	Opaque    *Opaque `json:"opaque,omitempty"` // Data comes in pieces, or at once
	Usage     *Usage  `json:"usage,omitempty"`  // total so far; the last one counts
	Stop      Stop    `json:"stop,omitempty"`   // the reply is whole
	Model     string  `json:"model,omitempty"`  // the provider's name of the model that answers
	ID        string  `json:"id,omitempty"`     // the provider's id of the reply
}

// Stop says why a reply ended.
type Stop string

// The reasons.
const (
	StopEnd     Stop = "end"     // the model was done
	StopCalls   Stop = "calls"   // it called tools
	StopLength  Stop = "length"  // MaxTokens, or the model's own limit
	StopRefused Stop = "refused" // by the model or a filter of its provider
	StopOther   Stop = "other"
)

// Usage is what a reply cost, in tokens.
type Usage struct {
	Input      int64 `json:"input"`                 // all of the request, cached or not
	Output     int64 `json:"output"`                // all of the reply, reasoning too
	CacheRead  int64 `json:"cache_read,omitempty"`  // part of Input
	CacheWrite int64 `json:"cache_write,omitempty"` // part of Input
	Reasoning  int64 `json:"reasoning,omitempty"`   // part of Output
}

// Add returns the sum of two usages.
func (u Usage) Add(v Usage) Usage {
	return Usage{u.Input + v.Input, u.Output + v.Output, u.CacheRead + v.CacheRead, u.CacheWrite + v.CacheWrite, u.Reasoning + v.Reasoning}
}

// Total returns the tokens of the request and the reply together.
func (u Usage) Total() int64 { return u.Input + u.Output }

// Reply is a whole reply.
type Reply struct {
	Message Message `json:"message"`
	Usage   Usage   `json:"usage"`
	Stop    Stop    `json:"stop"`
	Model   string  `json:"model,omitempty"`
	ID      string  `json:"id,omitempty"`
}
