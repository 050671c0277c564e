package proof_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/explore"
	"github.com/perdure/perdure/store"
)

// The explored tests run the production code on a store whose every call is a
// step, in every order of steps. The times below never meet: where two timers
// of a worker fire at once, which comes first is not the explorer's choice.
const (
	exploredLease = 400 * time.Millisecond
	exploredPoll  = 173_300 * time.Microsecond
	exploredTime  = 360 * time.Millisecond  // for two polls
	takeoverTime  = 1150 * time.Millisecond // enough for a lease to lapse
)

// exploreTorture lets a second worker work already while the others are still
// at it, where otherwise it finishes what they left.
var exploreTorture = os.Getenv("PERDURE_TORTURE") != ""

// plot is a race: it brings thread "t" as far as it likes, declares actors,
// and returns a function that judges an ending and says which one it is.
type plot func(sc *scene) (ending func() (string, error))

// flaw takes a guard away from the stores of some actors; nil leaves them whole.
type flaw struct{ worker, outside func(store.Store) store.Store }

// exploreAll explores a plot and expects each of the endings to be reached.
func exploreAll(t *testing.T, cfg explore.Config, p plot, endings ...string) {
	t.Helper()
	elsewhere(t)
	for _, cfg.NoBatch = range []bool{true, false} {
		seen := map[string]int{}
		explore.Run(t, timed(cfg), p.setup(t, flaw{}, seen))
		for _, e := range endings {
			if seen[e] == 0 && cfg.NoBatch { // a batch leaves out what comes between its writes
				t.Errorf("no execution ended with %q: %v", e, seen)
			}
			delete(seen, e)
		}
		if len(seen) > 0 {
			t.Errorf("endings that were not expected: %v", seen)
		}
	}
}

// exploreFlawed explores a plot with a flaw, which has to be found.
func exploreFlawed(t *testing.T, cfg explore.Config, p plot, f flaw, words string) {
	t.Helper()
	elsewhere(t)
	cfg.NoBatch = true // flaws lie between two writes
	r := explore.Explore(t, timed(cfg), p.setup(t, f, map[string]int{}))
	switch {
	case r.Failure == nil:
		t.Errorf("nothing was found in %v", r)
	case !strings.Contains(r.Failure.Err.Error(), words):
		t.Errorf("the failure does not say %q: %v", words, r.Failure)
	}
}

// elsewhere leaves an exploration to TestExplorationsFailWithoutAGuard, which
// runs all of them in a build without the race detector.
func elsewhere(t *testing.T) {
	t.Helper()
	if raceBuild {
		t.Skip("TestExplorationsFailWithoutAGuard explores this, without the race detector")
	}
}

func timed(cfg explore.Config) explore.Config {
	if cfg.MaxTime > 0 {
		return cfg
	}
	cfg.MaxTime = exploredTime
	if cfg.Crashes > 0 {
		cfg.MaxTime = time.Duration(cfg.Crashes) * takeoverTime
	}
	cfg.MaxTime += time.Duration(cfg.Delays) * 2 * exploredPoll
	return cfg
}

func (p plot) setup(t *testing.T, f flaw, seen map[string]int) func(*explore.World) {
	return func(w *explore.World) {
		sc := &scene{t: t, w: w, flaw: f}
		ending := p(sc)
		w.Check(func(context.Context, store.Store) error {
			end, err := ending()
			if err == nil {
				err = sc.sound()
			}
			if err != nil {
				return fmt.Errorf("%w\njournal: %s", err, sc.trace())
			}
			seen[end]++
			return nil
		})
	}
}

// scene is one execution of a plot.
type scene struct {
	t    *testing.T
	w    *explore.World
	flaw flaw
	flow perdure.Flow
	rt   *perdure.Runtime // on the store itself, undisturbed
	news chan string      // ids of asks that were committed
}

