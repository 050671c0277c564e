package tree

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxName is the length in bytes of the longest name of a node.
const MaxName = 200

// ErrDuplicate means that a name was used twice in one frame.
var ErrDuplicate = errors.New("the name is already used in this frame; names must be unique, so in a loop put the index into them")

// CheckName returns an error if the name of a node or flow is invalid.
func CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("the name is empty")
	case len(name) > MaxName:
		return fmt.Errorf("the name %.40q… has %d bytes, the limit is %d", name, len(name), MaxName)
	case !utf8.ValidString(name):
		return fmt.Errorf("the name %q is not valid UTF-8", name)
	case strings.ContainsAny(name, "/|"):
		return fmt.Errorf("the name %q contains / or |, which separate names in a path", name)
	case name == "." || name == "..":
		return fmt.Errorf("the name %q would be read as a folder", name)
	case name != strings.TrimSpace(name):
		return fmt.Errorf("the name %q begins or ends with a space", name)
	case name[0] == '#':
		return fmt.Errorf("the name %q begins with #, which is reserved for the runtime", name)
	}
	for _, r := range name {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("the name %q contains %q, which cannot be printed", name, r)
		}
	}
	return nil
}

// Frame follows one execution of a run, step, scope or branch through the
// record below its node.
type Frame struct {
	tree   *Tree
	path   string // of the node, as in entries
	seen   map[string]bool
	upto   int    // all children before this index were visited
	next   int    // where child looks first
	outer  *Frame // of a new scope or branch, which is judged once something new is reached inside
	groups int32
	branch bool
}

// Frame returns a frame at the root.
func (t *Tree) Frame() *Frame { return &Frame{tree: t} }

// Path returns the path of the frame, as in entries.
func (f *Frame) Path() string { return f.path }

// Node returns the node of the frame, nil if nothing is recorded there.
func (f *Frame) Node() *Node { return f.tree.at(f.path) }

func (t *Tree) at(path string) *Node {
	n := t.Root
	for path != "" && n != nil {
		segment := path[1:]
		if i := strings.IndexByte(segment, '/'); i >= 0 {
			segment, path = segment[:i], segment[i:]
		} else {
			path = ""
		}
		if _, name, ok := strings.Cut(segment, "|"); ok {
			segment = name
		}
		n = n.Child(segment)
	}
	return n
}

// At returns the node at a path, nil if nothing is recorded there.
func (t *Tree) At(path string) *Node { return t.at(path) }

// Options of a visit.
type Options struct {
	Input   string // digest of the arguments
	Renamed string // the former name, under which it may be recorded
	Added   bool   // it was inserted before recorded ones

	Allows []string // the steps of its frame that it is a decision about
}

// Visit is the result of reaching a verb. Node is the recorded node, nil if
// there is none; Path is the path of its entries.
type Visit struct {
	Path string
	Node *Node
	Diff string // how the code differs from the record, "" if it matches
	Held bool   // the diff counts only if it remains at the group's Wait
}

// Visit follows the execution to a child.
func (f *Frame) Visit(name string, verb Verb, opt Options) (Visit, error) {
	if f.seen[name] {
		return Visit{}, fmt.Errorf("%w: %q", ErrDuplicate, name)
	}
	f.see(name)
	node := f.Node()
	v := Visit{Path: Below(f.path, name, 0)}
	if node != nil {
		v.Node = f.child(node, name)
		if v.Node == nil && opt.Renamed != "" {
			if old := node.Child(opt.Renamed); old != nil && !f.seen[opt.Renamed] {
				f.see(opt.Renamed)
				v.Node, v.Path = old, Below(f.path, old.Name, old.Group)
			}
		}
	}
	if f.tree.decidedOtherwise(v.Node, opt.Allows) {
		v.Node = nil
	}
	if v.Node == nil {
		if !opt.Added && verb != Scope {
			v.Diff, v.Held = f.Judge(verb, name)
			if v.Diff == "" && f.tree.foreign {
				v.Diff = f.returned(verb, name)
			}
		}
		return v, nil
	}
	v.Diff = fits(v.Node, verb, opt.Input)
	return v, nil
}

// child returns the named child of the frame's node, which is usually the one
// after the last that was asked for.
func (f *Frame) child(node *Node, name string) *Node {
	if f.next < len(node.children) && node.children[f.next].Name == name {
		f.next++
		return node.children[f.next-1]
	}
	return node.Child(name)
}

// fits returns why the code's call does not match a recorded node, "" if it
// does.
func fits(n *Node, verb Verb, input string) string {
	had := n.Verb
	switch {
	case n.Group > 0:
		return fmt.Sprintf("at %s:\n- recorded: a branch of a group\n+ the code: %s", n.Path(), verb)
	case had == None && !frames[verb], had != None && had != verb:
		if had == None {
			had = "step or scope"
		}
		return fmt.Sprintf("at %s:\n- recorded: %s\n+ the code: %s", n.Path(), had, verb)
	case input != "" && n.Input != "" && input != n.Input:
		return fmt.Sprintf("at %s:\n- recorded: input with digest %s\n+ the code: input with digest %s", n.Path(), n.Input, input)
	}
	return ""
}

