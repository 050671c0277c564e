package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/perdure/perdure/internal/sse"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/internal/answers"
)

// maxEvent is the maximum size of an event, which may hold an image.
const maxEvent = 32 << 20

// read reads the stream of a reply.
func (s *server) read(res *http.Response, emit func(llm.Delta) error) error {
	if kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); kind == "application/json" || kind == "text/html" {
		return s.unstreamed(res)
	}
	r := reply{server: s, out: emit, textPart: -1, thoughtPart: -1, calls: map[int64]*call{}, ids: map[string]bool{}}
	defer r.release() // what came before an error
	events := sse.NewReader(&releasing{res.Body, &r}, maxEvent)
	for {
		e, err := events.Next()
		if r.stopped != nil {
			return r.stopped
		}
		if errors.Is(err, io.EOF) {
			return r.end(nil)
		}
		if err != nil {
			return r.end(err)
		}
		if string(bytes.TrimSpace(e.Data)) == "[DONE]" {
			r.done = true
			return r.end(nil)
		}
		if err := r.event(e.Data); err != nil {
			return err
		}
	}
}

// unstreamed returns the error for a server that answers with JSON or HTML: it
// reports an error, or it does not stream.
func (s *server) unstreamed(res *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(res.Body, maxBody))
	if err != nil {
		return s.interrupted(err)
	}
	if hasError(body) {
		return s.failure(parseProblem(body), 0)
	}
	return nonsense("expected a stream, but the server sent " + strconv.Quote(answers.Short(s.clean(string(body)))))
}

// hasError reports whether a JSON object has an error.
func hasError(data []byte) bool {
	var outer struct {
		Error json.RawMessage `json:"error"`
	}
	_ = json.Unmarshal(data, &outer) // anything else has no error
	return given(outer.Error)
}

// nonsense returns the error for a reply that makes no sense.
func nonsense(message string) error {
	return &llm.Error{Kind: llm.ErrInterrupted, Provider: provider, Message: message}
}

