package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/docs"
	"github.com/perdure/perdure/internal/terminal"
)

// TestDocsAreInTheProgram lists, shows and searches the pages without a server or
// a store.
func TestDocsAreInTheProgram(t *testing.T) {
	p := &place{t: t}
	list := p.run("", "docs").want(exit.OK, "Tutorials", "concepts", "threads, runs, steps and asks")
	if strings.Count(list.out, "\n") < len(docs.Pages()) {
		t.Errorf("it lists %s", list.out)
	}
	for _, page := range docs.Pages() {
		text, err := docs.FS.ReadFile(page.File)
		if got := p.run("", "docs", page.Name).want(exit.OK).out; err != nil || got != string(text) {
			t.Errorf("docs %s prints %q, %v", page.Name, got, err)
		}
	}
	for _, topic := range []string{"concep", "CONCEPTS", "01-concepts", "guide/01-concepts.md", "docs/guide/01-concepts.md", "1", "concepts#workers-and-leases"} {
		p.run("", "docs", topic).want(exit.OK, "# Concepts\n")
	}
	p.run("", "docs", "adr/0027").want(exit.OK, "# ")
	p.run("", "docs", "concepst").want(exit.NotFound, "there is no page concepst (did you mean concepts?)", "perdure docs lists the pages")
	p.run("", "docs", "from-").want(exit.NotFound, "from-temporal or from-dbos?")
	p.run("", "docs", "../../main.go").want(exit.NotFound, "there is no page")
	p.run("", "docs", "a", "b").want(exit.BadUsage, "usage: perdure docs [TOPIC]")
	p.run("", "docs", "a", "--search", "b").want(exit.BadUsage, "usage: perdure docs [TOPIC], or")
	p.run("", "docs", "--search", " ").want(exit.BadUsage, "--search WORD")
	p.run("", "docs", "--search", "LEASE frozen").want(exit.OK, "concepts\n  Workers and leases: ")
	p.run("", "docs", "search", "lease").want(exit.BadUsage, "--search WORD")
	if r := p.run("", "docs", "--search", "lease").want(exit.OK, "A lease"); strings.Contains(r.out, "Please") {
		t.Errorf("it finds lease inside other words:\n%s", r.out)
	}
	p.run("", "docs", "--search", "stgreSQ").want(exit.OK, "PostgreSQL") // inside words only
	p.run("", "docs", "--search", "xylophone").want(exit.NotFound, "no page has xylophone")
	for _, args := range [][]string{{"docs"}, {"docs", "concepts"}, {"docs", "--search", "lease"}, {"docs", "--search", "xylophone"}} {
		if r := p.run("", append(args, "--json")...).want(exit.OK); !json.Valid([]byte(r.out)) {
			t.Errorf("%v prints %s", args, r.out)
		}
	}
}

// TestDocsFitTheTerminal wraps paragraphs, and leaves code as it is.
func TestDocsFitTheTerminal(t *testing.T) {
	var out buffer
	a := testApp(terminal.Terminal{Out: &out, Forced: true, Columns: 60, Plain: true})
	if code := a.run(t.Context(), []string{"docs", "concepts"}); code != exit.OK {
		t.Fatal(code, out.String())
	}
	code := 0
	for line := range strings.Lines(out.String()) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "    ") {
			code++
		} else if len([]rune(line)) > 60 {
			t.Errorf("it is too long: %q", line)
		}
	}
	if code < 20 || strings.Contains(out.String(), "```") {
		t.Errorf("it shows\n%s", out.String())
	}
}
