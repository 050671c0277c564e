package agent_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/agent/files"
	"github.com/perdure/perdure/perduretest"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

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

// TestAnEditOfALargeStateFileCostsItsChange counts what edits of a MiB write.
func TestAnEditOfALargeStateFileCostsItsChange(t *testing.T) {
	var text bytes.Buffer
	for i := 0; text.Len() < 1<<20; i++ {
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
	if n := costs[edits-1]; n > 64<<10 {
		t.Errorf("an edit at many places wrote %d bytes, of a file of %d", n, text.Len())
	}
}

var fileTimes = regexp.MustCompile(`2000-01-[0-9T:.]+Z`)

// TestFileToolsSurviveACrashAtEveryWrite edits files of all kinds: an edit that
// would fit its own result, and removals, must not happen twice or be told as
// failed.
func TestFileToolsSurviveACrashAtEveryWrite(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	files := files.Composite(map[string]files.FS{"/disk": files.Disk(root), "/mem": files.Memory()}, files.State())
	tools := append(agent.FileTools(files), agent.TodoTools()...)
	var calls []toolUse
	for _, at := range []string{"/disk", "/mem", "/state"} {
		calls = append(calls,
			use("write_file", "path", at+"/a.txt", "text", "x\ny\n"),
			use("edit_file", "path", at+"/a.txt", "old", "x", "new", "xx"),
			use("edit_file", "path", at+"/a.txt", "old", "x", "new", "z", "all", true),
			use("read_file", "path", at+"/a.txt"),
			use("delete_file", "path", at+"/a.txt"),
			use("delete_file", "path", at+"/a.txt"),
		)
	}
	calls = append(calls, use("write_todos", "todos", []any{map[string]any{"content": "one"}, map[string]any{"content": "two"}}),
		use("write_todos", "todos", []any{map[string]any{"id": "2", "status": "completed"}}), use("glob", "pattern", "**"))
	perduretest.CrashEverywhere(t, perduretest.Crash{
		Flows: []perdure.Flow{toolFlow("tools", tools)},
		Start: []perdure.StartRequest{{Flow: "tools", Input: calls}},
		Want:  perdure.Succeeded,
		Same:  func(s string) string { return fileTimes.ReplaceAllString(s, "TIME") }, // a crash costs time
		Store: func() store.Store { // a world for each run
			if err := os.RemoveAll(root); err != nil {
				t.Error(err)
			}
			return memstore.New()
		},
	})
}
