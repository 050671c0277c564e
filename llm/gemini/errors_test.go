package gemini

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

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
func apiError(status int, code, message, details string) string {
	return fmt.Sprintf(`{"error": {"code": %d, "message": %q, "status": %q, "details": [%s]}}`, status, message, code, details)
}

const retryInfo = `{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaMetric":"m"}]},{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"32.5s"}`

func TestErrorsOfTheAPI(t *testing.T) {
	for _, c := range []struct {
		status                 int
		code, message, details string
		kind                   error
	}{
		{429, "RESOURCE_EXHAUSTED", "You exceeded your current quota, please check your plan and billing details.", retryInfo, llm.ErrRateLimited},
		{429, "RESOURCE_EXHAUSTED", "Quota exceeded for this API key", "", llm.ErrRateLimited},
		{503, "UNAVAILABLE", "The model is overloaded. Please try again later.", "", llm.ErrOverloaded},
		{500, "INTERNAL", "An internal error has occurred.", "", llm.ErrOverloaded},
		{504, "DEADLINE_EXCEEDED", "x", "", llm.ErrOverloaded},
		{502, "", "", "", llm.ErrOverloaded},
		{408, "", "", "", llm.ErrInterrupted},
		{499, "CANCELLED", "x", "", llm.ErrInterrupted},
		{400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", `{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID"}`, llm.ErrAuth},
		{400, "INVALID_ARGUMENT", "Key not good", `{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID"}`, llm.ErrAuth},
		{401, "UNAUTHENTICATED", "x", "", llm.ErrAuth},
		{403, "PERMISSION_DENIED", "x", "", llm.ErrAuth},
		{403, "", "", "", llm.ErrAuth},
		{400, "FAILED_PRECONDITION", "Gemini API free tier is not available in your country. Please enable billing.", "", llm.ErrAuth},
		{400, "INVALID_ARGUMENT", "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", "", llm.ErrTooLong},
		{413, "", "", "", llm.ErrTooLong},
		{400, "INVALID_ARGUMENT", "Please ensure that function call turn comes immediately after a user turn", "", llm.ErrInvalid},
		{404, "NOT_FOUND", "models/gemini-9 is not found", "", llm.ErrInvalid},
		{422, "", "", "", llm.ErrInvalid},
	} {
		body := apiError(c.status, c.code, c.message, c.details)
		if c.code == "" {
			body = "<html>" + strings.Repeat("x", 2000) // a proxy on the way
		}
		s := serve(t, refuse(c.status, body))
		_, err := llm.Collect(s.model().Generate(t.Context(), hello()))
		e, ok := errors.AsType[*llm.Error](err)
		if !ok || !errors.Is(err, c.kind) || e.Status != c.status || e.Provider != "gemini" || e.Code != c.code {
			t.Errorf("%d %s %q: got %#v", c.status, c.code, c.message, err)
		}
		if ok && c.message != "" && e.Message != c.message || len(e.Message) > 600 {
			t.Errorf("%d: message %q", c.status, e.Message)
		}
		if got, want := llm.RetryAfter(err), 32500*time.Millisecond; c.details == retryInfo && got != want {
			t.Errorf("retry after %v, not %v", got, want)
		}
		if n := len(s.requests); n != 1 {
			t.Errorf("%d: %d requests", c.status, n)
		}
	}
}

func TestErrorInTheStream(t *testing.T) {
	first, _, _ := strings.Cut(textStream, "\r\n\r\n")
	for _, form := range []string{"%s", "data: %s\n\n", "%s\n\n"} {
		for code, c := range map[string]struct {
			status int
			kind   error
		}{"UNAVAILABLE": {503, llm.ErrOverloaded}, "RESOURCE_EXHAUSTED": {429, llm.ErrRateLimited}, "INVALID_ARGUMENT": {400, llm.ErrInvalid}, "WHO_KNOWS": {0, llm.ErrInterrupted}} {
			body := apiError(c.status, code, "Overloaded", retryInfo)
			if form == "%s" {
				body = strings.ReplaceAll(body, ", ", ",\n  ") // as Google prints it
			}
			s := serve(t, streaming(first+"\r\n\r\n"+fmt.Sprintf(form, body)))
			var text string
			var last error
			for d, err := range s.model().Generate(t.Context(), hello()) {
				text += d.Text
				last = err
			}
			e, _ := errors.AsType[*llm.Error](last)
			if text != "Grüß" || !errors.Is(last, c.kind) || e == nil || e.Code != code || e.Message != "Overloaded" || e.RetryAfter == 0 {
				t.Errorf("%s: after %q: %#v", code, text, last)
			}
		}
	}
}

func TestBlockedPromptIsRefused(t *testing.T) {
	s := serve(t, streaming(sent(`{"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"},"usageMetadata": {"promptTokenCount": 9}}`)))
	_, err := llm.Collect(s.model().Generate(t.Context(), hello()))
	if e, ok := errors.AsType[*llm.Error](err); !ok || e.Kind != llm.ErrRefused || e.Code != "PROHIBITED_CONTENT" {
		t.Errorf("%v", err)
	}
}

func TestStreamsThatMakeNoSense(t *testing.T) {
	replace := func(from, to string) string { return strings.Replace(textStream, from, to, 1) }
	for name, stream := range map[string]string{
		"nothing":               "",
		"a page":                "<html><body>Log in</body></html>\n\n",
		"bad JSON":              replace(`"index": 0`, `"index": 0,,`),
		"no object":             "data: 1\n\n" + textStream,
		"null":                  "data: null\n\n",
		"candidates of no kind": replace(`"candidates": [`, `"candidates": 1, "x": [`),
		"parts of no kind":      replace(`{"text": "Grüß"}`, `7`),
		"no text":               replace(`"Grüß"`, `7`),
		"no reason to stop":     replace(`"finishReason": "STOP",`, ``),
		"no known reason":       replace(`"STOP"`, `"FINISH_REASON_UNSPECIFIED"`),
		"a call without a name": replace(`{"text": "Grüß"}`, `{"functionCall":{"args":{}}}`),
		"usage of no kind":      replace(`"promptTokenCount": 3212`, `"promptTokenCount": "many"`),
		"no UTF-8":              replace("Grüß", "Gr\xfc\xdf"),
	} {
		s := serve(t, streaming(stream))
		_, err := llm.Collect(s.model().Generate(t.Context(), hello()))
		if e, ok := errors.AsType[*llm.Error](err); !ok || e.Kind != llm.ErrInterrupted {
			t.Errorf("%s: %v", name, err)
		}
	}
}
