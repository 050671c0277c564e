package perduretest

import (
	"cmp"
	"context"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/lease"
	"github.com/perdure/perdure/internal/sweeps"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
)

// Crash describes what [CrashEverywhere] runs and crashes.
type Crash struct {
	Flows []perdure.Flow

	// Start lists the runs to start, in this order. Thread and Key have
	// defaults.
	Start []perdure.StartRequest

	// Outside plays the people and systems around the flow. It is called
	// whenever a run of a started thread cannot continue by itself: the run
	// waits for an ask or a signal, is paused, blocked or quarantined, or waits
	// for a child in such a state. Outside must decide what to do only from the
	// run and its children. If it changes nothing, the run stays as it is, and
	// that is its outcome. After a crash Outside is called again on the new
	// runtime, so its actions must be idempotent: answers are; signals and
	// further starts need a Key. Nil does nothing.
	Outside func(ctx context.Context, rt *perdure.Runtime, run *perdure.Run) error

	// Want, if not empty, is the status that every run must end with. Without
	// it, a flow that always fails in the same way passes.
	Want perdure.Status

	// Effects holds the counts of the flows' steps, if they count anything.
	Effects *Effects

	// Options configures the runtimes. Version, Lease and Grace have defaults
	// for tests, and Development is always on.
	Options perdure.Options

	// Store creates the store of each run; the default is a store in memory,
	// with batches (see store.Batcher) and without.
	Store func() store.Store

	// Same is applied to all text before it is compared, to remove differences
	// that do not matter, such as a time that a step returns. Nil changes nothing.
	Same func(text string) string

	// Pairs also crashes each recovery from a crash everywhere.
	Pairs bool

	// MinCuts is the minimum number of crashes, so that a test cannot pass
	// because its flow no longer does anything; 0 means two for each append to
	// the undisturbed journals. With go test -short it is halved.
	MinCuts int

	// MaxRuns is how often the flow may run in all, so that pairs of cuts do
	// not take forever; 0 means 5000. Exceeding it fails the test.
	MaxRuns int

	// Limit is how much virtual time the undisturbed run may take; 0 means 31
	// days.
	Limit time.Duration
}

const (
	maxTurns    = 1000 // of the outside, in one run
	maxFailures = 3    // after which a sweep ends
)

// CrashEverywhere proves that the flows survive the death of their process at
// every moment that matters. It runs them once undisturbed, in virtual time, and
// then repeatedly, each time with a crash at another write to the store: once so
// that the write is lost, and once so that it happens and only its result is lost.
// A new runtime on the same store then continues. In the end the following must be
// the same as without the crash:
//
//   - the outcome of each run, and the thread's state, deps and spending;
//   - the events, apart from claims, suspensions, times and ids, in the same
//     order at each path;
//   - the effects: each has happened, only those of steps whose outcome was not
//     recorded at the crash have happened again, and those counted by CountOnce
//     have happened at most once.
//
// It does all of this on a store that commits an entry and its cells together, and
// on one that cannot. On one of them the process with the worker starts the runs and
// claims them at once; on the other, a process without a worker starts them.
//
// With go test -short it uses one of the two stores, always the same one for a given
// test, and loses the result only of the first write of each kind. It still crashes
// before every write, which is close to a crash after the previous one.
//
// It must not be called inside a synctest bubble: it creates one for each run.
func CrashEverywhere(t *testing.T, c Crash) {
	t.Helper()
	chance := crc32.ChecksumIEEE([]byte(t.Name()))
	for _, hide := range forms(t, c) {
		s := sweep{Crash: c, t: t, remote: hide == (chance&2 == 0), short: testing.Short()}
		if hide {
			s.Store = func() store.Store { return plain{memstore.New()} }
		}
		s.run()
		for _, f := range s.failures {
			t.Error(f)
		}
		t.Logf("%d crashes in %d runs", s.crashes, s.runs)
	}
	if c.Store == nil && !testing.Short() && !sweeps.InMemory() {
		for name, stores := range sweeps.Stores {
			t.Run(name, func(t *testing.T) {
				c := c
				c.Store = stores(t)
				CrashEverywhere(t, c)
			})
		}
	}
}

// forms says for each sweep whether the store's batches are hidden: an append and
// its cells are one write on some stores and several on others. With -short the
// test's name chooses one of the two.
func forms(t *testing.T, c Crash) []bool {
	if c.Store != nil {
		return []bool{false}
	}
	if testing.Short() {
		return []bool{crc32.ChecksumIEEE([]byte(t.Name()))%2 == 0}
	}
	return []bool{false, true}
}

