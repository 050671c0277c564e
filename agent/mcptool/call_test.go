package mcptool

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
)

// both runs a test over stdio and over HTTP.
func both(t *testing.T, o Options, fn func(t *testing.T, s *Server)) {
	t.Run("stdio", func(t *testing.T) { fn(t, program(t, "server", o)) })
	t.Run("http", func(t *testing.T) { fn(t, web(t, o, nil)) })
}

func TestResultsBecomeOutputs(t *testing.T) {
	both(t, Options{MaxMessage: 1 << 20}, func(t *testing.T, s *Server) {
		cases := []struct {
			tool, args string
			want       agent.Output
		}{
			{"echo", `{"text":"hi"}`, agent.Output{Text: "echo hi"}},
			{"echo", ``, agent.Output{Text: "echo "}},
			{"fail", `{}`, agent.Output{Text: "there is no such order", Error: true}},
			{"structured", `{}`, agent.Output{Text: `{"n": 7}`}},
			{"mixed", `{}`, agent.Output{
				Text: "look\nmanual: file:///manual.pdf (application/pdf) how it works\nfile:///a.txt:\ninside\n" + `{"n":7}`,
				Media: []llm.Media{
					{MIME: "image/png", Data: []byte("PNG")},
					{MIME: "audio/wav", Data: []byte("WAV")},
					{MIME: "application/octet-stream", Name: "b.bin", Data: []byte{1, 2}},
				}}},
			{"big", `{"n":2000000}`, agent.Output{Error: true, Text: "The tool has run, but its result is larger than 1048576 bytes and was left out. Ask for less."}},
			{"echo", `{"text":"again"}`, agent.Output{Text: "echo again"}},
		}
		for _, c := range cases {
			if diff := cmp.Diff(c.want, call(t, s, c.tool, c.args)); diff != "" {
				t.Errorf("%s(%s): (-want +got)\n%s", c.tool, c.args, diff)
			}
		}
		pid := call(t, s, "pid", "")
		if again := call(t, s, "pid", ""); again.Text != pid.Text {
			t.Errorf("a result over the limit costs the session: pid %s became %s", pid.Text, again.Text)
		}
	})
}

func TestStructuredContentIsNotRepeated(t *testing.T) {
	texts := func(s ...string) (c []mcp.Content) {
		for _, text := range s {
			c = append(c, &mcp.TextContent{Text: text})
		}
		return c
	}
	for _, c := range []struct {
		texts      []string
		structured string
		want       string
	}{
		{[]string{"hello"}, `{"result":"hello"}`, "hello"},
		{[]string{`"hello"`}, `{"result":"hello"}`, `"hello"`},
		{[]string{"7"}, `{"result":7}`, "7"},
		{[]string{"{\n \"n\": 7\n}"}, `{"result":{"n":7}}`, "{\n \"n\": 7\n}"},
		{[]string{"a", "7", `{"n":1}`}, `{"result":["a",7,{"n":1}]}`, "a\n7\n{\"n\":1}"},
		{[]string{`["a","b"]`}, `{"result":["a","b"]}`, `["a","b"]`},
		{[]string{`["a"]`}, `["a"]`, `["a"]`},
		// A key that means something stays, and the text is inside.
		{[]string{"7"}, `{"celsius":7}`, `{"celsius":7}`},
		{[]string{"a", "b"}, `{"names":["a","b"]}`, `{"names":["a","b"]}`},
		// Whatever differs is kept.
		{[]string{"hello"}, `{"result":"hello!"}`, "hello\n{\"result\":\"hello!\"}"},
		{[]string{"hello"}, `{"result":"hello","more":1}`, "hello\n{\"more\":1,\"result\":\"hello\"}"},
		{[]string{"a", "b"}, `{"result":["a"]}`, "a\nb\n{\"result\":[\"a\"]}"},
		{[]string{"here you are"}, `{"n":7}`, "here you are\n{\"n\":7}"},
		{nil, `{"result":[]}`, `{"result":[]}`},
		{nil, `{}`, `{}`},
	} {
		res := &mcp.CallToolResult{Content: texts(c.texts...)}
		json.Unmarshal([]byte(c.structured), &res.StructuredContent)
		if got := outputOf(res, "").Text; got != c.want {
			t.Errorf("%q and %s: the model reads %q, want %q", c.texts, c.structured, got, c.want)
		}
	}
}

func TestServersCannotAskBack(t *testing.T) {
	for mode, want := range map[string]string{
		"sampling/createMessage": "not support",
		"elicitation/create":     "not support",
		"roots/list":             `"roots":[]`,
	} {
		t.Run(mode, func(t *testing.T) {
			s := program(t, mode, Options{})
			for range 2 {
				if out := call(t, s, "x", ""); !strings.Contains(out.Text, want) {
					t.Errorf("the server got %s, want %q", out.Text, want)
				}
			}
		})
	}
	if out := call(t, program(t, "input", Options{}), "x", ""); !out.Error || !strings.Contains(out.Text, "asks for more input") {
		t.Errorf("a result that asks for input: %+v", out)
	}
}

