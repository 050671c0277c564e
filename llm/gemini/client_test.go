package gemini

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/llm"
)

func TestKeyIsReadWhenAsked(t *testing.T) {
	s := serve(t, streaming(textStream))
	for _, name := range []string{"GOOGLE_API_KEY", "GEMINI_API_KEY"} {
		t.Setenv("GOOGLE_API_KEY", "")
		t.Setenv("GEMINI_API_KEY", "")
		m := Model("gemini-2.5-flash", BaseURL(s.URL), HTTPClient(nil))
		_, err := llm.Collect(m.Generate(t.Context(), hello()))
		if !errors.Is(err, llm.ErrAuth) || !strings.Contains(err.Error(), "GEMINI_API_KEY") {
			t.Errorf("without a key: %v", err)
		}
		t.Setenv(name, testKey)
		ask(t, m, hello())
	}
}

func TestOtherVariablesAreNotUsed(t *testing.T) {
	s := serve(t, streaming(textStream))
	for k, v := range map[string]string{
		"GEMINI_API_KEY": "another-key", "GOOGLE_GENAI_USE_VERTEXAI": "true", "GOOGLE_GENAI_USE_ENTERPRISE": "true", "GOOGLE_CLOUD_PROJECT": "p",
		"GOOGLE_CLOUD_LOCATION": "l", "GOOGLE_GEMINI_BASE_URL": "http://127.0.0.1:1/", "GOOGLE_VERTEX_BASE_URL": "http://127.0.0.1:1/",
	} {
		t.Setenv(k, v)
	}
	ask(t, s.model(), hello()) // the service checks the key and the path
}

func TestANewKeyIsUsed(t *testing.T) {
	s := serve(t, streaming(textStream))
	m := Model("gemini-2.5-flash", BaseURL(s.URL))
	if _, err := m.sdk("the key of yesterday"); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOOGLE_API_KEY", testKey)
	ask(t, m, hello()) // the service checks the key
}

func TestTheClientsTimeoutEndsAStalledReply(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		streaming(strings.SplitAfter(textStream, "\r\n\r\n")[0])(w, r)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	_, err := llm.Collect(s.model(HTTPClient(&http.Client{Timeout: 50 * time.Millisecond})).Generate(t.Context(), hello()))
	if !errors.Is(err, llm.ErrInterrupted) {
		t.Errorf("the reply ends with %v", err)
	}
}