// reply is the state of a reply that is being read.
type reply struct {
	server  *server
	out     func(llm.Delta) error
	held    string // text that was read and not emitted yet
	stopped error  // of out: nobody wants more

	parts       int // so far
	textPart    int // -1 if none yet
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

// emit emits a delta, after the text that is held.
func (r *reply) emit(d llm.Delta) error {
	r.release()
	if r.stopped == nil {
		r.stopped = r.out(d)
	}
	return r.stopped
}

// release emits the text that is held.
func (r *reply) release() {
	if text := r.held; text != "" && r.stopped == nil {
		r.held = ""
		r.stopped = r.out(llm.Delta{Part: r.textPart, Text: text})
	}
}

// releasing is the body of a response. Text is held while more of it can be had
// without waiting, so that a program that falls behind its models catches up: the
// pieces that arrive together become one delta.
type releasing struct {
	body  io.Reader
	reply *reply
}

// Read implements io.Reader.
func (b *releasing) Read(p []byte) (int, error) {
	if b.reply.release(); b.reply.stopped != nil {
		return 0, b.reply.stopped
	}
	return b.body.Read(p)
}

// event handles one event of the stream. Wrong types in fields that do not matter
// are not errors.
func (r *reply) event(data []byte) error {
	chunk := gjson.ParseBytes(data)
	if !validJSON(data) || !chunk.IsObject() && chunk.Type != gjson.Null {
		return nonsense("an event of the stream is not a JSON object")
	}
	var id, model string
	var choices, used gjson.Result
	failed := false
	for name, value := range members(chunk) {
		switch name {
		case "id":
			id = value.String()
		case "model":
			model = value.String()
		case "choices":
			choices = value
		case "usage":
			used = value
		default:
			if strings.EqualFold(name, "error") {
				failed = value.Type != gjson.Null
			}
		}
	}
	if failed {
		return r.server.failure(parseProblem(data), 0)
	}
	if id != "" && r.id == "" || model != "" && r.model == "" {
		r.id, r.model = id, model
		if err := r.emit(llm.Delta{ID: id, Model: model}); err != nil {
			return err
		}
	}
	if err := each(choices, r.choice); err != nil && !errors.Is(err, errNoList) {
		return err
	}
	if used.IsObject() {
		u := usage(used)
		r.usage = &u
		r.counted = r.finish != ""
	}
	return nil
}

// validJSON reports whether data is JSON. For all but large events it uses a check
// that is several times faster, and recursive.
func validJSON(data []byte) bool {
	if len(data) > 32<<10 {
		return json.Valid(data)
	}
	return gjson.ValidBytes(data)
}

// members yields the members of an object, and nothing for other values. If a name
// repeats, the last member counts.
func members(object gjson.Result) iter.Seq2[string, gjson.Result] {
	return func(yield func(string, gjson.Result) bool) {
		if object.IsObject() {
			object.ForEach(func(name, value gjson.Result) bool { return yield(name.Str, value) })
		}
	}
}

// errNoList means that a value is not a list of objects and nulls.
var errNoList = errors.New("not a list of objects")

// each calls fn with each element of a list if all are objects or null.
func each(list gjson.Result, fn func(gjson.Result) error) error {
	if !list.IsArray() {
		return errNoList
	}
	var err error
	list.ForEach(func(_, element gjson.Result) bool {
		if !element.IsObject() && element.Type != gjson.Null {
			err = errNoList
		}
		return err == nil
	})
	if err == nil {
		list.ForEach(func(_, element gjson.Result) bool {
			err = fn(element)
			return err == nil
		})
	}
	return err
}

// choice handles a choice of a chunk. Only the first one was requested.
func (r *reply) choice(c gjson.Result) error {
	var index int64
	var finish string
	var delta gjson.Result
	for name, value := range members(c) {
		switch name {
		case "index":
			index = value.Int()
		case "finish_reason":
			finish = value.String()
		case "delta":
			delta = value
		}
	}
	if index != 0 {
		return nil
	}
	if err := r.delta(delta); err != nil {
		return err
	}
	if finish != "" {
		r.finish = finish
	}
	return nil
}

func usage(u gjson.Result) llm.Usage {
	input, output := u.Get("prompt_tokens").Int(), u.Get("completion_tokens").Int()
	return llm.Usage{
		Input: input,
		// Some servers count reasoning only in the total.
		Output:     max(output, u.Get("total_tokens").Int()-input),
		CacheRead:  u.Get("prompt_tokens_details.cached_tokens").Int(),
		CacheWrite: u.Get("prompt_tokens_details.cache_write_tokens").Int(),
		Reasoning:  u.Get("completion_tokens_details.reasoning_tokens").Int(),
	}
}

// delta handles what a chunk adds to the reply.
func (r *reply) delta(d gjson.Result) error {
	var content, refusal, images string
	var thought reasoning
	var calls gjson.Result
	for name, value := range members(d) {
		switch name {
		case "content":
			content = value.Raw
		case "refusal":
			refusal = value.Raw
		case fieldContent:
			thought.content = value.Raw
		case fieldPlain:
			thought.plain = value.Raw
		case fieldDetails:
			thought.details = value.Raw
		case "images":
			images = value.Raw
		case "tool_calls":
			calls = value
		}
	}
	if err := r.reasoning(&thought); err != nil {
		return err
	}
	for _, raw := range [...]string{content, refusal} {
		text, err := r.text.next(raw)
		if err != nil {
			return nonsense("the content in the stream is not a string")
		}
		r.say(text)
	}
	r.refused = r.refused || len(refusal) > 2 && refusal != "null"
	if err := r.images(images); err != nil {
		return err
	}
	if calls.Type == gjson.Null {
		return nil
	}
	err := each(calls, r.call)
	if errors.Is(err, errNoList) {
		return nonsense("the tool calls in the stream are not a list of objects")
	}
	return err
}

// say adds to the text of the reply, which is one part: the protocol does not
// order text and calls.
func (r *reply) say(text string) {
	if text != "" && r.textPart < 0 {
		r.textPart = r.part()
	}
	r.held += text
}

// reasoning holds the raw reasoning fields of a delta.
type reasoning struct{ content, plain, details string }

// reasoning adds to the reasoning. A server that uses both fields sends the text
// twice, so the first one counts.
func (r *reply) reasoning(in *reasoning) error {
	out := llm.Delta{}
	opaque := ""
	for _, f := range [...]struct{ name, raw string }{{fieldContent, in.content}, {fieldPlain, in.plain}} {
		if len(f.raw) < 3 || f.raw[0] != '"' || r.field != "" && r.field != f.name {
			continue
		}
		text, err := r.thought.next(f.raw)
		if err != nil {
			return nonsense("the reasoning in the stream is not a string")
		}
		if r.field == "" {
			r.field = f.name
			opaque = `"` + f.name + `"`
		}
		out.Reasoning += text
	}
	if in.details != "" {
		var details []json.RawMessage
		if json.Unmarshal([]byte(in.details), &details) != nil {
			return nonsense("the reasoning details in the stream are not a list")
		}
		for _, detail := range details {
			opaque += string(detail)
			if r.field == "" {
				out.Reasoning += detailText(detail)
			}
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

// end ends the reply. The reply is complete if the server gave a finish reason and
// nothing can be missing.
func (r *reply) end(broken error) error {
	switch {
	case broken != nil && !(r.finish != "" && r.counted):
		return r.server.interrupted(broken)
	case r.finish == "":
		return nonsense("the stream ended in the middle of the reply")
	case r.finish == "error":
		return nonsense("the server failed in the middle of the reply")
	case !r.done && !r.counted && !r.server.compatible:
		return nonsense("the stream ended before the usage was sent")
	}
	r.say(r.text.rest())
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
		case len(r.inOrder) > 0: // some servers report these as stop, too
			return llm.StopCalls
		}
		return llm.StopEnd
	}
	return llm.StopOther
}
