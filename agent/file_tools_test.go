package agent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/agent/files"
	"github.com/perdure/perdure/perduretest"
)

// TestFileToolsSay shows what models read. Every backend says the same.
func TestFileToolsSay(t *testing.T) {
	long := strings.Repeat("x", 2500)
	var many strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&many, "line %d of a long file\n", i+1)
	}
	calls := []toolUse{
		use("ls", "path", "/nothing"),
		use("write_file", "path", "/notes/plan.md", "text", "# Plan\n\n- read\n- write\n- read again\n"),
		use("write_file", "path", "todo.txt", "text", "one"),
		use("write_file", "path", "/notes/deep/er/crlf.txt", "text", "a b\r\nc\r\n"),
		use("read_file", "path", "/notes/plan.md"),
		use("read_file", "path", "/notes/plan.md", "offset", 3, "limit", 2),
		use("read_file", "path", "/notes/plan.md", "offset", 9),
		use("read_file", "path", "/none.md"),
		use("read_file", "path", "/notes"),
		use("read_file", "path", "../../etc/passwd"),
		use("edit_file", "path", "/notes/plan.md", "old", "- write", "new", "- write it down"),
		use("edit_file", "path", "/notes/plan.md", "old", "- read", "new", "- look"),
		use("edit_file", "path", "/notes/plan.md", "old", "- read", "new", "- look", "all", true),
		use("edit_file", "path", "/notes/plan.md", "old", "     3\t- look\n", "new", ""),
		use("edit_file", "path", "/notes/plan.md", "old", "-   look", "new", ""),
		use("edit_file", "path", "/notes/plan.md", "old", "nowhere", "new", ""),
		use("edit_file", "path", "/notes/deep/er/crlf.txt", "old", "a b\nc", "new", "d"),
		use("edit_file", "path", "/notes/plan.md", "old", "same", "new", "same"),
		use("edit_file", "path", "/none.md", "old", "a", "new", "b"),
		use("read_file", "path", "/notes/plan.md"),
		use("write_file", "path", "/notes", "text", "a folder"),
		use("write_file", "path", "/todo.txt/inside", "text", "a file"),
		use("glob", "pattern", "*.md"),
		use("glob", "pattern", "**/*.{md,txt}"),
		use("glob", "pattern", "er/*", "path", "/notes/deep"),
		use("glob", "pattern", "[a"),
		use("grep", "pattern", "l[o]+k"),
		use("grep", "pattern", "LOOK", "ignore_case", true, "glob", "**/*.md", "limit", 1),
		use("grep", "pattern", "a(", "literal", true),
		use("grep", "pattern", "a("),
		use("grep", "pattern", "c", "path", "/notes/deep/er/crlf.txt"),
		use("grep", "pattern", "c", "path", "/nowhere"),
		use("write_file", "path", "/long.txt", "text", long+"\nshort"),
		use("read_file", "path", "/long.txt", "limit", 1),
		use("write_file", "path", "/empty", "text", ""),
		use("read_file", "path", "/empty"),
		use("write_file", "path", "/many", "text", many.String()),
		use("read_file", "path", "/many", "offset", 2000),
		use("delete_file", "path", "/todo.txt"),
		use("delete_file", "path", "/todo.txt"),
		use("delete_file", "path", "/notes"),
		use("ls", "path", "/todo.txt"),
		use("ls", "path", "/empty"),
		use("glob", "pattern", "**"),
	}
	want := ""
	for _, b := range []struct {
		name string
		f    files.FS
	}{
		{"state", files.State()},
		{"disk", files.Disk(filepath.Join(t.TempDir(), "new"))},
		{"memory", files.Memory()},
		{"composite", files.Composite(map[string]files.FS{"/notes": files.State(), "/notes/deep": files.Memory("shared")}, files.Disk(t.TempDir()))},
	} {
		t.Run(b.name, func(t *testing.T) {
			var got strings.Builder
			for i, out := range runTools(t, agent.FileTools(b.f), calls...) {
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

func TestFileToolsLeaveOutWhatIsNotText(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{"binary": "\xff\x00\xfe", "large": strings.Repeat("a", files.MaxSize+1)} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	got := runTools(t, agent.FileTools(files.Disk(root)), use("grep", "pattern", "a"), use("read_file", "path", "/binary"), use("delete_file", "path", "/binary"))
	want := []string{
		"No line matches.\n(left out 2 files that are not text or too large)",
		"error: not a text that can be a file: /binary: it is not UTF-8",
		"Deleted /binary.",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestMemoryFilesAreThoseOfTheUser has threads of two users write and read.
func TestMemoryFilesAreThoseOfTheUser(t *testing.T) {
	tools := agent.FileTools(files.Composite(map[string]files.FS{"/mem": files.Memory(), "/part": files.Memory("part")}, nil))
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{toolFlow("tools", tools)}}, func(t *testing.T, e *perduretest.Env) {
		do := func(thread, user string, calls ...toolUse) []string {
			t.Helper()
			run, err := e.Runtime().Start(t.Context(), perdure.StartRequest{Thread: thread, User: user, Flow: "tools", Input: calls})
			if err != nil {
				t.Fatal(err)
			}
			if run, err = e.Runtime().WaitEnd(t.Context(), run.Thread, run.ID); err != nil {
				t.Fatal(err)
			}
			out, err := perdure.Output[[]string](run)
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		do("ann-1", "ann", use("write_file", "path", "/mem/a.txt", "text", "of ann"), use("write_file", "path", "/part/b.txt", "text", "of a part"))
		all := use("grep", "pattern", ".")
		if diff := cmp.Diff([]string{"/mem/a.txt:1: of ann\n/part/b.txt:1: of a part"}, do("ann-2", "ann", all)); diff != "" {
			t.Errorf("another thread of the user:\n%s", diff)
		}
		if diff := cmp.Diff([]string{"No line matches."}, do("bob-1", "bob", all)); diff != "" {
			t.Errorf("a thread of another user:\n%s", diff)
		}
		want := []string{
			"error: not a text that can be a file: /mem/large: it has 150000 bytes, too many for a file that threads share; split it",
			"error: bad path: /else.txt: files can only be below /mem, /part",
		}
		got := do("bob-2", "bob", use("write_file", "path", "/mem/large", "text", strings.Repeat("a", 150_000)), use("write_file", "path", "/else.txt", "text", ""))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}
