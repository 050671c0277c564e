package explore

import (
	"fmt"
	"strings"

	"github.com/perdure/perdure/store"
)

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
	name   string // journal, key or prefix
	after  string // of Journals and List
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
	journal := w.op == store.OpAppend || w.op == store.OpDrop
	switch m.op {
	case store.OpAppend, store.OpRead, store.OpDrop:
		return journal && m.name == w.name
	case store.OpGet, store.OpPut, store.OpDelete:
		return !journal && m.name == w.name
	case store.OpJournals:
		return journal && w.name > m.after
	case store.OpList:
		return !journal && w.name > m.after && strings.HasPrefix(w.name, m.name)
	default: // a watch, of journals and cells alike
		return strings.HasPrefix(w.name, m.name)
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
