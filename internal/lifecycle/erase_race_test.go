package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
)

// betweenWrites is a store that calls something before each call.
type betweenWrites struct {
	*faulty.Store
	before atomic.Pointer[func(call string)]
}

func newBetweenWrites(s store.Store) *betweenWrites {
	b := &betweenWrites{}
	b.Store = faulty.New(s, func(c faulty.Call) faulty.Fault {
		if f := b.before.Load(); f != nil {
			(*f)(fmt.Sprint(c.Op, " ", c.Name))
		}
		return faulty.None
	})
	return b
}

// once calls do ahead of the first call that begins so: with what it does, and
// the name of the journal or the key.
func (s *betweenWrites) once(call string, do func()) {
	f := func(got string) {
		if strings.HasPrefix(got, call) && s.before.Swap(nil) != nil {
			do()
		}
	}
	s.before.Store(&f)
}

func TestASnapshotThatComesBehindAnEraseIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memstore.New()
		s := newBetweenWrites(inner)
		many := perdure.NewFlow("many", func(ctx context.Context, n int) (int, error) {
			for i := range n {
				if _, err := perdure.Step(ctx, fmt.Sprint("step-", i), func(context.Context) (string, error) { return "canary", nil }); err != nil {
					return 0, err
				}
			}
			return n, nil
		})
		k := kit.New(t, s, perdure.Options{}, many)
		other := kit.Runtime(t, inner, perdure.Options{}, many)
		erased := false
		s.once("put snapshot/", func() {
			erased = true
			kit.WantErr(t, "erase", other.Erase(context.Background(), "t", perdure.EraseOptions{}), nil)
		})
		k.StartOn("t", "many", 200)
		k.Rest()
		k.Rest()
		if !erased {
			t.Fatal("no snapshot was taken")
		}
		kit.WantNothing(t, inner)
	})
}

func TestAForkThatMeetsAnEraseLeavesNothing(t *testing.T) {
	for _, at := range []string{"put pin/", "put gate/", "put thread/", "append thread/"} {
		kit.Bubble(t, at, func(t *testing.T) {
			inner := memstore.New()
			s := newBetweenWrites(inner)
			k := kit.New(t, s, perdure.Options{}, kit.EchoFlow("echo"))
			other := kit.Runtime(t, inner, perdure.Options{}, kit.EchoFlow("echo"))
			k.StartOn("t", "echo", "canary")
			k.WaitFor("t", perdure.Succeeded)
			k.Rest()
			met := false
			s.once(at, func() {
				met = true
				kit.WantErr(t, "erase", other.Erase(context.Background(), "t", perdure.EraseOptions{}), nil)
			})
			if _, err := k.Fork(t.Context(), perdure.ForkRequest{Thread: "t", As: "f"}); !errors.Is(err, perdure.ErrErased) {
				t.Errorf("fork: %v", err)
			}
			if !met {
				t.Fatal("they did not meet")
			}
			k.Rest()
			kit.WantNothing(t, inner)
		})
	}
}

func TestASpawnThatMeetsAnEraseLeavesNothing(t *testing.T) {
	for _, at := range []string{"put id/", "put thread/", "put pin/", "put gate/", "put due/", "append thread/"} {
		kit.Bubble(t, at, func(t *testing.T) {
			inner := memstore.New()
			s := newBetweenWrites(kit.Plain(inner)) // a batch is one write
			flows := []perdure.Flow{perdure.NewFlow("parent", func(ctx context.Context, _ string) (int, error) {
				if _, err := perdure.Ask[string](ctx, "ask", perdure.Question{}); err != nil {
					return 0, err
				}
				c, err := perdure.Spawn(ctx, "child", "elsewhere", 4)
				if err != nil {
					return 0, err
				}
				return perdure.Join[int](ctx, "join", c)
			})}
			k := kit.New(t, s, perdure.Options{}, flows...)
			other := kit.Runtime(t, inner, perdure.Options{}, flows...)
			k.MustStart(perdure.StartRequest{Thread: "p", Flow: "parent", Input: "", User: "canary"})
			run := k.WaitFor("p", perdure.Suspended)
			k.Rest()
			var met atomic.Bool
			before := func(call string) {
				if !strings.HasPrefix(call, at) || met.Load() {
					return
				}
				if run, err := other.GetRun(context.Background(), "p", ""); err != nil || len(run.Children) == 0 || !met.CompareAndSwap(false, true) {
					return
				}
				kit.WantErr(t, "erase", other.Erase(context.Background(), "p", perdure.EraseOptions{Dependents: true}), nil)
			}
			s.before.Store(&before)
			k.AnswerAt(run, "/ask", perdure.Answer{Value: "yes"})
			k.Rest()
			s.before.Store(nil)
			if !met.Load() {
				t.Fatal("they did not meet")
			}
			k.Rest()
			kit.WantNothing(t, inner)
		})
	}
}

