package proof_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/explore"
	"github.com/perdure/perdure/store"
)

var exploredEcho = perdure.NewFlow("echo", func(_ context.Context, in string) (string, error) { return in, nil })

// starter is an actor that starts a run with an idempotency key, and every
// store call of that is a step.
type starter struct {
	*explore.Actor
	run *perdure.Run
}

func (sc *scene) starter(name, thread, input string) *starter {
	st := &starter{}
	st.Actor = sc.w.Actor(name, func(ctx context.Context, s store.Store) error {
		rt, err := sc.runtime(ctx, flawed(sc.flaw.outside, s))
		if err == nil {
			st.run, err = rt.Start(ctx, perdure.StartRequest{Thread: thread, Flow: "echo", Input: input, Key: "k"})
		}
		return err
	})
	return st
}

// oneRun checks that there is one thread with one run, and lets it end. What
// starters got must be that run.
func (sc *scene) oneRun(starters ...*starter) (*perdure.Run, error) {
	ctx := context.Background()
	var threads []string
	for s, err := range sc.rt.List(ctx, perdure.ListOptions{}) {
		if err != nil {
			return nil, err
		}
		threads = append(threads, s.ID)
	}
	if len(threads) != 1 {
		return nil, fmt.Errorf("%d threads: %q", len(threads), threads)
	}
	thread, err := sc.rt.Get(ctx, threads[0])
	if err != nil {
		return nil, err
	}
	if len(thread.Runs) != 1 {
		return nil, fmt.Errorf("%d runs", len(thread.Runs))
	}
	for _, st := range starters {
		if st.Killed() || errors.Is(st.Err(), perdure.ErrKeyReused) || errors.Is(st.Err(), explore.ErrUnknown) {
			continue
		}
		if st.Err() != nil || st.run.ID != thread.Runs[0].ID || st.run.Thread != thread.ID {
			return nil, fmt.Errorf("a start got %+v, %w; want run %s", st.run, st.Err(), thread.Runs[0].ID)
		}
	}
	run, err := sc.workOn(thread.ID)
	if err != nil {
		return nil, fmt.Errorf("the run does not end: %w", err)
	}
	if run.Status != perdure.Succeeded {
		return nil, fmt.Errorf("the run is %s", run.Status)
	}
	return run, nil
}

// starting is two starts with one key, of a thread that is named or not, with
// one input or two.
func starting(thread, in1, in2 string) plot {
	return func(sc *scene) func() (string, error) {
		sc.open(exploredEcho)
		a, b := sc.starter("a", thread, in1), sc.starter("b", thread, in2)
		return func() (string, error) {
			run, err := sc.oneRun(a, b)
			if err != nil {
				return "", err
			}
			out, err := perdure.Output[string](run)
			if in1 != in2 {
				for st, in := range map[*starter]string{a: in1, b: in2} {
					if !st.Killed() && errors.Is(st.Err(), perdure.ErrKeyReused) == (out == in) {
						return "", fmt.Errorf("the output is %q, and who sent %q got %v", out, in, st.Err())
					}
				}
			}
			return out, err
		}
	}
}

func TestExploredStartsWithOneKeyAreOneRun(t *testing.T) {
	exploreAll(t, explore.Config{}, starting("t", "in", "in"), "in")
	exploreAll(t, explore.Config{}, starting("", "in", "in"), "in")
	exploreAll(t, explore.Config{}, starting("t", "x", "y"), "x", "y")
}

// repeating is a start that may die anywhere and is then made again.
func (sc *scene) repeating() func() (string, error) {
	sc.open(exploredEcho)
	a := sc.starter("a", "t", "in")
	b := sc.starter("b", "t", "in")
	b.Reliable().After(a.Actor)
	return func() (string, error) {
		run, err := sc.oneRun(a, b)
		if err != nil {
			return "", err
		}
		return perdure.Output[string](run)
	}
}

func TestExploredStartCanBeRepeated(t *testing.T) {
	exploreAll(t, explore.Config{Crashes: 1}, (*scene).repeating, "in")
	exploreAll(t, explore.Config{Unknowns: 2, Conflicts: 1}, (*scene).repeating, "in")
}

// leaving is a start that may die anywhere and is not made again.
func (sc *scene) leaving() func() (string, error) {
	sc.open(exploredEcho)
	a := sc.starter("a", "t", "in")
	return func() (string, error) {
		if sc.count("queued") == 0 && (a.Killed() || errors.Is(a.Err(), explore.ErrUnknown)) {
			return "nothing", nil
		}
		_, err := sc.oneRun(a)
		return "listed", err
	}
}

func TestExploredStartedThreadIsListed(t *testing.T) {
	exploreAll(t, explore.Config{Crashes: 1, Conflicts: 1, Unknowns: 1}, (*scene).leaving, "nothing", "listed")
}

// found is a start that meets a worker: the run is found, though the worker
// may look when it is announced and not there.
func (sc *scene) found() func() (string, error) {
	sc.open(exploredEcho)
	person := sc.outside("person", func(ctx context.Context, rt *perdure.Runtime) error {
		_, err := rt.Start(ctx, perdure.StartRequest{Thread: "t", Flow: "echo", Input: "in"})
		return err
	})
	sc.workers(person)
	return func() (string, error) {
		switch {
		case person.Err() == nil, person.Killed() && sc.count("queued") == 1:
			return "ended", sc.ends("in")
		case person.Killed():
			return "nothing", nil
		}
		return "", person.Err()
	}
}

func TestExploredStartIsFound(t *testing.T) {
	exploreAll(t, explore.Config{Delays: 1}, (*scene).found, "ended")
	exploreAll(t, explore.Config{Crashes: 1}, (*scene).found, "ended", "nothing")
}
