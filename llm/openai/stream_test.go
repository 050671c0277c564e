package openai_test

import (
	"errors"
	"io"
	"iter"
	"net/http"
	"strings"
	"testing"

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

// TestPiecesThatArriveTogetherAreOneDelta: and none waits for what comes later.
func TestPiecesThatArriveTogetherAreOneDelta(t *testing.T) {
	body, w := io.Pipe()
	defer w.Close()
	transport := roundTrip(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: body}, nil
	})
	model := openai.Model("m", openai.Key(testKey), openai.HTTPClient(&http.Client{Transport: transport}))
	next, stop := iter.Pull2(model.Generate(t.Context(), question))
	defer stop()
	for _, test := range []struct{ sent, want string }{
		{chunk(`{"content":"The "}`), "The "},
		{chunk(`{"content":"Rhi"}`) + chunk(`{"content":"ne"}`), "Rhine"},
		{chunk(`{"content":" flows"}`) + ": still there\n\n", " flows"},
		{chunk(`{"content":" to"}`) + chunk(`{"content":" Rotterdam"}`) + `data: {"error":{"message":"no more"}}` + "\n\n", " to Rotterdam"},
	} {
		go io.WriteString(w, test.sent)
		for {
			d, err, _ := next()
			if err != nil {
				t.Fatalf("after %q: %v", test.sent, err)
			}
			if d.Text == "" { // the reply's id
				continue
			}
			if d.Text != test.want {
				t.Errorf("%q comes as %q, want %q", test.sent, d.Text, test.want)
			}
			break
		}
	}
	if _, err, _ := next(); err == nil {
		t.Error("the error is lost")
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
