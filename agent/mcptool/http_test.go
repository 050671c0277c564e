package mcptool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

type userKey struct{}

// userToken is the token of whom the context belongs to.
func userToken(ctx context.Context) (string, error) {
	user, ok := ctx.Value(userKey{}).(string)
	if !ok {
		return "", errors.New("nobody is logged in")
	}
	return "token-of-" + user, nil
}

func TestUsersDoNotShareSessions(t *testing.T) {
	var mu sync.Mutex
	users := map[string]map[string]bool{} // by session
	s := web(t, Options{Token: userToken, Headers: map[string]string{"X-Team": "blue"}}, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Team") != "blue" || !strings.HasPrefix(r.Header.Get("Authorization"), "Bearer token-of-") {
				t.Errorf("a request without its headers: %v", r.Header)
			}
			if id := r.Header.Get("Mcp-Session-Id"); id != "" {
				mu.Lock()
				if users[id] == nil {
					users[id] = map[string]bool{}
				}
				users[id][r.Header.Get("Authorization")] = true
				mu.Unlock()
			}
			next.ServeHTTP(w, r)
		})
	})
	for i := range 40 {
		ctx := context.WithValue(t.Context(), userKey{}, fmt.Sprintf("user-%d", i/2))
		if _, err := s.Call(ctx, "echo", nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Call(t.Context(), "echo", nil); err == nil || !strings.Contains(err.Error(), "nobody is logged in") {
		t.Errorf("a call of nobody: %v", err)
	}
	for id, tokens := range users {
		if len(tokens) != 1 {
			t.Errorf("session %s is shared: %v", id, tokens)
		}
	}
	s.mu.Lock()
	n := len(s.sessions)
	s.mu.Unlock()
	if n != 20 {
		t.Errorf("%d sessions, want one a user", n)
	}
}

func TestSessionsOfUsersAreBounded(t *testing.T) {
	s := web(t, Options{Token: userToken}, nil)
	for i := range maxSessions + 5 {
		ctx := context.WithValue(t.Context(), userKey{}, fmt.Sprintf("user-%d", i))
		if _, err := s.Call(ctx, "echo", nil); err != nil {
			t.Fatal(err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.sessions) > maxSessions {
		t.Errorf("%d sessions stay open", len(s.sessions))
	}
}

func TestStatusSaysWhetherACallRan(t *testing.T) {
	cases := []struct {
		status int
		want   error
	}{{401, ErrRefused}, {403, ErrRefused}, {400, ErrRefused}, {429, ErrRefused}, {413, ErrRefused}, {500, ErrLost}, {502, ErrLost}, {504, ErrLost}}
	for _, c := range cases {
		t.Run(http.StatusText(c.status), func(t *testing.T) {
			var status atomic.Int32
			s := web(t, Options{Token: func(context.Context) (string, error) { return "secret-token", nil }}, func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if status.Load() != 0 && isCall(r) {
						http.Error(w, "no: "+r.Header.Get("Authorization"), int(status.Load()))
						return
					}
					next.ServeHTTP(w, r)
				})
			})
			call(t, s, "echo", "")
			status.Store(int32(c.status))
			_, err := s.Call(t.Context(), "echo", nil)
			if !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if strings.Contains(err.Error(), "secret-token") {
				t.Errorf("the error tells the token: %v", err)
			}
			status.Store(0)
			call(t, s, "echo", "")
		})
	}
}

func TestServerThatIsNotThereIsUnreachable(t *testing.T) {
	ts := httptest.NewServer(http.NotFoundHandler())
	ts.Close()
	s := HTTP("gone", ts.URL)
	defer s.Close()
	if _, err := s.Call(t.Context(), "x", nil); !errors.Is(err, ErrUnreachable) {
		t.Errorf("got %v, want ErrUnreachable", err)
	}
}

func TestAnswerThatIsCutOffMayHaveHappened(t *testing.T) {
	for _, kind := range []string{"application/json", "text/event-stream", ""} {
		t.Run(kind, func(t *testing.T) {
			var cut atomic.Bool
			var calls atomic.Int32
			s := web(t, Options{}, func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if !cut.Load() || r.Method != http.MethodPost {
						next.ServeHTTP(w, r)
						return
					}
					calls.Add(1)
					io.Copy(io.Discard, r.Body)
					if kind != "" {
						w.Header().Set("Content-Type", kind)
						w.Header().Set("Content-Length", "1000")
						io.WriteString(w, `data: {"jsonrpc":"2.0","id":`)
						w.(http.Flusher).Flush()
					}
					panic(http.ErrAbortHandler)
				})
			})
			call(t, s, "echo", "")
			cut.Store(true)
			if _, err := s.Call(t.Context(), "echo", nil); !errors.Is(err, ErrLost) {
				t.Errorf("got %v, want ErrLost", err)
			}
			if n := calls.Load(); n != 1 {
				t.Errorf("the call was sent %d times", n)
			}
			cut.Store(false)
			call(t, s, "echo", "")
		})
	}
}

func TestSecretsDoNotFollowRedirects(t *testing.T) {
	thief := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("a request reached another place, with %v", r.Header)
	}))
	defer thief.Close()
	ts := httptest.NewServer(http.RedirectHandler(thief.URL, http.StatusTemporaryRedirect))
	defer ts.Close()
	s := HTTP("sly", ts.URL).Set(Options{Headers: map[string]string{"X-Key": "secret-key"}})
	defer s.Close()
	if _, err := s.Call(t.Context(), "x", nil); !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "another place") {
		t.Errorf("got %v, want it refused", err)
	}
}

func TestTokenDoesNotComeBackInResults(t *testing.T) {
	s := web(t, Options{Token: func(context.Context) (string, error) { return "secret-token", nil }}, nil)
	for _, told := range []string{"secret-token", "SECRET-TOKEN", "7365637265742d746f6b656e", "YW5uOnNlY3JldC10b2tlbg"} {
		if out := call(t, s, "echo", `{"text":"I know `+told+`"}`); strings.Contains(out.Text, told) {
			t.Errorf("the model reads %q", out.Text)
		}
	}
}

func TestBadOptionsAreTold(t *testing.T) {
	token := func(context.Context) (string, error) { return "", nil }
	for name, s := range map[string]*Server{
		"name":         Command("a b", "x"),
		"no command":   Command("a", ""),
		"prefix":       Command("a", "x").Set(Options{Prefix: "a.b"}),
		"both":         Command("a", "x").Set(Options{Prefix: "a", NoPrefix: true}),
		"ask":          Command("a", "x").Set(Options{Ask: "often"}),
		"negative":     Command("a", "x").Set(Options{Timeout: -1}),
		"token":        Command("a", "x").Set(Options{Token: token}),
		"env":          Command("a", "x").Set(Options{Env: map[string]string{"A=B": "c"}}),
		"url":          HTTP("a", "ftp://example.com"),
		"no url":       HTTP("a", "127.0.0.1:80"),
		"secret":       HTTP("a", "https://ann:pass@example.com"),
		"dir":          HTTP("a", "https://example.com").Set(Options{Dir: "/tmp"}),
		"env of a web": HTTP("a", "https://example.com").Set(Options{Env: map[string]string{"A": "b"}}),
	} {
		if _, err := s.Call(t.Context(), "x", nil); !errors.Is(err, ErrOption) {
			t.Errorf("%s: %v, want ErrOption", name, err)
		}
		if _, err := s.Tools(t.Context()); !errors.Is(err, ErrOption) {
			t.Errorf("%s: %v, want ErrOption", name, err)
		}
	}
}
