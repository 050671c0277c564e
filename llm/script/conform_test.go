package script_test

import (
	"os"
	"strings"
	"testing"

	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/llmtest"
	"github.com/perdure/perdure/llm/script"
)

func TestAScriptIsAModel(t *testing.T) {
	scripts := map[string]string{
		"text":  "default: {text: hello, chunks: 3}",
		"calls": "default: {reasoning: hm, text: hello, calls: [{name: a, args: {b: '{{.Last}}'}}, {name: c}], chunks: 2}",
		"empty": `default: {text: ""}`,
	}
	desk, err := os.ReadFile("testdata/desk.yaml")
	if err != nil {
		t.Fatal(err)
	}
	scripts["desk"] = strings.Replace(string(desk), "times: 1", "when: {last: busy}", 1)
	for name, text := range scripts {
		t.Run(name, func(t *testing.T) {
			llmtest.Run(t, func(t *testing.T) llm.Model { return script.Must(script.Parse(name, []byte(text))) })
		})
	}
	t.Run("New", func(t *testing.T) {
		llmtest.Run(t, func(t *testing.T) llm.Model {
			return script.New(script.Reply{When: script.LastContains(""), Text: "hi", Chunks: 2})
		})
	})
}
