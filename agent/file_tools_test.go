package agent_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/agent/files"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/perduretest"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
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

// TestCallsOfOneMessageSeeEachOthersFiles has a model write, edit and read files
// of the state and of a disk in one message, with a crash at every write.
func TestCallsOfOneMessageSeeEachOthersFiles(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	model := &brain{think: func(r *llm.Request) llm.Message {
		if replies(r) == 0 {
			return calls(
				call("write_file", `{"path":"/a.txt","text":"one\n"}`), call("edit_file", `{"path":"/a.txt","old":"one","new":"one one"}`), call("read_file", `{"path":"/a.txt"}`),
				call("write_file", `{"path":"/disk/b.txt","text":"two\n"}`), call("edit_file", `{"path":"/disk/b.txt","old":"two","new":"two two"}`), call("read_file", `{"path":"/disk/b.txt"}`),
				call("write_todos", `{"todos":[{"content":"rest"}]}`), call("delete_file", `{"path":"/disk/b.txt"}`), call("glob", `{"pattern":"**"}`))
		}
		return llm.Assistant(results(last(r)))
	}}
	clerk := agent.New("clerk", model, agent.Options{
		Files: files.Composite(map[string]files.FS{"/disk": files.Disk(root)}, files.State()),
		Tools: agent.TodoTools(),
	})
	sweepFiles(t, root, agent.NewFlow("clerk", clerk), "write")
	want := "write_file=Wrote /a.txt: 1 line, 4 bytes.;edit_file=Replaced 1 place in /a.txt, at line 1.;read_file=     1\tone one;" +
		"write_file=Wrote /disk/b.txt: 1 line, 4 bytes.;edit_file=Replaced 1 place in /disk/b.txt, at line 1.;read_file=     1\ttwo two;" +
		"write_todos=Changed: 1 added.\n[ ] 1: rest;delete_file=Deleted /disk/b.txt.;glob=/a.txt;"
	var seen []string
	for _, r := range model.requests() {
		if m := last(&r); m.Role == llm.RoleTool {
			seen = append(seen, results(m))
		}
	}
	if seen = slices.Compact(seen); len(seen) != 1 || seen[0] != want {
		t.Errorf("the model read %q, want only %q", seen, want)
	}
}

