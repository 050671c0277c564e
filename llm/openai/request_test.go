package openai_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/openai"
)

// full is a request that uses everything.
func full() *llm.Request {
	half := 0.5
	return &llm.Request{
		System: "Be brief.",
		Messages: []llm.Message{
			{Role: llm.RoleUser, Parts: []llm.Part{
				llm.Text("Look <here> & say"),
				{Media: &llm.Media{URL: "https://example.com/a.png"}},
				{Media: &llm.Media{MIME: "image/png", Data: []byte{1, 2, 3}}},
				{Media: &llm.Media{MIME: "application/pdf", Name: "a.pdf", Data: []byte("%PDF")}},
				{Media: &llm.Media{MIME: "text/csv", Name: "a.csv", Data: []byte("1,2")}},
				{Media: &llm.Media{MIME: "audio/wav", Data: []byte("RIFF")}},
			}},
			{Role: llm.RoleAssistant, Parts: []llm.Part{
				{Reasoning: &llm.Reasoning{Text: "of another provider"}, Opaque: &llm.Opaque{Provider: "anthropic", Data: "sig"}},
				llm.Text("Two "), llm.Text("calls."),
				{Call: &llm.Call{ID: "a", Name: "shot", Args: `{"n": 1.0, "b":2}`}},
				{Call: &llm.Call{ID: "b", Name: "fail"}},
			}},
			{Role: llm.RoleTool, Parts: []llm.Part{
				{Result: &llm.Result{Call: "a", Name: "shot", Text: "taken", Media: []llm.Media{{MIME: "image/jpeg", Data: []byte{9}}}}},
			}},
			{Role: llm.RoleTool, Parts: []llm.Part{{Result: &llm.Result{Call: "b", Name: "fail", Text: "no such file", Error: true}}}},
			llm.User("And now?"),
		},
		Tools: []llm.Tool{
			{Name: "shot", Description: "takes a picture", Schema: json.RawMessage(`{"type":"object","properties":{"z":{"type":"integer","maximum":12345678901234567890},"a":{"type":"string"}}}`)},
			{Name: "fail"},
		},
		Choice:      llm.ChoiceRequired,
		Output:      &llm.Output{Name: "answer", Schema: json.RawMessage(`{"type":"object","properties":{"x":{"type":"string"}},"required":["x"],"additionalProperties":false}`)},
		MaxTokens:   100,
		Temperature: &half,
		Stop:        []string{"END"},
		Effort:      llm.EffortLow,
	}
}

const fullSent = `{"model":"gpt-5","messages":[
{"role":"system","content":"Be brief."},
{"role":"user","content":[
 {"type":"text","text":"Look <here> & say"},
 {"type":"image_url","image_url":{"url":"https://example.com/a.png"}},
 {"type":"image_url","image_url":{"url":"data:image/png;base64,AQID"}},
 {"type":"file","file":{"filename":"a.pdf","file_data":"data:application/pdf;base64,JVBERg=="}},
 {"type":"text","text":"a.csv:\n1,2"},
 {"type":"input_audio","input_audio":{"data":"UklGRg==","format":"wav"}}]},
{"role":"assistant","content":"Two calls.","tool_calls":[
 {"id":"a","type":"function","function":{"name":"shot","arguments":"{\"n\": 1.0, \"b\":2}"}},
 {"id":"b","type":"function","function":{"name":"fail","arguments":"{}"}}]},
{"role":"tool","content":"taken","tool_call_id":"a"},
{"role":"tool","content":"Error: no such file","tool_call_id":"b"},
{"role":"user","content":[{"type":"text","text":"The result of tool call a (shot) shows:"},{"type":"image_url","image_url":{"url":"data:image/jpeg;base64,CQ=="}}]},
{"role":"user","content":"And now?"}],
"tools":[
 {"type":"function","function":{"name":"shot","description":"takes a picture","parameters":{"type":"object","properties":{"z":{"type":"integer","maximum":12345678901234567890},"a":{"type":"string"}}}}},
 {"type":"function","function":{"name":"fail","parameters":{"type":"object","properties":{}}}}],
"tool_choice":"required",
"response_format":{"type":"json_schema","json_schema":{"name":"answer","schema":{"type":"object","properties":{"x":{"type":"string"}},"required":["x"],"additionalProperties":false},"strict":true}},
"max_completion_tokens":100,"temperature":0.5,"stop":["END"],"reasoning_effort":"low","stream":true,"stream_options":{"include_usage":true}}`

