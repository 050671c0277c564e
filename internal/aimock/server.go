package aimock

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"
)

const startTime = time.Minute

// Server is a running server.
type Server struct {
	URL string // "http://127.0.0.1:1234"

	t   testing.TB
	log *output
}

var listening = regexp.MustCompile(`listening on (http://127\.0\.0\.1:\d+)`)

// Start starts a server that ends with the test. It skips the test if the
// server cannot be installed, and fails it in CI.
func Start(t testing.TB, fixtures ...Fixture) *Server {
	t.Helper()
	script, err := install()
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("the tests against aimock cannot run: %v", err)
		}
		t.Skipf("skipped, because the tests against aimock cannot run: %v", err)
	}
	data, err := json.Marshal(map[string]any{"fixtures": fixtures})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "fixtures.json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	s := &Server{t: t, log: new(output)}
	// Its own environment would let a key of the user or a switch of Node.js
	// change what the server does.
	node := exec.Command("node", script, "-h", "127.0.0.1", "-p", "0", "--strict", "--validate-on-load", "-f", file)
	node.Env = []string{"PATH=" + os.Getenv("PATH"), "SYSTEMROOT=" + os.Getenv("SYSTEMROOT")}
	node.Stderr = s.log
	stdout, err := node.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make(chan string, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(io.TeeReader(stdout, s.log))
		for lines.Scan() {
			if m := listening.FindStringSubmatch(lines.Text()); m != nil {
				select {
				case ready <- m[1]:
				default:
				}
			}
		}
	}()
	t.Cleanup(func() {
		_ = node.Process.Kill()
		<-ended
		_ = node.Wait()
		if t.Failed() {
			t.Logf("aimock said:\n%s", s.log)
		}
	})
	select {
	case s.URL = <-ready:
	case <-ended:
		t.Fatalf("aimock ended at once:\n%s", s.log)
	case <-time.After(startTime):
		t.Fatalf("aimock did not start within %v:\n%s", startTime, s.log)
	}
	return s
}

// Request is a request that the server got.
type Request struct {
	Path    string            `json:"path"`
	Headers map[string]string `json:"headers"` // names in lower case, keys hidden
	Body    json.RawMessage   `json:"body"`    // in OpenAI's words, whatever the protocol was
}

// Requests returns the requests that the server got, oldest first.
func (s *Server) Requests() []Request {
	s.t.Helper()
	res, err := http.Get(s.URL + "/__aimock/journal")
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	var all []Request
	if err := json.NewDecoder(res.Body).Decode(&all); err != nil {
		s.t.Fatalf("aimock's journal: %v", err)
	}
	return all
}

// output keeps what the server prints.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write adds to what was printed.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

// String returns all that was printed.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}
