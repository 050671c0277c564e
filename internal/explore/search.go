package explore

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"

	"github.com/perdure/perdure/store"
)

// search is a depth-first search over the choices of executions. Each one
// repeats the choices on the stack and goes on with first choices.
//
// Sleep sets cut off what is equal: a move that was tried at a node needs not
// be tried below its siblings until a step happens that concerns it.
type search struct {
	cfg    Config
	setup  func(*World)
	report Report

	stack []*node // where there was a choice

	// Of the current execution:
	depth   int // how many choices it has made
	choices []int
	asleep  []move
	cut     bool
	steps   []step
}

// node is a point of an execution at which several moves were possible.
type node struct {
	moves  []move
	asleep []move // need not be tried; grows by those that were
	choice int
}

// awake returns the first move from i on that is to be tried, -1 if there is
// none.
func (n *node) awake(i int) int {
	for ; i < len(n.moves); i++ {
		if !slices.Contains(n.asleep, n.moves[i]) {
			return i
		}
	}
	return -1
}

// choose returns which of the moves comes next, or false if the execution
// ends here: it failed, or is equal to another.
func (s *search) choose(moves []move) (int, bool) {
	if len(s.steps) >= s.cfg.MaxSteps {
		s.fail(fmt.Errorf("no end after Config.MaxSteps = %d steps", s.cfg.MaxSteps))
		return 0, false
	}
	n := &node{moves: moves, asleep: s.asleep}
	switch {
	case s.cfg.Replay != nil:
		if len(moves) > 1 {
			if s.depth < len(s.cfg.Replay) {
				n.choice = s.cfg.Replay[s.depth]
			}
			if n.choice < 0 || n.choice >= len(moves) {
				s.fail(fmt.Errorf("Config.Replay does not fit: choice %d is %d, of %d moves", s.depth, n.choice, len(moves)))
				return 0, false
			}
		}
	case len(moves) > 1 && s.depth < len(s.stack):
		n = s.stack[s.depth]
		if !slices.Equal(n.moves, moves) {
			s.fail(fmt.Errorf("the actors are not deterministic: after the same steps the choice was between\n%sand now is between\n%s", list(n.moves), list(moves)))
			return 0, false
		}
	default:
		if n.choice = n.awake(0); n.choice < 0 {
			s.cut = true
			return 0, false
		}
		if len(moves) > 1 {
			s.stack = append(s.stack, n)
		}
	}
	if len(moves) > 1 {
		s.depth++
		s.choices = append(s.choices, n.choice)
	}
	s.asleep = nil
	if !s.cfg.Every {
		for _, m := range n.asleep {
			if !m.concerns(moves[n.choice]) {
				s.asleep = append(s.asleep, m)
			}
		}
	}
	return n.choice, true
}

func list(moves []move) string {
	var b strings.Builder
	for _, m := range moves {
		fmt.Fprintf(&b, "\tactor %d, call %d: %s %q %s\n", m.actor, m.number, m.op, m.name, m.fault)
	}
	return b.String()
}

// backtrack moves the stack to the next execution, if there is one.
func (s *search) backtrack() bool {
	for len(s.stack) > 0 {
		n := s.stack[len(s.stack)-1]
		n.asleep = append(n.asleep, n.moves[n.choice])
		if n.choice = n.awake(n.choice + 1); n.choice >= 0 {
			return true
		}
		s.stack = s.stack[:len(s.stack)-1]
	}
	return false
}

// execute runs one execution in a bubble of its own, so that all begin alike.
func (s *search) execute(t *testing.T) {
	s.depth, s.choices, s.asleep, s.cut, s.steps = 0, nil, nil, false, nil
	before, ended := t.Failed(), false
	defer func() {
		if !ended { // t.FailNow, or a panic of the setup
			t.Logf("explore: the execution was abandoned\n%v", s.failure(fmt.Errorf("in these steps")))
		}
	}()
	s.bubble(t)
	ended = true
	if t.Failed() && !before && s.report.Failure == nil {
		s.fail(fmt.Errorf("the test failed in this execution"))
	}
	s.report.Longest = max(s.report.Longest, len(s.steps))
	if s.cut {
		s.report.Cut++
	} else {
		s.report.Executions++
	}
}

func (s *search) bubble(t *testing.T) {
	inside := false
	defer func() {
		if inside {
			return // a panic of the setup or the check
		}
		if r := recover(); r != nil {
			s.fail(fmt.Errorf("goroutines stay behind when all actors were told to end: %v", r))
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		inside = true
		cryptotest.SetGlobalRandom(t, 1)
		newWorld(t.Context(), s).run()
		inside = false
	})
}

