package openai_test

import (
	"testing"

	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/openai"
)

var question = &llm.Request{Messages: []llm.Message{llm.User("Hi")}}

func TestReplies(t *testing.T) {
	tests := []struct {
		name   string
		stream string
		parts  []llm.Part
		stop   llm.Stop
	}{
		{
			"parallel calls whose pieces are mixed",
			chunk(`{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"add","arguments":""}}]}`) +
				chunk(`{"tool_calls":[{"index":0,"function":{"arguments":"{\"x\": 12345678901234567890,"}}]}`) +
				chunk(`{"tool_calls":[{"index":1,"id":"call_b","type":"function","function":{"name":"sub","arguments":""}}]}`) +
				chunk(`{"tool_calls":[{"index":1,"function":{"arguments":"{}"}},{"index":0,"function":{"arguments":"  \"y\":1e2}\n"}}]}`) +
				finish("tool_calls"),
			[]llm.Part{
				{Call: &llm.Call{ID: "call_a", Name: "add", Args: "{\"x\": 12345678901234567890,  \"y\":1e2}\n"}},
				{Call: &llm.Call{ID: "call_b", Name: "sub", Args: "{}"}},
			},
			llm.StopCalls,
		},
		{
			"text before a call",
			chunk(`{"content":"Let me see."}`) + chunk(`{"tool_calls":[{"index":0,"id":"c","function":{"name":"look","arguments":"{"}}]}`) + chunk(`{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]}`) + finish("tool_calls"),
			[]llm.Part{llm.Text("Let me see."), {Call: &llm.Call{ID: "c", Name: "look", Args: "{}"}}},
			llm.StopCalls,
		},
		{
			"calls of a server that gives all the same index and calls their end stop",
			chunk(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]}`) + chunk(`{"tool_calls":[{"index":0,"id":"b","function":{"name":"f","arguments":"[]"}}]}`) + finish("stop"),
			[]llm.Part{{Call: &llm.Call{ID: "a", Name: "f", Args: "{}"}}, {Call: &llm.Call{ID: "b", Name: "f", Args: "[]"}}},
			llm.StopCalls,
		},
		{
			"calls of a server that knows neither index nor id",
			chunk(`{"tool_calls":[{"function":{"name":"f","arguments":"{}"}},{"function":{"name":"g","arguments":"{}"}}]}`) + finish("tool_calls"),
			[]llm.Part{{Call: &llm.Call{ID: "call_0", Name: "f", Args: "{}"}}, {Call: &llm.Call{ID: "call_1", Name: "g", Args: "{}"}}},
			llm.StopCalls,
		},
		{
			"a call whose id and name are repeated, and one with the same id",
			chunk(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}]}`) + chunk(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"}"}}]}`) + chunk(`{"tool_calls":[{"index":1,"id":"a","function":{"name":"f","arguments":"{}"}}]}`) + finish("tool_calls"),
			[]llm.Part{{Call: &llm.Call{ID: "a", Name: "f", Args: "{}"}}, {Call: &llm.Call{ID: "a_2", Name: "f", Args: "{}"}}},
			llm.StopCalls,
		},
		{
			"a character cut in two",
			chunk(`{"content":"a\ud83d"}`) + chunk(`{"content":"\ude00b\\ud83d"}`) + chunk(`{"content":"c"}`) + finish("stop"),
			[]llm.Part{llm.Text(`a😀b\ud83dc`)},
			llm.StopEnd,
		},
		{
			"images of a model behind OpenRouter",
			chunk(`{"content":"Here:"}`) + chunk(`{"content":"","images":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AQID"}},{"type":"image_url","image_url":{"url":"https://example.com/a.png"}}]}`) + finish("stop"),
			[]llm.Part{llm.Text("Here:"), {Media: &llm.Media{MIME: "image/png", Data: []byte{1, 2, 3}}}, {Media: &llm.Media{URL: "https://example.com/a.png"}}},
			llm.StopEnd,
		},
		{"a refusal", chunk(`{"role":"assistant","content":null,"refusal":"I will not."}`) + finish("stop"), []llm.Part{llm.Text("I will not.")}, llm.StopRefused},
		{"a filter", chunk(`{"content":"So"}`) + finish("content_filter"), []llm.Part{llm.Text("So")}, llm.StopRefused},
		{"a limit", chunk(`{"content":"So"}`) + finish("length"), []llm.Part{llm.Text("So")}, llm.StopLength},
		{"an unknown end", chunk(`{"content":"So"}`) + finish("whim"), []llm.Part{llm.Text("So")}, llm.StopOther},
		{"nothing", chunk(`{"role":"assistant","content":""}`) + finish("stop"), nil, llm.StopEnd},
		{"comments and an error that is null", ": OPENROUTER PROCESSING\n\n" + `data: {"error":null,"choices":[{"index":0,"delta":{"content":"Yes"}}]}` + "\r\n\r\n" + finish("stop"), []llm.Part{llm.Text("Yes")}, llm.StopEnd},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, _, err := ask(t, question, tt.stream)
			if err != nil {
				t.Fatal(err)
			}
			diff(t, "parts", got.Message.Parts, tt.parts)
			diff(t, "stop", got.Stop, tt.stop)
			diff(t, "usage", got.Usage, helloUsage)
		})
	}
}

