package perdure

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/explain"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/threads"
)

// PostMortem is what the journal says about a run that went wrong: what happened, which
// workers ran it, what it used, which effects may have happened, and what can be done
// now. Lists hold the newest items, in the order of the journal.
type PostMortem struct {
	Thread   string           `json:"thread"`
	Run      string           `json:"run"`
	Flow     string           `json:"flow"`
	Status   Status           `json:"status"`
	Seq      uint64           `json:"seq"` // the thread's last entry that it covers
	Created  time.Time        `json:"created"`
	Started  time.Time        `json:"started,omitzero"`
	Ended    time.Time        `json:"ended,omitzero"`
	Version  string           `json:"version,omitempty"` // of the code that ran it last
	Error    string           `json:"error,omitempty"`
	Codes    []string         `json:"codes,omitempty"` // the codes that the error matches, see [Coded]
	Stack    string           `json:"stack,omitempty"` // of the panic behind the error
	Diff     string           `json:"diff,omitempty"`  // why it is blocked
	Failures []Failure        `json:"failures,omitempty"`
	Passes   []PassInfo       `json:"passes,omitempty"`
	Lost     int              `json:"lost,omitempty"`   // passes that another worker had to take over
	Deaths   int              `json:"deaths,omitempty"` // of a quarantined run: workers in a row that were lost without recording anything
	Usage    Usage            `json:"usage"`
	Effects  []PossibleEffect `json:"effects,omitempty"`
	Children []ChildInfo      `json:"children,omitempty"`
	Cleaned  bool             `json:"cleaned,omitempty"` // a cleanup has begun, so that it cannot be retried
	Waits    []Wait           `json:"waits,omitempty"`
	Events   []EventRef       `json:"events,omitempty"` // of the run
	Next     []NextStep       `json:"next,omitempty"`
	Left     LeftOut          `json:"left_out,omitzero"`
}

// Failure is a recorded error: of an attempt that was retried, of a step around it, or
// of the run.
type Failure struct {
	Seq      uint64    `json:"seq"`
	Time     time.Time `json:"time"`
	Kind     string    `json:"kind"` // of the event: attempt, step, problem, closed, expired, quarantined or ended
	Path     string    `json:"path,omitempty"`
	Attempt  int       `json:"attempt,omitempty"`
	Attempts int       `json:"attempts,omitempty"` // how many there may be
	TookUS   int64     `json:"took_us,omitempty"`
	Error    string    `json:"error"`
	Codes    []string  `json:"codes,omitempty"`
	Stack    string    `json:"stack,omitempty"` // of a panic
}

// PassInfo is one execution of a run's code by a worker.
type PassInfo struct {
	Worker  string    `json:"worker"`
	Version string    `json:"version,omitempty"` // of its code
	Seq     uint64    `json:"seq"`               // of its claim
	Begun   time.Time `json:"begun"`
	Last    time.Time `json:"last"`          // when it last recorded something
	End     string    `json:"end,omitempty"` // how: ended, suspended, released, blocked, forked if it went on in another thread, or lost if its worker disappeared
}

// Usage is what a run has used. Times are in microseconds, by the clocks of the
// processes that wrote the journal.
type Usage struct {
	Spent    map[string]int64 `json:"spent,omitempty"`
	Budget   map[string]int64 `json:"budget,omitempty"`
	Steps    int              `json:"steps"`              // outcomes, failures included
	Failed   int              `json:"failed,omitempty"`   // attempts that failed
	Resumes  int              `json:"resumes,omitempty"`  // passes after the first
	Retries  int              `json:"retries,omitempty"`  // by people
	TotalUS  int64            `json:"total_us"`           // since it was queued
	QueuedUS int64            `json:"queued_us"`          // before its first pass
	WorkedUS int64            `json:"worked_us"`          // in passes, each up to the last entry that it recorded
	StepsUS  int64            `json:"steps_us,omitempty"` // in the functions of leaf steps; more than WorkedUS if they ran concurrently
	WaitedUS int64            `json:"waited_us"`          // suspended, or ended before it was retried
	LostUS   int64            `json:"lost_us,omitempty"`  // between the last sign of a lost worker and the next pass
}

// PossibleEffect is something that may have happened outside the run although no
// success was recorded. Its Kind is
//
//   - "unknown": an at-most-once step was started, and nobody knows its outcome
//   - "failed": a step failed, perhaps after it had an effect
//   - "lost": a worker disappeared after the event with this Seq; steps that it had
//     begun and not finished are not recorded
type PossibleEffect struct {
	Kind string `json:"kind"`
	Seq  uint64 `json:"seq"`
	Path string `json:"path,omitempty"`
}

// NextStep is something that can be done about a run: answer, resume, retry, fork,
// again (see [Runtime.StartAgain]) or cancel.
type NextStep struct {
	Do  string `json:"do"`
	Ask string `json:"ask,omitempty"` // the ask to answer
	At  uint64 `json:"at,omitempty"`  // the sequence to fork at: after the newest outcome that is not a failure
	Why string `json:"why"`
}

// LeftOut counts the older items that the lists of a [PostMortem] omit.
type LeftOut struct {
	Failures int `json:"failures,omitempty"`
	Passes   int `json:"passes,omitempty"`
	Effects  int `json:"effects,omitempty"`
	Events   int `json:"events,omitempty"`
}