// fail keeps the first failure of the exploration.
func (s *search) fail(err error) {
	if s.report.Failure == nil {
		s.report.Failure = s.failure(err)
	}
}

func (s *search) failure(err error) *Failure {
	f := &Failure{Err: err, Choices: slices.Clone(s.choices)}
	for len(f.Choices) > 0 && f.Choices[len(f.Choices)-1] == 0 {
		f.Choices = f.Choices[:len(f.Choices)-1]
	}
	if f.Choices == nil {
		f.Choices = []int{} // nil would not replay
	}
	for _, st := range s.steps {
		f.Steps = append(f.Steps, st.String())
	}
	return f
}

// The steps that are no methods of store.Store.
const (
	opWatch store.Op = "watch"
	opPoint store.Op = "point"
	opTime  store.Op = "time passes"
)

// fault is what the scheduler does with a call instead of letting it happen.
type fault int

const (
	noFault    fault = iota
	killBefore       // the actor dies, nothing is written
	killAfter        // it is written, the actor dies
	unknownNot       // nothing is written, the answer is ErrUnknown
	unknownYes       // it is written, the answer is ErrUnknown
	conflict         // nothing is written, the answer is ErrConflict
)

// writes reports whether a write happens in spite of the fault.
func (f fault) writes() bool { return f == noFault || f == killAfter || f == unknownYes }

// kills reports whether the actor dies of it.
func (f fault) kills() bool { return f == killBefore || f == killAfter }

func (f fault) String() string {
	return [...]string{"", "killed before", "killed after", "answer unknown, not done", "answer unknown, done", "refused for no reason"}[f]
}

// move is one possible next step. Equal moves of two executions are the same
// step, so it holds nothing that differs between them, such as versions.
type move struct {
	actor  int // -1 for time
	number int // of the call, among the actor's
	fault  fault
	op     store.Op
	name   string                  // journal, key or prefix
	after  string                  // of Journals and List
	cells  [store.MaxWrites]string // of AppendBatch; an array can be compared
}

func (m move) writes() bool { return m.op.Writes() && m.fault.writes() }

// concerns reports whether the order of two moves can matter. Calls of one
// actor may meet in its memory; faults compete for their number; time and
// points concern everybody.
func (m move) concerns(o move) bool {
	switch {
	case m.actor == o.actor, m.op == opTime, o.op == opTime, m.op == opPoint, o.op == opPoint:
		return true
	case m.fault != noFault && o.fault != noFault:
		return true
	}
	return m.writes() && o.touches(m) || o.writes() && m.touches(o)
}

// touches reports whether m can tell that the write w happened.
func (m move) touches(w move) bool {
	if m.op.Writes() && !m.fault.writes() {
		return false // it did not get as far as the store
	}
	if m.looksAt(w.name, w.op == store.OpAppend || w.op == store.OpDrop) {
		return true
	}
	for _, key := range w.cells {
		if key != "" && m.looksAt(key, false) {
			return true
		}
	}
	return false
}

// looksAt reports whether m can tell that the journal or cell name was written.
func (m move) looksAt(name string, journal bool) bool {
	switch m.op {
	case store.OpAppend:
		return journal && m.name == name || !journal && slices.Contains(m.cells[:], name)
	case store.OpRead, store.OpDrop:
		return journal && m.name == name
	case store.OpGet, store.OpPut, store.OpDelete:
		return !journal && m.name == name
	case store.OpJournals:
		return journal && name > m.after
	case store.OpList:
		return !journal && name > m.after && strings.HasPrefix(name, m.name)
	default: // a watch, of journals and cells alike
		return strings.HasPrefix(name, m.name)
	}
}

// step is what happened, for the trace.
type step struct {
	call  *call // nil if text says it all
	fault fault
	text  string
}

func (s step) String() string {
	if s.call == nil {
		return s.text
	}
	c := s.call
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", c.actor.name, c.op)
	if c.name != "" || c.op.Writes() {
		fmt.Fprintf(&b, " %q", c.name)
	}
	if c.args != nil {
		fmt.Fprintf(&b, " %s", c.args())
	}
	if s.fault != noFault {
		fmt.Fprintf(&b, " [%s]", s.fault)
	}
	switch {
	case s.fault.kills():
	case c.err != nil:
		fmt.Fprintf(&b, " → %v", c.err)
	case c.result != nil:
		fmt.Fprintf(&b, " → %s", c.result())
	}
	return b.String()
}

// brief shows bytes in a trace.
func brief(data []byte) string {
	const most = 60
	if len(data) > most {
		return fmt.Sprintf("%.*q… (%d bytes)", most, data[:most], len(data))
	}
	return fmt.Sprintf("%q", data)
}
