package perdure_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store/memstore"
)

// edgeQueueNap is a flow whose step takes as many seconds as its input says.
func edgeQueueNap(name string) perdure.Flow {
	return perdure.NewFlow(name, func(ctx context.Context, seconds int) (string, error) {
		return perdure.Step(ctx, "nap", func(ctx context.Context) (string, error) {
			select {
			case <-time.After(time.Duration(seconds) * time.Second):
			case <-ctx.Done():
			}
			return "", ctx.Err()
		})
	})
}

// A thread that another worker holds has hints of two flows: that is no reason
// to look at it all the time.
func TestEdgeQueueHintsOfTwoFlowsOfOneThread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		a, b := edgeQueueNap("a"), edgeQueueNap("b")
		k := newKit(t, s, perdure.Options{Lease: 3 * time.Second}, a, b)
		k.start("t", "a", 300)
		synctest.Wait()
		k.start("t", "b", 1)
		synctest.Wait()
		if n := edgeWorkerCalls(t, s, time.Minute, a, b); n > 1000 {
			t.Errorf("at least %d calls of the store in a quiet minute", n)
		}
	})
}

// A worker that saw a thread in another's hands takes it when its timer is due
// and the other one is busy.
func TestEdgeQueueTimerOfAThreadThatAnotherHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		doze := perdure.NewFlow("doze", func(ctx context.Context, in string) (string, error) {
			if _, err := perdure.Step(ctx, "nap", func(context.Context) (string, error) {
				time.Sleep(2 * time.Second)
				return "", nil
			}); err != nil {
				return "", err
			}
			return "", perdure.Sleep(ctx, "doze", 2*time.Second)
		})
		first := newKit(t, s, perdure.Options{Concurrency: 1}, doze, edgeQueueNap("nap"))
		first.start("t", "doze", "")
		time.Sleep(time.Second) // the first worker executes it
		newKit(t, s, perdure.Options{Concurrency: 1}, doze)
		time.Sleep(500 * time.Millisecond) // the second one has seen that
		first.start("u", "nap", 60)        // keeps the first one busy afterwards
		time.Sleep(5 * time.Second)
		if run, err := first.Get(t.Context(), "t"); err != nil || run.Status != perdure.Succeeded {
			t.Errorf("a second after its timer the run is %v, %v, though a worker is idle", run.Status, err)
		}
	})
}
