package anthropic

import (
	"errors"
	"strings"
	"testing"

	"github.com/perdure/perdure/llm"
)

func TestKeyIsReadWhenAsked(t *testing.T) {
	s := serve(t, sse(textStream))
	t.Setenv("ANTHROPIC_API_KEY", "")
	m := Model("claude-sonnet-4-5", BaseURL(s.URL), HTTPClient(nil))
	_, err := llm.Collect(m.Generate(t.Context(), hello()))
	if !errors.Is(err, llm.ErrAuth) || !strings.Contains(err.Error(), "ANTHROPIC_API_KEY") {
		t.Errorf("without a key: %v", err)
	}
	t.Setenv("ANTHROPIC_API_KEY", testKey)
	ask(t, m, hello())
}

func TestOtherVariablesAreNotUsed(t *testing.T) {
	s := serve(t, sse(textStream))
	for k, v := range map[string]string{
		"ANTHROPIC_API_KEY": "sk-ant-other", "ANTHROPIC_AUTH_TOKEN": "token", "ANTHROPIC_BASE_URL": "http://127.0.0.1:1/",
		"ANTHROPIC_CUSTOM_HEADERS": "X-Api-Key: sk-ant-third", "ANTHROPIC_PROFILE": "nobody",
	} {
		t.Setenv(k, v)
	}
	ask(t, s.model(), hello()) // the service checks the key and that there is no token
}
