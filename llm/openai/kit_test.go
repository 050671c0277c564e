package openai_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/openai"
)

const testKey = "sk-test-0123456789abcdef"

// answer serves one kind of reply and checks what every request has to have.
// bodies gets the bodies of the requests.
func answer(t testing.TB, status int, header http.Header, reply string) (url string, bodies *[]string) {
	t.Helper()
	bodies = new([]string)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		switch {
		case err != nil:
			t.Errorf("reading the request: %v", err)
		case r.Method != http.MethodPost || r.URL.Path != "/v1/chat/completions":
			t.Errorf("the request is %s %s", r.Method, r.URL.Path)
		case r.Header.Get("Authorization") != "Bearer "+testKey:
			t.Errorf("Authorization is %q", r.Header.Get("Authorization"))
		case r.Header.Get("Content-Type") != "application/json":
			t.Errorf("Content-Type is %q", r.Header.Get("Content-Type"))
		case r.Header.Get("OpenAI-Organization") != "" || r.Header.Get("OpenAI-Project") != "":
			t.Error("the request has an organisation or a project of the environment")
		}
		*bodies = append(*bodies, string(body))
		w.Header().Set("Content-Type", "text/event-stream")
		for k, v := range header {
			w.Header()[k] = v
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, reply)
	}))
	t.Cleanup(s.Close)
	return s.URL + "/v1", bodies
}

// ask answers a request with a stream and returns the reply and what was sent.
func ask(t testing.TB, r *llm.Request, stream string, opts ...openai.Option) (*llm.Reply, map[string]any, error) {
	t.Helper()
	url, bodies := answer(t, 200, nil, stream)
	opts = append([]openai.Option{openai.Key(testKey), openai.BaseURL(url), openai.Compatible(false)}, opts...)
	reply, err := llm.Collect(openai.Model("gpt-5", opts...).Generate(t.Context(), r))
	var sent map[string]any
	if len(*bodies) == 1 {
		if err := json.Unmarshal([]byte((*bodies)[0]), &sent); err != nil {
			t.Fatalf("the request is not JSON: %v\n%s", err, (*bodies)[0])
		}
	} else if len(*bodies) > 1 {
		t.Fatalf("%d requests were made", len(*bodies))
	}
	return reply, sent, err
}

// chunk is an event of a stream with this delta.
func chunk(delta string) string {
	return `data: {"id":"chatcmpl-B1","object":"chat.completion.chunk","created":1758000000,"model":"gpt-5-2025-08-07","service_tier":"default","system_fingerprint":"fp_1","choices":[{"index":0,"delta":` + delta + `,"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"x7Yk"}` + "\n\n"
}

// finish is the end of a stream.
func finish(reason string) string {
	return fmt.Sprintf(`data: {"id":"chatcmpl-B1","object":"chat.completion.chunk","created":1758000000,"model":"gpt-5-2025-08-07","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":%q}],"usage":null}`+"\n\n", reason) +
		`data: {"id":"chatcmpl-B1","object":"chat.completion.chunk","created":1758000000,"model":"gpt-5-2025-08-07","choices":[],"usage":{"prompt_tokens":1117,"completion_tokens":46,"total_tokens":1163,"prompt_tokens_details":{"cached_tokens":1024,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":30,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}}` + "\n\n" +
		"data: [DONE]\n\n"
}

// hello is a whole stream of text.
func hello() string {
	return chunk(`{"role":"assistant","content":"","refusal":null}`) + chunk(`{"content":"Hel"}`) + chunk(`{"content":"lo \u00e9 \"<&\u2028"}`) + finish("stop")
}

var helloUsage = llm.Usage{Input: 1117, Output: 46, CacheRead: 1024, Reasoning: 30}

func diff(t testing.TB, what string, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// fromJSON reads what a test expects.
func fromJSON(t testing.TB, s string) any {
	t.Helper()
	var v any
	if err := json.NewDecoder(strings.NewReader(s)).Decode(&v); err != nil {
		t.Fatalf("%v in %s", err, s)
	}
	return v
}
