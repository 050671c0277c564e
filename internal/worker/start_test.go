package worker_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
)

// counted returns a flow that counts how often its step is executed, and waits
// until it may continue.
func counted(n *atomic.Int64, goOn <-chan struct{}) perdure.Flow {
	return perdure.NewFlow("f", func(ctx context.Context, in string) (string, error) {
		return perdure.Step(ctx, "one", func(ctx context.Context) (string, error) {
			n.Add(1)
			select {
			case <-goOn:
			case <-ctx.Done():
				return "", ctx.Err()
			}
			return in, nil
		})
	})
}

func closed() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// TestAStartClaimsItsRun: beside a worker with room a start and its claim are one
// append, no worker looks for the run, and whoever waits reads nothing.
func TestAStartClaimsItsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n, appends, reads, lists atomic.Int64
		s := faulty.New(memstore.New(), func(c faulty.Call) faulty.Fault {
			switch c.Op {
			case store.OpAppend:
				appends.Add(1)
			case store.OpRead:
				reads.Add(1)
			case store.OpList:
				lists.Add(1)
			}
			return faulty.None
		})
		goOn := make(chan struct{})
		k := kit.New(t, s, perdure.Options{}, counted(&n, goOn))
		kit.New(t, s, perdure.Options{}, counted(&n, goOn))
		synctest.Wait()
		lists.Store(0)
		run, err := k.Start(t.Context(), perdure.StartRequest{Flow: "f", Input: "x"})
		kit.NoErr(t, err)
		if run.Status != perdure.Queued {
			t.Errorf("a start returns a run that is %s", run.Status)
		}
		time.AfterFunc(time.Millisecond, func() { close(goOn) })
		run, err = k.WaitEnd(t.Context(), run.Thread, run.ID)
		kit.NoErr(t, err)
		if run.Status != perdure.Succeeded || n.Load() != 1 || appends.Load() != 3 || reads.Load() != 0 || lists.Load() != 0 {
			t.Errorf("%s after %d executions, %d appends, %d reads of the journal and %d looks for work, want 1, 3 and none", run.Status, n.Load(), appends.Load(), reads.Load(), lists.Load())
		}
	})
}

// TestAStartWithoutRoomIsLeftToWhoFindsIt: a start claims nothing beyond a
// worker's Concurrency, and nothing that has to wait its turn.
func TestAStartWithoutRoomIsLeftToWhoFindsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		goOn := make(chan struct{})
		k := kit.New(t, memstore.New(), perdure.Options{Concurrency: 1}, counted(&n, goOn))
		synctest.Wait()
		for _, thread := range []string{"a", "a", "b"} {
			k.StartOn(thread, "f", "x")
		}
		synctest.Wait()
		for thread, want := range map[string][]perdure.Status{"a": {perdure.Running, perdure.Queued}, "b": {perdure.Queued}} {
			got, err := k.Get(t.Context(), thread)
			kit.NoErr(t, err)
			for i, run := range got.Runs {
				if run.Status != want[i] {
					t.Errorf("run %d of thread %s is %s, want %s", i, thread, run.Status, want[i])
				}
			}
		}
		close(goOn)
		for _, thread := range []string{"a", "b"} {
			k.WaitFor(thread, perdure.Succeeded)
		}
		if n.Load() != 3 {
			t.Errorf("%d executions of 3 runs", n.Load())
		}
	})
}

// TestAStartThatDoesNotKnow: the worker executes what a start has claimed for it
// and does not know of, and nothing of what was never written.
func TestAStartThatDoesNotKnow(t *testing.T) {
	for _, fault := range []faulty.Fault{faulty.FailBefore, faulty.FailAfter} {
		synctest.Test(t, func(t *testing.T) {
			var n atomic.Int64
			var fail atomic.Bool
			s := faulty.New(memstore.New(), func(c faulty.Call) faulty.Fault {
				switch {
				case fail.Load() && c.Op == store.OpAppend:
					return fault
				case fail.Load() && c.Op == store.OpRead:
					return faulty.FailBefore
				}
				return faulty.None
			})
			k := kit.New(t, s, perdure.Options{}, counted(&n, closed()))
			synctest.Wait()
			fail.Store(true)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := k.Start(ctx, perdure.StartRequest{Thread: "t", Key: "k", Flow: "f", Input: "x"})
			if !errors.Is(err, store.ErrUnknown) {
				t.Errorf("%v: a start whose answers are lost: %v", fault, err)
			}
			fail.Store(false)
			time.Sleep(5 * time.Second) // the next look without news would be later
			written := fault == faulty.FailAfter
			if got := n.Load(); got != 0 != written {
				t.Errorf("%v: %d executions of what was written: %v", fault, got, written)
			}
			_, err = k.Start(t.Context(), perdure.StartRequest{Thread: "t", Key: "k", Flow: "f", Input: "x"})
			kit.NoErr(t, err)
			k.WaitFor("t", perdure.Succeeded)
			if n.Load() != 1 {
				t.Errorf("%v: %d executions", fault, n.Load())
			}
		})
	}
}

// TestAWorkerThatStopsClaimsNoStarts: and what it has claimed it hands over.
func TestAWorkerThatStopsClaimsNoStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		s := memstore.New()
		k := kit.New(t, s, perdure.Options{Grace: time.Millisecond}, counted(&n, nil))
		synctest.Wait()
		k.StartOn("a", "f", "x")
		synctest.Wait()
		k.Stop()
		k.StartOn("b", "f", "x")
		other := kit.New(t, s, perdure.Options{}, counted(&n, closed()))
		for _, thread := range []string{"a", "b"} {
			if run := other.WaitFor(thread, perdure.Succeeded); thread == "b" && run.Resumes != 0 {
				t.Errorf("the run on b was resumed %d times", run.Resumes)
			}
		}
	})
}

// TestAWaitSeesWhatWasAnsweredBefore: a pass that has written its last entry and
// is not over yet does not make a wait return what was before it.
func TestAWaitSeesWhatWasAnsweredBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k *kit.Kit
		waited := make(chan *perdure.Run, 1)
		observer := kit.Committed(func(e perdure.Event) {
			if e.Kind != "suspended" {
				return
			}
			run, err := k.GetRun(t.Context(), "t", "")
			if err == nil {
				err = k.Answer(t.Context(), perdure.AskAnswer{Ask: run.Asks[0].ID, Answer: perdure.Answer{Value: "yes"}})
			}
			if err != nil {
				t.Error(err)
			}
			go func() {
				run, err := k.Wait(t.Context(), "t", run.ID)
				if err != nil {
					t.Error(err)
				}
				waited <- run
			}()
			time.Sleep(time.Millisecond) // the pass is not over before this returns
		})
		k = kit.New(t, nil, perdure.Options{Observer: observer}, kit.AskFlow("f", perdure.Question{}))
		k.StartOn("t", "f", "")
		if run := <-waited; run.Status != perdure.Succeeded {
			t.Errorf("after its answer the run is %s", run.Status)
		}
	})
}
