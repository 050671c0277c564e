package openai_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/openai"
)

// pretend is a server that answers every question in the same way.
func pretend(stream string) *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, stream)
	}))
}

// A text is shown while the model writes it.
func Example() {
	server := pretend(chunk(`{"content":"The "}`) + chunk(`{"content":"Rhine"}`) + finish("stop"))
	defer server.Close()

	model := openai.Model("qwen3", openai.BaseURL(server.URL+"/v1"))
	for delta, err := range model.Generate(context.Background(), &llm.Request{
		System:   "Answer with a name only.",
		Messages: []llm.Message{llm.User("Which river flows through Basel?")},
	}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(delta.Text)
		if delta.Stop != "" {
			fmt.Printf("\n%s, %d tokens\n", delta.Stop, delta.Usage.Total())
		}
	}
	// Output:
	// The Rhine
	// end, 1163 tokens
}

// A model that is offered tools may call them.
func ExampleModel_tools() {
	server := pretend(chunk(`{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"level","arguments":"{\"river\":\"Rhine\"}"}}]}`) + finish("tool_calls"))
	defer server.Close()

	model := openai.Model("qwen3", openai.BaseURL(server.URL+"/v1"))
	reply, err := llm.Collect(model.Generate(context.Background(), &llm.Request{
		Messages: []llm.Message{llm.User("How high is the Rhine?")},
		Tools: []llm.Tool{{
			Name:        "level",
			Description: "The water level of a river in centimetres.",
			Schema:      json.RawMessage(`{"type":"object","properties":{"river":{"type":"string"}},"required":["river"]}`),
		}},
	}))
	if err != nil {
		log.Fatal(err)
	}
	for _, call := range reply.Message.Calls() {
		fmt.Println(call.ID, call.Name, call.Args)
	}
	// Output: call_1 level {"river":"Rhine"}
}
