package openai_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/openai"
)

func TestErrorsOfTheServerAreMapped(t *testing.T) {
	openAI := func(message, kind, code string) string {
		return `{"error":{"message":"` + message + `","type":"` + kind + `","param":null,"code":` + code + `}}`
	}
	tests := []struct {
		name    string
		status  int
		body    string
		kind    error
		code    string
		message string
	}{
		{"rate limit", 429, openAI("Rate limit reached for gpt-5", "tokens", `"rate_limit_exceeded"`), llm.ErrRateLimited, "rate_limit_exceeded", "Rate limit reached for gpt-5"},
		{"no credit", 429, openAI("You exceeded your current quota", "insufficient_quota", `"insufficient_quota"`), llm.ErrAuth, "insufficient_quota", "You exceeded your current quota"},
		{"no credit by type only", 429, openAI("You exceeded your current quota", "insufficient_quota", `null`), llm.ErrAuth, "insufficient_quota", "You exceeded your current quota"},
		{"wrong key", 401, openAI("Incorrect API key provided", "invalid_request_error", `"invalid_api_key"`), llm.ErrAuth, "invalid_api_key", "Incorrect API key provided"},
		{"forbidden", 403, openAI("Not for you", "invalid_request_error", `null`), llm.ErrAuth, "invalid_request_error", "Not for you"},
		{"no credit at OpenRouter", 402, `{"error":{"message":"Insufficient credits","code":402}}`, llm.ErrAuth, "402", "Insufficient credits"},
		{"moderation at OpenRouter", 403, `{"error":{"code":403,"message":"Flagged","metadata":{"reasons":["violence"],"flagged_input":"…"}}}`, llm.ErrRefused, "403", "Flagged"},
		{"too long", 400, openAI("This model's maximum context length is 8192 tokens", "invalid_request_error", `"context_length_exceeded"`), llm.ErrTooLong, "context_length_exceeded", "This model's maximum context length is 8192 tokens"},
		{"too long at vLLM", 400, `{"object":"error","message":"This model's maximum context length is 4096 tokens. However, you requested 5000.","type":"BadRequestError","param":null,"code":400}`, llm.ErrTooLong, "BadRequestError", "This model's maximum context length is 4096 tokens. However, you requested 5000."},
		{"too long at llama.cpp", 400, `{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error","n_ctx":4096}}`, llm.ErrTooLong, "exceed_context_size_error", "the request exceeds the available context size"},
		{"too many bytes", 413, `<html>Request Entity Too Large</html>`, llm.ErrTooLong, "", "<html>Request Entity Too Large</html>"},
		{"policy", 400, openAI("Flagged as violating our usage policy", "invalid_request_error", `"content_policy_violation"`), llm.ErrRefused, "content_policy_violation", "Flagged as violating our usage policy"},
		{"filter of Azure", 400, openAI("The response was filtered", "", `"content_filter"`), llm.ErrRefused, "content_filter", "The response was filtered"},
		{"bad parameter", 400, openAI("Unsupported parameter", "invalid_request_error", `"unsupported_parameter"`), llm.ErrInvalid, "unsupported_parameter", "Unsupported parameter"},
		{"no such model", 404, openAI("The model does not exist", "invalid_request_error", `"model_not_found"`), llm.ErrInvalid, "model_not_found", "The model does not exist"},
		{"no such model at Ollama", 404, `{"error":"model 'x' not found"}`, llm.ErrInvalid, "", "model 'x' not found"},
		{"validation of FastAPI", 422, `{"detail":[{"loc":["body"],"msg":"field required"}]}`, llm.ErrInvalid, "", `[{"loc":["body"],"msg":"field required"}]`},
		{"a list at Gemini", 400, `[{"error":{"code":400,"message":"Invalid value","status":"INVALID_ARGUMENT"}}]`, llm.ErrInvalid, "400", "Invalid value"},
		{"server error", 500, openAI("The server had an error", "server_error", `null`), llm.ErrOverloaded, "server_error", "The server had an error"},
		{"page of a proxy", 502, "<html>Bad Gateway</html>", llm.ErrOverloaded, "", "<html>Bad Gateway</html>"},
		{"unavailable", 503, "", llm.ErrOverloaded, "", "service unavailable"},
		{"overloaded", 529, `{"error":{"message":"Overloaded","type":"overloaded_error"}}`, llm.ErrOverloaded, "overloaded_error", "Overloaded"},
		{"timeout", 408, "", llm.ErrOverloaded, "", "request timeout"},
		{"not modified", 304, "", llm.ErrInvalid, "", "not modified"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			url, bodies := answer(t, tt.status, http.Header{"Content-Type": {"application/json"}, "Retry-After": {"7"}}, tt.body)
			_, err := llm.Collect(openai.Model("m", openai.Key(testKey), openai.BaseURL(url)).Generate(t.Context(), question))
			e, ok := errors.AsType[*llm.Error](err)
			if !ok {
				t.Fatalf("error is %v", err)
			}
			got := *e
			got.Kind = nil
			diff(t, "error", got, llm.Error{Provider: "openai", Status: tt.status, Code: tt.code, Message: tt.message, RetryAfter: 7 * time.Second})
			if !errors.Is(err, tt.kind) {
				t.Errorf("%v is no %v", err, tt.kind)
			}
			if len(*bodies) != 1 {
				t.Errorf("%d requests were made, want 1", len(*bodies))
			}
		})
	}
}

