package explore

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure/store"
)

// ErrKilled is what every call of a killed actor answers. It matches
// store.ErrClosed, so that code which repeats a failed call gives up.
var ErrKilled = fmt.Errorf("explore: the actor is dead: %w", store.ErrClosed)

// ErrUnknown is the answer to a write whose outcome is left open. It matches
// none of the definite errors of package store.
var ErrUnknown = errors.New("explore: the answer to this write was lost")

// Config says what is explored beyond the order of calls, and its bounds.
// The zero value explores orders only.
type Config struct {
	Crashes   int // how often an execution may kill an actor at a write
	Unknowns  int // how often a write may be answered with ErrUnknown
	Conflicts int // how often a write may be refused with a spurious ErrConflict
	Delays    int // how often time may pass while calls are pending

	// MaxTime is how much virtual time may pass in an execution: a second
	// if it is 0, none if it is negative.
	MaxTime time.Duration

	// Max is the number of executions at which the exploration gives up and
	// fails: 100 000 if it is 0. Those that are cut off count.
	Max int

	// MaxSteps is the number of steps at which an execution is taken to be
	// endless, which is a failure: 1000 if it is 0.
	MaxSteps int

	// Every runs all orders, also of steps that do not concern each other.
	Every bool

	// NoBatch hides store.Batcher, so that store.AppendWith makes one write
	// after the other. An exploration of code that batches runs both ways.
	NoBatch bool

	// Replay, if it is not nil, runs the one execution with these choices,
	// as a failure printed them; behind their end the first choice is taken.
	Replay []int
}

// Report is the result of an exploration.
type Report struct {
	Executions int // executions that ran to their end
	Cut        int // executions cut off as equal to one of the others
	Longest    int // steps of the longest execution
	Failure    *Failure
}

// String says how much was explored.
func (r *Report) String() string {
	return fmt.Sprintf("%d executions, %d cut off, the longest of %d steps", r.Executions, r.Cut, r.Longest)
}

// Failure is the first execution that failed.
type Failure struct {
	Err     error
	Choices []int    // for Config.Replay
	Steps   []string // what happened, in order
}

// Error shows the failure with its steps and choices.
func (f *Failure) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "explore: %v\n", f.Err)
	for i, s := range f.Steps {
		fmt.Fprintf(&b, "%4d. %s\n", i+1, s)
	}
	fmt.Fprintf(&b, "Replay: %#v", f.Choices)
	return b.String()
}

// Unwrap returns what went wrong.
func (f *Failure) Unwrap() error { return f.Err }

// Run explores, and fails t with the first execution that fails.
func Run(t *testing.T, cfg Config, setup func(*World)) *Report {
	t.Helper()
	r := Explore(t, cfg, setup)
	if r.Failure != nil {
		t.Fatalf("%v\nexplored until then: %v", r.Failure, r)
	}
	t.Logf("explored %v", r)
	return r
}

var exploring struct {
	sync.Mutex
	n, procs int
}

// oneAtATime lets one goroutine of the process run at a time until the function that it
// returns is called: of two that run at the same moment, either could be the first to
// wake a third, and the actors would not be deterministic.
func oneAtATime() func() {
	exploring.Lock()
	defer exploring.Unlock()
	if exploring.n++; exploring.n == 1 {
		exploring.procs = runtime.GOMAXPROCS(1)
	}
	return func() {
		exploring.Lock()
		defer exploring.Unlock()
		if exploring.n--; exploring.n == 0 {
			runtime.GOMAXPROCS(exploring.procs)
		}
	}
}

// Explore is Run without the verdict: a failure is only reported.
func Explore(t *testing.T, cfg Config, setup func(*World)) *Report {
	t.Helper()
	defer oneAtATime()()
	cfg.MaxTime, cfg.Max, cfg.MaxSteps = cmp.Or(cfg.MaxTime, time.Second), cmp.Or(cfg.Max, 100_000), cmp.Or(cfg.MaxSteps, 1000)
	s := &search{cfg: cfg, setup: setup}
	for {
		s.execute(t)
		switch {
		case s.report.Failure != nil, s.cfg.Replay != nil, !s.backtrack():
			return &s.report
		case s.report.Executions+s.report.Cut >= s.cfg.Max:
			s.fail(fmt.Errorf("not explored to the end: gave up after Config.Max = %d executions; the last of them follows", s.cfg.Max))
			return &s.report
		}
	}
}
