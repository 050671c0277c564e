package explain

import (
	"context"
	"encoding/json"
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

// PostMortem is what the entries of a run tell: see perdure.PostMortem.
type PostMortem struct {
	Stack    string
	Failures []Failure
	Passes   []PassInfo
	Lost     int
	Deaths   int
	Usage    Usage
	Effects  []PossibleEffect
	Events   []threads.EventRef
	Next     []NextStep
	Left     LeftOut
}

// The parts of a post-mortem: see package perdure.
type (
	Failure struct {
		Seq               uint64
		Time              time.Time
		Kind, Path        string
		Attempt, Attempts int
		TookUS            int64
		Error             string
		Codes             []string
		Stack             string
	}
	PassInfo struct {
		Worker, Version string
		Seq             uint64
		Begun, Last     time.Time
		End             string
	}
	Usage struct {
		Spent, Budget                                          map[string]int64
		Steps, Failed, Resumes, Retries                        int
		TotalUS, QueuedUS, WorkedUS, StepsUS, WaitedUS, LostUS int64
	}
	PossibleEffect struct {
		Kind string
		Seq  uint64
		Path string
	}
	NextStep struct {
		Do, Ask string
		At      uint64
		Why     string
	}
	LeftOut struct{ Failures, Passes, Effects, Events int }
)

// How many items a post-mortem lists, and how long their texts are.
const (
	mostFailures = 50
	mostListed   = 20
	mostText     = 4 << 10
)

// Examine reads all entries since a run was queued. Asks are the ids of those that are
// open.
func Examine(ctx context.Context, t *threads.Threads, o *threads.Opened, run *journal.Run, asks []string) (*PostMortem, error) {
	c := coroner{run: run, failed: map[string]PossibleEffect{}, parents: map[string]bool{}, intents: map[string]uint64{}, good: run.N,
		m: &PostMortem{Usage: Usage{Spent: maps.Clone(run.Spent), Budget: maps.Clone(run.Budget), Resumes: run.Resumes(), Retries: run.Retries}}}
	if run.Fail != nil {
		c.m.Stack = run.Fail.Stack
	}
	var recorded struct {
		Deaths int `json:"deaths"`
	}
	if run.PostMortem.JSON != nil && json.Unmarshal(run.PostMortem.JSON, &recorded) == nil {
		c.m.Deaths = recorded.Deaths
	}
	for e, err := range t.Peek(ctx, o.Name, run.N-1, o.Thread.Seq) {
		if err != nil {
			return nil, fmt.Errorf("perdure: the post-mortem of run %s: %w", run.ID, err)
		}
		if e.Kind == journal.Forked {
			c.endPass("forked", e.Time) // it went on in the other thread
		}
		if e.Run != run.N && e.Seq != run.N || !e.Kind.Known() {
			continue
		}
		b, err := e.Read()
		if err != nil {
			return nil, fmt.Errorf("%w: entry %d: %w", fault.ErrCorrupt, e.Seq, err)
		}
		c.see(e, &b)
	}
	c.conclude(o.Thread, asks)
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
	m.Events = append(m.Events, threads.EventRef{Seq: e.Seq, Kind: string(e.Kind), Path: tree.Names(e.Path)})
	shorten(&m.Events, 2*mostListed, mostListed, &m.Left.Events)
	if b.Fail != nil && b.Fail.Msg != "" {
		m.Failures = append(m.Failures, Failure{Seq: e.Seq, Time: clock.Stamp(e.Time), Kind: string(e.Kind), Path: tree.Names(e.Path), Attempt: b.Attempt, Attempts: b.Most,
			TookUS: b.Took, Error: fault.Clip(b.Fail.Msg, mostText), Codes: b.Fail.Codes, Stack: fault.Clip(b.Fail.Stack, mostText)})
		shorten(&m.Failures, 2*mostFailures, mostFailures, &m.Left.Failures)
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
	shorten(&c.m.Passes, 2*mostListed, mostListed, &c.m.Left.Passes)
}

// conclude completes the post-mortem after the last entry.
func (c *coroner) conclude(t *journal.Thread, asks []string) {
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
	shorten(&m.Effects, mostFailures, mostFailures, &m.Left.Effects)
	shorten(&m.Failures, mostFailures, mostFailures, &m.Left.Failures)
	shorten(&m.Passes, mostListed, mostListed, &m.Left.Passes)
	shorten(&m.Events, mostListed, mostListed, &m.Left.Events)
	m.Next = c.next(t, asks)
}

// next lists what can be done.
func (c *coroner) next(t *journal.Thread, asks []string) []NextStep {
	var list []NextStep
	status := c.run.Status
	for i := range asks {
		list = append(list, NextStep{Do: "answer", Ask: asks[i], Why: "it waits for an answer"})
	}
	if status == journal.StatusPaused {
		list = append(list, NextStep{Do: "resume", Why: "a person paused it"})
	}
	retry := lifecycle.CanRetry(t, c.run)
	switch {
	case retry == nil && status == journal.StatusBlocked:
		list = append(list, NextStep{Do: "retry", Why: "it continues with code that fits its record; workers of another version try it by themselves"})
	case retry == nil && status == journal.StatusQuarantined:
		list = append(list, NextStep{Do: "retry", Why: "once the reason why it kills its workers is removed"})
	case retry == nil:
		list = append(list, NextStep{Do: "retry", Why: "it forgets the last failure and continues with the same keys"})
	}
	if status == journal.StatusFailed || status == journal.StatusBlocked || status == journal.StatusQuarantined {
		list = append(list, NextStep{Do: "fork", At: c.good, Why: "a copy continues after the newest outcome that is not a failure, with new keys"})
	}
	switch {
	case status == journal.StatusFailed || status == journal.StatusCancelled:
		list = append(list, NextStep{Do: "again", Why: "a new run with the same input does everything anew"})
	case !status.Final():
		list = append(list, NextStep{Do: "cancel", Why: "it ends, with its cleanups if its code can still run"})
	}
	return list
}

// shorten leaves so many items, the newest, of a list that has become longer than most,
// and counts those that it removes.
func shorten[T any](list *[]T, most, to int, left *int) {
	if n := len(*list); n > most {
		*list = slices.Delete(*list, 0, n-to)
		*left += n - to
	}
}
