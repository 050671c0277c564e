package gemini_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure/internal/aimock"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/gemini"
)

// TestAgainstAimock talks to a server that somebody else wrote.
func TestAgainstAimock(t *testing.T) {
	yes := true
	s := aimock.Start(t,
		aimock.Fixture{Match: aimock.Match{HasToolResult: &yes}, Response: aimock.Response{Content: "It rains in Köln."}},
		aimock.Fixture{Match: aimock.Match{UserMessage: "hello"}, Response: aimock.Response{Content: "Good day, dear friend"}, ChunkSize: 4},
		aimock.Fixture{Match: aimock.Match{UserMessage: "weather"}, Response: aimock.Response{
			Reasoning: "Two cities.",
			ToolCalls: []aimock.ToolCall{{ID: "call_1", Name: "weather", Arguments: `{"city":"Köln"}`}, {ID: "call_2", Name: "weather", Arguments: `{}`}},
		}},
		aimock.Fixture{Match: aimock.Match{UserMessage: "slow"}, Response: aimock.Response{Status: 429, RetryAfter: 3, Error: &aimock.Error{Message: "slow down", Type: "rate_limit_error"}}},
		aimock.Fixture{Match: aimock.Match{UserMessage: "cut"}, Response: aimock.Response{Content: "A long answer that never ends"}, ChunkSize: 4, TruncateAfterChunks: 4},
	)
	m := gemini.Model("gemini-2.5-flash", gemini.Key("AIzaTest-0123456789"), gemini.BaseURL(s.URL))
	tools := []llm.Tool{{Name: "weather", Schema: []byte(`{"type":"object"}`)}}
	get := func(messages ...llm.Message) (*llm.Reply, error) {
		return llm.Collect(m.Generate(t.Context(), &llm.Request{Messages: messages, Tools: tools}))
	}

	reply, err := get(llm.User("hello"))
	if err != nil || reply.Message.Text() != "Good day, dear friend" || reply.Stop != llm.StopEnd {
		t.Errorf("text: %+v, %v", reply, err)
	}

	reply, err = get(llm.User("weather"))
	if err != nil {
		t.Fatal(err)
	}
	want := []llm.Call{{ID: "call_1", Name: "weather", Args: `{"city":"Köln"}`}, {ID: "call_2", Name: "weather", Args: `{}`}}
	if diff := cmp.Diff(want, reply.Message.Calls()); diff != "" || reply.Stop != llm.StopCalls {
		t.Errorf("calls: %s, stop %s", diff, reply.Stop)
	}
	reply, err = get(llm.User("weather"), reply.Message, llm.Message{Role: llm.RoleTool, Parts: []llm.Part{
		{Result: &llm.Result{Call: "call_1", Name: "weather", Text: "rain"}},
		{Result: &llm.Result{Call: "call_2", Name: "weather", Text: "no city", Error: true}},
	}})
	if err != nil || reply.Message.Text() != "It rains in Köln." {
		t.Errorf("after results: %+v, %v", reply, err)
	}

	if _, err = get(llm.User("slow")); !errors.Is(err, llm.ErrRateLimited) || llm.RetryAfter(err) != 3*time.Second {
		t.Errorf("error: %v, retry after %v", err, llm.RetryAfter(err))
	}
	if _, err = get(llm.User("cut")); !errors.Is(err, llm.ErrInterrupted) {
		t.Errorf("cut: %v", err)
	}
	if _, err = get(llm.User("unknown")); !llm.Temporary(err) {
		t.Errorf("no fixture, which is status 503: %v", err)
	}
}
