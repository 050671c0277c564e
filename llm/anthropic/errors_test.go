package anthropic

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/perdure/perdure/llm"
)

// refuse replies with an error.
func refuse(status int, body string, header ...string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

// apiError is the body of an error.
func apiError(code, message string) string {
	return fmt.Sprintf(`{"type":"error","error":{"type":%q,"message":%q},"request_id":"req_1"}`, code, message)
}

func TestErrorsOfTheAPI(t *testing.T) {
	for _, c := range []struct {
		status        int
		code, message string
		kind          error
	}{
		{429, "rate_limit_error", "Number of request tokens has exceeded your per-minute rate limit", llm.ErrRateLimited},
		{429, "rate_limit_error", "This would exceed the limit of your context window tier", llm.ErrRateLimited},
		{529, "overloaded_error", "Overloaded", llm.ErrOverloaded},
		{500, "api_error", "Internal server error", llm.ErrOverloaded},
		{503, "", "", llm.ErrOverloaded},
		{504, "timeout_error", "Request timed out", llm.ErrOverloaded},
		{408, "", "", llm.ErrInterrupted},
		{401, "authentication_error", "invalid x-api-key", llm.ErrAuth},
		{403, "permission_error", "no", llm.ErrAuth},
		{402, "billing_error", "no", llm.ErrAuth},
		{400, "invalid_request_error", "Your credit balance is too low to access the Anthropic API.", llm.ErrAuth},
		{400, "invalid_request_error", "prompt is too long: 208310 tokens > 200000 maximum", llm.ErrTooLong},
		{400, "invalid_request_error", "input length and `max_tokens` exceed context limit: 199000 + 8192 > 200000", llm.ErrTooLong},
		{413, "request_too_large", "Request exceeds the maximum size", llm.ErrTooLong},
		{400, "invalid_request_error", "Output blocked by content filtering policy", llm.ErrRefused},
		{400, "invalid_request_error", "messages: roles must alternate", llm.ErrInvalid},
		{404, "not_found_error", "model: claude-x", llm.ErrInvalid},
		{422, "", "", llm.ErrInvalid},
	} {
		body := apiError(c.code, c.message)
		if c.code == "" {
			body = "<html>" + strings.Repeat("x", 2000) // a proxy on the way
		}
		s := serve(t, refuse(c.status, body))
		_, err := llm.Collect(s.model().Generate(t.Context(), hello()))
		e, ok := errors.AsType[*llm.Error](err)
		if !ok || !errors.Is(err, c.kind) || e.Status != c.status || e.Provider != "anthropic" || e.Code != c.code {
			t.Errorf("%d %s %q: got %#v", c.status, c.code, c.message, err)
		}
		if ok && c.message != "" && e.Message != c.message || len(e.Message) > 600 {
			t.Errorf("%d: message %q", c.status, e.Message)
		}
		if n := len(s.requests); n != 1 {
			t.Errorf("%d: %d requests", c.status, n)
		}
	}
}

func TestErrorInTheStream(t *testing.T) {
	start, _, _ := strings.Cut(textStream, "event: content_block_stop")
	for code, kind := range map[string]error{"overloaded_error": llm.ErrOverloaded, "api_error": llm.ErrOverloaded, "rate_limit_error": llm.ErrRateLimited, "invalid_request_error": llm.ErrInvalid, "who_knows": llm.ErrInterrupted} {
		s := serve(t, sse(start+event("error", apiError(code, "Overloaded"))))
		var text string
		var last error
		for d, err := range s.model().Generate(t.Context(), hello()) {
			text += d.Text
			last = err
		}
		e, _ := errors.AsType[*llm.Error](last)
		if text != "Grüß Gott 😀" || !errors.Is(last, kind) || e == nil || e.Code != code || e.Message != "Overloaded" {
			t.Errorf("%s: after %q: %#v", code, text, last)
		}
	}
}

func TestStreamsThatMakeNoSense(t *testing.T) {
	replace := func(from, to string) string { return strings.Replace(textStream, from, to, 1) }
	for name, stream := range map[string]string{
		"nothing":               "",
		"a page":                "<html><body>Log in</body></html>\n\n",
		"bad JSON":              replace(`"index":0,"delta"`, `"index":0,,"delta"`),
		"no start":              textStream[strings.Index(textStream, "event: content_block_start"):],
		"a block of its own":    replace(`"content_block_start","index":0`, `"content_block_start","index":3`),
		"a delta for no block":  replace(`"content_block_delta","index":0`, `"content_block_delta","index":1`),
		"a negative block":      replace(`"content_block_delta","index":0`, `"content_block_delta","index":-1`),
		"thinking in text":      replace(`{"type":"text_delta","text":"Grüß"}`, `{"type":"thinking_delta","thinking":"Grüß"}`),
		"a block of no kind":    replace(`{"type":"text","text":""}`, `{}`),
		"a block without end":   replace("event: content_block_stop\n", "event: ping\n"),
		"no reason to stop":     replace(`"stop_reason":"end_turn"`, `"stop_reason":null`),
		"a call without a name": replace(`{"type":"text","text":""}`, `{"type":"tool_use","id":"x"}`),
		"no UTF-8":              replace("Grüß", "Gr\xfc\xdf"),
	} {
		s := serve(t, sse(stream))
		_, err := llm.Collect(s.model().Generate(t.Context(), hello()))
		if e, ok := errors.AsType[*llm.Error](err); !ok || e.Kind != llm.ErrInterrupted {
			t.Errorf("%s: %v", name, err)
		}
	}
}