func TestErrorsInTheMiddleOfAStreamAreMapped(t *testing.T) {
	tests := []struct {
		name, event string
		kind        error
	}{
		{"server error", `data: {"error":{"message":"The server had an error","type":"server_error","code":null}}`, llm.ErrOverloaded},
		{"rate limit", `data: {"error":{"message":"slow","type":"tokens","code":"rate_limit_exceeded"}}`, llm.ErrRateLimited},
		{"OpenRouter", `data: {"id":"g","error":{"code":502,"message":"Provider disconnected"},"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}]}`, llm.ErrOverloaded},
		{"only a reason", `data: {"choices":[{"index":0,"delta":{},"finish_reason":"error"}]}`, llm.ErrInterrupted},
		{"a text", `event: error` + "\n" + `data: {"error":"something broke"}`, llm.ErrInterrupted},
		{"too long", `data: {"error":{"message":"exceeds the context window","code":400}}`, llm.ErrTooLong},
		{"a bad request", `data: {"error":{"message":"no","type":"invalid_request_error"}}`, llm.ErrInvalid},
		{"no JSON", `data: {"choices":[{"ind`, llm.ErrInterrupted},
		{"no object", `data: 17`, llm.ErrInterrupted},
		{"content that is no text", `data: {"choices":[{"index":0,"delta":{"content":[{"type":"text","text":"lost"}]}}]}`, llm.ErrInterrupted},
		{"calls that are no list", `data: {"choices":[{"index":0,"delta":{"tool_calls":"lost"}}]}`, llm.ErrInterrupted},
		{"a call without a name", `data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"arguments":"{}"}}]}}]}`, llm.ErrInterrupted},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := ask(t, question, chunk(`{"content":"Hel"}`)+tt.event+"\n\n"+finish(map[bool]string{true: "error", false: "stop"}[tt.name == "only a reason"]))
			if _, ok := errors.AsType[*llm.Error](err); !ok || !errors.Is(err, tt.kind) {
				t.Errorf("error is %v, want %v", err, tt.kind)
			}
		})
	}
}

func TestAServerThatDoesNotStreamIsAnError(t *testing.T) {
	header := http.Header{"Content-Type": {"application/json; charset=utf-8"}}
	for body, kind := range map[string]error{
		`{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}]}`: llm.ErrInterrupted,
		`{"error":{"code":429,"message":"slow down"}}`:                      llm.ErrRateLimited,
	} {
		url, _ := answer(t, 200, header, body)
		_, err := llm.Collect(openai.Model("m", openai.Key(testKey), openai.BaseURL(url)).Generate(t.Context(), question))
		if !errors.Is(err, kind) {
			t.Errorf("%s is error %v, want %v", body, err, kind)
		}
	}
}
