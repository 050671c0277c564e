//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/perdure/perdure"
)

// get asks for something with a token, and returns the status and the body.
func get(t *testing.T, url, token string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

// serve starts the server on a free port, and returns its address.
func serve(t *testing.T, dir string, args ...string) (*process, string) {
	t.Helper()
	p := launch(t, dir, nil, append([]string{"serve", "--addr", "127.0.0.1:0"}, args...)...)
	return p, p.err.find(t, serving) // the standard output is not for that
}

var serving = regexp.MustCompile(`msg=serving address=(\S+)`)

// TestServeWantsTokens from the store and from a file.
func TestServeWantsTokens(t *testing.T) {
	dir := t.TempDir()
	url := "sqlite:" + filepath.Join(dir, "s.db")
	var made struct{ Secret string }
	out := launch(t, dir, nil, "token", "create", "me", "--scopes", "admin", "--store", url, "--json").ends(0).said.String()
	if err := json.Unmarshal([]byte(out), &made); err != nil || made.Secret == "" {
		t.Fatalf("no token: %v in %s", err, out)
	}
	file := filepath.Join(dir, "tokens.json")
	const other = "pdr_from-a-file-0123456789012345678901234567890"
	if err := os.WriteFile(file, []byte(`[{"secret": "`+other+`", "subject": "robot", "scopes": ["read"]}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	p, address := serve(t, dir, "--store", url, "--tokens", file)
	for token, want := range map[string]int{"": 401, "pdr_wrong": 401, made.Secret: 200, other: 200} {
		if got, body := get(t, address+"/v1/threads", token); got != want {
			t.Errorf("with the token %q it answers %d, want %d: %s", token, got, want, body)
		}
	}
	if got, _ := get(t, address+"/healthz", ""); got != 200 {
		t.Errorf("/healthz answers %d", got)
	}
	p.signal(syscall.SIGTERM).ends(0)
	for _, secret := range []string{made.Secret, other} {
		if strings.Contains(p.err.String(), secret) {
			t.Errorf("a token is in the log: %s", p.err.String())
		}
	}

	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	launch(t, dir, nil, "serve", "--addr", "127.0.0.1:0", "--store", url, "--tokens", file).ends(2)
	launch(t, dir, nil, "doctor", "--store", url, "--tokens", file).ends(1)
}

// TestServeTellsStreamsThatItStops: who follows events is not cut off in the
// middle of one, and the server does not wait for them.
func TestServeTellsStreamsThatItStops(t *testing.T) {
	dir := t.TempDir()
	p, address := serve(t, dir, "--store", "sqlite:"+filepath.Join(dir, "s.db"), "--auth", "none")
	if !strings.Contains(p.err.String(), "NO TOKENS") {
		t.Errorf("it does not warn: %s", p.err.String())
	}
	thread := begin(t, address)
	status(t, address, thread, perdure.Suspended)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+"/v1/threads/"+thread+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	resp, err := http.DefaultClient.Do(r)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp, err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(line, `"suspended"`) {
			break
		}
	}
	p.signal(syscall.SIGTERM)
	if _, err := io.ReadAll(lines); err != nil {
		t.Errorf("the stream ends with %v", err)
	}
	p.ends(0)
	if strings.Contains(p.err.String(), "cut off") {
		t.Errorf("it waited for the stream: %s", p.err.String())
	}
}

// TestServeRefuses what would be open to everyone, and what makes no sense.
func TestServeRefuses(t *testing.T) {
	dir := t.TempDir()
	url := "sqlite:" + filepath.Join(dir, "s.db")
	for _, args := range [][]string{
		{"--store", url, "--auth", "none", "--addr", "0.0.0.0:0"},
		{"--store", url, "--auth", "perhaps"},
		{"--store", url, "--tokens", filepath.Join(dir, "none.json")},
		{"--server", "http://127.0.0.1:1"},
		{}, // there is no store here
	} {
		launch(t, dir, nil, append([]string{"serve"}, args...)...).ends(2)
	}
	launch(t, dir, nil, "serve", "--addr", "127.0.0.1:0", "--store", "sqlite:"+filepath.Join(dir, "no", "s.db")).ends(7)
}
