package worker_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store/memstore"
)

// TestClockMayJump lets the wall clock jump by hours while runs sleep, wait for
// answers and execute steps: timers end early or late, and nothing else changes.
func TestClockMayJump(t *testing.T) {
	for _, jumps := range [][]time.Duration{
		{30 * time.Hour}, {-2 * time.Hour}, {3 * time.Hour, -3 * time.Hour}, {-2 * time.Hour, 5 * time.Hour},
	} {
		kit.Bubble(t, fmt.Sprint(jumps), func(t *testing.T) {
			var off atomic.Int64
			t.Cleanup(clock.Set(func() time.Time { return time.Now().Add(time.Duration(off.Load())) })) // when the workers have stopped
			var tally kit.Tally
			var mu sync.Mutex
			var backwards []string
			flow := perdure.NewFlow("f", func(ctx context.Context, who string) (string, error) {
				last := perdure.Now(ctx)
				look := func(where string) {
					if now := perdure.Now(ctx); now.Before(last) {
						mu.Lock()
						backwards = append(backwards, fmt.Sprint(who, " ", where, ": ", last, " then ", now))
						mu.Unlock()
					} else {
						last = now
					}
				}
				for i := range 12 {
					name := fmt.Sprint("step-", i)
					if _, err := perdure.Step(ctx, name, func(context.Context) (int, error) {
						time.Sleep(10 * time.Second)
						return tally.Hit(who + "/" + name), nil
					}); err != nil {
						return "", err
					}
					look(name)
				}
				if err := perdure.Sleep(ctx, "nap", time.Hour); err != nil {
					return "", err
				}
				look("nap")
				answer, err := perdure.Ask[string](ctx, "ask", perdure.Question{Expires: time.Hour, Default: &perdure.Answer{Value: "late"}})
				if err != nil {
					return "", err
				}
				look("ask")
				_, err = perdure.Step(ctx, "last", func(context.Context) (int, error) { return tally.Hit(who + "/last"), nil })
				look("last")
				return answer, err
			})
			s := memstore.New()
			k := kit.New(t, s, perdure.Options{Lease: 20 * time.Second}, flow)
			kit.New(t, s, perdure.Options{Lease: 20 * time.Second}, flow)
			const n = 6
			// They begin some minutes apart, so that a jump finds some in each verb.
			go func() {
				for i := range n {
					k.MustStart(perdure.StartRequest{Thread: fmt.Sprint("t", i), Flow: "f", Input: fmt.Sprint("t", i)})
					time.Sleep(23 * time.Minute)
				}
			}()
			for _, jump := range jumps {
				time.Sleep(70*time.Minute + 5*time.Second)
				off.Add(int64(jump))
			}
			for range 12 * 60 { // longer than any timer is late
				if tally.Of(fmt.Sprint("t", n-1, "/last")) > 0 {
					break
				}
				time.Sleep(time.Minute)
			}
			time.Sleep(3 * time.Hour)
			synctest.Wait()
			for i := range n {
				id := fmt.Sprint("t", i)
				kit.WantOutput(t, k.WaitForRun(id, "", perdure.Succeeded), "late")
				kinds := k.KindsOf(id)
				if kinds["fired"] != 1 || kinds["expired"] != 1 || kinds["ended"] != 1 || kinds["timer"] != 1 {
					t.Errorf("%s: %v", id, kinds)
				}
				// Its first claim, one after the nap, one after the ask: no
				// lease has expired.
				if kinds["claimed"] != 3 {
					t.Errorf("%s was claimed %d times", id, kinds["claimed"])
				}
			}
			for what, times := range tally.All() {
				if times != 1 {
					t.Errorf("%s was done %d times", what, times)
				}
			}
			if got := len(tally.All()); got != n*13 {
				t.Errorf("%d steps were done, want %d", got, n*13)
			}
			for _, what := range backwards {
				t.Errorf("Now went backwards: %s", what)
			}
		})
	}
}
