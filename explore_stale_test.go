package perdure_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/explore"
)

// eraseAt is an erase at the sequence of thread "t", which meets somebody who
// moves the thread on, or makes a child of it, or both, as a run that spawns.
func (sc *scene) eraseAt(moves, spawns bool) func() (string, error) {
	old := sc.old("old")
	before, err := sc.rt.Get(context.Background(), "t")
	sc.must(err)
	eraser := sc.outside("eraser", func(ctx context.Context, rt *perdure.Runtime) error {
		return rt.Erase(ctx, "t", perdure.EraseOptions{Note: perdure.Note{IfSeq: before.Seq}})
	})
	sc.outside("other", func(ctx context.Context, rt *perdure.Runtime) error {
		title := "old"
		if moves {
			if err := rt.SetMetadata(ctx, "t", &title, nil, perdure.Note{}); err != nil {
				return err
			}
		}
		if spawns {
			return perdure.StartChild(ctx, rt, "child", "t")
		}
		return nil
	})
	return func() (string, error) {
		after, parentErr := sc.rt.Get(context.Background(), "t")
		_, childErr := sc.rt.Get(context.Background(), "child")
		switch {
		case parentErr != nil && errors.Is(childErr, perdure.ErrNoThread):
			if err := sc.rt.Erase(context.Background(), "t", perdure.EraseOptions{}); err != nil && !errors.Is(err, perdure.ErrNoThread) {
				return "", err // it finishes what was cut off
			}
			return "erased", sc.without(old)
		case parentErr != nil:
			return "", fmt.Errorf("a child lives without its parent: %w, %w", parentErr, childErr)
		case eraser.Err() == nil && !eraser.Killed():
			return "", errors.New("the erase says that it happened, and the thread is there")
		case after.Seq == before.Seq:
			return "not erased", nil
		case errors.Is(childErr, perdure.ErrNoThread):
			childErr = perdure.StartChild(context.Background(), sc.rt, "child", "t")
		}
		if childErr != nil {
			return "", fmt.Errorf("nothing can depend on a thread that has moved on: %w", childErr)
		}
		if err := sc.rt.Erase(context.Background(), "t", perdure.EraseOptions{}); !errors.Is(err, perdure.ErrPinned) {
			return "", fmt.Errorf("erase of what is pinned: %w", err)
		}
		if err := sc.rt.Erase(context.Background(), "t", perdure.EraseOptions{Dependents: true}); err != nil {
			return "", err
		}
		return "moved on", sc.without(old)
	}
}

func TestExploredEraseAtASequenceOrChildWins(t *testing.T) {
	exploreAll(t, explore.Config{}, func(sc *scene) func() (string, error) { return sc.eraseAt(false, true) }, "erased", "not erased")
	exploreAll(t, explore.Config{}, func(sc *scene) func() (string, error) { return sc.eraseAt(true, true) }, "erased", "moved on")
}

func TestExploredEraseAtASequenceThatDiesIsNone(t *testing.T) {
	exploreAll(t, explore.Config{Crashes: 1}, func(sc *scene) func() (string, error) { return sc.eraseAt(true, false) }, "erased", "moved on")
}
