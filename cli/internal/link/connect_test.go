package link

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/store"
)

func TestAddressesGetAScheme(t *testing.T) {
	for given, want := range map[string]string{
		"localhost:7373": "http://localhost:7373", "127.0.0.1:1": "http://127.0.0.1:1", "[::1]:1": "http://[::1]:1",
		"agents.example.com:443": "https://agents.example.com:443", "nonsense": "nonsense", "http://x:1": "http://x:1", "https://x/y:1": "https://x/y:1",
	} {
		if got := withScheme(given); got != want {
			t.Errorf("%s is %s, want %s", given, got, want)
		}
	}
}

// TestOpenURLCreatesNothing opens stores for commands that only look: drivers of servers
// are told not to create one.
func TestOpenURLCreatesNothing(t *testing.T) {
	var got string
	for _, scheme := range []string{"postgres", "redis", "nats", "tls"} {
		store.Register(scheme, func(_ context.Context, url string) (store.Store, error) {
			got = url
			return nil, errors.New("only its URL matters")
		})
	}
	for url, want := range map[string]string{
		"postgres://db.example/agents":         "postgres://db.example/agents?existing=true",
		"redis://r.example?prefix=two":         "redis://r.example?existing=true&prefix=two",
		"nats://n.example":                     "nats://n.example?existing=true",
		"tls://n.example":                      "tls://n.example?existing=true",
		"nats://a:b@n:1,a:b@m:2?stream=agents": "nats://a:b@n:1,a:b@m:2?existing=true&stream=agents",
	} {
		for _, create := range []bool{true, false} {
			if _, err := new(Connector).OpenURL(t.Context(), url, create); err == nil {
				t.Fatal("no error")
			}
			if create && got != url || !create && got != want {
				t.Errorf("with create %t, %s is opened as %s", create, url, got)
			}
		}
	}
}

// TestNothingAnswers: a request that found nobody to send it to has no effect later, and
// its error does not say that it may.
func TestNothingAnswers(t *testing.T) {
	s := new(Connector).newServerTransport()
	s.patience = [2]time.Duration{1, 1}
	s.probe = func(context.Context) bool { return false }
	s.RoundTripper = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1:1/v1/runs", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.RoundTrip(r)
	if op := (*net.OpError)(nil); !errors.As(err, &op) || op.Op != "dial" || !strings.Contains(err.Error(), "nothing there answers") || strings.Contains(err.Error(), "may carry out") {
		t.Errorf("the error is %v", err)
	}
}
