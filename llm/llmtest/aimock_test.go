package llmtest_test

import (
	"bufio"
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/npm"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/openai"
)

const aimockStartTime = time.Minute

// aimockServer is a running server of the npm package @copilotkit/aimock, which
// speaks the protocols of OpenAI, Anthropic and Gemini. It is not written by who
// writes the clients, so that a protocol that was misread on one side does not
// agree with itself on the other.
//
// It answers each request with the first fixture that matches, in the protocol of
// its path: /v1/chat/completions, /v1/messages,
// /v1beta/models/{model}:streamGenerateContent. A request that no fixture matches
// gets status 503 and the code no_fixture_match.
//
// It needs Node.js 20.15 and npm, and is installed once per user into the cache
// folder, from the lock file in testdata, without running its scripts.
type aimockServer struct {
	URL string // "http://127.0.0.1:1234"

	t   testing.TB
	log *aimockOutput
}

var listening = regexp.MustCompile(`listening on (http://127\.0\.0\.1:\d+)`)

// startAimock starts a server that ends with the test. It skips the test if the
// server cannot be installed, and fails it in CI.
func startAimock(t testing.TB, fixtures ...fixture) *aimockServer {
	t.Helper()
	script, err := installAimock()
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
	s := &aimockServer{t: t, log: new(aimockOutput)}
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
	case <-time.After(aimockStartTime):
		t.Fatalf("aimock did not start within %v:\n%s", aimockStartTime, s.log)
	}
	return s
}

// aimockRequest is a request that the server got.
type aimockRequest struct {
	Path    string            `json:"path"`
	Headers map[string]string `json:"headers"` // names in lower case, keys hidden
	Body    json.RawMessage   `json:"body"`    // in OpenAI's words, whatever the protocol was
}

// requests returns the requests that the server got, oldest first.
func (s *aimockServer) requests() []aimockRequest {
	s.t.Helper()
	res, err := http.Get(s.URL + "/__aimock/journal")
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	var all []aimockRequest
	if err := json.NewDecoder(res.Body).Decode(&all); err != nil {
		s.t.Fatalf("aimock's journal: %v", err)
	}
	return all
}

// aimockOutput keeps what the server prints.
type aimockOutput struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *aimockOutput) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *aimockOutput) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

//go:embed testdata/aimock/package.json
var aimockManifest []byte

//go:embed testdata/aimock/package-lock.json
var aimockLock []byte

// installAimock returns the file that node runs.
var installAimock = sync.OnceValues(func() (string, error) {
	return npm.Install("aimock", aimockManifest, aimockLock, "@copilotkit", "aimock", "dist", "cli.js")
})

// fixture is an answer and what it answers.
type fixture struct {
	Match    fixtureMatch    `json:"match"`
	Response fixtureResponse `json:"response"`

	ChunkSize           int `json:"chunkSize,omitempty"`           // characters in a piece of the stream, 20 if 0
	TruncateAfterChunks int `json:"truncateAfterChunks,omitempty"` // cuts the connection after so many events
	Latency             int `json:"latency,omitempty"`             // milliseconds before each event
}

// fixtureMatch says which requests a fixture answers: those that fit everything that
// is set.
type fixtureMatch struct {
	UserMessage    string `json:"userMessage,omitempty"`    // part of the last message of the user
	Model          string `json:"model,omitempty"`          // exactly
	ResponseFormat string `json:"responseFormat,omitempty"` // "json_schema"
	HasToolResult  *bool  `json:"hasToolResult,omitempty"`  // since the last message of the user
}

// fixtureResponse is what the server answers: text, tool calls, both, or an error.
type fixtureResponse struct {
	Content   string        `json:"content,omitempty"`
	ToolCalls []fixtureCall `json:"toolCalls,omitempty"`
	Error     *fixtureError `json:"error,omitempty"`

	Reasoning          string   `json:"reasoning,omitempty"`
	ReasoningSignature string   `json:"reasoningSignature,omitempty"` // of Anthropic's thinking
	RedactedThinking   []string `json:"redactedThinking,omitempty"`   // of Anthropic's thinking

	ID           string         `json:"id,omitempty"`
	Model        string         `json:"model,omitempty"`
	FinishReason string         `json:"finishReason,omitempty"` // as OpenAI calls it; the server translates
	Usage        map[string]any `json:"usage,omitempty"`        // as the provider of the request calls it

	Status     int `json:"status,omitempty"`     // of HTTP, with Error
	RetryAfter int `json:"retryAfter,omitempty"` // seconds, with Status 429
}