// PostMortem gathers what the journal says about a run; "" means the newest one of the
// thread. It reads all entries since the run was queued. It is meant for runs that have
// failed or are blocked or quarantined, but works for all others too.
func (r *Runtime) PostMortem(ctx context.Context, thread, run string) (*PostMortem, error) {
	o, err := r.tenant.Open(ctx, thread)
	if err != nil {
		return nil, err
	}
	found, err := threads.PickRun(o.Thread, run)
	if err != nil {
		return nil, err
	}
	info, err := r.runInfo(ctx, o, found)
	if err != nil && !errors.Is(err, fault.ErrCorrupt) { // a damaged value does not hide the rest
		return nil, err
	}
	m, err := explain.Examine(ctx, r.core.threads, o, found, each(info.Asks, func(a AskInfo) string { return a.ID }))
	if err != nil {
		return nil, err
	}
	return &PostMortem{Thread: info.Thread, Run: info.ID, Flow: info.Flow, Status: info.Status, Seq: o.Thread.Seq, Created: info.Created, Started: info.Started,
		Ended: info.Ended, Version: info.Version, Error: info.Error, Codes: info.Codes, Stack: m.Stack, Diff: info.Diff, Children: info.Children, Waits: info.Waits,
		Cleaned: found.Cleaning, Lost: m.Lost, Deaths: m.Deaths, Usage: Usage(m.Usage), Left: LeftOut(m.Left),
		Failures: each(m.Failures, func(f explain.Failure) Failure { return Failure(f) }),
		Passes:   each(m.Passes, func(p explain.PassInfo) PassInfo { return PassInfo(p) }),
		Effects:  each(m.Effects, func(e explain.PossibleEffect) PossibleEffect { return PossibleEffect(e) }),
		Events:   each(m.Events, func(e threads.EventRef) EventRef { return EventRef(e) }),
		Next:     each(m.Next, func(n explain.NextStep) NextStep { return NextStep(n) })}, nil
}

// BundleOptions say what a bundle includes in addition to what all bundles include.
type BundleOptions struct {
	Names    bool           // the names in the code: of flows, steps, signals and units; they may contain what users wrote
	Hosts    bool           // the names of the machines on which workers run
	Contents bool           // everything: names, texts of errors, the thread's whole export
	About    map[string]any // facts about the caller's own process; written as they are
}

// Bundle writes a zip file to attach to a ticket, with what is needed to help with a
// run, the newest one of the thread if run is "": its post-mortem, the shape of the
// thread's journal, versions, the kind of store, the options of the runtime, the workers
// and the last lines of the log.
//
// Unless the options say otherwise, the file contains nothing that users, models or
// tools wrote: no inputs, outputs, messages, states, titles, users, metadata, error
// texts, thread ids, step names or hosts. Each name is replaced by an invented one, the
// same wherever the name occurs. What remains are kinds, sequences, times, sizes, ids
// that the runtime generated, codes of errors that the runtime defines, and stack
// frames. README.txt in the file says the same.
//
// After an error the file is incomplete.
func (r *Runtime) Bundle(ctx context.Context, thread, run string, w io.Writer, o BundleOptions) error {
	m, err := r.PostMortem(ctx, thread, run)
	if err != nil {
		return err
	}
	name, err := r.tenant.Find(ctx, thread)
	if err != nil {
		return err
	}
	c := &r.core.opts
	b := explain.Bundle{Threads: r.core.threads, Name: name, Thread: m.Thread, Run: m.Run, Status: m.Status, Seq: m.Seq,
		PostMortem: func(n *explain.Names) any { return m.hide(n) }, Workers: r.core.staff.Living, Export: r.archive().Export,
		Book: r.core.book, Version: r.core.version, Flows: r.Flows(), Options: map[string]any{
			"concurrency": c.Concurrency, "lease": c.Lease.String(), "grace": c.Grace.String(), "dump_interval": c.DumpInterval.String(), "max_queue": c.MaxQueue,
			"trusted_keys": len(c.Trust), "development": c.Development, "validator": c.Validator != nil, "observer": c.Observer != nil, "logger": c.Logger != nil}}
	return b.Write(ctx, w, explain.BundleOptions(o))
}

// hide returns a post-mortem without what the names replace.
func (m PostMortem) hide(n *explain.Names) PostMortem {
	m.Thread, m.Flow, m.Error, m.Codes, m.Stack, m.Diff = n.Thread(m.Thread), n.Alias("f", m.Flow), n.Text(m.Error), n.Codes(m.Codes), n.Stack(m.Stack), n.Text(m.Diff)
	m.Usage.Spent, m.Usage.Budget = n.Amounts(m.Usage.Spent), n.Amounts(m.Usage.Budget)
	m.Failures, m.Effects, m.Events = slices.Clone(m.Failures), slices.Clone(m.Effects), slices.Clone(m.Events)
	for i := range m.Failures {
		f := &m.Failures[i]
		f.Path, f.Error, f.Codes, f.Stack = n.Path(f.Path), n.Text(f.Error), n.Codes(f.Codes), n.Stack(f.Stack)
	}
	for i := range m.Effects {
		m.Effects[i].Path = n.Path(m.Effects[i].Path)
	}
	for i := range m.Events {
		m.Events[i].Path = n.Path(m.Events[i].Path)
	}
	m.Children = slices.Clone(m.Children)
	for i := range m.Children {
		c := &m.Children[i]
		c.Path, c.Thread, c.Flow = n.Path(c.Path), n.Thread(c.Thread), n.Alias("f", c.Flow)
	}
	m.Waits = slices.Clone(m.Waits)
	for i := range m.Waits {
		w := &m.Waits[i]
		w.Path, w.Signal = n.Path(w.Path), n.Alias("s", w.Signal)
		if w.Child != "" {
			w.Child = n.Thread(w.Child)
		}
	}
	return m
}
