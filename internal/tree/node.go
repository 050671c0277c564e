package tree

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/journal"
)

// Verb is the kind of a node.
type Verb string

// The verbs. None is for nodes that are known only from entries below them: a
// scope, a branch, or a step whose body has begun.
const (
	None    Verb = ""
	Step    Verb = "step"
	Cleanup Verb = journal.VerbCleanup
	Ask     Verb = "ask"
	Sleep   Verb = "sleep"
	Receive Verb = "receive"
	Take    Verb = "take"
	Emit    Verb = "emit"
	Plan    Verb = "plan"
	Scope   Verb = "scope"
	Branch  Verb = "branch"
	Spawn   Verb = "spawn"
	Join    Verb = "join"
)

// frames are the verbs whose nodes can have children.
var frames = map[Verb]bool{None: true, Step: true, Cleanup: true, Scope: true, Branch: true}

// Node is one node of a run.
type Node struct {
	Name  string
	Group int // the number, in its frame, of the group that it is a branch of; 0 for none
	Verb  Verb

	Done     bool // its outcome is recorded
	Expired  bool
	Timer    bool // its next attempt waits for a durable timer
	Intent   bool // it may have started and its outcome is unknown
	TimedOut bool // its attempt exceeded its timeout and cleaned up
	changes  bool // something at or below it changed the state
	handled  bool // another child of its frame came after it

	Fail     *journal.Failure
	Value    journal.Value
	Ref      uint64 // the entry that holds its value, if not its own
	Answer   *journal.Answer
	Seq      uint64 // of its outcome
	Time     int64  // of its outcome
	State    []journal.Change
	Attempts int           // number of recorded failed attempts
	Due      int64         // when it, or its next attempt, is due
	Input    string        // digest of its arguments
	Started  uint64        // the entry of the start with Intent
	Limit    time.Duration // how long the recorded start may take
	Open     uint64        // sequence of the entry that made it wait, 0 if it is not waiting
	AskID    string
	Answered uint64   // sequence of its ask's answer, or of its expiry
	Signal   string   // the signal that it waits for or took
	Allows   []string // the steps of its frame that it is a decision about, see Void
	first    uint64   // sequence of the first entry at or below it
	parent   *Node
	children []*Node
	index    map[string]*Node

	// Closer is the failure with which a branch closed its siblings.
	Closer *journal.Failure
}

// Tree is the memory of one run.
type Tree struct {
	Root     *Node
	outcomes []outcome // in journal order, for outcomes that refer to them
	edits    []edit    // by forks, in order
	voidable           // decisions that count only while they are used
}

type outcome struct {
	seq  uint64
	node *Node
}

// outcomeAt returns the node whose outcome is the entry at seq, nil if there is
// none.
func (t *Tree) outcomeAt(seq uint64) *Node {
	i, ok := slices.BinarySearchFunc(t.outcomes, seq, func(o outcome, seq uint64) int {
		return cmp.Compare(o.seq, seq)
	})
	if !ok {
		return nil
	}
	return t.outcomes[i].node
}

// New returns the tree of a run that has recorded nothing.
func New() *Tree { return &Tree{Root: &Node{}} }

// Child returns the named child, if anything is recorded at or below it.
func (n *Node) Child(name string) *Node {
	if n.index != nil {
		return n.index[name]
	}
	for _, c := range n.children {
		if c.Name == name {
			return c
		}
	}
	return nil
}

func (n *Node) add(c *Node) {
	c.parent = n
	for _, before := range slices.Backward(n.children) {
		if before.handled || c.Group > 0 && c.Group == before.Group {
			break
		}
		before.handled = true
	}
	n.children = append(n.children, c)
	switch {
	case n.index != nil:
		n.index[c.Name] = c
	case len(n.children) > 16:
		n.index = make(map[string]*Node, 2*len(n.children))
		for _, c := range n.children {
			n.index[c.Name] = c
		}
	}
}

func (n *Node) remove(c *Node) {
	n.children = slices.DeleteFunc(n.children, func(x *Node) bool { return x == c })
	delete(n.index, c.Name)
}

// Composite reports whether something is recorded below the node.
func (n *Node) Composite() bool { return len(n.children) > 0 }

// Path returns the path of the node, without the numbers of groups.
func (n *Node) Path() string {
	if n.parent == nil {
		return ""
	}
	return n.parent.Path() + "/" + n.Name
}

