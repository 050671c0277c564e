package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/kit"
)

// sources returns the lines of files.
func sources(t *testing.T, patterns ...string) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatal(pattern, err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(data)) {
				found[file] = append(found[file], strings.TrimSpace(line))
			}
		}
	}
	return found
}

// occurs reports whether lines are in a source, in order. A line "// …" in them
// stands for any number of others.
func occurs(source, lines []string) bool {
	if len(lines) == 0 {
		return true
	}
	for from := range source {
		at := from
		for i, line := range lines {
			if line == "// …" {
				if occurs(source[at:], lines[i+1:]) {
					return true
				}
				break
			}
			if at >= len(source) || source[at] != line {
				break
			}
			if at++; i == len(lines)-1 {
				return true
			}
		}
	}
	return false
}

// TestSnippetsAreCodeThatRuns looks for the Go of the guide in files that the
// tests compile and run: guide/*_test.go, the examples, and the project that
// perdure init writes. The page names the file. What a page says that code prints has to be the output of an
// example there. Go of other systems is marked as "go foreign".
func TestSnippetsAreCodeThatRuns(t *testing.T) {
	files := sources(t, "guide/*_test.go", "../examples/*/*.go", "../cli/starter/*.go.txt")
	comment := regexp.MustCompile(`^// ?`)
	printed := map[string][]string{}
	for file, lines := range files {
		out := false
		for _, line := range lines {
			out = strings.HasPrefix(line, "//") && (out || line == "// Output:")
			if out {
				printed[file] = append(printed[file], strings.TrimSpace(comment.ReplaceAllString(line, "")))
			}
		}
	}
	pages, err := filepath.Glob("guide/*.md")
	if err != nil {
		t.Fatal(err)
	}
	looked := 0
	for _, page := range pages {
		data, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		text := string(data)
		for _, b := range kit.Blocks(t, page) {
			var want []string
			for line := range strings.Lines(b.Text) {
				want = append(want, strings.TrimSpace(line))
			}
			in := files
			switch b.Lang {
			case "go":
			case "output":
				in = printed
			case "text", "sh", "console", "json", "js", "go foreign", "python", "sql", "html":
				continue
			default:
				t.Errorf("%s: nothing checks blocks of %q; mark what is not to be run as text", b.Where(), b.Lang)
				continue
			}
			looked++
			found, named := false, false
			for file, lines := range in {
				if occurs(lines, want) {
					found = true
					named = named || strings.Contains(text, strings.TrimSuffix(filepath.Base(file), ".txt")+"`")
				}
			}
			if !found {
				t.Errorf("%s: no file that is tested has this:\n%s", b.Where(), strings.Join(want, "\n"))
			} else if b.Lang == "go" && !named {
				t.Errorf("%s: the page does not name the file that has this:\n%s", b.Where(), strings.Join(want, "\n"))
			}
		}
	}
	if looked < 30 {
		t.Errorf("the guide has only %d snippets", looked)
	}
}

// TestOccursCanFail keeps the test above honest.
func TestOccursCanFail(t *testing.T) {
	source := []string{"a", "b", "c", "b", "d"}
	for text, want := range map[string]bool{"b": true, "b|d": true, "a|d": false, "a|// …|d": true, "d|a": false, "a|// …|b|d": true, "c|// …|a": false, "e": false} {
		lines := strings.Split(text, "|")
		if got := occurs(source, lines); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}
