package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestFileToolsSay shows what models read. Every backend says the same.
func TestFileToolsSay(t *testing.T) {
	long := strings.Repeat("x", 2500)
	var many strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&many, "line %d of a long file\n", i+1)
	}
	calls := []toolCall{
		call("ls", "path", "/nothing"),
		call("write_file", "path", "/notes/plan.md", "text", "# Plan\n\n- read\n- write\n- read again\n"),
		call("write_file", "path", "todo.txt", "text", "one"),
		call("write_file", "path", "/notes/deep/er/crlf.txt", "text", "a b\r\nc\r\n"),
		call("read_file", "path", "/notes/plan.md"),
		call("read_file", "path", "/notes/plan.md", "offset", 3, "limit", 2),
		call("read_file", "path", "/notes/plan.md", "offset", 9),
		call("read_file", "path", "/none.md"),
		call("read_file", "path", "/notes"),
		call("read_file", "path", "../../etc/passwd"),
		call("edit_file", "path", "/notes/plan.md", "old", "- write", "new", "- write it down"),
		call("edit_file", "path", "/notes/plan.md", "old", "- read", "new", "- look"),
		call("edit_file", "path", "/notes/plan.md", "old", "- read", "new", "- look", "all", true),
		call("edit_file", "path", "/notes/plan.md", "old", "     3\t- look\n", "new", ""),
		call("edit_file", "path", "/notes/plan.md", "old", "-   look", "new", ""),
		call("edit_file", "path", "/notes/plan.md", "old", "nowhere", "new", ""),
		call("edit_file", "path", "/notes/deep/er/crlf.txt", "old", "a b\nc", "new", "d"),
		call("edit_file", "path", "/notes/plan.md", "old", "same", "new", "same"),
		call("edit_file", "path", "/none.md", "old", "a", "new", "b"),
		call("read_file", "path", "/notes/plan.md"),
		call("write_file", "path", "/notes", "text", "a folder"),
		call("write_file", "path", "/todo.txt/inside", "text", "a file"),
		call("glob", "pattern", "*.md"),
		call("glob", "pattern", "**/*.{md,txt}"),
		call("glob", "pattern", "er/*", "path", "/notes/deep"),
		call("glob", "pattern", "[a"),
		call("grep", "pattern", "l[o]+k"),
		call("grep", "pattern", "LOOK", "ignore_case", true, "glob", "**/*.md", "limit", 1),
		call("grep", "pattern", "a(", "literal", true),
		call("grep", "pattern", "a("),
		call("grep", "pattern", "c", "path", "/notes/deep/er/crlf.txt"),
		call("grep", "pattern", "c", "path", "/nowhere"),
		call("write_file", "path", "/long.txt", "text", long+"\nshort"),
		call("read_file", "path", "/long.txt", "limit", 1),
		call("write_file", "path", "/empty", "text", ""),
		call("read_file", "path", "/empty"),
		call("write_file", "path", "/many", "text", many.String()),
		call("read_file", "path", "/many", "offset", 2000),
		call("delete_file", "path", "/todo.txt"),
		call("delete_file", "path", "/todo.txt"),
		call("delete_file", "path", "/notes"),
		call("ls", "path", "/todo.txt"),
		call("ls", "path", "/empty"),
		call("glob", "pattern", "**"),
	}
	want := ""
	for _, b := range []struct {
		name string
		f    Files
	}{
		{"state", StateFiles()},
		{"disk", DiskFiles(filepath.Join(t.TempDir(), "new"))},
		{"shared", SharedFiles(&testShelf{})},
		{"memory", MemoryFiles()},
		{"composite", CompositeFiles(map[string]Files{"/notes": StateFiles(), "/notes/deep": SharedFiles(&testShelf{})}, DiskFiles(t.TempDir()))},
	} {
		t.Run(b.name, func(t *testing.T) {
			var got strings.Builder
			for i, out := range runTools(t, FileTools(b.f), calls...) {
				args := fmt.Sprint(calls[i].Args)
				if len(args) > 150 {
					args = args[:150] + "…"
				}
				if len(out) > 3000 {
					out = out[:200] + "\n…\n" + out[len(out)-200:]
				}
				fmt.Fprintf(&got, "== %s %q\n%s\n", calls[i].Name, args, out)
			}
			golden(t, "files.txt", got.String())
			if want == "" {
				want = got.String()
			}
			if diff := cmp.Diff(want, got.String()); diff != "" {
				t.Errorf("it says something else than the others:\n%s", diff)
			}
		})
	}
}

// golden compares a text with a file, which is written if it is not there.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	want, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		if err := os.MkdirAll("testdata", 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
		t.Fatalf("%s was not there; it is written now: read it, and run the test again", file)
	}
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("not as in %s; remove the file if it is meant to change:\n%s", file, diff)
	}
}
