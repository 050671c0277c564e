package gemini

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"github.com/perdure/perdure/llm"
)

const testKey = "AIzaTest-0123456789abcdef"

// wire is a request as the API defines it, as far as this package uses it.
// Other fields are an error.
type wire struct {
	System   *wireContent  `json:"systemInstruction"`
	Contents []wireContent `json:"contents"`
	Tools    []struct {
		Functions []struct {
			Name        string          `json:"name"`
			Description string          `json:"description"`
			Schema      json.RawMessage `json:"parametersJsonSchema"`
		} `json:"functionDeclarations"`
	} `json:"tools"`
	ToolConfig *struct {
		Calling struct {
			Mode string `json:"mode"`
		} `json:"functionCallingConfig"`
	} `json:"toolConfig"`
	Config struct {
		Max         int32           `json:"maxOutputTokens"`
		Temperature *float64        `json:"temperature"`
		Stop        []string        `json:"stopSequences"`
		MIME        string          `json:"responseMimeType"`
		Schema      json.RawMessage `json:"responseJsonSchema"`
		Thinking    *wireThinking   `json:"thinkingConfig"`
	} `json:"generationConfig"`
	raw []byte // all of it
}

type wireThinking struct {
	Include bool   `json:"includeThoughts"`
	Budget  int    `json:"thinkingBudget"`
	Level   string `json:"thinkingLevel"`
}

type wireContent struct {
	Role  string     `json:"role"`
	Parts []wirePart `json:"parts"`
}

type wirePart struct {
	Text       *string     `json:"text,omitempty"`
	Thought    bool        `json:"thought,omitempty"`
	Signature  string      `json:"thoughtSignature,omitempty"`
	Inline     *wireInline `json:"inlineData,omitempty"`
	File       *wireFile   `json:"fileData,omitempty"`
	Call       *wireCall   `json:"functionCall,omitempty"`
	Response   *wireResp   `json:"functionResponse,omitempty"`
	Executable any         `json:"executableCode,omitempty"`
}

type wireInline struct {
	MIME string `json:"mimeType"`
	Data string `json:"data"`
}

type wireFile struct {
	MIME string `json:"mimeType"`
	URI  string `json:"fileUri"`
}

