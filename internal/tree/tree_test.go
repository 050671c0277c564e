package tree

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/journal"
)

// grow returns the tree of entries "kind /path body".
func grow(t *testing.T, lines ...string) *Tree {
	t.Helper()
	p := &player{tree: New()}
	for _, line := range lines {
		if said := p.play(t, line); said != "" {
			t.Fatalf("%s: %s", line, said)
		}
	}
	return p.tree
}

func TestPathsOfEntriesAndNames(t *testing.T) {
	for _, c := range []struct {
		parent, name string
		group        int
		path, names  string
	}{
		{"", "a", 0, "/a", "/a"},
		{"/a", "b", 0, "/a/b", "/a/b"},
		{"/a", "b", 1, "/a/1|b", "/a/b"},
		{"/a/1|b", "c", 12, "/a/1|b/12|c", "/a/b/c"},
		{"/a/1|b", "c", 0, "/a/1|b/c", "/a/b/c"},
		{"", "1", 3, "/3|1", "/1"},
	} {
		path := Below(c.parent, c.name, c.group)
		if path != c.path || Names(path) != c.names {
			t.Errorf("%s below %q in group %d has the path %s and the names %s; want %s, %s", c.name, c.parent, c.group, path, Names(path), c.path, c.names)
		}
		tree := grow(t, "step "+path)
		if n := tree.At(path); n == nil || n.Path() != c.names || n.Group != c.group || n.Name != c.name {
			t.Errorf("at %s is %+v", path, n)
		}
		if n := tree.At(c.names); n != tree.At(path) {
			t.Errorf("by its names %s it is %+v", c.names, n)
		}
	}
	tree := grow(t, "step /a/b")
	if tree.At("") != tree.Root || tree.At("/b") != nil || tree.At("/a/b/c") != nil || tree.Root.Path() != "" {
		t.Error("At finds what is not there")
	}
}

func TestNames(t *testing.T) {
	for _, name := range []string{"a", "turn-3", "tool-0-refund", "é 😀", "a.b", "...", "a b", strings.Repeat("x", MaxName)} {
		if err := CheckName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"", ".", "..", "a/b", "/", "1|a", " a", "a ", "\ta", "a\nb", "a\x00", "\x7f", "a\u200bb", "a\u202eb",
		"\xff", "#plan", strings.Repeat("x", MaxName+1), "\u00a0", "\ufeffa"} {
		if err := CheckName(name); err == nil {
			t.Errorf("%q is a name", name)
		}
	}
}

func TestDuplicateNameIsErrDuplicate(t *testing.T) {
	f := New().Frame()
	if _, err := f.Visit("a", Step, Options{}); err != nil {
		t.Fatal(err)
	}
	_, err := f.Visit("a", Ask, Options{})
	_, branch := f.Branch("a", f.Group())
	for _, err := range []error{err, branch} {
		if !errors.Is(err, ErrDuplicate) || !strings.Contains(err.Error(), `"a"`) {
			t.Errorf("error %v, want ErrDuplicate that names a", err)
		}
	}
}

func TestHolderIsTheEntryThatHasTheValue(t *testing.T) {
	const value = `"a long text"`
	for _, c := range []struct {
		what  string
		lines []string
		want  uint64
	}{
		{"nothing below", []string{`step /c`}, 0},
		{"a child", []string{`step /c/x {"res":["a long text"]}`, `step /c/y {"res":[2]}`}, 1},
		{"the newest of two", []string{`step /c/x {"res":["a long text"]}`, `step /c/y {"res":["a long text"]}`}, 2},
		{"a grandchild in a branch", []string{`step /c/1|b/x {"res":["a long text"]}`}, 1},
		{"one that refers itself", []string{`step /c/d/x {"res":["a long text"]}`, `step /c/d {"ref":1}`}, 1},
		{"one that refers to one that refers", []string{`step /c/d/e/x {"res":["a long text"]}`, `step /c/d/e {"ref":1}`, `step /c/d {"ref":2}`}, 1},
		{"what was received", []string{`received /c/m {"ref":77,"res":["a long text"]}`}, 1},
		{"what was taken", []string{`took /c/m {"ref":77,"res":["a long text"]}`}, 1},
		{"an answer", []string{`asked /c/q {"ask":{}}`, `answered /c/q {"of":"i1","answer":{},"res":["a long text"]}`}, 0},
		{"a failure", []string{`step /c/x {"fail":{"msg":"no"},"res":["a long text"]}`}, 0},
		{"not below", []string{`step /x {"res":["a long text"]}`, `step /c/y`}, 0},
		{"another value", []string{`step /c/x {"res":["a long test"]}`}, 0},
	} {
		if got := grow(t, c.lines...).At("/c").Holder([]byte(value)); got != c.want {
			t.Errorf("%s: the holder is entry %d, want %d", c.what, got, c.want)
		}
	}
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprintf(`step /c/x%d {"res":[%d]}`, i, i))
	}
	c := grow(t, many...).At("/c")
	if newest, oldest := c.Holder([]byte("99")), c.Holder([]byte("0")); newest != 100 || oldest != 0 {
		t.Errorf("among 100 the newest is found at %d and the oldest at %d; want 100, and 0 since that is too far", newest, oldest)
	}
	if (*Node)(nil).Holder([]byte("1")) != 0 {
		t.Error("nothing holds something")
	}
}

