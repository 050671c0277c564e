package worker_test

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
	"github.com/perdure/perdure/store/seal"
)

// damage changes a bit of the only cell below a prefix.
func damage(t *testing.T, s store.Store, prefix string) {
	t.Helper()
	keys := keysOf(t, s, prefix)
	if len(keys) != 1 {
		t.Fatalf("below %s are %q", prefix, keys)
	}
	cell, err := s.Get(t.Context(), keys[0])
	kit.NoErr(t, err)
	value := bytes.Clone(cell.Value)
	value[len(value)-1] ^= 1
	if _, err := s.Put(t.Context(), keys[0], value, cell.Version); err != nil {
		t.Fatal(err)
	}
}

// A damaged hint or alarm of one thread does not keep a worker from all others.
func TestDamagedHintsHarmNoOthers(t *testing.T) {
	for name, seconds := range map[string]int{"due/": 5, "alarm/": 60} {
		kit.Bubble(t, name, func(t *testing.T) {
			ring, err := seal.NewRing("k", map[string][]byte{"k": bytes.Repeat([]byte{7}, 32)})
			kit.NoErr(t, err)
			inner := memstore.New()
			s, err := seal.New(t.Context(), inner, ring)
			kit.NoErr(t, err)
			k := kit.New(t, s, perdure.Options{}, dozing())
			k.StartOn("damaged", "doze", seconds)
			time.Sleep(time.Second)
			synctest.Wait()
			damage(t, inner, name)
			k.StartOn("near", "doze", 2)
			k.StartOn("far", "doze", 90)
			for _, c := range []struct {
				thread string
				after  time.Duration
			}{{"near", 10 * time.Second}, {"far", 2 * time.Minute}} {
				time.Sleep(c.after)
				if got, err := k.Get(t.Context(), c.thread); err != nil || got.Status != perdure.Succeeded {
					t.Errorf("after %v the run of thread %s is %v, %v", c.after, c.thread, got.Status, err)
				}
			}
		})
	}
}

// nap is a flow whose step takes as many seconds as its input says.
func nap(name string) perdure.Flow {
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
func TestHintsOfTwoFlowsOfOneThread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		a, b := nap("a"), nap("b")
		k := kit.New(t, s, perdure.Options{Lease: 3 * time.Second}, a, b)
		k.StartOn("t", "a", 300)
		synctest.Wait()
		k.StartOn("t", "b", 1)
		synctest.Wait()
		if n := callsOf(t, s, time.Minute, a, b); n > 1000 {
			t.Errorf("at least %d calls of the store in a quiet minute", n)
		}
	})
}

// A worker that saw a thread held by another worker takes it when its timer is
// due and the other one is busy.
func TestTimerOfAThreadThatAnotherHeld(t *testing.T) {
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
		first := kit.New(t, s, perdure.Options{Concurrency: 1}, doze, nap("nap"))
		first.StartOn("t", "doze", "")
		time.Sleep(time.Second) // the first worker executes it
		kit.New(t, s, perdure.Options{Concurrency: 1}, doze)
		time.Sleep(500 * time.Millisecond) // the second one has seen that
		first.StartOn("u", "nap", 60)      // keeps the first one busy afterwards
		time.Sleep(5 * time.Second)
		if run, err := first.Get(t.Context(), "t"); err != nil || run.Status != perdure.Succeeded {
			t.Errorf("a second after its timer the run is %v, %v, though a worker is idle", run.Status, err)
		}
	})
}
