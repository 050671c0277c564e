package gemini

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/internal/answers"
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

func TestRetryAfter(t *testing.T) {
	for header, want := range map[string]time.Duration{"7": 7 * time.Second, "": 0, "soon": 0, "-3": 0, "1e300": 24 * time.Hour, "Mon, 02 Jan 2006 15:04:05 GMT": 0} {
		s := serve(t, refuse(429, apiError(429, "RESOURCE_EXHAUSTED", "slow down", ""), "Retry-After", header))
		_, err := llm.Collect(s.model().Generate(t.Context(), hello()))
		if got := llm.RetryAfter(err); got != want {
			t.Errorf("%q is %v, not %v", header, got, want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		h := http.Header{"Retry-After": {time.Now().Add(time.Minute).UTC().Format(http.TimeFormat)}}
		if got := answers.RetryAfter(h); got != time.Minute {
			t.Errorf("a date in a minute is %v", got)
		}
	})
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
			s := serve(t, sse(first+"\r\n\r\n"+fmt.Sprintf(form, body)))
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
	s := serve(t, sse(sent(`{"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"},"usageMetadata": {"promptTokenCount": 9}}`)))
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
		s := serve(t, sse(stream))
		_, err := llm.Collect(s.model().Generate(t.Context(), hello()))
		if e, ok := errors.AsType[*llm.Error](err); !ok || e.Kind != llm.ErrInterrupted {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCutAnywhere ends a reply after each of its bytes: in the way that a
// server has that closes its side, and in the way of a broken connection. The
// SDK would log the latter.
func TestCutAnywhere(t *testing.T) {
	var logged bytes.Buffer
	before := log.Writer()
	log.SetOutput(&logged)
	t.Cleanup(func() { log.SetOutput(before) })
	var at atomic.Int64
	var broken atomic.Bool
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, callStream[:at.Load()])
		if broken.Load() {
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
	})
	at.Store(int64(len(callStream)))
	m := s.model()
	whole, err := json.Marshal(ask(t, m, hello()))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range []bool{false, true} {
		broken.Store(b)
		complete := 0
		for i := range len(callStream) + 1 {
			at.Store(int64(i))
			reply, err := llm.Collect(m.Generate(t.Context(), hello()))
			if err != nil {
				if e, ok := errors.AsType[*llm.Error](err); !ok || !llm.Temporary(e) {
					t.Fatalf("cut at %d: %v", i, err)
				}
				continue
			}
			complete++
			if got, _ := json.Marshal(reply); string(got) != string(whole) {
				t.Fatalf("cut at %d: a shorter reply: %s", i, got)
			}
		}
		if !b && complete == 0 || complete > 5 {
			t.Errorf("broken %v: %d cuts gave the whole reply", b, complete)
		}
	}
	if logged.Len() > 0 {
		t.Errorf("logged: %s", logged.Bytes()[:min(500, logged.Len())])
	}
}

func TestCancel(t *testing.T) {
	first, _, _ := strings.Cut(textStream, "\r\n\r\n")
	ended := make(chan struct{}, 1)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		sse(first+"\r\n\r\n")(w, r)
		w.(http.Flusher).Flush()
		<-r.Context().Done() // the end of the request on the server's side
		ended <- struct{}{}
	})
	ctx, cancel := context.WithCancel(t.Context())
	var last error
	for d, err := range s.model().Generate(ctx, hello()) {
		last = err
		if d.Text != "" {
			cancel()
		}
	}
	if !errors.Is(last, context.Canceled) || llm.Temporary(last) {
		t.Errorf("after a cancel: %v", last)
	}
	<-ended
	for d := range s.model().Generate(t.Context(), hello()) {
		if d.Text != "" {
			break
		}
	}
	<-ended
	if _, err := llm.Collect(s.model().Generate(ctx, hello())); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
	deadline, cancel := context.WithTimeout(t.Context(), 1)
	defer cancel()
	if _, err := llm.Collect(s.model().Generate(deadline, hello())); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with a deadline that has passed: %v", err)
	}
}

func TestNoServer(t *testing.T) {
	s := serve(t, sse(""))
	s.Close()
	_, err := llm.Collect(s.model().Generate(t.Context(), hello()))
	if e, ok := errors.AsType[*llm.Error](err); !ok || e.Kind != llm.ErrInterrupted || e.Status != 0 {
		t.Errorf("%v", err)
	}
}