// TestSameRequestIsTheSameBytes also says which bytes: a prompt cache finds
// only what begins with the same ones, so that a change of them costs.
func TestSameRequestIsTheSameBytes(t *testing.T) {
	url, bodies := answer(t, 200, nil, hello())
	for range 20 {
		if _, err := llm.Collect(openai.Model("gpt-5", openai.Key(testKey), openai.BaseURL(url), openai.Compatible(false)).Generate(t.Context(), full())); err != nil {
			t.Fatal(err)
		}
	}
	want := strings.NewReplacer("\n ", "", "\n", "").Replace(fullSent)
	for i, got := range *bodies {
		if got != want {
			t.Fatalf("request %d is\n%s\nwant\n%s", i, got, want)
		}
	}
	// A conversation that was recorded and read again is the same request.
	data, err := json.Marshal(full())
	var again *llm.Request
	if err == nil {
		err = json.Unmarshal(data, &again)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := llm.Collect(openai.Model("gpt-5", openai.Key(testKey), openai.BaseURL(url), openai.Compatible(false)).Generate(t.Context(), again)); err != nil {
		t.Fatal(err)
	}
	if got := (*bodies)[20]; got != want {
		t.Errorf("a request that was recorded is\n%s\nwant\n%s", got, want)
	}
}

func TestCompatibleServersAreToldWhatTheyKnow(t *testing.T) {
	_, sent, err := ask(t, full(), hello(), openai.Compatible(true))
	if err != nil {
		t.Fatal(err)
	}
	if sent["max_tokens"] != 100.0 || sent["max_completion_tokens"] != nil {
		t.Errorf("max_tokens is %v, max_completion_tokens %v", sent["max_tokens"], sent["max_completion_tokens"])
	}
}

func TestEffortIsLeftOutForModelsThatDoNotThink(t *testing.T) {
	url, bodies := answer(t, 200, nil, hello())
	for _, name := range []string{"gpt-4o", "o4-mini"} {
		m := openai.Model(name, openai.Key(testKey), openai.BaseURL(url), openai.Compatible(false))
		if _, err := llm.Collect(m.Generate(t.Context(), &llm.Request{Messages: question.Messages, Effort: llm.EffortHigh})); err != nil {
			t.Fatal(err)
		}
	}
	if strings.Contains((*bodies)[0], "effort") || !strings.Contains((*bodies)[1], `"reasoning_effort":"high"`) {
		t.Errorf("sent are %s", *bodies)
	}
}

func TestChoiceIsLeftOutWithoutTools(t *testing.T) {
	_, sent, err := ask(t, &llm.Request{Messages: question.Messages, Choice: llm.ChoiceNone}, hello())
	if err != nil || sent["tool_choice"] != nil {
		t.Errorf("tool_choice is %v, error %v", sent["tool_choice"], err)
	}
}

func TestSchemasAreStrictWhereOpenAIAllowsIt(t *testing.T) {
	tests := []struct {
		schema string
		strict bool
	}{
		{`{"type":"object","properties":{},"additionalProperties":false}`, true},
		{`{"type":"object","properties":{"a":{"type":["null","array"],"items":{"type":"string"}}},"required":["a"],"additionalProperties":false}`, true},
		{`{"type":"object","properties":{"a":{"anyOf":[{"type":"string"},{"type":"null"}]}},"required":["a"],"additionalProperties":false}`, true},
		{`{"type":"object","properties":{"a":{"$ref":"#/$defs/b"}},"required":["a"],"additionalProperties":false,"$defs":{"b":{"type":"object","additionalProperties":false}}}`, true},
		{`{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":false}`, false},
		{`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}`, false},
		{`{"type":"object","properties":{"a":{}},"required":["a"],"additionalProperties":false}`, false},
		{`{"type":"object","properties":{"a":true},"required":["a"],"additionalProperties":false}`, false},
		{`{"type":"object","properties":{"a":{"type":["null","object"]}},"required":["a"],"additionalProperties":false}`, false},
		{`{"type":"object","properties":{"a":{"type":"array","items":{"type":"object"}}},"required":["a"],"additionalProperties":false}`, false},
		{`{"type":"object","properties":{"a":{"type":"string","minLength":1}},"required":["a"],"additionalProperties":false}`, false},
		{`{"type":"object","properties":{},"additionalProperties":false,"oneOf":[]}`, false},
		{`{"type":"array","items":{"type":"string"}}`, false},
	}
	for _, tt := range tests {
		_, sent, err := ask(t, &llm.Request{Messages: question.Messages, Output: &llm.Output{Schema: json.RawMessage(tt.schema)}}, hello())
		if err != nil {
			t.Fatal(err)
		}
		schema := sent["response_format"].(map[string]any)["json_schema"].(map[string]any)
		if got := schema["strict"] == true; got != tt.strict || schema["name"] != "output" {
			t.Errorf("strict is %v, want %v, and the name %v, for %s", got, tt.strict, schema["name"], tt.schema)
		}
	}
}

func TestOutputWithoutSchemaIsAnyJSON(t *testing.T) {
	_, sent, err := ask(t, &llm.Request{Messages: question.Messages, Output: &llm.Output{Name: "x"}}, hello())
	if err != nil {
		t.Fatal(err)
	}
	diff(t, "format", sent["response_format"], fromJSON(t, `{"type":"json_object"}`))
}

// TestRequestsThatCannotBeSentAreInvalid tries what fails before any request.
func TestRequestsThatCannotBeSentAreInvalid(t *testing.T) {
	user := func(p llm.Part) *llm.Request {
		return &llm.Request{Messages: []llm.Message{{Role: llm.RoleUser, Parts: []llm.Part{p}}}}
	}
	tests := []struct {
		name, says string
		request    *llm.Request
	}{
		{"a blob", "blob b17 were not loaded", user(llm.Part{Media: &llm.Media{MIME: "image/png", Blob: "b17"}})},
		{"media without anything", "without data", user(llm.Part{Media: &llm.Media{MIME: "image/png"}})},
		{"a file by URL", "send its bytes", user(llm.Part{Media: &llm.Media{MIME: "application/pdf", URL: "https://example.com/a.pdf"}})},
		{"a call of the user", "neither text nor media", user(llm.Part{Call: &llm.Call{ID: "a", Name: "f"}})},
		{"an unknown role", `no role "system"`, &llm.Request{Messages: []llm.Message{{Role: "system"}}}},
		{"text as a result", "not a result", &llm.Request{Messages: []llm.Message{{Role: llm.RoleTool, Parts: []llm.Part{llm.Text("x")}}}}},
		{"a result of the assistant", "has a result", &llm.Request{Messages: []llm.Message{{Role: llm.RoleAssistant, Parts: []llm.Part{{Result: &llm.Result{}}}}}}},
		{"a blob in a result", "blob b17", &llm.Request{Messages: []llm.Message{{Role: llm.RoleTool, Parts: []llm.Part{{Result: &llm.Result{Call: "a", Media: []llm.Media{{Blob: "b17"}}}}}}}}},
		{"a schema that is not JSON", "JSON", &llm.Request{Tools: []llm.Tool{{Name: "f", Schema: json.RawMessage(`{`)}}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, sent, err := ask(t, tt.request, hello())
			e, ok := errors.AsType[*llm.Error](err)
			if !ok || !errors.Is(err, llm.ErrInvalid) || !strings.Contains(e.Message, tt.says) || sent != nil {
				t.Errorf("error %v, sent %v", err, sent)
			}
		})
	}
}

// TestFilesAtURLsReachCompatibleServers: OpenRouter fetches them.
func TestFilesAtURLsReachCompatibleServers(t *testing.T) {
	r := &llm.Request{Messages: []llm.Message{{Role: llm.RoleUser, Parts: []llm.Part{{Media: &llm.Media{MIME: "application/pdf", URL: "https://example.com/a.pdf"}}}}}}
	_, sent, err := ask(t, r, hello(), openai.Compatible(true))
	if err != nil {
		t.Fatal(err)
	}
	diff(t, "messages", sent["messages"], fromJSON(t, `[{"role":"user","content":[{"type":"file","file":{"filename":"file.pdf","file_data":"https://example.com/a.pdf"}}]}]`))
}
