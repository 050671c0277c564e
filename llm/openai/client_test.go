package openai_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/openai"
)

func TestAClientDoesNotShowItsKey(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", testKey)
	password := "hunter2-hunter2"
	c := openai.Model("gpt-5", openai.Key(testKey), openai.BaseURL("https://user:"+password+"@example.com/v1?token="+testKey))
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("m", "client", c, "copy", *c)
	asJSON, err := json.Marshal(map[string]any{"pointer": c, "value": *c})
	if err != nil {
		t.Fatal(err)
	}
	texts := []string{log.String(), string(asJSON), c.String(), c.GoString()}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		for _, v := range []any{c, *c, []any{c, *c}, struct{ C *openai.Client }{c}, struct{ c openai.Client }{*c}} {
			texts = append(texts, fmt.Sprintf(verb, v))
		}
	}
	for _, text := range texts {
		hidden := []string{testKey, password, fmt.Sprintf("%x", testKey), fmt.Sprint([]byte(testKey))}
		for _, secret := range hidden {
			if strings.Contains(text, secret) {
				t.Errorf("%s shows a secret", text)
			}
		}
	}
	if !strings.Contains(c.String(), "gpt-5") {
		t.Errorf("String is %s, without the model", c)
	}
}

// TestErrorsDoNotQuoteTheKey has a server that does.
func TestErrorsDoNotQuoteTheKey(t *testing.T) {
	echo := `{"error":{"message":"Bearer ` + testKey + ` is wrong","type":"` + testKey + `","code":"` + testKey + `"}}`
	for _, reply := range []struct {
		status int
		body   string
	}{{401, echo}, {500, testKey}, {200, "data: " + echo + "\n\n"}, {200, "data: " + testKey + "\n\n"}} {
		url, _ := answer(t, reply.status, nil, reply.body)
		_, err := llm.Collect(openai.Model("m", openai.Key(testKey), openai.BaseURL(url)).Generate(t.Context(), question))
		if err == nil || strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), testKey) {
			t.Errorf("error is %#v", err)
		}
		for ; err != nil; err = errors.Unwrap(err) {
			if strings.Contains(fmt.Sprintf("%+v", err), testKey) {
				t.Errorf("%T holds the key", err)
			}
		}
	}
}

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
