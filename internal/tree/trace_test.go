package tree

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/journal"
)

var update = flag.Bool("update", false, "accept what the tests find into testdata")

// TestTraces plays the traces of testdata. A trace begins with a line
// "# title". Its further lines are entries of the run's journal,
//
//	kind /path [body]
//
// and what the code does,
//
//	> begin                          the flow is called (again)
//	> VERB name [in=…] [was=…] [added]  it reaches a verb
//	> enter name                     the body of a step, scope or branch
//	> leave                          that returns
//	> group, branch name             a group, its branches
//	> dropped name
//	> tree                           what is recorded
//
// The lines below, indented, say what follows.
func TestTraces(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no traces: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			var p *player
			for line := range strings.Lines(string(want)) {
				line = strings.TrimRight(line, "\n")
				if strings.HasPrefix(line, "\t") {
					continue // what was found before
				}
				out.WriteString(line + "\n")
				switch {
				case strings.HasPrefix(line, "#"):
					p = &player{tree: New()}
				case line != "":
					for said := range strings.Lines(p.play(t, line)) {
						out.WriteString("\t" + strings.TrimRight(said, "\n") + "\n")
					}
				}
			}
			if *update {
				if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			got, lines := strings.Split(out.String(), "\n"), strings.Split(string(want), "\n")
			for i := range min(len(got), len(lines)) {
				if got[i] != lines[i] {
					t.Fatalf("%s:%d (-update accepts it)\n got %s\nwant %s", file, i+1, got[i], lines[i])
				}
			}
			if len(got) != len(lines) {
				t.Fatalf("%s has %d lines, want %d", file, len(lines), len(got))
			}
		})
	}
}

// player plays one trace.
type player struct {
	tree   *Tree
	seq    uint64
	frames []*played // the innermost last
}

type played struct {
	*Frame
	visits map[string]Visit
	scopes map[string]bool
	group  int
}

func (p *player) play(t *testing.T, line string) string {
	t.Helper()
	code, ok := strings.CutPrefix(line, "> ")
	if !ok {
		head, body, _ := strings.Cut(line, " {")
		words := append(strings.Fields(head), "")
		p.seq++
		e := journal.Entry{Seq: p.seq, Kind: journal.Kind(words[0]), ID: fmt.Sprintf("i%d", p.seq), Time: int64(p.seq) * 10, Path: words[1]}
		e.Body = []byte("{}")
		if body != "" {
			e.Body = []byte("{" + body)
		}
		if e.Kind == journal.Forked {
			b, err := e.Read()
			if b.At = e.Seq - 1; err != nil {
				t.Fatal(err)
			}
			p.tree.Fork(b)
		} else if err := p.tree.Apply(e); err != nil {
			return "error: " + err.Error()
		}
		return ""
	}
	words := append(strings.Fields(code), "")
	verb, name := words[0], words[1]
	if verb == "tree" {
		return show(p.tree.Root, 0)
	}
	if verb == "begin" {
		p.push(p.tree.Frame())
		p.frames = p.frames[len(p.frames)-1:]
		return ""
	}
	f := p.frames[len(p.frames)-1]
	switch verb {
	case "enter":
		v, ok := f.visits[name]
		if !ok {
			t.Fatalf("%s: not visited", line)
		}
		if f.scopes[name] {
			p.push(f.EnterScope(v))
		} else {
			p.push(f.Enter(v.Path))
		}
		return ""
	case "leave":
		p.frames = p.frames[:len(p.frames)-1]
		return verdict(f.Leave())
	case "group":
		f.group = f.Group()
		return ""
	case "branch":
		b, err := f.Branch(name, f.group)
		if err != nil {
			return "error: " + err.Error()
		}
		p.push(b)
		if diff := f.NotBranch(name); diff != "" {
			return verdict(diff)
		}
		return "at " + b.Path()
	case "dropped":
		f.Drop(name)
		return ""
	}
	var opt Options
	for _, word := range words[2:] {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "in":
			opt.Input = value
		case "was":
			opt.Renamed = value
		case "added":
			opt.Added = true
		case "":
		default:
			t.Fatalf("%s: what is %s?", line, word)
		}
	}
	v, err := f.Visit(name, Verb(verb), opt)
	if err != nil {
		return "error: " + err.Error()
	}
	f.visits[name], f.scopes[name] = v, verb == string(Scope)
	if v.Diff != "" {
		return verdict(v.Diff)
	}
	return v.Path + " " + decision(v.Node)
}

func (p *player) push(f *Frame) {
	p.frames = append(p.frames, &played{Frame: f, visits: map[string]Visit{}, scopes: map[string]bool{}})
}

func verdict(diff string) string {
	if diff == "" {
		return "fits"
	}
	return "blocked " + diff
}

// decision says what a verb does with what is recorded.
func decision(n *Node) string {
	switch {
	case n == nil:
		return "is new"
	case n.Done && n.Fail != nil:
		return fmt.Sprintf("failed at %d: %s", n.Seq, n.Fail.Msg)
	case n.Done:
		said := fmt.Sprintf("is done at %d: %s", n.Seq, n.Value.JSON)
		if n.Answer != nil {
			said += fmt.Sprintf(" answer %s", n.Answer.Decision)
		}
		if n.Ref != 0 {
			said += fmt.Sprintf(" of %d", n.Ref)
		}
		return said
	case n.Open != 0 && n.Due != 0:
		return fmt.Sprintf("waits since %d, due at %d", n.Open, n.Due)
	case n.Open != 0:
		return fmt.Sprintf("waits since %d", n.Open)
	case n.Intent:
		return "may have happened"
	case n.Timer:
		return fmt.Sprintf("failed %d times, waits until %d", n.Attempts, n.Due)
	case n.Attempts > 0:
		return fmt.Sprintf("failed %d times, again at %d", n.Attempts, n.Due)
	}
	return "has begun"
}

// show writes a tree, one node a line.
func show(n *Node, depth int) string {
	var b strings.Builder
	for _, c := range n.children {
		verb := string(c.Verb)
		switch {
		case c.Group > 0:
			verb = fmt.Sprintf("branch of %d", c.Group)
		case c.Verb == None:
			verb = "?"
		}
		fmt.Fprintf(&b, "%s%s %s %s\n", strings.Repeat("  ", depth), verb, c.Name, decision(c))
		b.WriteString(show(c, depth+1))
	}
	if depth == 0 && b.Len() == 0 {
		return "nothing"
	}
	return b.String()
}
