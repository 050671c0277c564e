package gemini_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/gemini"
)

// The server stands in for Google's.
func Example() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, event := range []string{
			`{"candidates":[{"content":{"role":"model","parts":[{"text":"Par"}]}}]}`,
			`{"candidates":[{"content":{"role":"model","parts":[{"text":"is."}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":14,"candidatesTokenCount":5}}`,
		} {
			io.WriteString(w, "data: "+event+"\n\n")
		}
	}))
	defer server.Close()

	flash := gemini.Model("gemini-2.5-flash", gemini.Key("a key"), gemini.BaseURL(server.URL))
	reply, err := llm.Collect(flash.Generate(context.Background(), &llm.Request{
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