// Below returns the path of a child as in entries, where the name of a branch
// is preceded by the number of its group.
func Below(path, name string, group int) string {
	if group > 0 {
		return path + "/" + strconv.Itoa(group) + "|" + name
	}
	return path + "/" + name
}

// Names returns the path of an entry without the numbers of groups.
func Names(path string) string {
	if !strings.Contains(path, "|") {
		return path
	}
	segments := strings.Split(path, "/")
	for i, s := range segments {
		if _, name, ok := strings.Cut(s, "|"); ok {
			segments[i] = name
		}
	}
	return strings.Join(segments, "/")
}

// notYet is the first sequence of a node without entries.
const notYet = math.MaxUint64

// node returns the node at the path of an entry, making it and its parents if
// needed.
func (t *Tree) node(path string, seq uint64) *Node {
	n, whole := t.Root, path
	for path != "" {
		segment := path[1:]
		if i := strings.IndexByte(segment, '/'); i >= 0 {
			segment, path = segment[:i], segment[i:]
		} else {
			path = ""
		}
		group := 0
		if number, name, ok := strings.Cut(segment, "|"); ok {
			group, _ = strconv.Atoi(number)
			segment = name
		}
		c := n.Child(segment)
		if c == nil {
			c = &Node{Name: segment, Group: group, first: seq}
			if was := t.starts[whole]; was != nil && path == "" {
				c.Verb, c.Intent, c.Started, c.Limit = was.Verb, was.Intent, was.Started, was.Limit
				delete(t.starts, whole)
			}
			n.add(c)
		}
		if c.first == notYet {
			c.first = seq
		}
		n = c
	}
	return n
}

// Apply adds an entry of the run to its tree.
func (t *Tree) Apply(e journal.Entry) error {
	switch e.Kind {
	case journal.Retried:
		voidTail(t.Root)
		t.judge(t.Root)
		return nil
	case journal.Ended:
		forgetWaits(t.Root)
		return nil
	case journal.Progress, journal.Dumped, journal.Cancel:
		return nil
	}
	if e.Path == "" {
		return nil
	}
	b, err := e.Read()
	if err != nil {
		return fmt.Errorf("the body of entry %d: %w", e.Seq, err)
	}
	if e.Kind == journal.Problem {
		// The only problem that matters to the tree is a timeout.
		if b.Name == journal.TimeOver {
			t.node(e.Path, e.Seq).TimedOut = true
		}
		return nil
	}
	n := t.node(e.Path, e.Seq)
	if n.Done && (e.Kind == journal.Asked || e.Kind == journal.Step) {
		t.again = e.Seq // see decidedOtherwise
		t.forgetFrom(n)
		t.again = 0
		n = t.node(e.Path, e.Seq)
	}
	if b.Input != "" {
		n.Input = b.Input
	}
	switch e.Kind {
	case journal.Closed:
		n.Closer = b.Fail
	case journal.Step:
		n.Verb = Step
		if b.Verb != "" {
			n.Verb = Verb(b.Verb)
		}
		n.State, n.Fail, n.Allows = settled(b.Changes(), e.Texts), b.Fail, b.Allows
		if b.NotDone || b.Fail == nil {
			n.Intent = false
		}
		if len(b.State) > 0 {
			for up := n; up != nil && !up.changes; up = up.parent {
				up.changes = true
			}
		}
		if b.Fail != nil {
			forgetWaits(n)
		}
		t.done(n, &e, &b)
	case journal.Attempt:
		n.Verb, n.Attempts, n.Due, n.Timer, n.TimedOut = Step, b.Attempt, b.Due, b.Timer, false
		if b.Verb != "" {
			n.Verb = Verb(b.Verb)
		}
		if b.NotDone {
			n.Intent = false
		}
		voidTail(n)
		t.judge(n)
	case journal.Intent:
		n.Verb, n.Intent, n.Open, n.AskID, n.Answer = Step, true, 0, "", nil
		n.Started = e.Seq
		n.Limit = time.Duration(max(0, b.Due-e.Time)) * time.Microsecond
	case journal.Asked:
		if n.Verb == None {
			n.Verb = Ask
		}
		n.Open, n.AskID, n.Due, n.Answer, n.Allows = e.Seq, e.ID, b.Due, nil, b.Ask.Allows
	case journal.Answered, journal.Expired:
		if b.Of != n.AskID || n.Open == 0 {
			return nil
		}
		n.Answer, n.Expired, n.Open, n.Answered = b.Answer, e.Kind == journal.Expired, 0, e.Seq
		if n.Verb == Ask {
			n.Fail = b.Fail
			t.done(n, &e, &b)
		}
	case journal.Timer:
		n.Verb, n.Open, n.Due = Sleep, e.Seq, b.Due
	case journal.Waiting:
		n.Verb, n.Open, n.Due, n.Signal = receiver(b.Name), e.Seq, b.Due, b.Name
	case journal.Fired, journal.Signal:
		if n.Timer {
			n.Timer, n.Due = false, 0
		}
		if n.Open == 0 {
			return nil
		}
		n.Open, n.Fail = 0, b.Fail
		t.done(n, &e, &b)
	case journal.Received:
		n.Verb, n.Fail, n.Open, n.Signal = receiver(b.Name), b.Fail, 0, b.Name
		t.done(n, &e, &b)
	case journal.Spawned:
		n.Verb = Spawn
		t.done(n, &e, &b)
	case journal.Took:
		n.Verb = Take
		t.done(n, &e, &b)
		if b.Ref == 0 {
			n.Time = 0 // it returned before its entry was written, with a later commit
		}
	case journal.Emitted:
		n.Verb = Emit
		t.done(n, &e, &b)
	case journal.Planned:
		n.Verb = Plan
		t.done(n, &e, &b)
	}
	return nil
}