func TestUsageCountsReasoningThatOnlyTheTotalHas(t *testing.T) {
	got, _, err := ask(t, question, chunk(`{"content":"A"}`)+
		`data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":115,"prompt_tokens_details":{"cache_write_tokens":7},"completion_tokens_details":{"reasoning_tokens":100}}}`+"\n\ndata: [DONE]\n\n")
	if err != nil {
		t.Fatal(err)
	}
	diff(t, "usage", got.Usage, llm.Usage{Input: 10, Output: 105, CacheWrite: 7, Reasoning: 100})
}

// TestReasoningGoesBackAsItCame follows the reasoning of compatible servers
// into the reply and into the next request.
func TestReasoningGoesBackAsItCame(t *testing.T) {
	call := chunk(`{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{}"}}]}`) + finish("tool_calls")
	tests := []struct {
		name   string
		stream string
		text   string
		opaque string
		want   string // the message of the assistant in the next request
	}{
		{
			"DeepSeek",
			chunk(`{"role":"assistant","content":null,"reasoning_content":"Hm"}`) + chunk(`{"reasoning_content":", <b>"}`) + call,
			"Hm, <b>", `"reasoning_content"`,
			`{"role":"assistant","content":null,"reasoning_content":"Hm, <b>","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}`,
		},
		{
			"both fields say the same",
			chunk(`{"reasoning":"Hm","reasoning_content":"Hm"}`) + chunk(`{"reasoning":"!","reasoning_content":"!"}`) + call,
			"Hm!", `"reasoning_content"`,
			`{"role":"assistant","content":null,"reasoning_content":"Hm!","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}`,
		},
		{
			"without a call the text stays",
			chunk(`{"reasoning_content":"Hm"}`) + chunk(`{"content":"Yes"}`) + finish("stop"),
			"Hm", `"reasoning_content"`,
			`{"role":"assistant","content":"Yes"}`,
		},
		{
			"OpenRouter with details in pieces",
			chunk(`{"reasoning":"A","reasoning_details":[{"type":"reasoning.text","text":"A","format":"anthropic-claude-v1","index":0}]}`) +
				chunk(`{"reasoning":"B","reasoning_details":[{"type":"reasoning.text","text":"B","format":"anthropic-claude-v1","index":0}]}`) +
				chunk(`{"reasoning_details":[{"type":"reasoning.text","signature":"c2ln+/=","format":"anthropic-claude-v1","index":0},{"type":"reasoning.encrypted", "data":"eHh4","id":"rs_1","n":1.50,"index":1}]}`) + call,
			"AB", `"reasoning"{"type":"reasoning.text","text":"A","format":"anthropic-claude-v1","index":0}{"type":"reasoning.text","text":"B","format":"anthropic-claude-v1","index":0}{"type":"reasoning.text","signature":"c2ln+/=","format":"anthropic-claude-v1","index":0}{"type":"reasoning.encrypted", "data":"eHh4","id":"rs_1","n":1.50,"index":1}`,
			`{"role":"assistant","content":null,"reasoning_details":[{"format":"anthropic-claude-v1","index":0,"signature":"c2ln+/=","text":"AB","type":"reasoning.text"},{"type":"reasoning.encrypted","data":"eHh4","id":"rs_1","n":1.50,"index":1}],"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}`,
		},
		{
			"only details",
			chunk(`{"reasoning_details":[{"type":"reasoning.summary","summary":"In short"}]}`) + call,
			"In short", `{"type":"reasoning.summary","summary":"In short"}`,
			`{"role":"assistant","content":null,"reasoning_details":[{"type":"reasoning.summary","summary":"In short"}],"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			reply, _, err := ask(t, question, tt.stream)
			if err != nil {
				t.Fatal(err)
			}
			diff(t, "first part", reply.Message.Parts[0], llm.Part{
				Reasoning: &llm.Reasoning{Text: tt.text},
				Opaque:    &llm.Opaque{Provider: "openai", Data: tt.opaque},
			})
			next := &llm.Request{Messages: []llm.Message{question.Messages[0], reply.Message}}
			_, sent, err := ask(t, next, hello(), openai.Compatible(true))
			if err != nil {
				t.Fatal(err)
			}
			diff(t, "message", sent["messages"].([]any)[1], fromJSON(t, tt.want))
			// OpenAI itself refuses fields that it does not know.
			_, sent, err = ask(t, next, hello())
			if err != nil {
				t.Fatal(err)
			}
			for _, field := range []string{"reasoning", "reasoning_content", "reasoning_details"} {
				if v, there := sent["messages"].([]any)[1].(map[string]any)[field]; there {
					t.Errorf("OpenAI is sent %s: %v", field, v)
				}
			}
		})
	}
}

func TestExtraContentOfACallGoesBackAsItCame(t *testing.T) {
	reply, _, err := ask(t, question, chunk(`{"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":"{}"},"extra_content":{"google":{"thought_signature":"AbC+/="}}}]}`)+finish("tool_calls"))
	if err != nil {
		t.Fatal(err)
	}
	next := &llm.Request{Messages: []llm.Message{question.Messages[0], reply.Message}}
	_, sent, err := ask(t, next, hello(), openai.Compatible(true))
	if err != nil {
		t.Fatal(err)
	}
	diff(t, "message", sent["messages"].([]any)[1], fromJSON(t, `{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"},"extra_content":{"google":{"thought_signature":"AbC+/="}}}]}`))
}

// TestImagesOfTheModelGoBackAsTheUsers: the protocol takes them from nobody
// else, and not between calls and their results.
func TestImagesOfTheModelGoBackAsTheUsers(t *testing.T) {
	_, sent, err := ask(t, &llm.Request{Messages: []llm.Message{
		llm.User("Draw"),
		{Role: llm.RoleAssistant, Parts: []llm.Part{{Media: &llm.Media{MIME: "image/png", Data: []byte{1, 2, 3}}}, {Call: &llm.Call{ID: "c", Name: "f", Args: "{}"}}}},
		{Role: llm.RoleTool, Parts: []llm.Part{{Result: &llm.Result{Call: "c", Name: "f", Text: "ok"}}}},
	}}, hello())
	if err != nil {
		t.Fatal(err)
	}
	diff(t, "messages", sent["messages"], fromJSON(t, `[{"role":"user","content":"Draw"},
		{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},
		{"role":"tool","content":"ok","tool_call_id":"c"},
		{"role":"user","content":[{"type":"text","text":"The assistant showed:"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AQID"}}]}]`))
}
