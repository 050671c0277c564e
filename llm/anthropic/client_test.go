package anthropic

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
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

func TestNobodyPrintsTheKey(t *testing.T) {
	c := Model("claude-sonnet-4-5", Key(testKey), BaseURL("http://user:"+testKey+"@127.0.0.1:1"))
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
		for _, v := range []any{c, *c, []*Client{c}, struct{ C *Client }{c}, struct{ c Client }{*c}} {
			if got := fmt.Sprintf(format, v); strings.Contains(got, testKey) || strings.Contains(got, fmt.Sprintf("%x", testKey)) {
				t.Errorf("%s prints %s", format, got)
			}
		}
	}
	if b, err := json.Marshal([]any{c, *c}); err != nil || strings.Contains(string(b), testKey) {
		t.Errorf("JSON is %s, %v", b, err)
	}
	if c.String() != "anthropic:claude-sonnet-4-5" {
		t.Errorf("String is %q", c)
	}
}

func TestNoErrorHoldsTheKey(t *testing.T) {
	s := serve(t, nil)
	for _, reply := range []func(http.ResponseWriter, *http.Request){
		refuse(401, apiError("authentication_error", "bad key "+testKey)),
		refuse(401, apiError("authentication_error"+testKey, "bad")),
		refuse(500, "you sent "+testKey),
		sse(event("error", apiError("api_error", "your key "+testKey))),
		sse(event("message_start", "no JSON "+testKey)),
	} {
		s.reply = reply
		_, err := llm.Collect(s.model().Generate(t.Context(), hello()))
		if err == nil || strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), testKey) {
			t.Errorf("the error is %v", err)
		}
	}
	_, err := llm.Collect(Model("m", Key(testKey), BaseURL("http://127.0.0.1:1/"+testKey)).Generate(t.Context(), hello()))
	if err == nil || strings.Contains(err.Error(), testKey) {
		t.Errorf("the error is %v", err)
	}
}

// TestKeyStaysWithItsServer has a server that sends its caller elsewhere, which
// is another server for one reply and the same for the other.
func TestKeyStaysWithItsServer(t *testing.T) {
	stolen := 0
	thief := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { stolen++ }))
	defer thief.Close()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, thief.URL, http.StatusTemporaryRedirect)
	})
	_, err := llm.Collect(s.model().Generate(t.Context(), hello()))
	if !errors.Is(err, llm.ErrInvalid) || !strings.Contains(err.Error(), "another server") || stolen > 0 {
		t.Errorf("the other server was asked %d times: %v", stolen, err)
	}
	s.reply = func(w http.ResponseWriter, r *http.Request) {
		if len(s.requests) > 2 {
			sse(textStream)(w, r)
			return
		}
		http.Redirect(w, r, r.URL.String(), http.StatusTemporaryRedirect)
	}
	ask(t, s.model(), hello())
}

func TestWrongURLIsInvalid(t *testing.T) {
	for _, base := range []string{"http://[", "ftp://127.0.0.1/", "127.0.0.1:80"} {
		_, err := llm.Collect(Model("claude-sonnet-4-5", Key(testKey), BaseURL(base)).Generate(t.Context(), hello()))
		if e, ok := errors.AsType[*llm.Error](err); !ok || e.Kind != llm.ErrInvalid {
			t.Errorf("%s: %#v", base, err)
		}
	}
	if _, err := llm.Collect(Model("", Key(testKey), BaseURL("http://127.0.0.1:1")).Generate(t.Context(), hello())); !errors.Is(err, llm.ErrInvalid) {
		t.Errorf("without a name: %v", err)
	}
}
