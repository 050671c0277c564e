package docs_test

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/perdure/perdure/docs"
)

var update = flag.Bool("update", false, "write llms.txt anew")

// TestIndexListsEveryPage finds pages that docs/README.md does not list, and lines
// of it without a page.
func TestIndexListsEveryPage(t *testing.T) {
	listed := map[string]bool{"README.md": true}
	names := map[string]string{}
	guide := 0
	for _, p := range docs.Pages() {
		text, err := docs.FS.ReadFile(p.File)
		if err != nil || !strings.HasPrefix(string(text), "# ") {
			t.Errorf("%s: a page begins with its title: %v", p.File, err)
		}
		if other := names[p.Name]; other != "" {
			t.Errorf("%s and %s have the same topic", other, p.File)
		}
		if strings.HasPrefix(p.File, "guide/") {
			if guide++; !strings.HasPrefix(p.File, fmt.Sprintf("guide/%02d-", guide)) {
				t.Errorf("%s is page %d of the guide", p.File, guide)
			}
		}
		names[p.Name], listed[p.File] = p.File, true
	}
	err := fs.WalkDir(docs.FS, ".", func(file string, d fs.DirEntry, err error) error {
		if !d.IsDir() && !listed[file] && !strings.HasPrefix(file, "adr/") {
			t.Errorf("docs/README.md does not list %s", file)
		}
		return err
	})
	if err != nil || guide < 10 {
		t.Error(guide, err)
	}
}

// TestLLMsListsEveryPage compares llms.txt with the index; -update writes it.
func TestLLMsListsEveryPage(t *testing.T) {
	var want strings.Builder
	want.WriteString("# Perdure\n\n> A durable runtime for AI agents in Go: it records each step of an agent's turn, so that any process can continue where another one stopped. `perdure docs` prints these pages offline.\n")
	section := ""
	for _, p := range docs.Pages() {
		if p.Section != section {
			section = p.Section
			fmt.Fprintf(&want, "\n## %s\n\n", section)
		}
		fmt.Fprintf(&want, "- [%s](docs/%s): %s\n", p.Title, p.File, p.About)
	}
	if *update {
		if err := os.WriteFile("../llms.txt", []byte(want.String()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile("../llms.txt"); err != nil || string(got) != want.String() {
		t.Errorf("llms.txt is not what the index says; go test ./docs -update writes it: %v", err)
	}
}

// markdown returns the files of the repository in Markdown.
func markdown(t *testing.T) (files []string) {
	t.Helper()
	err := filepath.WalkDir("..", func(file string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() && (d.Name() == "node_modules" || strings.HasPrefix(d.Name(), ".") && d.Name() != ".." || d.Name() == "testdata") {
			return fs.SkipDir
		}
		if strings.HasSuffix(file, ".md") || strings.HasSuffix(file, "llms.txt") {
			files = append(files, file)
		}
		return err
	})
	if err != nil || len(files) < 20 {
		t.Fatal(files, err)
	}
	return files
}

var (
	fenced = regexp.MustCompile("(?ms)^[ \t]*```.*?^[ \t]*```")
	spans  = regexp.MustCompile("`[^`\n]+`")
	links  = regexp.MustCompile(`\]\(([^)\s]+)\)`)
)

// TestLinksLead follows every link between files of the repository, anchors
// included.
func TestLinksLead(t *testing.T) {
	followed := 0
	known := map[string][]string{}
	for _, file := range markdown(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		prose := spans.ReplaceAllString(fenced.ReplaceAllString(string(text), ""), "")
		for _, m := range links.FindAllStringSubmatch(prose, -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			followed++
			target, anchor, _ := strings.Cut(m[1], "#")
			to := file
			if target != "" {
				to = filepath.Join(filepath.Dir(file), filepath.FromSlash(target))
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s: %s is not there", file, m[1])
				continue
			}
			if anchor == "" {
				continue
			}
			if known[to] == nil {
				known[to] = anchors(t, to)
			}
			if !slices.Contains(known[to], anchor) {
				t.Errorf("%s: %s has no heading #%s", file, to, anchor)
			}
		}
	}
	if followed < 100 {
		t.Errorf("there are only %d links", followed)
	}
}

// anchors returns the anchors of a page's headings, as GitHub makes them.
func anchors(t *testing.T, file string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(fenced.ReplaceAllString(string(text), "")) {
		if !strings.HasPrefix(line, "#") {
			continue
		}
		heading := strings.ToLower(strings.TrimSpace(strings.TrimLeft(line, "#")))
		all = append(all, strings.Map(func(c rune) rune {
			switch {
			case c == ' ':
				return '-'
			case unicode.IsLetter(c) || unicode.IsDigit(c) || c == '-' || c == '_':
				return c
			}
			return -1
		}, heading))
	}
	return all
}
