package anthropic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

func TestRetryAfter(t *testing.T) {
	for header, want := range map[string]time.Duration{"7": 7 * time.Second, "1.5": 1500 * time.Millisecond, "": 0, "soon": 0, "-3": 0, "1e300": 24 * time.Hour, "Mon, 02 Jan 2006 15:04:05 GMT": 0} {
		s := serve(t, refuse(429, apiError("rate_limit_error", "slow down"), "Retry-After", header))
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

// TestCutAnywhere ends a reply after each of its bytes: in the way that a
// server has that closes its side, and in the way of a broken connection.
func TestCutAnywhere(t *testing.T) {
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
	whole, err := json.Marshal(ask(t, s.model(), hello()))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range []bool{false, true} {
		broken.Store(b)
		complete := 0
		for i := range len(callStream) + 1 {
			at.Store(int64(i))
			reply, err := llm.Collect(s.model().Generate(t.Context(), hello()))
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
		if complete == 0 || complete > 2 {
			t.Errorf("%d cuts gave the whole reply", complete)
		}
	}
}

func TestCancel(t *testing.T) {
	start, _, _ := strings.Cut(textStream, "event: content_block_stop")
	ended := make(chan struct{}, 1)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		sse(start)(w, r)
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