type wireCall struct {
	ID   string          `json:"id"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
}

type wireResp struct {
	ID       string            `json:"id"`
	Name     string            `json:"name"`
	Response map[string]string `json:"response"`
	Parts    []wirePart        `json:"parts"`
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
			http.Error(w, `{"error":{"code":400,"message":"refused by the test","status":"INVALID_ARGUMENT"}}`, 400)
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
	return s.named("gemini-2.5-flash", opts...)
}

func (s *service) named(name string, opts ...Option) *Client {
	return Model(name, slices.Concat([]Option{Key(testKey), BaseURL(s.URL)}, opts)...)
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

// streaming replies with a stream.
func streaming(stream string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, stream)
	}
}

// check holds a request against the rules of the API.
func check(r *http.Request, body []byte) (wire, error) {
	var req wire
	req.raw = body
	var model string
	if _, err := fmt.Sscanf(r.URL.Path, "/v1beta/models/%s", &model); err != nil || r.Method != "POST" || r.URL.RawQuery != "alt=sse" {
		return req, fmt.Errorf("%s %s", r.Method, r.URL)
	}
	if len(model) < 30 || model[len(model)-22:] != ":streamGenerateContent" {
		return req, fmt.Errorf("%s", r.URL)
	}
	for h, want := range map[string]string{"X-Goog-Api-Key": testKey, "Content-Type": "application/json", "Authorization": ""} {
		if got := r.Header.Get(h); got != want {
			return req, fmt.Errorf("header %s is %q, not %q", h, got, want)
		}
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&req); err != nil {
		return req, err
	}
	calls := 0 // without a response
	for i, c := range req.Contents {
		if want := []string{"user", "model"}[i%2]; c.Role != want {
			return req, fmt.Errorf("content %d has role %q", i, c.Role)
		}
		if len(c.Parts) == 0 {
			return req, fmt.Errorf("content %d is empty", i)
		}
		for j, p := range c.Parts {
			kinds := 0
			for _, is := range []bool{p.Text != nil, p.Inline != nil, p.File != nil, p.Call != nil, p.Response != nil, p.Executable != nil} {
				if is {
					kinds++
				}
			}
			if kinds != 1 {
				return req, fmt.Errorf("content %d: part %d holds %d kinds of data", i, j, kinds)
			}
			if p.Call != nil {
				calls++
				if len(p.Call.Args) == 0 || p.Call.Args[0] != '{' {
					return req, fmt.Errorf("args are no object")
				}
			}
			if p.Response != nil {
				calls--
				if j > 0 && c.Parts[j-1].Response == nil {
					return req, fmt.Errorf("a response is not at the start")
				}
			}
		}
		if c.Role == "user" && calls != 0 {
			return req, fmt.Errorf("the number of responses is not that of calls")
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

// sent is one event of a stream.
func sent(data string) string { return "data: " + data + "\r\n\r\n" }

// textStream is a reply of text, as the API sends it.
var textStream = sent(`{"candidates": [{"content": {"parts": [{"text": "Grüß"}],"role": "model"},"index": 0}],"usageMetadata": {"promptTokenCount": 3212,"candidatesTokenCount": 2,"totalTokenCount": 3214,"promptTokensDetails": [{"modality": "TEXT","tokenCount": 3212}]},"modelVersion": "gemini-2.5-flash","responseId": "r1"}`) +
	sent(`{"candidates": [{"content": {"parts": [{"text": " Gott \ud83d\ude00"}],"role": "model"},"finishReason": "STOP","index": 0,"safetyRatings": [{"category": "HARM_CATEGORY_HARASSMENT","probability": "NEGLIGIBLE"}]}],"usageMetadata": {"promptTokenCount": 3212,"cachedContentTokenCount": 3000,"candidatesTokenCount": 15,"thoughtsTokenCount": 30,"totalTokenCount": 3257},"modelVersion": "gemini-2.5-flash","responseId": "r1"}`)

// Signatures as the API makes them: base64, of which not a byte may change.
const (
	signature1 = "CsYBAVSoXO4UA+/0u8qZ3w=="
	signature2 = "EqQBCgIYAhIM1gbcDa9GJwZA2b3h+/8="
	signature3 = "c2lnLV8z_url-safe"
)

// callStream is a reply that thinks, says something and calls tools: one
// without an id, one with, one without arguments.
var callStream = sent(`{"candidates": [{"content": {"parts": [{"text": "Two cities <a & b>,\n","thought": true}],"role": "model"},"index": 0}],"usageMetadata": {"promptTokenCount": 400},"modelVersion": "gemini-2.5-flash","responseId": "r2"}`) +
	sent(`{"candidates": [{"content": {"parts": [{"text": "so two calls.","thought": true}],"role": "model"},"index": 0}]}`) +
	sent(`{"candidates": [{"content": {"parts": [{"text": "The end.","thought": true,"thoughtSignature": "`+signature1+`"}],"role": "model"},"index": 0}]}`) +
	sent(`{"candidates": [{"content": {"parts": [{"text": "I look "}],"role": "model"},"index": 0}]}`) +
	sent(`{"candidates": [{"content": {"parts": [{"text": "it up."},{"text": "","thoughtSignature": "`+signature3+`"}],"role": "model"},"index": 0}]}`) +
	sent(`{"candidates": [{"content": {"parts": [{"functionCall": {"name": "weather","args": {"z": 1.50, "city": "Köln", "id": 12345678901234567890}},"thoughtSignature": "`+signature2+`"},{"functionCall": {"id": "fc-7","name": "weather","args": {"city":"Bonn"}}}],"role": "model"},"index": 0}]}`) +
	sent(`{"candidates": [{"content": {"parts": [{"functionCall": {"name": "now"}}],"role": "model"},"finishReason": "STOP","index": 0}],"usageMetadata": {"promptTokenCount": 400,"candidatesTokenCount": 49,"thoughtsTokenCount": 40,"totalTokenCount": 489},"modelVersion": "gemini-2.5-flash","responseId": "r2"}`)
