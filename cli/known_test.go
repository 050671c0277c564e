package cli

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/cli/internal/link"
	"github.com/perdure/perdure/internal/terminal"
)

// TestDevTakesAnotherPort if the usual one is taken, unless it is told which.
func TestDevTakesAnotherPort(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	var said buffer
	a := testApp(terminal.Terminal{Err: &said})
	if _, err := a.listenDev(t.Context(), taken.Addr().String(), "memory:", true); exit.Code(err) != exit.Unavailable {
		t.Errorf("a port that was asked for: %v", err)
	}
	l, err := a.listenDev(t.Context(), taken.Addr().String(), "memory:", false)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if !strings.Contains(said.String(), l.Addr().String()) {
		t.Errorf("it says %q", said.String())
	}
}

// TestTokensGoToTheirServerOnly: a server that nobody named gets no token but the
// secret of dev, and only from dev's own record.
func TestTokensGoToTheirServerOnly(t *testing.T) {
	var got []string
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Get("Authorization"))
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte(`{}`))
	}))
	defer ts.Close()
	dir := t.TempDir()
	t.Chdir(t.TempDir())
	if err := os.MkdirAll(link.DevFolder, 0o700); err != nil {
		t.Fatal(err)
	}
	file := link.DevFile
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var out, said buffer
	a := testApp(terminal.Terminal{Out: &out, Err: &said, Env: func(name string) string {
		return map[string]string{"XDG_STATE_HOME": dir, "PERDURE_TOKEN": "for another"}[name]
	}})
	d, forget, err := a.conn.RecordDev(ts.Listener.Addr(), "sqlite:"+file)
	if err != nil {
		t.Fatal(err)
	}
	if code := a.run(t.Context(), []string{"threads"}); code != 0 {
		t.Fatalf("code %d: %s", code, said.String())
	}
	forget()
	if l := a.conn.DialDev(t.Context(), func(link.DevRecord) bool { return true }); l != nil {
		t.Error("a server without a record is used")
	}
	if len(got) == 0 {
		t.Error("the server of the record was not used")
	}
	for _, header := range got {
		if header != "Bearer "+d.Secret {
			t.Errorf("the server got %q", header)
		}
	}
}