// plain is a store without batches.
type plain struct{ store.Store }

// Unwrap implements store.Wrapper.
func (p plain) Unwrap() store.Store { return p.Store }

// sweep is one use of CrashEverywhere.
type sweep struct {
	Crash
	t        *testing.T
	remote   bool // a process without a worker starts the runs
	short    bool // most writes are only cut so that they are lost
	want     *result
	runs     int
	crashes  int
	over     bool            // MaxRuns is reached
	classes  map[string]bool // of the writes seen
	failures []string
}

func (s *sweep) failf(format string, args ...any) {
	s.failures = append(s.failures, fmt.Sprintf(format, args...))
}

func (s *sweep) run() {
	s.classes = map[string]bool{}
	s.Effects = cmp.Or(s.Effects, new(Effects))
	s.MaxRuns = cmp.Or(s.MaxRuns, 5000)
	s.Limit = cmp.Or(s.Limit, 31*24*time.Hour)
	if s.Same == nil {
		s.Same = func(text string) string { return text }
	}
	if len(s.Start) == 0 {
		s.failf("nothing is started: fill in Start")
		return
	}
	s.Start = slices.Clone(s.Start)
	for i := range s.Start {
		q := &s.Start[i]
		q.Thread = cmp.Or(q.Thread, fmt.Sprintf("thread-%d", i+1))
		q.Key = cmp.Or(q.Key, fmt.Sprintf("start-%d", i+1))
	}
	s.want = s.play()
	if faults := s.want.faults(nil); len(faults) > 0 {
		s.failf("undisturbed: %s\n%s", strings.Join(faults, "\n"), s.want.trace)
		return
	}
	if again := s.play(); !s.judge("a second undisturbed run", again) {
		s.failf("two runs without a crash differ, so the flow itself is not deterministic")
		return
	}
	// A crash costs a lease, and a step may have to run again.
	s.Limit = 2*s.want.took + 20*s.defaults().Lease + 10*time.Minute
	s.cuts()
	least := cmp.Or(s.MinCuts, 2*s.want.appends)
	if s.short {
		least /= 2
	}
	if s.crashes < least && len(s.failures) == 0 {
		s.failf("there were only %d crashes, want at least %d: does the flow still do anything?", s.crashes, least)
	}
}

// defaults returns options with their defaults. No test sees how long a worker is
// missed, so the lease is long, for the sake of flows that sleep for a long time.
func (s *sweep) defaults() perdure.Options {
	o := s.Options
	o.Lease = cmp.Or(o.Lease, lease.MaxTTL)
	return defaults(o)
}

// cuts cuts every write of the flow, and of each recovery with Pairs. It also cuts
// writes of classes that occur only in runs that were cut.
func (s *sweep) cuts(before ...cut) {
	done := map[string]bool{}
	for {
		left := slices.DeleteFunc(slices.Sorted(maps.Keys(s.classes)), func(class string) bool { return done[class] })
		if len(left) == 0 {
			return
		}
		done[left[0]] = true
		for n := 1; s.cut(left[0], n, before); n++ {
		}
	}
}

// cut cuts the n-th write of a class, and reports whether there was one.
func (s *sweep) cut(class string, n int, before []cut) (reached bool) {
	for _, fault := range []faulty.Fault{faulty.CrashBefore, faulty.CrashAfter} {
		if s.over || len(s.failures) >= maxFailures {
			return false
		}
		if s.short && fault == faulty.CrashAfter && n > 1 {
			continue
		}
		if s.runs >= s.MaxRuns {
			s.over = true
			s.failf("the flow has run %d times and not all cuts are done; raise MaxRuns, or use a smaller flow", s.runs)
			return false
		}
		all := append(before[:len(before):len(before)], cut{class, n, fault})
		got := s.play(all...)
		if len(got.crashes) < len(all) {
			continue
		}
		reached = true
		s.crashes++
		if !s.judge(strings.Join(got.crashes, ", then "), got) {
			continue
		}
		if s.Pairs && len(before) == 0 {
			s.cuts(all...)
		}
	}
	return reached
}

// judge compares a run with the undisturbed one.
func (s *sweep) judge(where string, got *result) bool {
	faults := got.faults(s.want)
	if len(faults) == 0 {
		return true
	}
	s.failf("%s: %s\n--- undisturbed\n%s--- with %s\n%s", where, strings.Join(faults, "\n"), s.want.trace, where, got.trace)
	return false
}