// settled returns the changes with the results of text edits filled in: the
// edits may build on changes of other runs or of dropped steps, which a run
// does not see.
func settled(changes []journal.Change, texts map[string]journal.Item) []journal.Change {
	if len(texts) == 0 {
		return changes
	}
	changes = slices.Clone(changes)
	for i, c := range changes {
		if item, ok := texts[c.Key]; ok && len(c.Edit) > 0 {
			changes[i].Item = &item
		}
	}
	return changes
}

// receiver returns the verb that waits for a signal.
func receiver(signal string) Verb {
	if journal.IsChildSignal(signal) {
		return Join
	}
	return Receive
}

// took reports whether the verb takes a signal, an input or the end of a child.
func (n *Node) took() bool { return n.Verb == Receive || n.Verb == Take || n.Verb == Join }

func (t *Tree) done(n *Node, e *journal.Entry, b *journal.Body) {
	n.Done, n.Seq, n.Time, n.Value, n.Ref = true, e.Seq, e.Time, b.Value, b.Ref
	t.outcomes = append(t.outcomes, outcome{e.Seq, n})
	if n.took() {
		return // its Ref is what it took
	}
	if n.Ref == 0 {
		return
	}
	if from := t.outcomeAt(n.Ref); from != nil && from != n {
		n.Value = from.Value
		n.Ref = from.holds()
	}
}

// holds returns the entry that holds the value of an outcome.
func (n *Node) holds() uint64 {
	if n.Ref == 0 || n.took() {
		return n.Seq
	}
	return n.Ref
}

// Changes returns the state changes at and below the nodes, in journal order.
func Changes(nodes ...*Node) []journal.Change {
	if !slices.ContainsFunc(nodes, func(n *Node) bool { return n != nil && n.changes }) {
		return nil
	}
	var leaves []*Node
	var walk func(*Node)
	walk = func(n *Node) {
		if n == nil || !n.changes {
			return
		}
		if n.Done && len(n.State) > 0 {
			leaves = append(leaves, n)
		}
		for _, c := range n.children {
			walk(c)
		}
	}
	for _, n := range nodes {
		walk(n)
	}
	slices.SortFunc(leaves, func(a, b *Node) int { return cmp.Compare(a.Seq, b.Seq) })
	var all []journal.Change
	for _, n := range leaves {
		all = append(all, n.State...)
	}
	return all
}

// Holder returns the sequence of a recent outcome at or below the node whose
// value is raw, 0 if there is none.
func (n *Node) Holder(raw []byte) uint64 {
	const look = 16
	left := look
	var find func(*Node) uint64
	find = func(n *Node) uint64 {
		for _, c := range slices.Backward(n.children) {
			if left--; left < 0 {
				return 0
			}
			if c.Done && c.Fail == nil && c.Answer == nil && string(c.Value.JSON) == string(raw) {
				return c.holds()
			}
			if seq := find(c); seq != 0 {
				return seq
			}
		}
		return 0
	}
	if n == nil {
		return 0
	}
	return find(n)
}

// Cleaned reports whether a cleanup is recorded below the node.
func (n *Node) Cleaned() bool {
	if n == nil {
		return false
	}
	return slices.ContainsFunc(n.children, func(c *Node) bool {
		return c.Verb == Cleanup || c.Cleaned()
	})
}