// Enter returns a frame for the body of a visited child, given its path.
func (f *Frame) Enter(path string) *Frame {
	return &Frame{tree: f.tree, path: path}
}

// EnterScope is Enter for a scope. A scope itself is not recorded, so a new one
// is judged when something new is reached inside it.
func (f *Frame) EnterScope(v Visit) *Frame {
	inner := f.Enter(v.Path)
	if v.Node == nil {
		inner.outer = f
	}
	return inner
}

// Judge returns a diff if the code reached something new before it had visited
// all recorded children of the frame or, in a new scope or branch, of the
// enclosing frames. Held means that the unvisited children belong to a frame
// around a branch: the group decides at Wait, when all its branches are known.
func (f *Frame) Judge(verb Verb, name string) (diff string, held bool) {
	from := f.path
	for ; f != nil; f = f.outer {
		if f.skipped() != nil {
			reached := strings.TrimPrefix(Names(Below(from, name, 0)), Names(f.path)+"/")
			return f.missed(fmt.Sprintf("%s %q", verb, reached)), held
		}
		held = held || f.branch
	}
	return "", false
}

// Group begins a group and returns its number.
func (f *Frame) Group() int {
	f.groups++
	return int(f.groups)
}

// Branch follows the execution to a branch of a group.
func (f *Frame) Branch(name string, group int) (*Frame, error) {
	if f.seen[name] {
		return nil, fmt.Errorf("%w: %q", ErrDuplicate, name)
	}
	f.see(name)
	inner := &Frame{tree: f.tree, path: Below(f.path, name, group), branch: true}
	var recorded *Node
	if node := f.Node(); node != nil {
		recorded = node.Child(name)
	}
	if recorded != nil {
		inner.path = Below(f.path, name, recorded.Group)
	} else {
		inner.outer = f
	}
	return inner, nil
}

// Closer returns the branch that failed and closed the others in the group of
// this frame's branch, nil if none did.
func (f *Frame) Closer() *Node {
	i := strings.LastIndexByte(f.path, '/')
	number, _, _ := strings.Cut(f.path[i+1:], "|")
	group, _ := strconv.Atoi(number)
	if frame := f.tree.at(f.path[:i]); frame != nil {
		for _, c := range frame.children {
			if c.Closer != nil && c.Group == group {
				return c
			}
		}
	}
	return nil
}

// NotBranch returns a diff if something other than a branch is recorded under
// the name.
func (f *Frame) NotBranch(name string) string {
	node := f.Node()
	if node == nil {
		return ""
	}
	c := node.Child(name)
	if c == nil || c.Verb == None && c.Group != 0 {
		return ""
	}
	had := c.Verb
	if had == None {
		had = "step or scope"
	}
	return fmt.Sprintf("at %s:\n- recorded: %s\n+ the code: a branch of a group", c.Path(), had)
}

// Drop marks as visited a child that the code no longer has.
func (f *Frame) Drop(name string) { f.see(name) }

func (f *Frame) see(name string) {
	if f.seen == nil {
		recorded := 0
		if node := f.Node(); node != nil {
			recorded = len(node.children)
		}
		f.seen = make(map[string]bool, recorded)
	}
	f.seen[name] = true
}

// Leave returns a diff if the frame returned too early.
func (f *Frame) Leave() string { return f.missed("return") }

// skipped returns the frame's node if any of its recorded children were not
// visited.
func (f *Frame) skipped() *Node {
	node := f.Node()
	if node == nil {
		return nil
	}
	for f.upto < len(node.children) && f.seen[node.children[f.upto].Name] {
		f.upto++
	}
	if f.upto >= len(node.children) {
		return nil
	}
	return node
}

// missed returns a diff if recorded children were not visited.
func (f *Frame) missed(reached string) string {
	node := f.skipped()
	if node == nil {
		return ""
	}
	at := Names(f.path)
	if at == "" {
		at = "/"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "in %s:\n", at)
	const most = 10 // lines of each kind, since a diff has to fit into an entry
	visited, missed := 0, 0
	for _, c := range node.children {
		if f.seen[c.Name] {
			visited++
		}
	}
	for _, c := range node.children {
		mark := " "
		if f.seen[c.Name] {
			if visited--; visited >= most {
				if visited == most {
					b.WriteString("  …\n")
				}
				continue
			}
		} else if mark = "-"; missed >= most {
			if missed == most {
				b.WriteString("- …\n")
			}
			missed++
			continue
		} else {
			missed++
		}
		verb := c.Verb
		if verb == None {
			if verb = Scope; c.Group > 0 {
				verb = Branch
			}
		}
		fmt.Fprintf(&b, "%s %s %q\n", mark, verb, c.Name)
	}
	fmt.Fprintf(&b, "+ %s", reached)
	return b.String()
}
