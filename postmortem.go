package perdure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/lifecycle"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/internal/tree"
)

// PostMortem is what the journal tells about a run that went wrong: why, who ran
// it, what it used, which effects may have happened, and what can be done now. Lists
// hold the newest items, in the order of the journal.
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

// Failure is an error that the journal has on record: of an attempt that was tried
// again, of the steps around it, and of the run.
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

// Usage is what a run has used. Times are in microseconds, by the clocks of those
// who wrote the journal.
type Usage struct {
	Spent    map[string]int64 `json:"spent,omitempty"`
	Budget   map[string]int64 `json:"budget,omitempty"`
	Steps    int              `json:"steps"`              // outcomes, failures included
	Failed   int              `json:"failed,omitempty"`   // attempts that failed
	Resumes  int              `json:"resumes,omitempty"`  // passes after the first
	Retries  int              `json:"retries,omitempty"`  // by people
	TotalUS  int64            `json:"total_us"`           // since it was queued
	QueuedUS int64            `json:"queued_us"`          // before its first pass
	WorkedUS int64            `json:"worked_us"`          // in passes, as far as they have recorded something
	StepsUS  int64            `json:"steps_us,omitempty"` // in the functions of leaf steps; more than WorkedUS if they ran side by side
	WaitedUS int64            `json:"waited_us"`          // suspended, or ended before it was retried
	LostUS   int64            `json:"lost_us,omitempty"`  // between the last sign of a lost worker and the next pass
}

// PossibleEffect is something that may have happened outside although no success is
// on record. Its Kind is
//
//   - "unknown": an at-most-once step that was started and whose outcome nobody knows
//   - "failed": a step that failed, perhaps after it had acted
//   - "lost": a worker disappeared after the event with this Seq; the steps that it
//     had begun by then are not on record
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

// LeftOut says how many older items the lists of a [PostMortem] do not hold.
type LeftOut struct {
	Failures int `json:"failures,omitempty"`
	Passes   int `json:"passes,omitempty"`
	Effects  int `json:"effects,omitempty"`
	Events   int `json:"events,omitempty"`
}

// How many items a post-mortem lists, and how long their texts are.
const (
	mostFailures = 50
	mostListed   = 20
	mostText     = 4 << 10
)

// PostMortem gathers what the journal tells about a run, "" for the newest of the
// thread. It reads all entries since the run was queued. It is meant for runs that
// have failed, or are blocked or quarantined, and works for all others too.
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
	c := coroner{run: found, failed: map[string]PossibleEffect{}, parents: map[string]bool{}, intents: map[string]uint64{}, good: found.N, m: &PostMortem{Thread: info.Thread, Run: info.ID, Flow: info.Flow,
		Status: info.Status, Seq: o.Thread.Seq, Created: info.Created, Started: info.Started, Ended: info.Ended, Version: info.Version,
		Error: info.Error, Codes: info.Codes, Diff: info.Diff, Children: info.Children, Cleaned: found.Cleaning, Waits: info.Waits,
		Usage: Usage{Spent: info.Spent, Budget: info.Budget, Resumes: info.Resumes, Retries: info.Retries}}}
	if found.Fail != nil {
		c.m.Stack = found.Fail.Stack
	}
	var recorded struct {
		Deaths int `json:"deaths"`
	}
	if found.PostMortem.JSON != nil && json.Unmarshal(found.PostMortem.JSON, &recorded) == nil {
		c.m.Deaths = recorded.Deaths
	}
	for line, err := range r.core.threads.Entries(ctx, o.Name, found.N-1, o.Thread.Seq) {
		if err != nil {
			return nil, fmt.Errorf("perdure: the post-mortem of run %s: %w", found.ID, err)
		}
		e, err := journal.Peek(line.Seq, line.Data)
		if err != nil {
			return nil, fmt.Errorf("%w: entry %d: %w", fault.ErrCorrupt, line.Seq, err)
		}
		if e.Kind == journal.Forked {
			c.endPass("forked", e.Time) // it went on in the other thread
		}
		if e.Run != found.N && e.Seq != found.N || !e.Kind.Known() {
			continue
		}
		b, err := e.Read()
		if err != nil {
			return nil, fmt.Errorf("%w: entry %d: %w", fault.ErrCorrupt, line.Seq, err)
		}
		c.see(e, &b)
	}
	c.conclude(o.Thread, info.Asks)
	return c.m, nil
}

