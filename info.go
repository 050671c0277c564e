package perdure

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/exact"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/internal/tree"
)

// Status is the state of a run. Its method Final reports whether the run has ended;
// a failed one can be retried.
type Status = journal.Status

// The statuses.
const (
	Queued      Status = "queued"
	Running     Status = "running"
	Suspended   Status = "suspended"   // it waits for an ask, a signal or a timer
	Paused      Status = "paused"      // by a person
	Blocked     Status = "blocked"     // the code no longer matches what is recorded
	Quarantined Status = "quarantined" // it killed too many workers
	Succeeded   Status = "succeeded"
	Failed      Status = "failed"
	Cancelled   Status = "cancelled"
)

// Thread describes a thread.
type Thread struct {
	ID       string            `json:"id"`
	Tenant   string            `json:"tenant,omitempty"`
	User     string            `json:"user,omitempty"`
	Title    string            `json:"title,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Created  time.Time         `json:"created"`
	Updated  time.Time         `json:"updated"`
	Seq      uint64            `json:"seq"`            // of its last entry
	Life     string            `json:"life,omitempty"` // if it reuses the id of an erased thread, see [Runtime.Tag]
	Status   Status            `json:"status"`         // of the oldest run that has not ended, else of the newest; "" without runs
	Spent    map[string]int64  `json:"spent,omitempty"`
	Runs     []*Run            `json:"runs,omitempty"`    // in the order of their start
	Earlier  int               `json:"earlier,omitempty"` // how many runs come before the first of Runs, see [RunPage]
	Parent   *ParentInfo       `json:"parent,omitempty"`  // of a child
	Fork     *Point            `json:"fork,omitempty"`    // what it was forked or imported from, and the last sequence that both share
	Import   *ImportInfo       `json:"import,omitempty"`  // of an imported thread and its forks
	Foreign  string            `json:"foreign,omitempty"` // why this version leaves the thread alone
	Moved    string            `json:"moved,omitempty"`   // the store where it continues, see [MovedError]
	Why      *Why              `json:"why,omitempty"`     // whether it makes progress, or what it waits for; nil for a page of earlier runs, for the past, and if it cannot be determined
}

// ImportInfo says that a thread, or the thread it was forked from, was imported
// from a file.
type ImportInfo struct {
	Thread string    `json:"thread"`           // its id in the file
	Seq    uint64    `json:"seq"`              // its last entry in the file
	Time   time.Time `json:"time"`             // when it was imported
	Signer string    `json:"signer,omitempty"` // the trusted key that signed the file; "" if nobody vouches for its content
}

// ParentInfo says which run spawned a child.
type ParentInfo struct {
	Thread string `json:"thread"`
	Run    string `json:"run"`
	Path   string `json:"path"` // of the Spawn
}

// Run describes a run.
type Run struct {
	Thread   string           `json:"thread"`
	ID       string           `json:"id"`
	Seq      uint64           `json:"seq"` // of the entry that queued it
	Flow     string           `json:"flow"`
	Status   Status           `json:"status"`
	Created  time.Time        `json:"created"`
	Started  time.Time        `json:"started,omitzero"`
	Ended    time.Time        `json:"ended,omitzero"`
	Output   json.RawMessage  `json:"output,omitempty"`
	Err      error            `json:"-"`               // why it failed, as recorded
	Error    string           `json:"error,omitempty"` // the same as text
	Codes    []string         `json:"codes,omitempty"` // the codes that it matches, see [Coded]
	Steps    int              `json:"steps"`           // outcomes recorded so far
	Last     string           `json:"last,omitempty"`  // path of the newest outcome
	Plan     []PlanStep       `json:"plan,omitempty"`
	Waits    []Wait           `json:"waits,omitempty"`
	Asks     []AskInfo        `json:"asks,omitempty"`     // open ones
	Children []ChildInfo      `json:"children,omitempty"` // in the order of their Spawn
	Resumes  int              `json:"resumes"`            // how often it continued after its first pass
	Retries  int              `json:"retries"`            // by a person
	Paused   time.Time        `json:"paused,omitzero"`    // when a person paused it, if it is paused
	Since    time.Time        `json:"suspended,omitzero"` // when it began to wait, if it waits
	Errors   []ErrorNote      `json:"errors,omitempty"`   // what went wrong inside it, even if retried or handled
	Failed   []FailedBranch   `json:"failed,omitempty"`   // branches that have failed while the run continues or waits
	Spent    map[string]int64 `json:"spent,omitempty"`
	Budget   map[string]int64 `json:"budget,omitempty"`
	Unknown  []string         `json:"unknown,omitempty"`  // at-most-once steps whose outcome nobody knows
	Diff     string           `json:"diff,omitempty"`     // why it is blocked
	Idle     string           `json:"idle,omitempty"`     // why nothing would continue it: no live worker has its flow
	Version  string           `json:"version,omitempty"`  // of the code that ran it last
	Steering bool             `json:"steering,omitempty"` // not a run yet but input for Take, see Steer
}

// FailedBranch is a branch of a [Group] whose newest outcome is a failure.
type FailedBranch struct {
	Branch string    `json:"branch"` // its path
	Path   string    `json:"path"`   // of what failed
	Seq    uint64    `json:"seq"`
	Time   time.Time `json:"time"`
	Error  string    `json:"error"`
}

// ChildInfo is a child of a run, see [Spawn].
type ChildInfo struct {
	Path   string `json:"path"`   // of the Spawn
	Thread string `json:"thread"` // its id
	Flow   string `json:"flow"`
	Joined bool   `json:"joined"` // the run knows that it has ended
}

// PlanStep is a step announced by Plan.
type PlanStep struct {
	Name string `json:"name"`
	Done bool   `json:"done"`
}

// Wait is something that a run waits for.
type Wait struct {
	Kind   string    `json:"kind"` // "ask", "timer", "signal", "child" or "retry"
	Path   string    `json:"path"`
	Since  time.Time `json:"since"`
	Due    time.Time `json:"due,omitzero"`     // when it ends by itself; zero if never
	Ask    string    `json:"ask,omitempty"`    // id of the ask
	Signal string    `json:"signal,omitempty"` // name of the signal
	Child  string    `json:"child,omitempty"`  // id of the child's thread
}

// ErrorNote is one thing that went wrong.
type ErrorNote struct {
	Seq   uint64    `json:"seq"`
	Time  time.Time `json:"time"`
	Path  string    `json:"path,omitempty"`
	Error string    `json:"error"`
	Stack string    `json:"stack,omitempty"`
}

// Get returns everything about a thread, exactly as it is now, with all of its runs;
// [Runtime.GetPage] returns only some. If an entry is damaged, Get returns ErrCorrupt
// along with the thread up to the last intact entry.
func (r *Runtime) Get(ctx context.Context, thread string) (*Thread, error) {
	return r.GetPage(ctx, thread, RunPage{})
}

// RunPage selects the runs of a thread that were queued last.
type RunPage struct {
	Before uint64 // only runs queued before this sequence, such as the Seq of the first run of another page; 0 means all
	Limit  int    // maximum number; 0 means all. If Before is 0, the page goes back at least to the oldest run that has not ended
}

// GetPage is Get with only some of the thread's runs. Thread.Earlier says how many
// come before them.
func (r *Runtime) GetPage(ctx context.Context, thread string, p RunPage) (*Thread, error) {
	if p.Limit < 0 {
		return nil, fmt.Errorf("%w: a limit of %d runs", fault.ErrInvalid, p.Limit)
	}
	o, err := r.tenant.Open(ctx, thread)
	if o == nil {
		return nil, err
	}
	t, infoErr := r.presentInfo(ctx, o, p)
	t.ID = cmp.Or(t.ID, thread) // its first entry may be damaged
	return t, errors.Join(err, infoErr)
}

// GetRun returns everything about a run; "" means the newest run of the thread.
func (r *Runtime) GetRun(ctx context.Context, thread, run string) (*Run, error) {
	o, err := r.tenant.Open(ctx, thread)
	if err != nil {
		return nil, err
	}
	found, err := threads.PickRun(o.Thread, run)
	if err != nil {
		return nil, err
	}
	return r.runInfo(ctx, o, found)
}

// presentInfo is threadInfo for a thread as it is now, which also says why it does not
// move.
func (r *Runtime) presentInfo(ctx context.Context, o *threads.Opened, p RunPage) (*Thread, error) {
	info, err := r.threadInfo(ctx, o, p)
	if p.Before > 0 {
		return info, err
	}
	why, whyErr := r.core.explainer.Thread(ctx, o)
	if whyErr != nil { // the thread itself was read
		r.core.threads.Log.Debug("explaining why a thread does not move", "thread", o.Thread.ID, "error", whyErr)
		return info, err
	}
	info.Why = (*Why)(why)
	return info, err
}

func (r *Runtime) threadInfo(ctx context.Context, o *threads.Opened, p RunPage) (*Thread, error) {
	t := o.Thread
	info := &Thread{ID: t.ID, Tenant: t.Tenant, User: t.User, Title: t.Title, Metadata: maps.Clone(t.Meta),
		Created: clock.Stamp(t.Created), Updated: clock.Stamp(t.Time), Seq: t.Seq, Spent: maps.Clone(t.Spent), Foreign: t.Foreign, Moved: t.Moved,
		Status: threads.StatusOf(t)}
	if from := t.Parent; from != nil {
		info.Parent = &ParentInfo{Thread: from.Thread, Run: from.RunID, Path: tree.Names(from.Path)}
	}
	if t.Fork != nil {
		info.Fork = &Point{Thread: t.Fork.Thread, Seq: t.Fork.At}
	}
	if from := t.Import; from != nil {
		info.Import = &ImportInfo{Thread: from.Thread, Seq: from.At, Time: clock.Stamp(t.Imported), Signer: from.Key}
	}
	var errs []error
	if t.ID != "" {
		var err error
		info.Life, err = r.tenant.Tag(ctx, o.Name, t.ID)
		errs = append(errs, err)
	}
	runs := slices.Concat(t.Runs, t.Inbox)
	if p.Before > 0 {
		runs = slices.DeleteFunc(runs, func(run *journal.Run) bool { return run.N >= p.Before })
	}
	if p.Limit > 0 && len(runs) > p.Limit {
		info.Earlier = len(runs) - p.Limit
		if open := t.Busy(); open != nil && p.Before == 0 {
			info.Earlier = min(info.Earlier, slices.Index(runs, open))
		}
		runs = runs[info.Earlier:]
	}
	for _, run := range runs {
		ri, err := r.runInfo(ctx, o, run)
		errs = append(errs, err)
		info.Runs = append(info.Runs, ri)
		if err != nil && !errors.Is(err, fault.ErrCorrupt) {
			break // the others could not be read either
		}
	}
	return info, errors.Join(errs...)
}

var waitKinds = map[journal.Kind]string{
	journal.Asked: "ask", journal.Timer: "timer", journal.Waiting: "signal", journal.Attempt: "retry",
}

// runInfo tells about a run. Nothing in what it returns is part of the thread, which
// may be kept in memory while the caller changes what it was given.
func (r *Runtime) runInfo(ctx context.Context, o *threads.Opened, run *journal.Run) (*Run, error) {
	info := &Run{Thread: o.Thread.ID, ID: run.ID, Seq: run.N, Flow: run.Flow, Status: run.Status,
		Created: clock.Stamp(run.Created), Started: clock.Stamp(run.Started), Ended: clock.Stamp(run.Ended),
		Steps: run.Steps, Last: tree.Names(run.Last), Resumes: run.Resumes(), Retries: run.Retries,
		Paused: clock.Stamp(run.PausedAt), Since: clock.Stamp(run.SuspendedAt), Spent: maps.Clone(run.Spent), Budget: maps.Clone(run.Budget),
		Unknown: slices.Clone(run.Unknown), Diff: run.Diff, Version: run.Version, Steering: o.Thread.Run(run.N) == nil}
	if !info.Steering {
		info.Idle = r.core.staff.Unattended(ctx, run)
	}
	if run.Fail != nil {
		info.Err = &fault.Recorded{Fail: *run.Fail}
		info.Codes = slices.Clone(run.Fail.Codes)
		info.Error = run.Fail.Msg
	}
	for _, e := range run.Errors {
		info.Errors = append(info.Errors, ErrorNote{Seq: e.Seq, Time: clock.Stamp(e.Time), Path: tree.Names(e.Path), Error: e.Fail.Msg, Stack: e.Fail.Stack})
	}
	for _, branch := range slices.Sorted(maps.Keys(run.Failing)) {
		f := run.Failing[branch]
		info.Failed = append(info.Failed, FailedBranch{Branch: tree.Names(branch), Path: tree.Names(f.Path), Seq: f.Seq, Time: clock.Stamp(f.Time), Error: f.Fail.Msg})
	}
	for _, c := range run.Children {
		info.Children = append(info.Children, ChildInfo{Path: tree.Names(c.Path), Thread: c.ID, Flow: c.Flow, Joined: c.Joined})
	}
	done := o.Trees[run.N]
	for _, name := range run.Plan {
		info.Plan = append(info.Plan, PlanStep{Name: name, Done: run.Status == journal.StatusSucceeded || run.Reached[name] || planDone(done, run.PlanAt+name)})
	}
	var errs []error // damage does not hide the rest
	for _, path := range slices.Sorted(maps.Keys(run.Waits)) {
		w := run.Waits[path]
		wait := Wait{Kind: waitKinds[w.Kind], Path: tree.Names(path), Since: clock.Stamp(w.Since), Due: clock.Stamp(w.Due), Signal: w.Signal}
		if child := run.Child(w.Signal); child != nil {
			wait.Kind, wait.Child, wait.Signal = "child", child.ID, ""
		}
		if ask := o.Thread.Ask(w.Ask); ask != nil && ask.Open() {
			wait.Ask = threads.AskID(o.Name, ask.ID)
			ai, err := r.askInfo(ctx, o, ask)
			if err == nil && ai.Status == AskOpen {
				info.Asks = append(info.Asks, ai)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("thread %s, the ask at %s: %w", o.Thread.ID, wait.Path, err))
			}
		}
		info.Waits = append(info.Waits, wait)
	}
	out, err := r.core.threads.Output(ctx, o, run)
	info.Output = bytes.Clone(out)
	return info, errors.Join(append(errs, err)...)
}

func planDone(t *tree.Tree, path string) bool {
	if t == nil {
		return false
	}
	n := t.At(path)
	return n != nil && n.Done && n.Fail == nil
}

// Output returns the output of a run that succeeded. For any other run it returns
// an error that says why there is no output: it wraps the run's Err if the run
// failed, and matches ErrCancelled if it was cancelled, ErrBlocked (with the diff)
// if it is blocked, and ErrNothingToDo if it has not ended.
func Output[T any](run *Run) (T, error) {
	var zero T
	switch run.Status {
	case Succeeded:
		v, err := exact.Decode[T](run.Output)
		if err != nil {
			return zero, fmt.Errorf("perdure: the output of run %s does not fit %T: %w", run.ID, zero, err)
		}
		return v, nil
	case Failed:
		return zero, fmt.Errorf("perdure: run %s failed: %w", run.ID, run.Err)
	case Cancelled:
		return zero, fmt.Errorf("run %s: %w", run.ID, fault.ErrCancelled)
	case Blocked:
		return zero, fmt.Errorf("run %s: %w: %s", run.ID, fault.ErrBlocked, run.Diff)
	}
	return zero, fmt.Errorf("%w: run %s has no output, it is %s", fault.ErrNothingToDo, run.ID, run.Status)
}

// NewFact returns the state of a fact that the thread has learned: a
// preference, a pattern. Facts are state, but StateAt lists them separately.
func NewFact[T any](key string) State[T] { return State[T]{engine.FactPrefix + key} }

// Damaged is the listed status of a thread in which damage has been found: see
// [Runtime.Verify].
const Damaged Status = "damaged"

// Idle selects threads without a run in a list. The status of such a thread is "".
const Idle Status = "idle"

// each returns what a function makes of each item of a list, nil of nil.
func each[From, To any](list []From, to func(From) To) []To {
	if list == nil {
		return nil
	}
	all := make([]To, len(list))
	for i, item := range list {
		all[i] = to(item)
	}
	return all
}
