package aimock_test

import (
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/aimock"
)

func TestServerSpeaksThreeProtocols(t *testing.T) {
	s := aimock.Start(t, aimock.Fixture{
		Match:     aimock.Match{UserMessage: "hello"},
		Response:  aimock.Response{Content: "Good day"},
		ChunkSize: 4,
	})
	requests := []struct{ path, body, want string }{
		{"/v1/chat/completions", `{"model":"m","stream":true,"messages":[{"role":"user","content":"hello"}]}`, `"content":"Good"`},
		{"/v1/messages", `{"model":"m","stream":true,"max_tokens":9,"messages":[{"role":"user","content":"hello"}]}`, `"text":"Good"`},
		{"/v1beta/models/m:streamGenerateContent?alt=sse", `{"contents":[{"role":"user","parts":[{"text":"hello"}]}]}`, `"text":"Good"`},
	}
	for _, r := range requests {
		res, err := http.Post(s.URL+r.path, "application/json", strings.NewReader(r.body))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != 200 || !strings.Contains(string(got), r.want) {
			t.Errorf("%s: status %d, error %v, no %s in\n%s", r.path, res.StatusCode, err, r.want, got)
		}
	}
	got := s.Requests()
	if len(got) != len(requests) {
		t.Fatalf("the server lists %d requests, want %d", len(got), len(requests))
	}
	if !strings.HasPrefix(got[1].Path, "/v1/messages") || len(got[1].Body) == 0 {
		t.Errorf("the second request is listed as %+v", got[1])
	}
}

func TestServerRefusesWhatNoFixtureMatches(t *testing.T) {
	s := aimock.Start(t, aimock.Fixture{Match: aimock.Match{UserMessage: "hello"}, Response: aimock.Response{Content: "Good day"}})
	res, err := http.Post(s.URL+"/v1/chat/completions", "application/json", strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"bye"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(res.Body)
	if res.StatusCode != 503 || !strings.Contains(string(body), "no_fixture_match") {
		t.Errorf("status %d: %s", res.StatusCode, body)
	}
}

// The host is whichever one npm is set up with.
func TestLockFileNamesNoHost(t *testing.T) {
	lock, err := os.ReadFile("package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	if s := string(lock); strings.Contains(s, "resolved") || strings.Contains(s, "://") || !strings.Contains(s, "integrity") {
		t.Errorf("the lock file names a host or has no checksums:\n%s", s)
	}
}