// coroner reads the entries of a run, one after the other.
type coroner struct {
	run     *journal.Run
	m       *PostMortem
	open    *PassInfo                 // the pass that has not ended
	last    journal.Entry             // the newest of the run
	rested  int64                     // since when it has had no pass, 0 if it has one
	good    uint64                    // the newest outcome that is not a failure
	failed  map[string]PossibleEffect // steps that failed and have not succeeded since, by path
	parents map[string]bool           // the paths that have others below them: only leaves act
	intents map[string]uint64         // the newest of each path
	lost    []PossibleEffect
}

// see takes the next entry.
func (c *coroner) see(e journal.Entry, b *journal.Body) {
	m := c.m
	m.Events = append(m.Events, EventRef{Seq: e.Seq, Kind: string(e.Kind), Path: tree.Names(e.Path)})
	if trim(&m.Events, 2*mostListed, mostListed) {
		m.Left.Events += mostListed
	}
	if b.Fail != nil && b.Fail.Msg != "" {
		m.Failures = append(m.Failures, Failure{Seq: e.Seq, Time: clock.Stamp(e.Time), Kind: string(e.Kind), Path: tree.Names(e.Path), Attempt: b.Attempt, Attempts: b.Most,
			TookUS: b.Took, Error: fault.Clip(b.Fail.Msg, mostText), Codes: b.Fail.Codes, Stack: fault.Clip(b.Fail.Stack, mostText)})
		if trim(&m.Failures, 2*mostFailures, mostFailures) {
			m.Left.Failures += mostFailures
		}
	}
	m.Usage.StepsUS += b.Took
	for i := strings.LastIndexByte(e.Path, '/'); i > 0 && !c.parents[e.Path[:i]]; i = strings.LastIndexByte(e.Path[:i], '/') {
		c.parents[e.Path[:i]] = true
	}
	switch e.Kind {
	case journal.Queued:
		c.rested = e.Time
	case journal.Claimed:
		c.endPass("lost", e.Time)
		if !c.begun() {
			m.Usage.QueuedUS = e.Time - c.run.Created
		} else if c.rested != 0 {
			m.Usage.WaitedUS += e.Time - c.rested
		}
		c.rested = 0
		c.open = &PassInfo{Worker: b.Worker, Version: b.Version, Seq: e.Seq, Begun: clock.Stamp(e.Time), Last: clock.Stamp(e.Time)}
	case journal.Suspended, journal.Released, journal.Blocked, journal.Ended:
		c.sign(e)
		c.endPass(string(e.Kind), e.Time)
	case journal.Quarantined:
		c.endPass("lost", e.Time)
	case journal.Intent:
		c.intents[e.Path] = e.Seq
	case journal.Step:
		m.Usage.Steps++
		if b.Fail == nil {
			c.good = e.Seq
			delete(c.failed, e.Path)
		} else {
			m.Usage.Failed++
			c.fail(e, b)
		}
	case journal.Attempt:
		m.Usage.Failed++
		c.fail(e, b)
	case journal.Answered, journal.Received, journal.Took, journal.Fired, journal.Signal:
		c.good = e.Seq
	}
	c.sign(e)
	c.last = e
}

func (c *coroner) begun() bool { return len(c.m.Passes)+c.m.Left.Passes > 0 }

// sign notes that the open pass has recorded something.
func (c *coroner) sign(e journal.Entry) {
	if c.open != nil && e.Epoch != 0 {
		c.open.Last = clock.Stamp(e.Time)
	}
}

// fail notes a step that failed.
func (c *coroner) fail(e journal.Entry, b *journal.Body) {
	if (b.Verb == "" || b.Verb == journal.VerbCleanup) && !b.NotDone {
		c.failed[e.Path] = PossibleEffect{Kind: "failed", Seq: e.Seq, Path: tree.Names(e.Path)}
	}
}

