package openai

import (
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/internal/answers"
)

// read reads the stream of a reply.
func (s *server) read(res *http.Response, emit func(llm.Delta) error) error {
	if kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); kind == "application/json" || kind == "text/html" {
		return s.unstreamed(res)
	}
	r := reply{server: s, emit: emit, textPart: -1, thoughtPart: -1, calls: map[int64]*call{}, ids: map[string]bool{}}
	events := ssestream.NewDecoder(res)
	for events.Next() {
		data := events.Event().Data
		if strings.TrimSpace(string(data)) == "[DONE]" {
			r.done = true
			break
		}
		if err := r.event(data); err != nil {
			return err
		}
	}
	return r.end(events.Err())
}

// unstreamed returns the error for a server that answers with JSON or a page: it
// reports an error, or it does not stream.
func (s *server) unstreamed(res *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(res.Body, maxBody))
	if err != nil {
		return s.interrupted(err)
	}
	if found, _ := hasError(body); found {
		return s.failure(parseProblem(body), 0)
	}
	return nonsense("the server did not answer with a stream but with " + strconv.Quote(answers.Short(s.clean(string(body)))))
}

// hasError reports whether a JSON object has an error.
func hasError(data []byte) (bool, error) {
	var outer struct {
		Error json.RawMessage `json:"error"`
	}
	err := json.Unmarshal(data, &outer)
	return given(outer.Error), err
}

// nonsense is the error of a reply that makes no sense.
func nonsense(message string) error {
	return &llm.Error{Kind: llm.ErrInterrupted, Provider: provider, Message: message}
}

// reply is the state of a reply that is being read.
type reply struct {
	server *server
	emit   func(llm.Delta) error

	parts       int // so far
	textPart    int // -1: none yet
	thoughtPart int
	field       string // of reasoning text
	text        pieces
	thought     pieces
	calls       map[int64]*call // the last one of each index
	inOrder     []*call
	ids         map[string]bool

	id, model string
	finish    string // reason
	refused   bool
	usage     *llm.Usage
	counted   bool // usage came with the reason or later
	done      bool
}

func (r *reply) part() int {
	r.parts++
	return r.parts - 1
}

// event handles one event of the stream.
func (r *reply) event(data []byte) error {
	failed, err := hasError(data)
	if err != nil {
		return nonsense("the stream has an event that is not JSON")
	}
	if failed {
		return r.server.failure(parseProblem(data), 0)
	}
	var chunk sdk.ChatCompletionChunk
	if err := json.Unmarshal(data, &chunk); err != nil {
		return nonsense("the stream has an event that is no part of a reply")
	}
	if chunk.ID != "" && r.id == "" || chunk.Model != "" && r.model == "" {
		r.id, r.model = chunk.ID, chunk.Model
		if err := r.emit(llm.Delta{ID: chunk.ID, Model: chunk.Model}); err != nil {
			return err
		}
	}
	for i := range chunk.Choices {
		if chunk.Choices[i].Index != 0 {
			continue
		}
		if err := r.delta(&chunk.Choices[i].Delta); err != nil {
			return err
		}
		if f := chunk.Choices[i].FinishReason; f != "" {
			r.finish = f
		}
	}
	if chunk.JSON.Usage.Valid() {
		u := usage(&chunk.Usage)
		r.usage = &u
		r.counted = r.finish != ""
	}
	return nil
}

func usage(u *sdk.CompletionUsage) llm.Usage {
	return llm.Usage{
		Input: u.PromptTokens,
		// Some servers count reasoning in the total only.
		Output:     max(u.CompletionTokens, u.TotalTokens-u.PromptTokens),
		CacheRead:  u.PromptTokensDetails.CachedTokens,
		CacheWrite: u.PromptTokensDetails.CacheWriteTokens,
		Reasoning:  u.CompletionTokensDetails.ReasoningTokens,
	}
}

