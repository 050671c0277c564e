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

// eraseAt is an erase at the sequence of thread "t", which meets somebody who
// moves the thread on, or makes a child of it, or both, as a run that spawns.
func (sc *scene) eraseAt(moves, spawns bool) func() (string, error) {
	var old string
	var goOn func(context.Context, store.Store) error
	if spawns {
		old, goOn = sc.aboutToSpawn()
	} else {
		old = sc.old("old")
	}
	before, err := sc.rt.Get(context.Background(), "t")
	sc.must(err)
	eraser := sc.outside("eraser", func(ctx context.Context, rt *perdure.Runtime) error {
		return rt.Erase(ctx, "t", perdure.EraseOptions{Note: perdure.Note{IfSeq: before.Seq}})
	})
	sc.w.Actor("other", func(ctx context.Context, s store.Store) error {
		if moves {
			rt, err := sc.runtime(ctx, sc.lean(ctx, s))
			if err != nil {
				return err
			}
			title := "old"
			if err := rt.SetMetadata(ctx, "t", &title, nil, perdure.Note{}); err != nil && !spawns {
				return err
			}
		}
		if spawns {
			return goOn(ctx, s)
		}
		return nil
	})
	return func() (string, error) {
		after, parentErr := sc.rt.Get(context.Background(), "t")
		switch {
		case parentErr != nil && !sc.born(old):
			if err := sc.rt.Erase(context.Background(), "t", perdure.EraseOptions{}); err != nil && !errors.Is(err, perdure.ErrNoThread) {
				return "", err // it finishes what was cut off
			}
			return "erased", sc.without(old)
		case parentErr != nil:
			return "", fmt.Errorf("a child lives without its parent: %w", parentErr)
		case eraser.Err() == nil && !eraser.Killed():
			return "", errors.New("the erase says that it happened, and the thread is there")
		case after.Seq == before.Seq:
			return "", errors.New("neither happened")
		}
		if _, err := sc.rt.Fork(context.Background(), perdure.ForkRequest{Thread: "t"}); err != nil {
			return "", fmt.Errorf("nothing can depend on a thread that has moved on: %w", err)
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
	exploreAll(t, explore.Config{}, func(sc *scene) func() (string, error) { return sc.eraseAt(false, true) }, "erased", "moved on")
	exploreAll(t, explore.Config{}, func(sc *scene) func() (string, error) { return sc.eraseAt(true, true) }, "erased", "moved on")
}

func TestExploredEraseAtASequenceThatDiesIsNone(t *testing.T) {
	exploreAll(t, explore.Config{Crashes: 1}, func(sc *scene) func() (string, error) { return sc.eraseAt(true, false) }, "erased", "moved on")
}