// endPass ends the open pass.
func (c *coroner) endPass(how string, at int64) {
	p := c.open
	if p == nil {
		return
	}
	c.open, p.End, c.rested = nil, how, at
	u := &c.m.Usage
	u.WorkedUS += p.Last.Sub(p.Begun).Microseconds()
	if how == "lost" {
		c.m.Lost++
		u.LostUS += at - p.Last.UnixMicro()
		c.lost = append(c.lost, PossibleEffect{Kind: "lost", Seq: c.last.Seq, Path: tree.Names(c.last.Path)})
	}
	c.keep(p)
}

func (c *coroner) keep(p *PassInfo) {
	c.m.Passes = append(c.m.Passes, *p)
	if trim(&c.m.Passes, 2*mostListed, mostListed) {
		c.m.Left.Passes += mostListed
	}
}

// conclude completes the post-mortem after the last entry.
func (c *coroner) conclude(t *journal.Thread, asks []AskInfo) {
	m := c.m
	if p := c.open; p != nil {
		m.Usage.WorkedUS += p.Last.Sub(p.Begun).Microseconds()
		c.keep(p)
	}
	end := t.Time
	if c.run.Ended != 0 {
		end = c.run.Ended
	} else if c.rested != 0 && c.begun() {
		m.Usage.WaitedUS += end - c.rested
	}
	m.Usage.TotalUS = end - c.run.Created
	maps.DeleteFunc(c.failed, func(path string, _ PossibleEffect) bool { return c.parents[path] })
	for path := range c.run.Intents {
		delete(c.failed, path)
		m.Effects = append(m.Effects, PossibleEffect{Kind: "unknown", Seq: c.intents[path], Path: tree.Names(path)})
	}
	m.Effects = slices.Concat(m.Effects, slices.Collect(maps.Values(c.failed)), c.lost)
	slices.SortFunc(m.Effects, func(a, b PossibleEffect) int { return int(a.Seq) - int(b.Seq) })
	m.Left.Effects = shorten(&m.Effects, mostFailures)
	m.Left.Failures += shorten(&m.Failures, mostFailures)
	m.Left.Passes += shorten(&m.Passes, mostListed)
	m.Left.Events += shorten(&m.Events, mostListed)
	m.Next = c.next(t, asks)
}

// next lists what can be done.
func (c *coroner) next(t *journal.Thread, asks []AskInfo) []NextStep {
	var list []NextStep
	status := Status(c.run.Status)
	for i := range asks {
		list = append(list, NextStep{Do: "answer", Ask: asks[i].ID, Why: "it waits for an answer"})
	}
	if status == Paused {
		list = append(list, NextStep{Do: "resume", Why: "a person paused it"})
	}
	retry := lifecycle.CanRetry(t, c.run)
	switch {
	case retry == nil && status == Blocked:
		list = append(list, NextStep{Do: "retry", Why: "it continues with code that fits its record; workers of another version try it by themselves"})
	case retry == nil && status == Quarantined:
		list = append(list, NextStep{Do: "retry", Why: "once the reason why it kills its workers is removed"})
	case retry == nil:
		list = append(list, NextStep{Do: "retry", Why: "it forgets the last failure and continues with the same keys"})
	}
	if status == Failed || status == Blocked || status == Quarantined {
		list = append(list, NextStep{Do: "fork", At: c.good, Why: "a copy continues after the newest outcome that is not a failure, with new keys"})
	}
	switch {
	case status == Failed || status == Cancelled:
		list = append(list, NextStep{Do: "again", Why: "a new run with the same input does everything anew"})
	case !status.Final():
		list = append(list, NextStep{Do: "cancel", Why: "it ends, with its cleanups if its code can still run"})
	}
	return list
}

// trim removes the oldest items of a list that has become longer than most.
func trim[T any](list *[]T, most, by int) bool {
	if len(*list) <= most {
		return false
	}
	*list = slices.Delete(*list, 0, by)
	return true
}

// shorten removes the oldest items of a list so that it has at most this many, and
// returns how many these were.
func shorten[T any](list *[]T, most int) int {
	n := max(0, len(*list)-most)
	*list = slices.Delete(*list, 0, n)
	return n
}
