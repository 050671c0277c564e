package llmtest_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"github.com/perdure/perdure/llm/llmtest"
)

// What Client does for a test, by hand: first a recording, then a replay when
// the service is gone.
func ExampleRecorder() {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"text": "Hello!"}`)
	}))
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "hello.json")
	ask := func(client *http.Client, body string) {
		resp, err := client.Post(service.URL+"/v1/chat", "application/json", strings.NewReader(body))
		if err != nil {
			fmt.Println("it fails")
			return
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		fmt.Println(string(data), err)
	}

	recorder := llmtest.NewRecorder(llmtest.Options{})
	ask(&http.Client{Transport: recorder}, `{"model": "m", "say": "hi"}`)
	if err := recorder.Save(file); err != nil {
		fmt.Println(err)
	}
	service.Close()

	player, err := llmtest.Load(file, llmtest.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	ask(&http.Client{Transport: player}, `{"say": "hi", "model": "m"}`)
	ask(&http.Client{Transport: player}, `{"say": "something else"}`)
	// Output:
	// {"text": "Hello!"} <nil>
	// {"text": "Hello!"} <nil>
	// it fails
}