func (sc *scene) open(flow perdure.Flow) {
	sc.flow, sc.news = flow, make(chan string, 8)
	var err error
	sc.rt, err = sc.runtime(context.Background(), sc.w.Store())
	sc.must(err)
}

func (sc *scene) runtime(ctx context.Context, s store.Store) (*perdure.Runtime, error) {
	return perdure.New(ctx, s, perdure.Options{Version: "test", Lease: exploredLease, Observer: sc}, sc.flow)
}

// StepStarted and Committed make the scene an Observer.
func (sc *scene) StepStarted(ctx context.Context, _ perdure.StepInfo) (context.Context, func(error)) {
	return ctx, func(error) {}
}

func (sc *scene) Committed(e perdure.Event) {
	if e.Kind == "asked" {
		sc.news <- e.Ask
	}
}

func (sc *scene) must(err error) {
	sc.t.Helper()
	if err != nil {
		sc.t.Fatal(err)
	}
}

// start queues a run.
func (sc *scene) start() {
	sc.t.Helper()
	_, err := sc.rt.Start(context.Background(), perdure.StartRequest{Thread: "t", Flow: sc.flow.Name(), Input: "in"})
	sc.must(err)
}

// work runs an undisturbed worker until the run stands.
func (sc *scene) work() *perdure.Run {
	sc.t.Helper()
	run, err := sc.workOn("t")
	sc.must(err)
	return run
}

func (sc *scene) workOn(thread string) (*perdure.Run, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	done := make(chan error, 1)
	go func() { done <- sc.rt.Work(ctx) }()
	run, err := sc.rt.Wait(ctx, thread, "")
	synctest.Wait() // until the hint is settled too
	cancel()
	return run, errors.Join(err, <-done)
}

// again makes a suspended run due, so that it is executed up to where it waits.
func (sc *scene) again() {
	sc.t.Helper()
	sc.must(sc.rt.Pause(context.Background(), "t", "", perdure.Note{}))
	sc.must(sc.rt.Resume(context.Background(), "t", "", perdure.Note{}))
}

// worker declares an actor that works until it is killed or all is over.
func (sc *scene) worker(name string) *explore.Actor {
	return sc.w.Actor(name, func(ctx context.Context, s store.Store) error {
		rt, err := sc.runtime(ctx, flawed(sc.flaw.worker, sc.lean(ctx, s)))
		if err != nil {
			return err
		}
		return rt.Work(ctx)
	})
}

// workers declares a worker, another that takes over if it dies, and one for
// the death of that: when the others are done, or at once.
func (sc *scene) workers(others ...*explore.Actor) {
	heir := sc.worker("heir").After(sc.worker("worker"))
	if !exploreTorture {
		heir.After(others...)
	}
	sc.worker("heir of the heir").After(heir)
}

// outside declares an actor that calls the runtime from outside.
func (sc *scene) outside(name string, do func(context.Context, *perdure.Runtime) error) *explore.Actor {
	return sc.w.Actor(name, func(ctx context.Context, s store.Store) error {
		rt, err := sc.runtime(ctx, flawed(sc.flaw.outside, sc.lean(ctx, s)))
		if err != nil {
			return err
		}
		return do(ctx, rt)
	})
}

func flawed(f func(store.Store) store.Store, s store.Store) store.Store {
	if f == nil {
		return s
	}
	return f(s)
}

