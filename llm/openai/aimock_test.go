package openai_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/aimock"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/openai"
)

func TestStructuredOutputOfAForeignServer(t *testing.T) {
	s := aimock.Start(t, aimock.Fixture{
		Match:    aimock.Match{UserMessage: "river", ResponseFormat: "json_schema"},
		Response: aimock.Response{Content: `{"name":"Rhine"}`},
	})
	got, err := llm.Collect(openai.Model("m", openai.BaseURL(s.URL+"/v1")).Generate(t.Context(), &llm.Request{
		Messages: []llm.Message{llm.User("a river")},
		Output:   &llm.Output{Name: "river", Schema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}}}`)},
	}))
	if err != nil || got.Message.Text() != `{"name":"Rhine"}` {
		t.Errorf("reply %+v, error %v", got, err)
	}
}

func TestFailuresOfAForeignServer(t *testing.T) {
	fixture := func(word string, status int, code string) aimock.Fixture {
		return aimock.Fixture{Match: aimock.Match{UserMessage: word}, Response: aimock.Response{
			Status: status, RetryAfter: 9, Error: &aimock.Error{Message: "it is " + word, Type: "invalid_request_error", Code: code}}}
	}
	s := aimock.Start(t,
		fixture("limited", 429, "rate_limit_exceeded"),
		fixture("broke", 429, "insufficient_quota"),
		fixture("long", 400, "context_length_exceeded"),
		fixture("wrong", 400, ""),
		fixture("down", 503, ""),
		aimock.Fixture{Match: aimock.Match{UserMessage: "cut"}, Response: aimock.Response{Content: "a text that is cut off"}, ChunkSize: 2, TruncateAfterChunks: 3},
		aimock.Fixture{Match: aimock.Match{UserMessage: "filtered"}, Response: aimock.Response{Content: "So", FinishReason: "content_filter"}},
	)
	model := openai.Model("m", openai.BaseURL(s.URL+"/v1"))
	say := func(text string) (*llm.Reply, error) {
		return llm.Collect(model.Generate(t.Context(), &llm.Request{Messages: []llm.Message{llm.User(text)}}))
	}
	for word, want := range map[string]error{
		"limited": llm.ErrRateLimited, "broke": llm.ErrAuth, "long": llm.ErrTooLong, "wrong": llm.ErrInvalid,
		"down": llm.ErrOverloaded, "cut": llm.ErrInterrupted, "unknown": llm.ErrOverloaded,
	} {
		_, err := say(word)
		if !errors.Is(err, want) {
			t.Errorf("%s: error is %v, want %v", word, err, want)
		}
		if after := llm.RetryAfter(err); word == "limited" && after != 9*time.Second {
			t.Errorf("%s: retry after %v, want 9s", word, after)
		}
	}
	if got, err := say("filtered"); err != nil || got.Stop != llm.StopRefused {
		t.Errorf("a filtered reply is %+v, error %v", got, err)
	}
}