func TestAForkThatWasMadeIsNotGivenUpForAStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memstore.New()
		s := newBetweenWrites(inner)
		k := kit.New(t, inner, perdure.Options{}, kit.EchoFlow("echo"))
		k.StartOn("t", "echo", "one")
		k.WaitFor("t", perdure.Succeeded)
		forker := kit.Runtime(t, s, perdure.Options{}, kit.EchoFlow("echo"))
		starter := newBetweenWrites(inner)
		other := kit.Runtime(t, starter, perdure.Options{}, kit.EchoFlow("echo"))
		forked := make(chan error, 1)
		goOn := make(chan struct{})
		// The fork is about to write its first entry, the start about to give up
		// what the fork has made so far.
		s.once("append thread/", func() { <-goOn })
		go func() {
			_, err := forker.Fork(t.Context(), perdure.ForkRequest{Thread: "t", As: "f"})
			forked <- err
		}()
		synctest.Wait()
		var forkErr error
		finish := func() {
			close(goOn)
			forkErr = <-forked
		}
		starter.once("drop thread/", finish)
		_, startErr := other.Start(t.Context(), perdure.StartRequest{Thread: "f", Flow: "echo", Input: "two"})
		thread, err := k.Get(t.Context(), "f")
		kit.NoErr(t, err)
		runs := len(thread.Runs)
		t.Logf("fork: %v, start: %v, %d runs", forkErr, startErr, runs)
		switch {
		case startErr != nil:
			t.Errorf("start: %v", startErr)
		case forkErr == nil && runs != 2:
			t.Errorf("the fork was made and is gone: %d runs", runs)
		case forkErr != nil && (!errors.Is(forkErr, perdure.ErrExists) || runs != 1):
			t.Errorf("the fork: %v, %d runs", forkErr, runs)
		}
	})
}

func TestAChildErasedBeforeItBeganFailsForItsParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memstore.New()
		s := newBetweenWrites(inner)
		k := kit.New(t, s, perdure.Options{}, kit.Asking, spawnJoin[string]("asking", "well?"))
		other := kit.Runtime(t, inner, perdure.Options{}, kit.Asking)
		erased := false
		before := func(call string) {
			if !strings.HasPrefix(call, "append ") || erased {
				return
			}
			run, err := other.GetRun(context.Background(), "p", "")
			if err != nil || len(run.Children) == 0 {
				return
			}
			kit.WantErr(t, "erase", other.Erase(context.Background(), run.Children[0].Thread, perdure.EraseOptions{}), nil)
			erased = true
		}
		s.before.Store(&before)
		k.StartOn("p", "parent", "")
		run := settledAs(k, "p", perdure.Failed)
		if !erased || !errors.Is(run.Err, perdure.ErrErased) {
			t.Errorf("%v: %v", erased, run.Err)
		}
	})
}

// A start that gives up a half-made fork may die at each of its writes, and the
// next one helps.
func TestAStartThatDiesWhileItGivesUpAFork(t *testing.T) {
	for cut, plan := range faulty.SweepCalls(faulty.CrashBefore, faulty.CrashAfter) {
		synctest.Test(t, func(t *testing.T) {
			inner := memstore.New()
			k := kit.New(t, inner, perdure.Options{}, kit.EchoFlow("echo"))
			k.StartOn("t", "echo", "one")
			k.WaitFor("t", perdure.Succeeded)
			k.Stop()
			halfFork(t, inner, "f", "t")
			rt, err := perdure.New(t.Context(), faulty.New(inner, plan), perdure.Options{Version: "test"}, kit.EchoFlow("echo"))
			if err == nil {
				_, _ = rt.Start(t.Context(), perdure.StartRequest{Thread: "f", Flow: "echo", Input: "two", Key: "k"})
			}
			again := kit.New(t, inner, perdure.Options{}, kit.EchoFlow("echo"))
			if _, err := again.Start(t.Context(), perdure.StartRequest{Thread: "f", Flow: "echo", Input: "two", Key: "k"}); err != nil {
				t.Fatalf("%s: %v", cut, err)
			}
			again.WaitFor("f", perdure.Succeeded)
		})
	}
}

func TestAForkThatBeginsMeanwhileKeepsItsParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memstore.New()
		k := kit.New(t, inner, perdure.Options{}, kit.EchoFlow("echo"))
		k.StartOn("t", "echo", "one")
		k.WaitFor("t", perdure.Succeeded)
		k.Rest()
		begin := halfFork(t, inner, "f", "t")
		// The erase has seen that the fork has not begun, and is about to erase it.
		s := newBetweenWrites(inner)
		var began error
		s.once("append thread/", func() { began = begin() })
		eraser := kit.Runtime(t, s, perdure.Options{}, kit.EchoFlow("echo"))
		err := eraser.Erase(t.Context(), "t", perdure.EraseOptions{})
		_, forkErr := k.Get(t.Context(), "f")
		if began != nil || !errors.Is(err, perdure.ErrPinned) || forkErr != nil {
			t.Errorf("the fork began: %v, erase: %v, and then the fork: %v", began, err, forkErr)
		}
	})
}