func TestChangesAreInTheOrderOfTheJournal(t *testing.T) {
	change := func(key string) string { return fmt.Sprintf(`{"state":[{"k":%q,"add":1}]}`, key) }
	tree := grow(t,
		`step /1|a/x `+change("1"),
		`step /1|b/x `+change("2"),
		`step /1|a/y `+change("3"),
		`step /1|c/x {"res":[1]}`,
		`step /1|b/z/in `+change("5"),
		`step /1|b/z {"fail":{"msg":"the inner change stays"}}`,
		`step /1|a/w {"fail":{"msg":"no"},"state":[]}`,
		`step /after `+change("8"),
	)
	keys := func(nodes ...*Node) string {
		var keys []string
		for _, c := range Changes(nodes...) {
			keys = append(keys, c.Key)
		}
		return strings.Join(keys, " ")
	}
	for _, c := range []struct {
		what, got, want string
	}{
		{"all", keys(tree.Root), "1 2 3 5 8"},
		{"a branch", keys(tree.At("/b")), "2 5"},
		{"branches", keys(tree.At("/b"), tree.At("/a"), tree.At("/c"), nil), "1 2 3 5"},
		{"a leaf", keys(tree.At("/after")), "8"},
		{"none", keys(tree.At("/c")), ""},
	} {
		if c.got != c.want {
			t.Errorf("%s: changes %s, want %s", c.what, c.got, c.want)
		}
	}
}

func TestCleanedLooksBelow(t *testing.T) {
	tree := grow(t, `step /a/b/undo {"verb":"cleanup"}`, `step /c`)
	for path, want := range map[string]bool{"": true, "/a": true, "/a/b": true, "/a/b/undo": false, "/c": false, "/none": false} {
		if got := tree.At(path).Cleaned(); got != want {
			t.Errorf("cleaned below %q: %v", path, got)
		}
	}
}

// TestManyChildren crosses the size from which a node keeps an index.
func TestManyChildren(t *testing.T) {
	const n = 40
	var lines []string
	for i := range n {
		lines = append(lines, fmt.Sprintf(`step /s%d {"res":[%d]}`, i, i))
	}
	lines = append(lines, `step /last {"fail":{"msg":"no"}}`, "retried")
	tree := grow(t, lines...)
	if tree.At("/last") != nil {
		t.Error("the failed tail is still there")
	}
	f := tree.Frame()
	for i := range n {
		v, err := f.Visit(fmt.Sprintf("s%d", i), Step, Options{})
		if err != nil || v.Diff != "" || v.Node == nil || string(v.Node.Value.JSON) != fmt.Sprint(i) {
			t.Fatalf("s%d is %+v, %v", i, v, err)
		}
	}
	if v, err := f.Visit("last", Step, Options{}); err != nil || v.Diff != "" || v.Node != nil {
		t.Errorf("after a retry the last is %+v, %v", v, err)
	}
}

// TestOutcomesKeepTimeAndSequence holds what the kernel takes over from nodes.
func TestOutcomesKeepTimeAndSequence(t *testing.T) {
	tree := grow(t, `nudge`, `attempt /s {"att":1,"due":15,"fail":{"msg":"no"}}`, `step /s {"res":[1],"in":"digest"}`)
	n := tree.At("/s")
	if n.Seq != 3 || n.Time != 30 || n.Attempts != 1 || n.Input != "digest" || !n.Done {
		t.Errorf("the node is %+v", n)
	}
}

// FuzzTree: no sequence of entries and visits makes the tree panic.
func FuzzTree(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for trace := range strings.SplitSeq(string(data), "\n# ") {
			f.Add(trace)
		}
	}
	f.Add("step x {}\nstep / {}\nstep // {}\nstep /a//b {}\nstep /999999999|x {}\nstep /-1|x {}\nstep /|x {}\nstep /1| {}\nstep /99999999999999999999|y {}\nretried\n> tree")
	f.Add("asked /q\nanswered /q\nexpired /q {\"of\":\"i1\"}\nstep /a {\"ref\":4}\nstep /a {\"ref\":5}\nattempt /a/b {\"att\":-5,\"due\":-1}\nattempt /a {}\nended\nretried")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1<<13 {
			return
		}
		tree, seq := New(), uint64(0)
		frames := []*Frame{tree.Frame()}
		for line := range strings.Lines(text) {
			words := append(strings.Fields(line), "", "", "")
			f := frames[len(frames)-1]
			if words[0] != ">" {
				seq++
				_, body, _ := strings.Cut(line, " {")
				e := journal.Entry{Seq: seq, Kind: journal.Kind(words[0]), ID: fmt.Sprintf("i%d", seq), Path: words[1], Body: json.RawMessage("{" + body)}
				if err := tree.Apply(e); err != nil {
					continue
				}
				Names(e.Path)
				if n := tree.At(e.Path); n != nil {
					n.Path()
					n.Holder(n.Value.JSON)
					n.Cleaned()
				}
				continue
			}
			switch name := words[2]; words[1] {
			case "begin":
				frames = []*Frame{tree.Frame()}
			case "leave":
				f.Leave()
				if len(frames) > 1 {
					frames = frames[:len(frames)-1]
				}
			case "branch":
				if b, err := f.Branch(name, f.Group()); err == nil {
					frames = append(frames, b)
				}
			case "other":
				f.NotBranch(name)
			case "dropped":
				f.Drop(name)
			default:
				if v, err := f.Visit(name, Verb(words[1]), Options{Input: words[3], Renamed: words[3]}); err == nil {
					frames = append(frames, f.Enter(v.Path))
				}
			}
		}
		changes := Changes(tree.Root)
		if again := Changes(tree.Root); !slices.EqualFunc(changes, again, func(a, b journal.Change) bool { return a.Key == b.Key }) {
			t.Error("the changes come in another order the second time")
		}
		show(tree.Root, 0)
	})
}
