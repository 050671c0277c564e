package agent

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/perduretest"
)

// TestMemoryFilesAreThoseOfTheUser has threads of two users write and read.
func TestMemoryFilesAreThoseOfTheUser(t *testing.T) {
	tools := FileTools(CompositeFiles(map[string]Files{"/mem": MemoryFiles(), "/part": MemoryFiles("part")}, nil))
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{toolFlow("tools", tools)}}, func(t *testing.T, e *perduretest.Env) {
		do := func(thread, user string, calls ...toolCall) []string {
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
		do("ann-1", "ann", call("write_file", "path", "/mem/a.txt", "text", "of ann"), call("write_file", "path", "/part/b.txt", "text", "of a part"))
		all := call("grep", "pattern", ".")
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
		got := do("bob-2", "bob", call("write_file", "path", "/mem/large", "text", strings.Repeat("a", 150_000)), call("write_file", "path", "/else.txt", "text", ""))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}