// kinds returns the kinds of the thread's entries.
func (sc *scene) kinds() []string {
	var kinds []string
	for e, err := range sc.rt.Events(context.Background(), "t", perdure.EventOptions{Replay: true}) {
		if err != nil {
			return append(kinds, "error: "+err.Error())
		}
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

func (sc *scene) trace() string { return strings.Join(sc.kinds(), " ") }

func (sc *scene) count(kind string) (n int) {
	for _, k := range sc.kinds() {
		if k == kind {
			n++
		}
	}
	return n
}

// sound checks what holds in every journal.
func (sc *scene) sound() error {
	kinds := sc.kinds()
	if len(kinds) == 0 || strings.Contains(kinds[0], perdure.ErrNoThread.Error()) {
		return nil
	}
	if i := slices.IndexFunc(kinds, func(k string) bool { return strings.HasPrefix(k, "error") }); i >= 0 {
		return errors.New(kinds[i])
	}
	thread, err := sc.rt.Get(context.Background(), "t")
	if err != nil {
		return err
	}
	if n := sc.count("ended"); n > len(thread.Runs) {
		return fmt.Errorf("%d runs ended %d times", len(thread.Runs), n)
	}
	if i := slices.Index(kinds, "ended"); i >= 0 && len(thread.Runs) == 1 && slices.Contains(kinds[i:], "claimed") {
		return errors.New("a claim follows the end")
	}
	if thread.Status == perdure.Running && thread.Foreign == "" {
		return errors.New("the run is left running")
	}
	return nil
}

// ends returns an error unless the run succeeded with an output.
func (sc *scene) ends(output string) error {
	run, err := sc.rt.GetRun(context.Background(), "t", "")
	if err != nil {
		return err
	}
	if got, err := perdure.Output[string](run); err != nil || got != output {
		return fmt.Errorf("the run is %s with output %q, %w; want %q", run.Status, got, err, output)
	}
	return nil
}

func (sc *scene) is(want perdure.Status) error {
	run, err := sc.rt.GetRun(context.Background(), "t", "")
	if err == nil && run.Status != want {
		err = fmt.Errorf("the run is %s, want %s", run.Status, want)
	}
	return err
}

// lean is the store of an actor on which only what decides a race is a step.
// Summaries and snapshots, which nobody decides by, signs of life, and the salt and
// the marks of copies, restores and moves, which do not change, are read and written
// on the store itself. Watching is polling, as on a store that cannot tell: a yield
// comes when time passes, which is when no step is possible; Config.Delays says how
// often it may come earlier.
type lean struct {
	store.Store // of the actor
	alive       context.Context
	still       store.Store
}

func (sc *scene) lean(ctx context.Context, s store.Store) store.Store {
	l := &lean{Store: s, alive: ctx, still: sc.w.Store()}
	if b, ok := s.(store.Batcher); ok {
		return leanBatcher{l, b}
	}
	return l
}

// leanBatcher is a lean store of an actor that has batches.
type leanBatcher struct {
	*lean
	store.Batcher
}

func (s *lean) Unwrap() store.Store { return s.Store }

func (s *lean) aside(key string) bool {
	return s.alive.Err() == nil && (strings.HasPrefix(key, "thread/") || strings.HasPrefix(key, "snapshot/") || strings.HasPrefix(key, "perdure/"))
}

// List of leases is a look at the clock, and no plot has alarms or snapshots.
func (s *lean) List(ctx context.Context, prefix, after string) iter.Seq2[store.Cell, error] {
	if s.alive.Err() == nil && (prefix == "worker/" || strings.HasPrefix(prefix, "alarm/") || strings.HasPrefix(prefix, "snapshot/")) {
		return s.still.List(ctx, prefix, after)
	}
	return s.Store.List(ctx, prefix, after)
}

func (s *lean) Get(ctx context.Context, key string) (store.Cell, error) {
	if s.aside(key) {
		return s.still.Get(ctx, key)
	}
	return s.Store.Get(ctx, key)
}

func (s *lean) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	if s.aside(key) || s.alive.Err() == nil && strings.HasPrefix(key, "worker/") {
		return s.still.Put(ctx, key, value, prev)
	}
	return s.Store.Put(ctx, key, value, prev)
}

func (s *lean) Watch(ctx context.Context, _ string) iter.Seq[struct{}] {
	return func(yield func(struct{}) bool) {
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(exploredPoll):
			}
			if ctx.Err() != nil || !yield(struct{}{}) {
				return
			}
		}
	}
}
