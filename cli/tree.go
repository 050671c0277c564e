package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/safe"

	"github.com/perdure/perdure"
)

// history is what happened on a thread, folded from its events: runs, each with
// its steps as a tree.
type history struct {
	runs    []*runTree
	byID    map[string]*runTree
	workers []string // in the order of their first claim
	notes   []string // of the thread itself: that it was forked, rewound, …
}

// runTree is a run.
type runTree struct {
	id, flow      string
	status        perdure.Status
	input, output json.RawMessage
	err           string
	queued, ended time.Time
	passes        []*pass
	plan          []string
	notes         []note // by people
	root          node
	fresh         bool // a worker took over, and has recorded nothing yet
}

// pass is one call of the flow by a worker.
type pass struct {
	worker     int // index into history.workers
	begin, end time.Time
	how        string // it ended: suspended, ended, released, lost; "": it has not
}

// note is something that a person did.
type note struct {
	at   time.Time
	text string
}

// node is a step, or another verb, or a name that holds some.
type node struct {
	name     string
	kind     string // of its newest event; "" of a name that has none
	status   string // done, failed, waits, unknown; "": nothing is recorded
	at       time.Time
	took     time.Duration
	attempts int // that are recorded
	worker   int // that recorded it; -1: none
	note     string
	err      string
	ask      string // id of an open one
	child    string // id of its thread
	resumed  bool   // it is the first outcome after a worker was lost
	children []*node
}

// find returns the node of a path, which is made if it is not there.
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

// giveUp marks what waits in a run that has ended.
func (n *node) giveUp() {
	if n.status == "waits" {
		n.status, n.note = "", "given up: "+n.note
	}
	for _, c := range n.children {
		c.giveUp()
	}
}

// kept tells how many answers a fork has kept.
func kept(e *perdure.Event) string {
	if len(e.Keep) == 0 {
		return ""
	}
	return fmt.Sprintf(", which keeps answers (%d)", len(e.Keep))
}

// signedBy tells who vouches for what an import brought.
func signedBy(e *perdure.Event) string {
	if e.Signer == "" {
		return " that is not signed by a trusted key; what people decided there does not count here"
	}
	return ", signed by " + e.Signer
}

// add takes the next event of the thread.
func (h *history) add(e *perdure.Event) {
	switch e.Kind {
	case "forked":
		if e.Import {
			h.notes = append(h.notes, fmt.Sprintf("%d: all before it was imported from a file%s", e.Seq, signedBy(e)))
			break
		}
		h.notes = append(h.notes, fmt.Sprintf("%d: the fork of %s at %d begins here%s%s", e.Seq, e.From, e.At, by(e), kept(e)))
	case "rewound":
		h.notes = append(h.notes, fmt.Sprintf("%d: rewound to %d%s; what came before is kept for audit", e.Seq, e.To, by(e)))
	}
	if e.Run == "" {
		return
	}
	r := h.byID[e.Run]
	if r == nil {
		if h.byID == nil {
			h.byID = map[string]*runTree{}
		}
		r = &runTree{id: e.Run, queued: e.Time, status: perdure.Queued}
		h.byID[e.Run] = r
		h.runs = append(h.runs, r)
	}
	if !h.run(r, e) && e.Path != "" {
		h.step(r, e)
	}
}

// run takes an event that is about the run as a whole, and reports whether it
// was one.
func (h *history) run(r *runTree, e *perdure.Event) bool {
	switch e.Kind {
	case "queued":
		if r.flow == "" {
			r.flow, r.input, r.queued = e.Name, e.Value, e.Time
		}
	case "claimed":
		p := &pass{worker: h.worker(e.Worker), begin: e.Time}
		if lost := r.open(); lost != nil {
			lost.end, lost.how = e.Time, "lost"
			r.notes = append(r.notes, note{e.Time, fmt.Sprintf("w%d was lost, and w%d took over", lost.worker+1, p.worker+1)})
			r.fresh = true
		}
		r.passes, r.status = append(r.passes, p), perdure.Running
	case "suspended", "released", "blocked", "quarantined", "ended":
		if p := r.open(); p != nil {
			p.end, p.how = e.Time, e.Kind
		}
		switch e.Kind {
		case "ended":
			r.status, r.output, r.err, r.ended = e.Status, e.Value, e.Error, e.Time
		case "released":
			r.status = perdure.Running // another may go on at once
		default:
			r.status = perdure.Status(e.Kind)
		}
		if e.Kind == "blocked" || e.Kind == "quarantined" {
			r.err = e.Error + e.Reason + e.Diff
		}
	case "cancel", "paused", "resumed", "retried":
		did := map[string]string{"cancel": "cancelled"}[e.Kind]
		if did == "" {
			did = e.Kind
		}
		r.notes = append(r.notes, note{e.Time, did + by(e)})
		switch e.Kind {
		case "paused":
			r.status = perdure.Paused
		case "resumed", "retried":
			r.status, r.err, r.ended = perdure.Queued, "", time.Time{}
		}
	case "planned":
		r.plan = e.Plan
	default:
		return false
	}
	return true
}

// open returns the pass that has not ended.
func (r *runTree) open() *pass {
	if n := len(r.passes); n > 0 && r.passes[n-1].how == "" {
		return r.passes[n-1]
	}
	return nil
}

// step takes an event of a verb.
func (h *history) step(r *runTree, e *perdure.Event) {
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
		n.status, n.err, n.took, n.note = "done", e.Error, time.Duration(e.TookUS)*time.Microsecond, brief(e.Value)
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
		n.status, n.ask, n.note = "done", "", strings.TrimSpace(strings.Join([]string{"answered", e.Decision, brief(e.Value)}, " "))+by(e)
	case "expired":
		n.status, n.ask, n.note = "done", "", "nobody answered in time"
	case "progress":
		n.status, n.note = "waits", "news: "+brief(e.Value)
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
		n.status, n.note = "done", brief(e.Value)
	case "problem":
		n.err = e.Error + e.Reason
	default:
		n.status = "done"
	}
}

// worker returns the number of a worker.
func (h *history) worker(id string) int {
	for i, w := range h.workers {
		if w == id {
			return i
		}
	}
	h.workers = append(h.workers, id)
	return len(h.workers) - 1
}

// by says who did it, and why.
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