// TestStateFilesForkAndRewindAndDiskFilesAreNotReverted takes a thread with
// files of both kinds back, and forks it.
func TestStateFilesForkAndRewindAndDiskFilesAreNotReverted(t *testing.T) {
	root := t.TempDir()
	tools := append(agent.FileTools(files.Composite(map[string]files.FS{"/disk": files.Disk(root)}, files.State())), agent.TodoTools()...)
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{toolFlow("tools", tools)}}, func(t *testing.T, e *perduretest.Env) {
		do := func(thread string, calls ...toolUse) []string {
			t.Helper()
			e.Start(thread, "tools", calls)
			out, err := perdure.Output[[]string](e.Wait(thread, perdure.Succeeded))
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		rt := e.Runtime()
		look := func(thread string) []string {
			return do(thread,
				use("grep", "pattern", "version"), use("glob", "pattern", "**"), use("write_todos", "todos", []any{}))
		}
		do("t",
			use("write_file", "path", "/a.txt", "text", "version 1"), use("write_file", "path", "/gone.txt", "text", "version 1"),
			use("write_file", "path", "/disk/d.txt", "text", "version 1"),
			use("write_todos", "todos", []any{map[string]any{"content": "think"}}))
		first := look("t")
		before, err := rt.StateAt(t.Context(), "t", 0)
		if err != nil {
			t.Fatal(err)
		}
		e.Advance(time.Hour)
		do("t",
			use("edit_file", "path", "/a.txt", "old", "1", "new", "2"), use("delete_file", "path", "/gone.txt"),
			use("write_file", "path", "/new.txt", "text", "version 2"), use("edit_file", "path", "/disk/d.txt", "old", "1", "new", "2"),
			use("write_todos", "todos", []any{map[string]any{"id": "1", "status": "completed"}}))
		second := look("t")
		wantSecond := []string{"/a.txt:1: version 2\n/disk/d.txt:1: version 2\n/new.txt:1: version 2", "/a.txt\n/disk/d.txt\n/new.txt", "Nothing changed.\n[x] 1: think"}
		if diff := cmp.Diff(wantSecond, second); diff != "" {
			t.Errorf("the second run:\n%s", diff)
		}
		after, err := rt.StateAt(t.Context(), "t", 0)
		if err != nil {
			t.Fatal(err)
		}
		checkFilesAt(t, before, "/a.txt", "/gone.txt")
		files := checkFilesAt(t, after, "/a.txt", "/new.txt")
		if f := files[0]; f.Text != "version 2" || f.Size != 9 || f.Modified.Sub(f.Created) < time.Hour {
			t.Errorf("the edited file is %+v; want it modified an hour after it was created", f)
		}
		if len(after.State) != 5 {
			t.Errorf("the state has %d keys; want two for each file and one for todos, none of the deleted one", len(after.State))
		}
		if todos, err := agent.TodosAt(after.State); err != nil || len(todos) != 1 || todos[0] != (agent.Todo{"1", "think", agent.TodoCompleted}) {
			t.Errorf("the todos are %v, %v", todos, err)
		}

		// What the state has is as it was; the disk is as it is.
		want := []string{"/a.txt:1: version 1\n/disk/d.txt:1: version 2\n/gone.txt:1: version 1", first[1], first[2]}
		if _, err := rt.Fork(t.Context(), perdure.ForkRequest{Thread: "t", At: before.Seq, As: "fork"}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, look("fork")); diff != "" {
			t.Errorf("the fork:\n%s", diff)
		}
		if diff := cmp.Diff(wantSecond, look("t")); diff != "" {
			t.Errorf("the thread that was forked:\n%s", diff)
		}
		if _, err := rt.Rewind(t.Context(), "t", before.Seq, perdure.Note{}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, look("t")); diff != "" {
			t.Errorf("after the rewind:\n%s", diff)
		}
	})
}

func checkFilesAt(t *testing.T, c *perdure.Checkpoint, want ...string) []files.File {
	t.Helper()
	files, err := files.At(c.State)
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, f := range files {
		paths = append(paths, f.Path)
	}
	if diff := cmp.Diff(want, paths); diff != "" {
		t.Errorf("the files at %d:\n%s", c.Seq, diff)
	}
	return files
}

// journalBytes counts everything that is in the journals of a store.
func journalBytes(ctx context.Context, s store.Store) (n int, err error) {
	for name, err := range s.Journals(ctx, "") {
		if err != nil {
			return 0, err
		}
		entries, err := store.ReadAll(ctx, s, name, 0)
		if err != nil {
			return 0, err
		}
		for _, e := range entries {
			n += len(e.Data)
		}
	}
	return n, nil
}

