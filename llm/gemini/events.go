package gemini

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/perdure/perdure/internal/sse"
	"github.com/perdure/perdure/llm/internal/answers"
	"google.golang.org/genai"
)

// diverted is a transport that keeps the stream of a reply from the SDK, which
// would change it: numbers in a call's arguments become floats, keys are sorted,
// and unknown fields are lost. The SDK sees one empty event instead.
type diverted struct{ next http.RoundTripper }

// answer is the response to a request.
type answer struct {
	status int
	header http.Header
	stream io.Reader // if the status is one of success; the SDK closes it
}

// answerKey finds the answer in the context of a request.
type answerKey struct{}

// RoundTrip sends a request.
func (d diverted) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := d.next.RoundTrip(r)
	got, ok := r.Context().Value(answerKey{}).(*answer)
	if err != nil || !ok {
		return resp, err
	}
	got.status, got.header = resp.StatusCode, resp.Header
	if resp.StatusCode/100 == 2 {
		got.stream = resp.Body
		resp.Body = struct {
			io.Reader
			io.Closer
		}{strings.NewReader("data: {}\n\n"), resp.Body}
	}
	return resp, nil
}

// event holds the fields of an event that matter, with parts as they were sent.
type event struct {
	Candidates []struct {
		Index   int32 `json:"index"`
		Content struct {
			Parts []json.RawMessage `json:"parts"`
		} `json:"content"`
		FinishReason genai.FinishReason `json:"finishReason"`
	} `json:"candidates"`
	UsageMetadata  *genai.GenerateContentResponseUsageMetadata  `json:"usageMetadata"`
	PromptFeedback *genai.GenerateContentResponsePromptFeedback `json:"promptFeedback"`
	ModelVersion   string                                       `json:"modelVersion"`
	ResponseID     string                                       `json:"responseId"`
	Error          *genai.APIError                              `json:"error"`
}

// maxLine is the longest line of a stream, which may hold an image.
const maxLine = 256 << 20

// events yields the events of a stream. An error is the last thing yielded.
func events(stream io.Reader) iter.Seq2[*event, error] {
	return func(yield func(*event, error) bool) {
		// The empty line after the last event may be missing.
		lines := sse.NewReader(io.MultiReader(stream, strings.NewReader("\n\n")), maxLine)
		var data, other []byte // lines of the event so far, and those that belong to none
		for {
			line, err := lines.Line()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(nil, err)
				return
			}
			name, value, colon := bytes.Cut(line, []byte(":"))
			switch {
			case len(line) == 0 && len(data)+len(other) > 0:
				e, err := parseEvent(data, other)
				if !yield(e, err) || err != nil {
					return
				}
				data, other = nil, nil
			case len(line) == 0, colon && slices.Contains([]string{"", "event", "id", "retry"}, string(name)):
			case colon && string(name) == "data":
				data = append(append(data, value...), '\n')
			default:
				other = append(append(other, line...), ' ')
			}
		}
	}
}

// parseEvent reads an event. Lines without data can only be an error of the API;
// the page of a proxy is not one.
func parseEvent(data, other []byte) (*event, error) {
	e := new(event)
	switch {
	case len(data) == 0:
		if json.Unmarshal(other, e) != nil || e.Error == nil {
			return nil, interrupted("the reply is not an event stream: %s", answers.Short(string(other)))
		}
	case !utf8.Valid(data):
		return nil, errors.New("the reply is not UTF-8")
	default:
		if err := json.Unmarshal(data, e); err != nil {
			return nil, err
		}
	}
	if e.Error != nil {
		return nil, *e.Error
	}
	return e, nil
}
