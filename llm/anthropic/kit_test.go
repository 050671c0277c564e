package anthropic

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/perdure/perdure/llm"
)

const testKey = "sk-ant-test-0123456789"

// wire is a request as the API defines it, as far as this package uses it.
// Other fields are an error.
type wire struct {
	Model     string          `json:"model"`
	MaxTokens int64           `json:"max_tokens"`
	Stream    bool            `json:"stream"`
	System    []wireBlock     `json:"system"`
	Messages  []wireMessage   `json:"messages"`
	Tools     []wireTool      `json:"tools"`
	Choice    *wireType       `json:"tool_choice"`
	Stop      []string        `json:"stop_sequences"`
	Temp      *float64        `json:"temperature"`
	Thinking  *wireThinking   `json:"thinking"`
	Output    *wireOutput     `json:"output_config"`
	raw       json.RawMessage // all of it
}

type wireType struct {
	Type string `json:"type"`
}

type wireThinking struct {
	Type    string `json:"type"`
	Budget  int64  `json:"budget_tokens"`
	Display string `json:"display"`
}

type wireOutput struct {
	Effort string `json:"effort"`
	Format *struct {
		Type   string          `json:"type"`
		Schema json.RawMessage `json:"schema"`
	} `json:"format"`
}

type wireTool struct {
	Name         string          `json:"name"`
	Description  string          `json:"description"`
	InputSchema  json.RawMessage `json:"input_schema"`
	CacheControl *wireType       `json:"cache_control"`
}

type wireMessage struct {
	Role    string      `json:"role"`
	Content []wireBlock `json:"content"`
}

type wireBlock struct {
	Type         string          `json:"type"`
	Text         string          `json:"text,omitempty"`
	Thinking     *string         `json:"thinking,omitempty"`
	Signature    string          `json:"signature,omitempty"`
	Data         string          `json:"data,omitempty"`
	ID           string          `json:"id,omitempty"`
	Name         string          `json:"name,omitempty"`
	Input        json.RawMessage `json:"input,omitempty"`
	ToolUseID    string          `json:"tool_use_id,omitempty"`
	IsError      bool            `json:"is_error,omitempty"`
	Content      []wireBlock     `json:"content,omitempty"`
	Title        string          `json:"title,omitempty"`
	Source       *wireSource     `json:"source,omitempty"`
	CacheControl *wireType       `json:"cache_control,omitempty"`
}

type wireSource struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type,omitempty"`
	Data      string `json:"data,omitempty"`
	URL       string `json:"url,omitempty"`
}

// service answers as the API does. Requests that the API would refuse fail the
// test.
type service struct {
	*httptest.Server
	mu       sync.Mutex
	requests []wire
	reply    func(w http.ResponseWriter, r *http.Request)
}

func serve(t testing.TB, reply func(w http.ResponseWriter, r *http.Request)) *service {
	s := &service{reply: reply}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client went away
		}
		req, err := check(r, body)
		if err != nil {
			t.Errorf("the API refuses the request: %v\n%s", err, body)
			http.Error(w, `{"type":"error","error":{"type":"invalid_request_error","message":"refused by the test"}}`, 400)
			return
		}
		s.mu.Lock()
		s.requests = append(s.requests, req)
		s.mu.Unlock()
		s.reply(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// model returns a client of the service.
func (s *service) model(opts ...Option) *Client {
	return Model("claude-sonnet-4-5", slices.Concat([]Option{Key(testKey), BaseURL(s.URL)}, opts)...)
}

// last returns the last request.
func (s *service) last(t *testing.T) wire {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.requests) == 0 {
		t.Fatal("no request came")
	}
	return s.requests[len(s.requests)-1]
}

// sse replies with a stream.
func sse(stream string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		io.WriteString(w, stream)
	}
}

