package render

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/safe"
)

// History is what happened on a thread, folded from its events: runs, each with its
// steps as a tree. The zero value is empty.
type History struct {
	Runs    int      // how many there are, including those that were rewound
	Workers []string // in the order of their first claim

	runs map[string]*runTree // by id
}

// runTree is a run.
type runTree struct {
	begun         bool // input is set
	input, output json.RawMessage
	passes        []*pass
	notes         []note // what people did, and workers that were lost
	root          node
	fresh         bool // a worker took over and has recorded nothing yet
}

// pass is one call of the flow by a worker.
type pass struct {
	worker     int // index into History.Workers
	begin, end time.Time
	how        string // it ended: suspended, ended, released, lost; "": it has not
}

// note is something that happened to a run from outside.
type note struct {
	at   time.Time
	text string
}

// node is a step or another verb, or a name that holds some.
type node struct {
	name     string
	kind     string // of its newest event; "" if it has none
	status   string // done, failed, retry, waits, unknown; "": nothing is recorded
	at       time.Time
	took     time.Duration
	attempts int // recorded ones
	worker   int // that recorded it, an index into History.Workers; -1: none
	note     string
	err      string
	ask      string // id of an open one
	child    string // id of its thread
	resumed  bool   // it is the first outcome after a worker was lost
	children []*node
}

// find returns the node of a path and makes it if necessary.
func (n *node) find(path string) *node {
	for name := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		var next *node
		for _, c := range n.children {
			if c.name == name {
				next = c
				break
			}
		}
		if next == nil {
			next = &node{name: name, worker: -1}
			n.children = append(n.children, next)
		}
		n = next
	}
	return n
}

// giveUp marks what still waits in a run that has ended.
func (n *node) giveUp() {
	if n.status == "waits" {
		n.status, n.note = "", "given up: "+n.note
	}
	for _, c := range n.children {
		c.giveUp()
	}
}

// Add takes the next event of the thread.
func (h *History) Add(e *perdure.Event) {
	if e.Run == "" {
		return
	}
	r := h.runs[e.Run]
	if r == nil {
		if h.runs == nil {
			h.runs = map[string]*runTree{}
		}
		r = &runTree{}
		h.runs[e.Run] = r
		h.Runs++
	}
	if !h.run(r, e) && e.Path != "" {
		h.step(r, e)
	}
}

// run takes an event about the run as a whole, and reports whether it was one.
func (h *History) run(r *runTree, e *perdure.Event) bool {
	switch e.Kind {
	case "queued":
		if !r.begun {
			r.begun, r.input = true, e.Value
		}
	case "claimed":
		p := &pass{worker: h.worker(e.Worker), begin: e.Time}
		if lost := r.open(); lost != nil {
			lost.end, lost.how = e.Time, "lost"
			r.notes = append(r.notes, note{e.Time, fmt.Sprintf("w%d was lost, and w%d took over", lost.worker+1, p.worker+1)})
			r.fresh = true
		}
		r.passes = append(r.passes, p)
	case "suspended", "released", "blocked", "quarantined", "ended":
		if p := r.open(); p != nil {
			p.end, p.how = e.Time, e.Kind
		}
		if e.Kind == "ended" {
			r.output = e.Value
		}
	case "cancel":
		r.notes = append(r.notes, note{e.Time, "cancelled" + by(e)})
	case "paused", "resumed", "retried":
		r.notes = append(r.notes, note{e.Time, e.Kind + by(e)})
	case "planned":
	default:
		return false
	}
	return true
}

// open returns the pass that has not ended, if any.
func (r *runTree) open() *pass {
	if n := len(r.passes); n > 0 && r.passes[n-1].how == "" {
		return r.passes[n-1]
	}
	return nil
}

// step takes an event of a verb.
func (h *History) step(r *runTree, e *perdure.Event) {
	switch e.Kind {
	case "dumped", "nudge":
		return
	}
	n := r.root.find(e.Path)
	n.kind, n.at = e.Kind, e.Time
	outside := slices.Contains([]string{"answered", "expired", "progress", "fired", "signal"}, e.Kind)
	if p := r.open(); p != nil && !outside {
		n.worker, n.resumed, r.fresh = p.worker, n.resumed || r.fresh, false
	}
	switch e.Kind {
	case "step":
		n.status, n.err, n.took, n.note = "done", e.Error, time.Duration(e.TookUS)*time.Microsecond, Brief(e.Value)
		if e.Error != "" {
			n.status = "failed"
		}
		n.attempts++
	case "attempt":
		n.status, n.err = "retry", e.Error
		n.attempts++
	case "closed":
		n.status, n.err = "failed", e.Error
	case "intent":
		n.status = "unknown"
	case "asked":
		n.status, n.ask, n.note = "waits", e.Ask, e.Name
	case "answered":
		n.status, n.ask, n.note = "done", "", strings.TrimSpace(strings.Join([]string{"answered", e.Decision, Brief(e.Value)}, " "))+by(e)
	case "expired":
		n.status, n.ask, n.note = "done", "", "nobody answered in time"
	case "progress":
		n.status, n.note = "waits", "news: "+Brief(e.Value)
	case "timer":
		n.status = "waits"
		n.note = "until " + e.Due.Format(time.RFC3339)
	case "waiting":
		n.status, n.note, n.child = "waits", "for the signal "+e.Name, e.Child
		if e.Child != "" {
			n.note = "for its child"
		}
	case "fired":
		n.status, n.note = "done", ""
	case "received", "signal":
		n.status, n.note, n.err = "done", "", e.Error
		if e.Status == perdure.Failed || e.Status == perdure.Cancelled {
			n.status, n.note = "failed", "the child "+string(e.Status)
		}
	case "spawned":
		n.status, n.child, n.note = "done", e.Child, "flow "+e.Name
	case "emitted":
		n.status, n.note = "done", Brief(e.Value)
	case "problem":
		n.err = e.Error + e.Reason
	default:
		n.status = "done"
	}
}

// worker returns the index of a worker.
func (h *History) worker(id string) int {
	for i, w := range h.Workers {
		if w == id {
			return i
		}
	}
	h.Workers = append(h.Workers, id)
	return len(h.Workers) - 1
}

// by says who did something, and why.
func by(e *perdure.Event) string {
	text := ""
	if e.By != "" {
		text = " by " + safe.Line(e.By)
	}
	if e.Reason != "" {
		text += ": " + safe.Line(e.Reason)
	}
	return text
}
