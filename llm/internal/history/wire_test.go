package history_test

import (
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

// TestProvidersWriteHistory: a name that a model made up goes to no provider,
// and an id of another one only where ids have no rules.
func TestProvidersWriteHistory(t *testing.T) {
	var body string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		body = string(b)
		w.WriteHeader(http.StatusBadRequest)
	}))
	defer srv.Close()
	const id, name = "functions.echo:0", "multi_tool_use.parallel"
	r := &llm.Request{Messages: []llm.Message{
		llm.User("hello"),
		{Role: llm.RoleAssistant, Parts: []llm.Part{{Call: &llm.Call{ID: id, Name: name, Args: "{}"}}}},
		{Role: llm.RoleTool, Parts: []llm.Part{{Result: &llm.Result{Call: id, Name: name, Text: "no such tool"}}}},
	}}
	for provider, c := range map[string]struct {
		model llm.Model
		ids   int // that stay
	}{
		"anthropic":  {anthropic.Model("claude-sonnet-4-5", anthropic.BaseURL(srv.URL), anthropic.Key("k")), 0},
		"gemini":     {gemini.Model("gemini-2.5-flash", gemini.BaseURL(srv.URL), gemini.Key("k")), 0},
		"openai":     {openai.Model("gpt-5", openai.BaseURL(srv.URL), openai.Key("k"), openai.Compatible(false)), 0},
		"compatible": {openai.Model("kimi-k2", openai.BaseURL(srv.URL), openai.Key("k")), 2},
	} {
		body = ""
		llm.Collect(c.model.Generate(t.Context(), r)) // it fails
		if strings.Contains(body, name) || !strings.Contains(body, "tool_multi_tool_use_parallel_") || strings.Count(body, id) != c.ids {
			t.Errorf("%s was sent %s", provider, body)
		}
	}
}
