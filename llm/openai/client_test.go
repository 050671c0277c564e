package openai_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/openai"
)

// TestEnvironmentIsReadForEachRequest sets everything that the SDK would read.
func TestEnvironmentIsReadForEachRequest(t *testing.T) {
	var got *http.Request
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		got = r
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, hello())
	}))
	defer s.Close()
	model := openai.Model("m") // before the environment is set
	t.Setenv("OPENAI_BASE_URL", s.URL+"/base/v1?api-version=7")
	t.Setenv("OPENAI_ADMIN_KEY", "admin")
	t.Setenv("OPENAI_ORG_ID", "org")
	t.Setenv("OPENAI_PROJECT_ID", "project")
	t.Setenv("OPENAI_CUSTOM_HEADERS", "X-Custom: yes")
	t.Setenv("OPENAI_WEBHOOK_SECRET", "secret")
	for _, tt := range []struct {
		env   string
		model *openai.Client
		want  string
	}{
		{"first", model, "Bearer first"},
		{" second\n", model, "Bearer second"},
		{"", model, ""},
		{"env", openai.Model("m", openai.Key("option")), "Bearer option"},
		{"env", openai.Model("m", openai.Key("")), ""},
	} {
		t.Setenv("OPENAI_API_KEY", tt.env)
		if _, err := llm.Collect(tt.model.Generate(t.Context(), question)); err != nil {
			t.Fatal(err)
		}
		if a := got.Header.Get("Authorization"); a != tt.want || got.URL.String() != "/base/v1/chat/completions?api-version=7" {
			t.Errorf("%s has Authorization %q, want %q", got.URL, a, tt.want)
		}
		for _, h := range []string{"OpenAI-Organization", "OpenAI-Project", "X-Custom"} {
			if v := got.Header.Get(h); v != "" {
				t.Errorf("the request has %s: %s", h, v)
			}
		}
	}
}

// TestServersOfOpenAINeedAKey makes no request.
func TestServersOfOpenAINeedAKey(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "")
	t.Setenv("OPENAI_BASE_URL", "")
	nowhere := &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		return nil, errors.New("sent to " + r.URL.Host)
	})}
	for url, want := range map[string]error{
		"":                                     llm.ErrAuth,
		"https://api.openai.com/v1":            llm.ErrAuth,
		"https://eu.API.openai.com/v1/":        llm.ErrAuth,
		"https://x.openai.azure.com/openai/v1": llm.ErrAuth,
		"https://notopenai.com/v1":             llm.ErrInterrupted,
		"http://localhost:11434/v1":            llm.ErrInterrupted,
		"localhost:11434":                      llm.ErrInvalid,
		"ftp://localhost/v1":                   llm.ErrInvalid,
		"http://%zz":                           llm.ErrInvalid,
	} {
		_, err := llm.Collect(openai.Model("m", openai.BaseURL(url), openai.HTTPClient(nowhere)).Generate(t.Context(), question))
		if !errors.Is(err, want) {
			t.Errorf("%q: error is %v, want %v", url, err, want)
		}
	}
}

// Agents that stream at the same time, one turn after the other, connect once each.
func TestConnectionsAreUsedAgain(t *testing.T) {
	const agents = 8
	var connections atomic.Int32
	var all sync.WaitGroup // that ask in one turn
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		all.Done()
		all.Wait()
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, `data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n")
		_ = http.NewResponseController(w).Flush() // the response ends a moment after its last event
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.Start()
	defer s.Close()
	model := openai.Model("m", openai.BaseURL(s.URL+"/v1"), openai.Key(""))
	for range 3 {
		all.Add(agents)
		var turn sync.WaitGroup
		for range agents {
			turn.Go(func() {
				if _, err := llm.Collect(model.Generate(t.Context(), &llm.Request{Messages: []llm.Message{llm.User("hi")}})); err != nil {
					t.Error(err)
				}
			})
		}
		turn.Wait()
	}
	if got := connections.Load(); got != agents {
		t.Errorf("%d connections for %d agents", got, agents)
	}
}
