package openai_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/llmtest"
	"github.com/perdure/perdure/llm/openai"
)

func TestClientHoldsWhatEveryModelMust(t *testing.T) {
	for name, stream := range map[string]string{"text": hello(), "calls": recorded()} {
		t.Run(name, func(t *testing.T) {
			llmtest.Run(t, func(t *testing.T) llm.Model {
				s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					w.Header().Set("Content-Type", "text/event-stream")
					_, _ = io.WriteString(w, stream)
				}))
				t.Cleanup(s.Close)
				return openai.Model("m", openai.BaseURL(s.URL), openai.HTTPClient(s.Client()))
			})
		})
	}
}
