// Package aimock runs a server that speaks the protocols of OpenAI, Anthropic
// and Gemini, for tests of the packages that talk to them over real HTTP.
//
// The server is the npm package @copilotkit/aimock. It is not written by who
// writes the clients, so that a protocol that was misread on one side does not
// agree with itself on the other.
//
//	func TestHello(t *testing.T) {
//		s := aimock.Start(t, aimock.Fixture{
//			Match:    aimock.Match{UserMessage: "hello"},
//			Response: aimock.Response{Content: "Hello there"},
//		})
//		model := openai.Model("m", openai.BaseURL(s.URL+"/v1"))
//		…
//	}
//
// The server answers each request with the first fixture that matches, in the
// protocol of its path: /v1/chat/completions, /v1/messages,
// /v1beta/models/{model}:streamGenerateContent. A request that no fixture
// matches gets status 503 and the code no_fixture_match.
//
// It needs Node.js 20.15 and npm. Without them a test says what is missing and is
// skipped; where the environment has CI=true it fails. The package is installed
// once per user into the cache folder, from the lock file that is part of this
// package, without running its scripts.
package aimock

import (
	"bufio"
	"bytes"
	_ "embed"
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

	"github.com/perdure/perdure/internal/npm"
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

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

//go:embed package.json
var manifest []byte

//go:embed package-lock.json
var lock []byte

// install returns the file that node runs.
var install = sync.OnceValues(func() (string, error) {
	return npm.Install("aimock", manifest, lock, "@copilotkit", "aimock", "dist", "cli.js")
})
