package anthropic_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/anthropic"
)

// The server stands in for Anthropic's.
func Example() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, event := range []string{
			`{"type":"message_start","message":{"id":"msg_1","model":"claude-sonnet-4-5","usage":{"input_tokens":14,"output_tokens":1}}}`,
			`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Par"}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"is."}}`,
			`{"type":"content_block_stop","index":0}`,
			`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":5}}`,
			`{"type":"message_stop"}`,
		} {
			io.WriteString(w, "event: message\ndata: "+event+"\n\n")
		}
	}))
	defer server.Close()

	claude := anthropic.Model("claude-sonnet-4-5", anthropic.Key("a key"), anthropic.BaseURL(server.URL))
	reply, err := llm.Collect(claude.Generate(context.Background(), &llm.Request{
		Messages: []llm.Message{llm.User("What is the capital of France?")},
	}))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(reply.Message.Text())
	fmt.Println(reply.Stop, reply.Usage.Input, reply.Usage.Output)
	// Output:
	// Paris.
	// end 14 5
}
