package proof_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/explore"
	"github.com/perdure/perdure/store"
)

// The parent asks before it joins, so that both it and its child can be made
// due at once, with all that comes before done undisturbed.
var exploredParent = perdure.NewFlow("parent", func(ctx context.Context, _ string) (string, error) {
	c, err := perdure.Spawn(ctx, "child", "child", "yes")
	if err != nil {
		return "", err
	}
	if _, err := perdure.Ask[string](ctx, "ready", perdure.Question{Prompt: "?"}); err != nil {
		return "", err
	}
	return perdure.Join[string](ctx, "join", c)
})

var exploredChild = perdure.NewFlow("child", func(_ context.Context, in string) (string, error) { return in, nil })

// childLease is that of the child's workers: those of its parent live beside
// them, and which of two signs of life at one moment comes first is not the
// explorer's choice.
const childLease = exploredLease - 30*time.Millisecond

// family declares a worker for the parent and one for the child, each with
// heirs.
func (sc *scene) family() {
	sc.workers()
	worker := func(name string) *explore.Actor {
		return sc.w.Actor(name, func(ctx context.Context, s store.Store) error {
			rt, err := perdure.New(ctx, flawed(sc.flaw.outside, sc.lean(ctx, s)), perdure.Options{Version: "test", Lease: childLease}, exploredChild)
			if err != nil {
				return err
			}
			return rt.Work(ctx)
		})
	}
	worker("heir of the child's").After(worker("child's worker"))
}

// undisturbed lets a worker do what it can on the store itself.
func (sc *scene) undisturbed(flow perdure.Flow) {
	rt, err := perdure.New(context.Background(), sc.w.Store(), perdure.Options{Version: "test", Lease: exploredLease}, flow)
	sc.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- rt.Work(ctx) }()
	synctest.Wait()
	cancel()
	sc.must(<-done)
}

// spawned is a parent whose child has not begun, and that is about to join it.
func (sc *scene) spawned() {
	sc.open(exploredParent)
	sc.start()
	sc.undisturbed(exploredParent)
	run, err := sc.rt.GetRun(context.Background(), "t", "")
	sc.must(err)
	sc.must(sc.rt.Answer(context.Background(), perdure.AskAnswer{Ask: run.Asks[0].ID, Answer: perdure.Answer{Value: "yes"}}))
}

// told says how the end of the child came to the parent.
func (sc *scene) told() (string, error) {
	kinds := sc.kinds()
	if n := sc.count("signal"); n != 1 {
		return "", fmt.Errorf("the end is told %d times, %w", n, sc.ends("yes"))
	}
	if slices.Contains(kinds, "received") {
		return "told before", sc.ends("yes")
	}
	return "told to the waiting", sc.ends("yes")
}

// joining is a child that ends while its parent joins it.
func (sc *scene) joining() func() (string, error) {
	sc.spawned()
	sc.family()
	return sc.told
}

// childEnding is a child that ends when its parent waits for it.
func (sc *scene) childEnding() func() (string, error) {
	sc.spawned()
	sc.undisturbed(exploredParent)
	sc.family()
	return sc.told
}

func TestExploredEndOfAChildIsNeverMissed(t *testing.T) {
	exploreAll(t, explore.Config{}, (*scene).joining, "told before", "told to the waiting")
	exploreAll(t, explore.Config{Crashes: 1}, (*scene).childEnding, "told to the waiting")
	if exploreTorture {
		exploreAll(t, explore.Config{Crashes: 1, Max: 1_000_000}, (*scene).joining, "told before", "told to the waiting")
	}
}

// spawning is a parent that has recorded its child and dies before, while or
// after it starts it.
func (sc *scene) spawning() func() (string, error) {
	sc.open(exploredParent)
	sc.start()
	sc.workers()
	return func() (string, error) {
		run, err := sc.rt.GetRun(context.Background(), "t", "")
		if err != nil {
			return "", err
		}
		if len(run.Children) != 1 || run.Status != perdure.Suspended {
			return "", fmt.Errorf("the run is %s with children %+v", run.Status, run.Children)
		}
		child, err := sc.rt.Get(context.Background(), run.Children[0].Thread)
		if err != nil || len(child.Runs) != 1 || child.Runs[0].Status != perdure.Queued {
			return "", fmt.Errorf("the child: %w, %+v", err, child)
		}
		sc.undisturbed(exploredChild) // its hint is there
		if child, err = sc.rt.Get(context.Background(), child.ID); err != nil || child.Status != perdure.Succeeded {
			return "", fmt.Errorf("the child does not end: %w, %+v", err, child)
		}
		return "started", nil
	}
}

func TestExploredChildIsStartedOnce(t *testing.T) {
	exploreAll(t, explore.Config{Crashes: 1}, (*scene).spawning, "started")
	if exploreTorture {
		exploreAll(t, explore.Config{Crashes: 2, Max: 1_000_000}, (*scene).spawning, "started")
	}
}