// fixtureCall is a call of a tool.
type fixtureCall struct {
	ID        string `json:"id,omitempty"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"` // JSON
}

// fixtureError is an error as OpenAI words it; the server translates.
type fixtureError struct {
	Message string `json:"message"`
	Type    string `json:"type,omitempty"`
	Code    string `json:"code,omitempty"`
}

func TestServerSpeaksThreeProtocols(t *testing.T) {
	s := startAimock(t, fixture{
		Match:     fixtureMatch{UserMessage: "hello"},
		Response:  fixtureResponse{Content: "Good day"},
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
	got := s.requests()
	if len(got) != len(requests) {
		t.Fatalf("the server lists %d requests, want %d", len(got), len(requests))
	}
	if !strings.HasPrefix(got[1].Path, "/v1/messages") || len(got[1].Body) == 0 {
		t.Errorf("the second request is listed as %+v", got[1])
	}
}

func TestServerRefusesWhatNoFixtureMatches(t *testing.T) {
	s := startAimock(t, fixture{Match: fixtureMatch{UserMessage: "hello"}, Response: fixtureResponse{Content: "Good day"}})
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
	lock, err := os.ReadFile("testdata/aimock/package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	if s := string(lock); strings.Contains(s, "resolved") || strings.Contains(s, "://") || !strings.Contains(s, "integrity") {
		t.Errorf("the lock file names a host or has no checksums:\n%s", s)
	}
}

func TestStructuredOutputOfAForeignServer(t *testing.T) {
	s := startAimock(t, fixture{
		Match:    fixtureMatch{UserMessage: "river", ResponseFormat: "json_schema"},
		Response: fixtureResponse{Content: `{"name":"Rhine"}`},
	})
	got, err := llm.Collect(openai.Model("m", openai.BaseURL(s.URL+"/v1")).Generate(t.Context(), &llm.Request{
		Messages: []llm.Message{llm.User("a river")},
		Output:   &llm.Output{Name: "river", Schema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}}}`)},
	}))
	if err != nil || got.Message.Text() != `{"name":"Rhine"}` {
		t.Errorf("reply %+v, error %v", got, err)
	}
}

func TestFailuresOfAForeignServer(t *testing.T) {
	failure := func(word string, status int, code string) fixture {
		return fixture{Match: fixtureMatch{UserMessage: word}, Response: fixtureResponse{
			Status: status, RetryAfter: 9, Error: &fixtureError{Message: "it is " + word, Type: "invalid_request_error", Code: code}}}
	}
	s := startAimock(t,
		failure("limited", 429, "rate_limit_exceeded"),
		failure("broke", 429, "insufficient_quota"),
		failure("long", 400, "context_length_exceeded"),
		failure("wrong", 400, ""),
		failure("down", 503, ""),
		fixture{Match: fixtureMatch{UserMessage: "cut"}, Response: fixtureResponse{Content: "a text that is cut off"}, ChunkSize: 2, TruncateAfterChunks: 3},
		fixture{Match: fixtureMatch{UserMessage: "filtered"}, Response: fixtureResponse{Content: "So", FinishReason: "content_filter"}},
	)
	model := openai.Model("m", openai.BaseURL(s.URL+"/v1"))
	say := func(text string) (*llm.Reply, error) {
		return llm.Collect(model.Generate(t.Context(), &llm.Request{Messages: []llm.Message{llm.User(text)}}))
	}
	for word, want := range map[string]error{
		"limited": llm.ErrRateLimited, "broke": llm.ErrAuth, "long": llm.ErrTooLong, "wrong": llm.ErrInvalid,
		"down": llm.ErrOverloaded, "cut": llm.ErrInterrupted, "unknown": llm.ErrOverloaded,
	} {
		_, err := say(word)
		if !errors.Is(err, want) {
			t.Errorf("%s: error is %v, want %v", word, err, want)
		}
		if after := llm.RetryAfter(err); word == "limited" && after != 9*time.Second {
			t.Errorf("%s: retry after %v, want 9s", word, after)
		}
	}
	if got, err := say("filtered"); err != nil || got.Stop != llm.StopRefused {
		t.Errorf("a filtered reply is %+v, error %v", got, err)
	}
}
