package anthropic

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure/llm"
)

func TestReplyOfText(t *testing.T) {
	s := serve(t, sse(textStream))
	want := &llm.Reply{
		Message: llm.Assistant("Grüß Gott 😀"),
		Usage:   llm.Usage{Input: 3212, Output: 15, CacheRead: 3000, CacheWrite: 200},
		Stop:    llm.StopEnd,
		Model:   "claude-sonnet-4-5-20250929",
		ID:      "msg_01XFDUDYJgAACzvnptvVoYEL",
	}
	if diff := cmp.Diff(want, ask(t, s.model(), hello())); diff != "" {
		t.Error(diff)
	}
}

func TestCallsAndThinking(t *testing.T) {
	s := serve(t, sse(callStream))
	got := ask(t, s.model(), hello())
	want := &llm.Reply{
		Message: llm.Message{Role: llm.RoleAssistant, Parts: []llm.Part{
			{Reasoning: &llm.Reasoning{Text: "Two cities <a & b>,\nso two calls."}, Opaque: &llm.Opaque{Provider: "anthropic", Data: `{"type":"thinking","signature":"` + signature + `"}`}},
			{Opaque: &llm.Opaque{Provider: "anthropic", Data: `{"type":"redacted_thinking","data":"` + redacted + `"}`}},
			{Text: "I look it up."},
			{Call: &llm.Call{ID: "toolu_01", Name: "weather", Args: `{"z": 1.50, "city": "Köln", "id": 12345678901234567890}`}},
			{Call: &llm.Call{ID: "toolu_02", Name: "now", Args: `{}`}},
		}},
		Usage: llm.Usage{Input: 400, Output: 89, Reasoning: 40},
		Stop:  llm.StopCalls,
		Model: "claude-sonnet-4-5-20250929",
		ID:    "msg_02",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// results answers the calls of callStream.
func results() llm.Message {
	return llm.Message{Role: llm.RoleTool, Parts: []llm.Part{
		{Result: &llm.Result{Call: "toolu_01", Name: "weather", Text: "rain"}},
		{Result: &llm.Result{Call: "toolu_02", Name: "now", Text: "no clock", Error: true}},
	}}
}

// TestThinkingGoesBackAsItCame is what a run that was resumed depends on: the
// reply has been through JSON, and its next request holds the same blocks.
func TestThinkingGoesBackAsItCame(t *testing.T) {
	s := serve(t, sse(callStream))
	reply := ask(t, s.model(), hello())
	recorded, err := json.Marshal(reply.Message)
	if err != nil {
		t.Fatal(err)
	}
	var again llm.Message
	if err := json.Unmarshal(recorded, &again); err != nil {
		t.Fatal(err)
	}
	r := hello()
	r.Tools = []llm.Tool{{Name: "weather"}, {Name: "now"}}
	r.Effort = llm.EffortLow
	r.Messages = append(r.Messages, again, results())
	ask(t, s.model(NoCache()), r)
	got := s.last(t)
	thinking := "Two cities <a & b>,\nso two calls."
	want := []wireBlock{
		{Type: "thinking", Thinking: &thinking, Signature: signature},
		{Type: "redacted_thinking", Data: redacted},
		{Type: "text", Text: "I look it up."},
		{Type: "tool_use", ID: "toolu_01", Name: "weather", Input: json.RawMessage(`{"z":1.50,"city":"Köln","id":12345678901234567890}`)},
		{Type: "tool_use", ID: "toolu_02", Name: "now", Input: json.RawMessage(`{}`)},
	}
	if diff := cmp.Diff(want, got.Messages[1].Content); diff != "" {
		t.Error(diff)
	}
	if got.Thinking == nil || got.Thinking.Budget != 2048 {
		t.Errorf("thinking is %+v", got.Thinking)
	}
	if !strings.Contains(string(got.raw), `"signature":"`+signature+`"`) || !strings.Contains(string(got.raw), `"data":"`+redacted+`"`) {
		t.Error("the bytes of a signature are not in the request")
	}
}

func TestThinkingWithoutTextKeepsItsSignature(t *testing.T) {
	stream := event("message_start", `{"type":"message_start","message":{"id":"m","model":"x","usage":{"input_tokens":1,"output_tokens":1}}}`) +
		event("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}`) +
		event("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"abc="}}`) +
		event("content_block_stop", `{"type":"content_block_stop","index":0}`) +
		event("content_block_start", `{"type":"content_block_start","index":1,"content_block":{"type":"text","text":"Hi"}}`) +
		event("content_block_stop", `{"type":"content_block_stop","index":1}`) +
		event("message_delta", `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}`) +
		event("message_stop", `{"type":"message_stop"}`)
	s := serve(t, sse(stream))
	reply := ask(t, s.model(), hello())
	if got := reply.Message.Text(); got != "Hi" {
		t.Errorf("text that came with the start of its block is %q", got)
	}
	r := hello()
	r.Messages = append(r.Messages, reply.Message, llm.User("And?"))
	ask(t, s.model(), r)
	b := s.last(t).Messages[1].Content[0]
	if b.Type != "thinking" || b.Signature != "abc=" || b.Thinking == nil || *b.Thinking != "" {
		t.Errorf("the block went back as %+v", b)
	}
}

func TestUnknownBlocksGoBack(t *testing.T) {
	stream := strings.Replace(textStream, `{"type":"text","text":""}`, `{"type":"server_tool_use","id":"srv_1","name":"web_search","input":{}}`, 1)
	stream = strings.Replace(stream, `{"type":"text_delta","text":"Grüß"}`, `{"type":"input_json_delta","partial_json":"{\"q\":"}`, 1)
	stream = strings.Replace(stream, `{"type":"text_delta","text":" Gott \ud83d\ude00"}`, `{"type":"input_json_delta","partial_json":"\"x\"}"}`, 1)
	s := serve(t, sse(stream))
	reply := ask(t, s.model(), hello())
	r := hello()
	r.Messages = append(r.Messages, reply.Message, llm.User("And?"))
	ask(t, s.model(), r)
	want := wireBlock{Type: "server_tool_use", ID: "srv_1", Name: "web_search", Input: json.RawMessage(`{"q":"x"}`)}
	if diff := cmp.Diff(want, s.last(t).Messages[1].Content[0]); diff != "" {
		t.Error(diff)
	}
}

func TestStopReasons(t *testing.T) {
	for reason, want := range map[string]llm.Stop{
		"end_turn": llm.StopEnd, "stop_sequence": llm.StopEnd, "max_tokens": llm.StopLength, "tool_use": llm.StopCalls,
		"refusal": llm.StopRefused, "model_context_window_exceeded": llm.StopLength, "pause_turn": llm.StopOther, "brand_new": llm.StopOther,
	} {
		s := serve(t, sse(strings.Replace(textStream, `"stop_reason":"end_turn"`, `"stop_reason":"`+reason+`"`, 1)))
		if got := ask(t, s.model(), hello()).Stop; got != want {
			t.Errorf("%s is %s, not %s", reason, got, want)
		}
	}
}