// spawningCancelled is a parent that is cancelled when it died somewhere on the
// way to its child.
func (sc *scene) spawningCancelled() func() (string, error) {
	sc.open(exploredParent)
	sc.start()
	boss := sc.outside("boss", func(ctx context.Context, rt *perdure.Runtime) error {
		return rt.Cancel(ctx, "t", "", perdure.Note{})
	})
	worker := sc.worker("worker")
	boss.After(worker)
	sc.worker("heir").After(boss)
	return func() (string, error) {
		if !worker.Killed() {
			return "with its child", sc.is(perdure.Suspended)
		}
		if err := errors.Join(boss.Err(), sc.is(perdure.Cancelled)); err != nil {
			return "", err
		}
		end := "alone"
		for s, err := range sc.rt.List(context.Background(), perdure.ListOptions{}) {
			if err != nil || s.ID != "t" && s.Status != perdure.Cancelled {
				return "", fmt.Errorf("the parent has ended, and child %s is %s, %v", s.ID, s.Status, err)
			}
			if s.ID != "t" {
				end = "with its child"
			}
		}
		return end, nil
	}
}

func TestExploredCancelledParentLeavesNoChild(t *testing.T) {
	exploreAll(t, explore.Config{Crashes: 1}, (*scene).spawningCancelled, "alone", "with its child")
}

// cancellingFamily is a parent that is cancelled while its child, which it
// waits for, is executed.
func (sc *scene) cancellingFamily() func() (string, error) {
	sc.spawned()
	sc.undisturbed(exploredParent)
	boss := sc.outside("boss", func(ctx context.Context, rt *perdure.Runtime) error {
		return rt.Cancel(ctx, "t", "", perdure.Note{})
	})
	sc.family()
	return func() (string, error) {
		run, err := sc.rt.GetRun(context.Background(), "t", "")
		if err != nil {
			return "", err
		}
		child, err := sc.rt.GetRun(context.Background(), run.Children[0].Thread, "")
		if err != nil {
			return "", err
		}
		cancelled := sc.count("cancel") == 1
		switch {
		case !child.Status.Final():
			return "", fmt.Errorf("the child is left %s", child.Status)
		case cancelled && run.Status == perdure.Cancelled && (boss.Err() == nil || boss.Killed()):
			return fmt.Sprintf("cancelled, the child %s", child.Status), nil
		case cancelled || child.Status != perdure.Succeeded || boss.Err() != nil && !boss.Killed() && !errors.Is(boss.Err(), perdure.ErrNothingToDo):
			return "", fmt.Errorf("the run is %s, the child %s, the boss got %w", run.Status, child.Status, boss.Err())
		}
		return "succeeded", sc.ends("yes")
	}
}

// cancellingParent is a parent that is cancelled while its child is queued.
func (sc *scene) cancellingParent() func() (string, error) {
	sc.spawned()
	sc.undisturbed(exploredParent)
	boss := sc.outside("boss", func(ctx context.Context, rt *perdure.Runtime) error {
		return rt.Cancel(ctx, "t", "", perdure.Note{})
	})
	sc.workers(boss)
	return func() (string, error) {
		run, err := sc.rt.GetRun(context.Background(), "t", "")
		if err != nil {
			return "", err
		}
		child, err := sc.rt.GetRun(context.Background(), run.Children[0].Thread, "")
		if err != nil {
			return "", err
		}
		switch {
		case run.Status == perdure.Cancelled && child.Status == perdure.Cancelled:
			return "cancelled", nil
		case boss.Killed() && run.Status == perdure.Suspended && child.Status == perdure.Queued:
			return "nothing", nil
		}
		return "", fmt.Errorf("the run is %s, the child %s, the boss got %w", run.Status, child.Status, boss.Err())
	}
}

func TestExploredCancelReachesTheChildOrComesTooLate(t *testing.T) {
	exploreAll(t, explore.Config{Crashes: 1}, (*scene).cancellingParent, "cancelled", "nothing")
	if exploreTorture {
		exploreAll(t, explore.Config{Max: 1_000_000}, (*scene).cancellingFamily, "cancelled, the child cancelled", "cancelled, the child succeeded", "succeeded")
	}
}

// settleFirst removes the hints of a thread as soon as its run has ended, before
// anybody was told of the end.
type settleFirst struct{ store.Store }

func (s settleFirst) Unwrap() store.Store { return s.Store }

func (s settleFirst) Append(ctx context.Context, journal string, after uint64, entries ...[]byte) (uint64, error) {
	last, err := s.Store.Append(ctx, journal, after, entries...)
	if err != nil || !bytes.Contains(entries[len(entries)-1], []byte(`"k":"ended"`)) {
		return last, err
	}
	for cell, err := range s.List(ctx, "due/", "") {
		if err != nil {
			return last, nil
		}
		if strings.HasSuffix(cell.Key, strings.TrimPrefix(journal, "thread/")) {
			_ = s.Delete(ctx, cell.Key, cell.Version)
		}
	}
	return last, nil
}

func TestExploredChildFlawsAreFound(t *testing.T) {
	early := flaw{outside: func(s store.Store) store.Store { return settleFirst{s} }}
	exploreFlawed(t, explore.Config{Crashes: 1}, (*scene).childEnding, early, "the end is told 0 times")
	late := flaw{outside: func(s store.Store) store.Store { return &hintLast{Store: s} }}
	exploreFlawed(t, explore.Config{Crashes: 1}, (*scene).childEnding, late, "the run is suspended")
	ignored := flaw{outside: func(s store.Store) store.Store { return yesMan{s} }}
	exploreFlawed(t, explore.Config{}, (*scene).joining, ignored, "the end is told 0 times")
}
