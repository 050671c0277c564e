package gemini

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/perdure/perdure/llm"
	"google.golang.org/genai"
)

// part is a part of a message in the protocol, in both directions.
type part struct {
	Text             *string   `json:"text,omitempty"`
	Thought          bool      `json:"thought,omitempty"`
	Signature        string    `json:"thoughtSignature,omitempty"`
	InlineData       *inline   `json:"inlineData,omitempty"`
	FileData         *file     `json:"fileData,omitempty"`
	FunctionCall     *call     `json:"functionCall,omitempty"`
	FunctionResponse *response `json:"functionResponse,omitempty"`
}

type inline struct {
	MIMEType string `json:"mimeType"`
	Data     []byte `json:"data"`
}

type file struct {
	MIMEType string `json:"mimeType,omitempty"`
	URI      string `json:"fileUri"`
}

type call struct {
	ID   string          `json:"id,omitempty"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args,omitempty"`
}

type response struct {
	ID       string            `json:"id,omitempty"`
	Name     string            `json:"name"`
	Response map[string]string `json:"response"`
	Parts    []part            `json:"parts,omitempty"`
}

// kept is the opaque data of a part: what the API wants back and no other field
// of the part holds.
type kept struct {
	Signature string          `json:"thoughtSignature,omitempty"`
	Thought   bool            `json:"thought,omitempty"`
	ID        bool            `json:"id,omitempty"`   // the call's id is the provider's
	Part      json.RawMessage `json:"part,omitempty"` // all of one that is of another kind
}

// turn turns the events of one reply into deltas.
type turn struct {
	emit    func(llm.Delta) error
	ids     string // prefix of the ids of calls that come without one
	parts   int
	calls   int
	open    string // what the last part is that pieces may be added to: "text", "thought" or ""
	usage   llm.Usage
	reason  genai.FinishReason
	started bool
}

// read emits the deltas of a stream.
func (t *turn) read(stream io.Reader) error {
	for e, err := range events(stream) {
		if err == nil {
			err = t.event(e)
		}
		if err != nil {
			return err
		}
	}
	// The protocol has no last event: a reply that says why it ended is whole.
	if t.reason == "" {
		return interrupted("the reply ended in the middle")
	}
	return t.emit(llm.Delta{Stop: t.stop(), Usage: &t.usage})
}

// event emits the deltas of an event.
func (t *turn) event(e *event) error {
	if f := e.PromptFeedback; f != nil && f.BlockReason != "" && f.BlockReason != genai.BlockedReasonUnspecified {
		return &llm.Error{Kind: llm.ErrRefused, Provider: provider, Code: string(f.BlockReason), Message: f.BlockReasonMessage}
	}
	if !t.started {
		t.started = true
		if err := t.emit(llm.Delta{Model: e.ModelVersion, ID: e.ResponseID}); err != nil {
			return err
		}
	}
	if u := e.UsageMetadata; u != nil {
		t.usage = llm.Usage{
			Input:     int64(u.PromptTokenCount) + int64(u.ToolUsePromptTokenCount),
			Output:    int64(u.CandidatesTokenCount) + int64(u.ThoughtsTokenCount),
			CacheRead: int64(u.CachedContentTokenCount),
			Reasoning: int64(u.ThoughtsTokenCount),
		}
		used := t.usage
		if err := t.emit(llm.Delta{Usage: &used}); err != nil {
			return err
		}
	}
	for _, c := range e.Candidates {
		if c.Index != 0 {
			continue
		}
		for _, raw := range c.Content.Parts {
			if err := t.part(raw); err != nil {
				return err
			}
		}
		if c.FinishReason != "" && c.FinishReason != genai.FinishReasonUnspecified {
			t.reason = c.FinishReason
		}
	}
	return nil
}

// part emits the delta of a part, which is a piece of one if it is text. Text with
// a signature is a part of its own: the API wants the two back together.
func (t *turn) part(raw json.RawMessage) error {
	var p part
	if err := json.Unmarshal(raw, &p); err != nil {
		return interrupted("a part of the reply makes no sense: %v", err)
	}
	var d llm.Delta
	k := kept{Signature: p.Signature, Thought: p.Thought && p.Signature != ""}
	kind := ""
	switch {
	case p.FunctionCall != nil:
		c := &llm.Call{ID: p.FunctionCall.ID, Name: p.FunctionCall.Name, Args: string(p.FunctionCall.Args)}
		if c.Name == "" {
			return interrupted("a call without a name")
		}
		t.calls++
		k.ID = c.ID != ""
		if c.ID == "" {
			c.ID = fmt.Sprintf("%s_%d", t.ids, t.calls)
		}
		if c.Args == "" || c.Args == "null" {
			c.Args = "{}"
		}
		d.Call = c
	case p.InlineData != nil && p.InlineData.MIMEType != "" && len(p.InlineData.Data) > 0:
		d.Media = &llm.Media{MIME: p.InlineData.MIMEType, Data: p.InlineData.Data}
	case p.FileData != nil && p.FileData.URI != "":
		d.Media = &llm.Media{MIME: p.FileData.MIMEType, URL: p.FileData.URI}
	case p.Text == nil:
		var fields map[string]json.RawMessage
		if json.Unmarshal(raw, &fields) != nil || len(fields) == 0 {
			return nil
		}
		k = kept{Part: raw}
	case *p.Text == "":
		if p.Signature == "" {
			return nil
		}
	case p.Thought:
		d.Reasoning, kind = *p.Text, "thought"
	default:
		d.Text, kind = *p.Text, "text"
	}
	if k.Signature != "" || k.ID || len(k.Part) > 0 {
		data, err := json.Marshal(k)
		if err != nil {
			return interrupted("a part of the reply makes no sense: %v", err)
		}
		d.Opaque = &llm.Opaque{Provider: provider, Data: string(data)}
		kind = ""
	}
	if kind == "" || kind != t.open {
		t.parts++
	}
	t.open = kind
	d.Part = t.parts - 1
	return t.emit(d)
}

// stop translates the reason.
func (t *turn) stop() llm.Stop {
	switch t.reason {
	case genai.FinishReasonStop, "FUNCTION_CALL": // the latter of servers that are compatible
		if t.calls > 0 {
			return llm.StopCalls
		}
		return llm.StopEnd
	case genai.FinishReasonMaxTokens:
		return llm.StopLength
	case genai.FinishReasonSafety, genai.FinishReasonRecitation, genai.FinishReasonBlocklist, genai.FinishReasonProhibitedContent, genai.FinishReasonSPII,
		genai.FinishReasonImageSafety, genai.FinishReasonImageProhibitedContent, genai.FinishReasonImageRecitation:
		return llm.StopRefused
	}
	return llm.StopOther
}