func TestRefusalsAreToldApart(t *testing.T) {
	both(t, Options{}, func(t *testing.T, s *Server) {
		if _, err := s.Call(t.Context(), "nothing", nil); !errors.Is(err, ErrRefused) {
			t.Errorf("a tool that is not there: %v, want ErrRefused", err)
		}
		for _, args := range []string{"[1]", "{", `"text"`, "nul"} {
			if _, err := s.Call(t.Context(), "echo", json.RawMessage(args)); err == nil {
				t.Errorf("arguments %s are taken", args)
			}
		}
	})
	s := program(t, "anything", Options{})
	if _, err := s.Call(t.Context(), "x", nil); !errors.Is(err, ErrFailed) || !strings.Contains(err.Error(), "out of order") {
		t.Errorf("an error of the protocol: %v, want ErrFailed with its text", err)
	}
}

func TestCallsShareOneSession(t *testing.T) {
	s := program(t, "server", Options{})
	var wg sync.WaitGroup
	pids := make([]string, 20)
	for i := range pids {
		wg.Go(func() {
			out, err := s.Call(t.Context(), "pid", nil)
			if err != nil {
				t.Error(err)
			}
			pids[i] = out.Text
		})
	}
	wg.Wait()
	for _, p := range pids {
		if p != pids[0] {
			t.Fatalf("calls ran in several processes: %q", pids)
		}
	}
}

func TestCancelledCallIsCancelledAtTheServer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "notes")
	t.Setenv(fileVar, file)
	both(t, Options{}, func(t *testing.T, s *Server) {
		os.Remove(file)
		if s.cmd != "" {
			s.opts.Env[fileVar] = file
		}
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() {
			_, err := s.Call(ctx, "slow", nil)
			failed <- err
		}()
		notes(t, file, "slow runs")
		cancel()
		err := <-failed
		if !errors.Is(err, context.Canceled) || !errors.Is(err, ErrLost) {
			t.Errorf("the call: %v, want it cancelled and its outcome unknown", err)
		}
		notes(t, file, "slow was cancelled")
		if out := call(t, s, "echo", `{"text":"on"}`); out.Text != "echo on" {
			t.Errorf("after it: %+v", out)
		}
	})
}

func TestTimeoutEndsACall(t *testing.T) {
	both(t, Options{Timeout: 500 * time.Millisecond}, func(t *testing.T, s *Server) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // on a busy machine the program may take long to start
		defer cancel()
		if _, err := s.Call(ctx, "echo", json.RawMessage(`{"text":"up"}`)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Call(t.Context(), "slow", nil); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrLost) {
			t.Errorf("got %v, want its time over and its outcome unknown", err)
		}
	})
}

func TestEnvironmentIsNotInherited(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "sk-of-the-parent")
	s := program(t, "server", Options{Env: map[string]string{"GIVEN": "yes"}, Dir: t.TempDir()})
	out := call(t, s, "env", "")
	if strings.Contains(out.Text, "sk-of-the-parent") || !strings.Contains(out.Text, "GIVEN=yes") || !strings.Contains(out.Text, "PATH=") {
		t.Errorf("the program's environment is\n%s", out.Text)
	}
}

func TestNothingIsLeftBehind(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Run("uses", func(t *testing.T) {
		both(t, Options{}, func(t *testing.T, s *Server) {
			call(t, s, "echo", "{}")
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			s.Call(ctx, "slow", nil)
			if _, err := s.Tools(t.Context()); err != nil {
				t.Error(err)
			}
			s.Close()
			s.Close()
			if _, err := s.Call(t.Context(), "echo", nil); !errors.Is(err, ErrClosed) {
				t.Errorf("a call after Close: %v, want ErrClosed", err)
			}
		})
	})
	http.DefaultClient.CloseIdleConnections()
	settled(t, before)
}

func TestCloseFailsCallsThatRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "notes")
	t.Setenv(fileVar, file)
	both(t, Options{}, func(t *testing.T, s *Server) {
		os.Remove(file)
		if s.cmd != "" {
			s.opts.Env[fileVar] = file
		}
		failed := make(chan error, 1)
		go func() {
			_, err := s.Call(t.Context(), "slow", nil)
			failed <- err
		}()
		notes(t, file, "slow runs")
		s.Close()
		if err := <-failed; !errors.Is(err, ErrLost) {
			t.Errorf("got %v, want ErrLost", err)
		}
	})
}

func TestOddResults(t *testing.T) {
	for mode, want := range map[string]agent.Output{
		"utf8":   {Text: "a\uFFFD\uFFFDb"},
		"idlast": {Error: true, Text: "The tool has run, but its result is larger than 65536 bytes and was left out. Ask for less."},
		"number": {Text: "(The structured content is left out: it holds numbers that are too large to be kept exactly.)"},
	} {
		t.Run(mode, func(t *testing.T) {
			s := program(t, mode, Options{MaxMessage: 64 << 10})
			for range 2 {
				got := call(t, s, "x", "")
				got.Text = strings.ReplaceAll(got.Text, "a\uFFFDb", "a\uFFFD\uFFFDb") // a run of invalid bytes may become one mark
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("(-want +got)\n%s", diff)
				}
			}
		})
	}
	for _, mode := range []string{"kind", "forever"} {
		t.Run(mode, func(t *testing.T) {
			s := program(t, mode, Options{MaxMessage: 64 << 10})
			if _, err := s.Call(t.Context(), "x", nil); err == nil || len(err.Error()) > 10<<10 {
				t.Errorf("got %v, want a short error", err)
			}
		})
	}
}
