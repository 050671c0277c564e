package cli

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store/memstore"
)

// TestSiteHasTheLimitsOfTheServer asks the site over HTTP/2, and with a header
// that is too large.
func TestSiteHasTheLimitsOfTheServer(t *testing.T) {
	st := memstore.New()
	defer st.Close()
	rt, err := perdure.New(t.Context(), st, perdure.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := listen(t.Context(), "addr", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &site{rt: rt, api: server.New(rt, server.Options{}), log: slog.New(slog.DiscardHandler)}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.run(ctx, l) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Get("http://" + l.Addr().String() + "/")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.ProtoMajor != 2 || resp.StatusCode != http.StatusOK {
		t.Errorf("the answer is %s %s", resp.Proto, resp.Status)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+l.Addr().String()+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "evil.example"
	if resp, err = http.DefaultClient.Do(r); err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("the page for a foreign host is answered with %s", resp.Status)
	}
	r.Host = ""
	r.Header.Set("X-Large", strings.Repeat("x", 64<<10))
	if resp, err = http.DefaultClient.Do(r); err != nil {
		return // cut off while it is sent
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a large header is answered with %s", resp.Status)
	}
}
