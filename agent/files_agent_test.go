package agent_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/agent/files"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/perduretest"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

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
	times := regexp.MustCompile(`2000-01-[0-9T:.]+Z`)
	sweep(t, perduretest.Crash{
		Same:  func(s string) string { return times.ReplaceAllString(s, "TIME") }, // a crash costs time
		Flows: []perdure.Flow{agent.NewFlow("clerk", clerk)},
		Start: []perdure.StartRequest{{Flow: "clerk", Input: "write"}},
		Store: func() store.Store { // a world for each run
			if err := os.RemoveAll(root); err != nil {
				t.Error(err)
			}
			return memstore.New()
		},
	})
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
