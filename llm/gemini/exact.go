package gemini

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"unicode/utf8"

	"github.com/perdure/perdure/llm/internal/answers"
	"google.golang.org/genai"
)

// exact is a transport that hides the parts of a reply from the SDK, which
// would change them: numbers of a call's arguments become floats, keys are
// sorted, fields that it does not know are lost. Each part reaches the caller
// as a part of text that holds the JSON of the part as it came.
//
// It also leaves out what the SDK cannot read, comments and names of events,
// and everything of an event that nobody asks for.
type exact struct{ next http.RoundTripper }

// answer is what the SDK does not tell about the answer of a request.
type answer struct {
	status int
	header http.Header
	err    error // of reading it
}

// answerKey finds the answer in the context of a request.
type answerKey struct{}

// maxLine is the longest line of a stream: an image may be in it.
const maxLine = 256 << 20

// RoundTrip sends a request.
func (e exact) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := e.next.RoundTrip(r)
	got, ok := r.Context().Value(answerKey{}).(*answer)
	if err != nil || !ok {
		return resp, err
	}
	got.status, got.header = resp.StatusCode, resp.Header
	if resp.StatusCode == http.StatusOK {
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, maxLine)
		resp.Body = &body{Closer: resp.Body, lines: lines, got: got}
	}
	return resp, nil
}

// body is a stream of events, rewritten. An error of reading is kept in the
// answer: the SDK would log it.
type body struct {
	io.Closer
	lines *bufio.Scanner
	got   *answer
	data  []byte // of the event that is being read
	other []byte // lines that are no event: an error may come like that
	out   []byte // still to be read
	ended bool
}

// Read returns rewritten events.
func (b *body) Read(p []byte) (int, error) {
	for len(b.out) == 0 {
		if b.ended {
			return 0, io.EOF
		}
		b.line()
	}
	n := copy(p, b.out)
	b.out = b.out[n:]
	return n, nil
}

// line takes in a line, or the end.
func (b *body) line() {
	if !b.lines.Scan() {
		b.ended = true
		if err := b.lines.Err(); err != nil {
			b.got.err = err
			return
		}
		b.flush() // the empty line after the last event may be missing
		return
	}
	line := b.lines.Bytes()
	name, value, colon := bytes.Cut(line, []byte(":"))
	switch {
	case len(line) == 0:
		b.flush()
	case colon && string(name) == "data":
		b.data = append(append(b.data, value...), '\n')
	case colon && (len(name) == 0 || string(name) == "event" || string(name) == "id" || string(name) == "retry"):
	default:
		b.other = append(append(b.other, line...), ' ')
	}
}

// flush ends an event.
func (b *body) flush() {
	data, other := b.data, b.other
	b.data, b.other = nil, nil
	switch {
	case len(data) > 0:
		out, err := rewrite(data)
		if err != nil {
			b.got.err, b.ended = err, true
			return
		}
		b.out = append(append([]byte("data: "), out...), "\n\n"...)
	case len(other) > 0:
		// Only an error can be meant; the proxy's page is none.
		var e event
		if json.Unmarshal(other, &e) != nil || e.Error == nil {
			b.got.err, b.ended = interrupted("the reply is no stream of events: %s", answers.Short(string(other))), true
			return
		}
		out, _ := json.Marshal(event{Error: e.Error})
		b.out = append(append([]byte("data: "), out...), "\n\n"...)
	}
}

// event is what counts of an event.
type event struct {
	Candidates     []candidate                                  `json:"candidates,omitempty"`
	UsageMetadata  *genai.GenerateContentResponseUsageMetadata  `json:"usageMetadata,omitempty"`
	PromptFeedback *genai.GenerateContentResponsePromptFeedback `json:"promptFeedback,omitempty"`
	ModelVersion   string                                       `json:"modelVersion,omitempty"`
	ResponseID     string                                       `json:"responseId,omitempty"`
	Error          *genai.APIError                              `json:"error,omitempty"`
}

type candidate struct {
	Index        int32    `json:"index,omitempty"`
	Content      *content `json:"content,omitempty"`
	FinishReason string   `json:"finishReason,omitempty"`
}

type content struct {
	Role  string            `json:"role,omitempty"`
	Parts []json.RawMessage `json:"parts"`
}

// rewrite puts the JSON of each part into a part of text.
func rewrite(data []byte) ([]byte, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("the reply is not UTF-8")
	}
	var e event
	if err := json.Unmarshal(data, &e); err != nil {
		return nil, err
	}
	for _, c := range e.Candidates {
		if c.Content == nil {
			continue
		}
		for i, raw := range c.Content.Parts {
			text, err := json.Marshal(genai.Part{Text: string(raw)})
			if err != nil {
				return nil, err
			}
			c.Content.Parts[i] = text
		}
	}
	return json.Marshal(e)
}