// check holds a request against the rules of the API.
func check(r *http.Request, body []byte) (wire, error) {
	var req wire
	req.raw = body
	if r.Method != "POST" || r.URL.Path != "/v1/messages" || r.URL.RawQuery != "" {
		return req, fmt.Errorf("%s %s", r.Method, r.URL)
	}
	for h, want := range map[string]string{"X-Api-Key": testKey, "Anthropic-Version": "2023-06-01", "Content-Type": "application/json", "Authorization": ""} {
		if got := r.Header.Get(h); got != want {
			return req, fmt.Errorf("header %s is %q, not %q", h, got, want)
		}
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&req); err != nil {
		return req, err
	}
	if !req.Stream || req.MaxTokens <= 0 || req.Model == "" || len(req.Messages) == 0 {
		return req, fmt.Errorf("stream, max_tokens, model or messages are missing")
	}
	if req.Choice != nil && len(req.Tools) == 0 {
		return req, fmt.Errorf("a choice without tools")
	}
	if req.Thinking != nil && req.Thinking.Type == "enabled" && (req.Thinking.Budget < 1024 || req.Thinking.Budget >= req.MaxTokens || req.Temp != nil) {
		return req, fmt.Errorf("wrong thinking")
	}
	for _, tool := range req.Tools {
		if tool.Name == "" || len(tool.InputSchema) == 0 || tool.InputSchema[0] != '{' {
			return req, fmt.Errorf("a tool without a name or a schema")
		}
	}
	var open []string // calls without a result
	for i, m := range req.Messages {
		if want := []string{"user", "assistant"}[i%2]; m.Role != want {
			return req, fmt.Errorf("message %d has role %q", i, m.Role)
		}
		if len(m.Content) == 0 {
			return req, fmt.Errorf("message %d is empty", i)
		}
		first := true
		for _, b := range m.Content {
			switch b.Type {
			case "text":
				if strings.TrimSpace(b.Text) == "" {
					return req, fmt.Errorf("empty text")
				}
			case "tool_use":
				if len(b.Input) == 0 || b.Input[0] != '{' {
					return req, fmt.Errorf("input is no object")
				}
				if len(req.Tools) == 0 {
					return req, fmt.Errorf("a call, but no tools")
				}
				open = append(open, b.ID)
			case "tool_result":
				at := slices.Index(open, b.ToolUseID)
				if at < 0 || !first {
					return req, fmt.Errorf("a tool_result for nothing, or not at the start")
				}
				open = slices.Delete(open, at, at+1)
			case "thinking":
				if b.Signature == "" || b.Thinking == nil {
					return req, fmt.Errorf("thinking without a signature")
				}
			}
			first = first && b.Type == "tool_result"
		}
		if m.Role == "user" && len(open) > 0 {
			return req, fmt.Errorf("no results for %q", open)
		}
	}
	return req, nil
}

// ask collects a reply.
func ask(t *testing.T, m llm.Model, r *llm.Request) *llm.Reply {
	t.Helper()
	reply, err := llm.Collect(m.Generate(t.Context(), r))
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

// hello is the smallest request.
func hello() *llm.Request {
	return &llm.Request{Messages: []llm.Message{llm.User("Hello")}}
}

// event is one event of a stream.
func event(name, data string) string { return "event: " + name + "\ndata: " + data + "\n\n" }

// textStream is a reply of text, as the API sends it.
var textStream = event("message_start", `{"type":"message_start","message":{"model":"claude-sonnet-4-5-20250929","id":"msg_01XFDUDYJgAACzvnptvVoYEL","type":"message","role":"assistant","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":12,"cache_creation_input_tokens":200,"cache_read_input_tokens":3000,"output_tokens":1,"service_tier":"standard"}}}`) +
	event("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`) +
	event("ping", `{"type": "ping"}`) +
	event("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Grüß"}}`) +
	event("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" Gott \ud83d\ude00"}}`) +
	event("content_block_stop", `{"type":"content_block_stop","index":0}`) +
	event("message_delta", `{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"input_tokens":12,"cache_creation_input_tokens":200,"cache_read_input_tokens":3000,"output_tokens":15}}`) +
	event("message_stop", `{"type":"message_stop"}`)

// Signatures as the API makes them: base64, of which not a byte may change.
const (
	signature = "EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl1pkiMOYds+/=="
	redacted  = "EmwKAhgBEgy3va3pzix/LafPsn4aDFIT2Xlxh0L5L8rLVyIwxtE3rAFBa8cr3qpPkNRj2YfWXGmKDxH4mPnZ5sQ7vB9+"
)

// callStream is a reply that thinks, says something and calls two tools.
var callStream = event("message_start", `{"type":"message_start","message":{"model":"claude-sonnet-4-5-20250929","id":"msg_02","type":"message","role":"assistant","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":400,"output_tokens":3}}}`) +
	event("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}`) +
	event("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Two cities <a & b>,\n"}}`) +
	event("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"so two calls."}}`) +
	event("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"`+signature+`"}}`) +
	event("content_block_stop", `{"type":"content_block_stop","index":0}`) +
	event("content_block_start", `{"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"`+redacted+`"}}`) +
	event("content_block_stop", `{"type":"content_block_stop","index":1}`) +
	event("content_block_start", `{"type":"content_block_start","index":2,"content_block":{"type":"text","text":""}}`) +
	event("content_block_delta", `{"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"I look it up."}}`) +
	event("content_block_stop", `{"type":"content_block_stop","index":2}`) +
	event("content_block_start", `{"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"toolu_01","name":"weather","input":{}}}`) +
	event("content_block_delta", `{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":""}}`) +
	event("content_block_delta", `{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{\"z\": 1.50, \"city\""}}`) +
	event("content_block_delta", `{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":": \"Köln\", \"id\": 12345678901234567890}"}}`) +
	event("content_block_stop", `{"type":"content_block_stop","index":3}`) +
	event("content_block_start", `{"type":"content_block_start","index":4,"content_block":{"type":"tool_use","id":"toolu_02","name":"now","input":{}}}`) +
	event("content_block_stop", `{"type":"content_block_stop","index":4}`) +
	event("message_delta", `{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":89,"output_tokens_details":{"thinking_tokens":40}}}`) +
	event("message_stop", `{"type":"message_stop"}`)
