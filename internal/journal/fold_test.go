package journal

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestFoldTables folds the journals of testdata/fold. A journal begins with a line
// "# title", and its created entry is implied. Each further line is an entry,
//
//	kind [@run] [/path] [t=time] [e=epoch] [body]
//
// and the line below it is the thread after it, or the error.
func TestFoldTables(t *testing.T) {
	files, err := filepath.Glob("testdata/fold/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no tables: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			var w *writer
			var th *Thread
			for line := range strings.Lines(string(data)) {
				line = strings.TrimRight(line, "\n")
				switch {
				case strings.HasPrefix(line, "\t"):
					continue // the result of an earlier run
				case strings.HasPrefix(line, "#"):
					w = &writer{}
					w.add(Created, 0, "", `{"thread":"t"}`)
					th = mustFold(t, w.lines)
				case line != "":
					fmt.Fprintf(&out, "%s\n\t%s\n", line, apply(t, w, th, line))
					continue
				}
				out.WriteString(line + "\n")
			}
			golden(t, strings.TrimPrefix(file, "testdata/"), []byte(out.String()))
		})
	}
}

func apply(t *testing.T, w *writer, th *Thread, line string) string {
	t.Helper()
	head, body, _ := strings.Cut(line, " {")
	if body != "" {
		body = "{" + body
	}
	before := *w
	words := strings.Fields(head)
	e := w.next(Kind(words[0]), 0, "", body)
	for _, word := range words[1:] {
		number, _ := strconv.ParseInt(word[min(2, len(word)):], 10, 64)
		switch {
		case word[0] == '@':
			run := th.RunByID(word[1:])
			if run == nil {
				t.Fatalf("%s: no such run", line)
			}
			if e.Run = run.N; !e.Kind.Open() {
				e.Epoch = w.epoch
			}
		case word[0] == '/':
			e.Path = word
		case strings.HasPrefix(word, "t="):
			e.Time = number
		case strings.HasPrefix(word, "e="):
			e.Epoch = uint64(number)
		default:
			t.Fatalf("%s: what is %s?", line, word)
		}
	}
	was := tell(th)
	w.put(e)
	if _, err := th.Read(e.Seq, w.lines[len(w.lines)-1]); err != nil {
		*w = before // a refused entry is not in the journal
		if now := tell(th); now != was || th.Seq != w.seq {
			t.Errorf("%s: the error %v changed the thread from\n%s to\n%s", line, err, was, now)
		}
		return "error: " + err.Error()
	}
	return tell(th)
}
