package openai_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/openai"
)

// recorded is a stream with everything that may be cut, without what only makes
// it longer.
func recorded() string {
	stream := chunk(`{"role":"assistant","content":"","refusal":null}`) +
		chunk(`{"reasoning":"Hm","reasoning_details":[{"type":"reasoning.text","text":"Hm","index":0}]}`) +
		chunk(`{"content":"Let me \ud83d\ude00"}`) + chunk(`{"content":" see: é"}`) +
		chunk(`{"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"add","arguments":""}}]}`) +
		chunk(`{"tool_calls":[{"index":0,"function":{"arguments":"{\"x\":1}"}}]}`) +
		chunk(`{"tool_calls":[{"index":1,"id":"call_b","type":"function","function":{"name":"sub","arguments":"{}"}}]}`) +
		finish("tool_calls")
	return strings.NewReplacer(`"object":"chat.completion.chunk","created":1758000000,"model":"gpt-5-2025-08-07",`, "",
		`"service_tier":"default","system_fingerprint":"fp_1",`, "", `,"usage":null,"obfuscation":"x7Yk"`, "", `,"logprobs":null,"finish_reason":null`, "").Replace(stream)
}

// TestAStreamCutAtAnyByteIsNoReply cuts the stream in the three ways in which a
// connection ends early: in a body of a known length, in chunks, and where the
// end of the connection is the end of the body, which looks like a proper end.
func TestAStreamCutAtAnyByteIsNoReply(t *testing.T) {
	stream := recorded()
	whole, _, err := ask(t, question, stream)
	if err != nil {
		t.Fatal(err)
	}
	ways := map[string]func(w http.ResponseWriter, part string){
		"length": func(w http.ResponseWriter, part string) {
			w.Header().Set("Content-Length", fmt.Sprint(len(stream)))
			_, _ = io.WriteString(w, part)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
		"chunks": func(w http.ResponseWriter, part string) {
			_, _ = io.WriteString(w, part)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
		"close": func(w http.ResponseWriter, part string) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"+part)
		},
	}
	for name, cut := range ways {
		t.Run(name, func(t *testing.T) {
			n := 0
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", "text/event-stream")
				cut(w, stream[:n])
			}))
			defer s.Close()
			model := openai.Model("m", openai.Key(testKey), openai.BaseURL(s.URL), openai.HTTPClient(s.Client()), openai.Compatible(false))
			errs, replies := 0, 0
			for n = range len(stream) {
				got, err := llm.Collect(model.Generate(t.Context(), question))
				switch {
				case err != nil && !llm.Temporary(err):
					t.Fatalf("cut at byte %d of %d: %v is not temporary", n, len(stream), err)
				case err != nil:
					errs++
				case !cmp.Equal(got, whole):
					t.Fatalf("cut at byte %d of %d, it is another reply:\n%s", n, len(stream), cmp.Diff(whole, got))
				default:
					replies++
				}
			}
			// Whole is what lacks only bytes after the usage.
			if replies == 0 || replies > len("data: [DONE]\n\n") {
				t.Errorf("%d cuts were errors and %d whole replies", errs, replies)
			}
		})
	}
}

// TestACompatibleServerMayEndWithoutDone holds also where the usage is missing.
func TestACompatibleServerMayEndWithoutDone(t *testing.T) {
	stream := chunk(`{"content":"Yes"}`) + `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	got, _, err := ask(t, question, stream, openai.Compatible(true))
	if err != nil || got.Message.Text() != "Yes" || got.Stop != llm.StopEnd {
		t.Errorf("reply %+v, error %v", got, err)
	}
	if _, _, err := ask(t, question, stream); !errors.Is(err, llm.ErrInterrupted) {
		t.Errorf("of OpenAI that is error %v, want interrupted", err)
	}
}

func FuzzStream(f *testing.F) {
	f.Add([]byte(hello()), true)
	f.Add([]byte(recorded()), false)
	f.Add([]byte("data: {\"error\":{\"code\":[]}}\n\n"), true)
	f.Add([]byte("data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":-1,\"function\":{\"name\":\"f\",\"arguments\":\"\\ud83d\"}}]},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"), true)
	f.Add([]byte("data: {\"choices\":[{\"delta\":{\"content\":\"\\ud83d\",\"reasoning_details\":[1,null,\"x\"]}}]}\n\n"), true)
	f.Fuzz(func(t *testing.T, stream []byte, compatible bool) {
		transport := roundTrip(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(strings.NewReader(string(stream)))}, nil
		})
		model := openai.Model("m", openai.Key(testKey), openai.HTTPClient(&http.Client{Transport: transport}), openai.BaseURL("http://127.0.0.1/v1"), openai.Compatible(compatible))
		reply, err := llm.Collect(model.Generate(t.Context(), question))
		if err != nil {
			if _, ok := errors.AsType[*llm.Error](err); !ok {
				t.Fatalf("%v is no *llm.Error", err)
			}
			return
		}
		if !strings.Contains(string(stream), "finish_reason") {
			t.Fatalf("a reply without an end: %+v", reply)
		}
		ids := map[string]bool{}
		for _, c := range reply.Message.Calls() {
			if c.ID == "" || c.Name == "" || ids[c.ID] {
				t.Fatalf("a call without a name or a unique id: %+v", reply.Message.Parts)
			}
			ids[c.ID] = true
		}
		// What came out can be sent back.
		again := &llm.Request{Messages: []llm.Message{llm.User("Hi"), reply.Message}}
		if _, err := llm.Collect(model.Generate(t.Context(), again)); errors.Is(err, llm.ErrInvalid) {
			t.Fatalf("the reply %+v cannot be sent back: %v", reply, err)
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestLeavingAReplyCancelsTheRequest leaves in both ways: by a break, and by
// the end of the context. The server sees the connection end, and nothing
// stays behind here.
func TestLeavingAReplyCancelsTheRequest(t *testing.T) {
	before := runtime.NumGoroutine()
	ended := make(chan struct{}, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, chunk(`{"content":"Hel"}`))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		ended <- struct{}{}
	}))
	transport := &http.Transport{}
	model := openai.Model("m", openai.Key(testKey), openai.BaseURL(s.URL), openai.HTTPClient(&http.Client{Transport: transport}))
	gone := func() {
		t.Helper()
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Fatal("the server still waits")
		}
	}
	for d, err := range model.Generate(t.Context(), question) {
		if err != nil {
			t.Fatal(err)
		}
		if d.Text != "" {
			break
		}
	}
	gone()
	ctx, cancel := context.WithCancel(t.Context())
	var last error
	for d, err := range model.Generate(ctx, question) {
		if d.Text != "" {
			cancel()
		}
		last = err
	}
	cancel()
	if !errors.Is(last, context.Canceled) {
		t.Errorf("error is %v, want that of the context", last)
	}
	gone()
	s.Close()
	transport.CloseIdleConnections()
	for range 1000 {
		if runtime.NumGoroutine() <= before {
			return
		}
		runtime.Gosched()
		runtime.GC()
	}
	buf := make([]byte, 1<<16)
	t.Errorf("%d goroutines before, %d after:\n%s", before, runtime.NumGoroutine(), buf[:runtime.Stack(buf, true)])
}
