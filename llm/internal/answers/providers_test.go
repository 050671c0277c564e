package answers_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/anthropic"
	"github.com/perdure/perdure/llm/gemini"
	"github.com/perdure/perdure/llm/openai"
)

// TestProvidersAgreeOnOddAnswers: which error it is does not depend on whose
// client it is, and none is longer than a person reads.
func TestProvidersAgreeOnOddAnswers(t *testing.T) {
	for name, tt := range map[string]struct {
		answer http.HandlerFunc
		kind   error
		says   string
	}{
		"elsewhere": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.2:1/v1", http.StatusTemporaryRedirect)
		}, llm.ErrInvalid, ""},
		"a huge error": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			io.WriteString(w, `{"error":{"type":"invalid_request_error","message":"bad `+strings.Repeat("x", 1<<20)+`"}}`)
		}, llm.ErrInvalid, ""},
		"a page": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			io.WriteString(w, "<!doctype html>\n<html><title>Sign in</title></html>")
		}, llm.ErrInterrupted, "Sign in"},
	} {
		srv := httptest.NewServer(tt.answer)
		for provider, m := range map[string]llm.Model{
			"anthropic": anthropic.Model("claude-sonnet-4-5", anthropic.BaseURL(srv.URL), anthropic.Key("k")),
			"gemini":    gemini.Model("gemini-2.5-flash", gemini.BaseURL(srv.URL), gemini.Key("k")),
			"openai":    openai.Model("gpt-5", openai.BaseURL(srv.URL), openai.Key("k")),
		} {
			_, err := llm.Collect(m.Generate(t.Context(), &llm.Request{Messages: []llm.Message{llm.User("hello")}}))
			if !errors.Is(err, tt.kind) || !strings.Contains(err.Error(), tt.says) || len(err.Error()) > 2000 {
				t.Errorf("%s, %s: %.300v", name, provider, err)
			}
		}
		srv.Close()
	}
}
