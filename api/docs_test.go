package api

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestDocsHaveAllOperations keeps the tables of docs/api.md: go test ./api
// -update writes them.
func TestDocsHaveAllOperations(t *testing.T) {
	const file = "../docs/api.md"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var ops, problems strings.Builder
	ops.WriteString("| route | scope | what it does |\n|---|---|---|\n")
	for _, i := range All() {
		title := i.Title
		if i.Doc != "" {
			title += ". " + i.Doc
		}
		fmt.Fprintf(&ops, "| `%s %s` | %s | %s |\n", i.Method, i.Path, i.Scope, title)
	}
	problems.WriteString("| name | status | what happened |\n|---|---|---|\n")
	for _, p := range Problems() {
		fmt.Fprintf(&problems, "| `%s` | %d | %s |\n", p.Kind(), p.Status, p.Title)
	}
	want := string(data)
	for name, text := range map[string]string{"operations": ops.String(), "problems": problems.String()} {
		begin := "<!-- " + name + " -->\n"
		head, rest, ok := strings.Cut(want, begin)
		_, tail, end := strings.Cut(rest, "<!-- end -->")
		if !ok || !end {
			t.Fatalf("%s has no place for %s", file, name)
		}
		want = head + begin + text + "<!-- end -->" + tail
	}
	if want == string(data) {
		return
	}
	if !*updateDocs {
		t.Fatalf("%s is not what package api declares; go test ./api -run TestDocs -update writes it", file)
	}
	if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}