func (r *reply) delta(d *sdk.ChatCompletionChunkChoiceDelta) error {
	if err := r.reasoning(d); err != nil {
		return err
	}
	for _, f := range []interface{ Raw() string }{d.JSON.Content, d.JSON.Refusal} {
		text, err := r.text.next(f.Raw())
		if err != nil {
			return nonsense("the stream has a content that is no text")
		}
		if err := r.say(text); err != nil {
			return err
		}
	}
	r.refused = r.refused || d.Refusal != ""
	if raw := d.JSON.ToolCalls.Raw(); raw != "" && raw != "null" && !d.JSON.ToolCalls.Valid() {
		return nonsense("the stream has tool calls that are no list")
	}
	if err := r.images(d.JSON.ExtraFields["images"].Raw()); err != nil {
		return err
	}
	for i := range d.ToolCalls {
		if err := r.call(&d.ToolCalls[i]); err != nil {
			return err
		}
	}
	return nil
}

// say adds to the text of the reply, which is one part: the protocol does not
// order text and calls.
func (r *reply) say(text string) error {
	if text == "" {
		return nil
	}
	if r.textPart < 0 {
		r.textPart = r.part()
	}
	return r.emit(llm.Delta{Part: r.textPart, Text: text})
}

// reasoning adds to the reasoning. A server that uses both fields sends the text
// twice, so the first one counts.
func (r *reply) reasoning(d *sdk.ChatCompletionChunkChoiceDelta) error {
	extra := d.JSON.ExtraFields
	out := llm.Delta{}
	opaque := ""
	for _, field := range []string{fieldContent, fieldPlain} {
		raw := extra[field].Raw()
		if len(raw) < 3 || raw[0] != '"' || r.field != "" && r.field != field {
			continue
		}
		text, err := r.thought.next(raw)
		if err != nil {
			return nonsense("the stream has a reasoning that is no text")
		}
		if r.field == "" {
			r.field = field
			opaque = `"` + field + `"`
		}
		out.Reasoning += text
	}
	var details []json.RawMessage
	if raw := extra[fieldDetails].Raw(); raw != "" && json.Unmarshal([]byte(raw), &details) != nil {
		return nonsense("the stream has reasoning details that are no list")
	}
	for _, detail := range details {
		opaque += string(detail)
		if r.field == "" {
			out.Reasoning += detailText(detail)
		}
	}
	if out.Reasoning == "" && opaque == "" {
		return nil
	}
	if opaque != "" {
		out.Opaque = &llm.Opaque{Provider: provider, Data: opaque}
	}
	if r.thoughtPart < 0 {
		r.thoughtPart = r.part()
	}
	out.Part = r.thoughtPart
	return r.emit(out)
}

// end ends the reply. It is whole if the server said why it ended and nothing of
// it can be missing.
func (r *reply) end(broken error) error {
	switch {
	case broken != nil && !(r.finish != "" && r.counted):
		return r.server.interrupted(broken)
	case r.finish == "":
		return nonsense("the stream ended in the middle of the reply")
	case r.finish == "error":
		return nonsense("the server failed in the middle of the reply")
	case !r.done && !r.counted && !r.server.compatible:
		return nonsense("the stream ended before the usage")
	}
	if err := r.say(r.text.rest()); err != nil {
		return err
	}
	for _, c := range r.inOrder {
		if err := r.finishCall(c); err != nil {
			return err
		}
	}
	return r.emit(llm.Delta{Stop: r.stop(), Usage: r.usage})
}

func (r *reply) stop() llm.Stop {
	switch r.finish {
	case "content_filter":
		return llm.StopRefused
	case "length":
		return llm.StopLength
	case "stop", "tool_calls", "function_call":
		switch {
		case r.refused:
			return llm.StopRefused
		case len(r.inOrder) > 0: // some servers call it stop
			return llm.StopCalls
		}
		return llm.StopEnd
	}
	return llm.StopOther
}
