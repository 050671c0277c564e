package main

import (
	"bytes"
	"testing"
)

func TestRun(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	const want = `original: "a formal letter to Ada"
not undone: /write
fork: "a friendly letter to Ada"
state tone: "formal", in the fork "friendly"
9 entries, in order and unchanged: true
fits today's code: true
`
	if got := out.String(); got != want {
		t.Errorf("it says\n%s\nwant\n%s", got, want)
	}
}
