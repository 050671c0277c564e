package terminal

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/safe"
)

func TestWideCharactersKeepColumns(t *testing.T) {
	var out bytes.Buffer
	a := &Terminal{Out: &out, Err: io.Discard, Env: func(string) string { return "" }}
	if err := a.Table([][]string{{"ID", "TITLE", "X"}, {"日本語", "é", "1"}, {"a", "🎉 party", "2"}}, func(string) string { return "" }); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		line = strings.TrimRight(line, "\n")
		if end := strings.LastIndex(line, " ") + 1; safe.Cells(line[:end]) != 18 {
			t.Errorf("the last column begins at %d: %q", safe.Cells(line[:end]), line)
		}
	}
}

// TestIDsAreWholeOnANarrowTerminal, since they are to be pasted.
func TestIDsAreWholeOnANarrowTerminal(t *testing.T) {
	var out bytes.Buffer
	a := &Terminal{Out: &out, Err: io.Discard, Env: func(string) string { return "" }, Forced: true, Columns: 40}
	id := strings.Repeat("x", 24)
	if err := a.Table([][]string{{"ID", "STATUS", "UPDATED", "TITLE"}, {id, "suspended", "12:00:00", "a long title of it"}}, func(string) string { return "" }); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), id+"  ") {
		t.Errorf("the table is\n%s", &out)
	}
}