// TestAnEditOfALargeStateFileCostsItsChange counts what edits of a MiB write, or of a
// quarter with -short.
func TestAnEditOfALargeStateFileCostsItsChange(t *testing.T) {
	var text bytes.Buffer
	for i := 0; text.Len() < kit.Sized(256, 1024, 1024)<<10; i++ {
		fmt.Fprintf(&text, "line %06d of a file that is long\n", i)
	}
	tools := agent.FileTools(files.Composite(map[string]files.FS{"/mem": files.Memory("shared")}, files.State()))
	const edits = 8
	var costs []int
	var s store.Store
	flow := perdure.NewFlow("large", func(ctx context.Context, _ string) (string, error) {
		_, err := perdure.Step(ctx, "write", func(ctx context.Context) (bool, error) {
			return true, files.State().Write(ctx, "/large.txt", text.String())
		})
		if err != nil {
			return "", err
		}
		for i := range edits {
			before, err := journalBytes(ctx, s)
			if err != nil {
				return "", err
			}
			args := []any{"path", "/large.txt", "old", fmt.Sprintf("line %06d of", i*1000), "new", fmt.Sprintf("LINE %d of", i)}
			if i == edits-1 { // many places, far from each other
				args = []any{"path", "/large.txt", "old", "00 of a file", "new", "hundred of a file", "all", true}
			}
			out, err := callTool(ctx, fmt.Sprint("edit-", i), tools, use("edit_file", args...))
			if err != nil || out.Error {
				return "", fmt.Errorf("edit %d: %s %w", i, out.Text, err)
			}
			after, err := journalBytes(ctx, s)
			if err != nil {
				return "", err
			}
			costs = append(costs, after-before)
		}
		f, err := files.State().Read(ctx, "/large.txt")
		if all, _ := files.State().List(ctx, "/"); len(all) != 1 || all[0].Size != len(f.Text) {
			return "", fmt.Errorf("it is listed as %v, and has %d bytes", all, len(f.Text))
		}
		return fmt.Sprint(strings.Count(f.Text, "LINE"), " ", strings.Count(f.Text, "hundred")), err
	})
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{flow}}, func(t *testing.T, e *perduretest.Env) {
		s = e.Store
		e.Start("t", "large", "")
		out, err := perdure.Output[string](e.Wait("t", perdure.Succeeded))
		if err != nil || !strings.HasPrefix(out, "7 ") {
			t.Errorf("%q, %v", out, err)
		}
		t.Log(out, costs)
	})
	for i, n := range costs[:edits-1] {
		if n > 2<<10 {
			t.Errorf("edit %d of one line wrote %d bytes, of a file of %d", i, n, text.Len())
		}
	}
	if n := costs[edits-1]; n > text.Len()/16 {
		t.Errorf("an edit at many places wrote %d bytes, of a file of %d", n, text.Len())
	}
}

// TestFileToolsSurviveACrashAtEveryWrite edits files of all kinds: an edit that
// would fit its own result, and removals, must not happen twice or be told as
// failed.
func TestFileToolsSurviveACrashAtEveryWrite(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	fs := files.Composite(map[string]files.FS{"/disk": files.Disk(root), "/mem": files.Memory()}, files.State())
	flow := toolFlow("tools", append(agent.FileTools(fs), agent.TodoTools()...))
	for at, then := range map[string][]toolUse{
		"/disk": nil,
		"/mem":  nil,
		"/state": {
			use("write_todos", "todos", []any{map[string]any{"content": "one"}, map[string]any{"content": "two"}}),
			use("write_todos", "todos", []any{map[string]any{"id": "2", "status": "completed"}}), use("glob", "pattern", "**"),
		},
	} {
		uses := append([]toolUse{
			use("write_file", "path", at+"/a.txt", "text", "x\ny\n"),
			use("edit_file", "path", at+"/a.txt", "old", "x", "new", "xx"),
			use("edit_file", "path", at+"/a.txt", "old", "x", "new", "z", "all", true),
			use("read_file", "path", at+"/a.txt"),
			use("delete_file", "path", at+"/a.txt"),
			use("delete_file", "path", at+"/a.txt"),
		}, then...)
		t.Run(at[1:], func(t *testing.T) { sweepFiles(t, root, flow, uses) })
	}
}

// sweepFiles crashes a flow that writes into a folder.
func sweepFiles(t *testing.T, root string, flow perdure.Flow, in any) {
	t.Helper()
	times := regexp.MustCompile(`2000-01-[0-9T:.]+Z`)
	sweep(t, perduretest.Crash{
		Flows: []perdure.Flow{flow},
		Start: []perdure.StartRequest{{Flow: flow.Name(), Input: in}},
		Same:  func(s string) string { return times.ReplaceAllString(s, "TIME") }, // a crash costs time
		Store: func() store.Store { // a world for each run
			if err := os.RemoveAll(root); err != nil {
				t.Error(err)
			}
			return memstore.New()
		},
	})
}
