package perdure_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store/memstore"
)

// A worker that is stopped while a step waits for its next attempt hands the run
// over at once: the wait is the next worker's.
func TestAStopDoesNotWaitForTheNextAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		flow := perdure.NewFlow("f", func(ctx context.Context, in string) (string, error) {
			return perdure.Step(ctx, "x", func(context.Context) (string, error) {
				if tries++; tries == 1 {
					return "", errors.New("not yet")
				}
				return in, nil
			}, perdure.Retry(perdure.RetryPolicy{Attempts: 2, Wait: 1500 * time.Millisecond}))
		})
		s := memstore.New()
		k := newKit(t, s, perdure.Options{}, flow)
		k.start("t", "f", "in")
		time.Sleep(100 * time.Millisecond)
		began := time.Now()
		k.stop()
		if took := time.Since(began); took > 50*time.Millisecond {
			t.Errorf("the worker took %v to stop", took)
		}
		if tries != 1 {
			t.Errorf("%d attempts were made before their time", tries)
		}
		newKit(t, s, perdure.Options{}, flow).wait("t", perdure.Succeeded)
		if tries != 2 {
			t.Errorf("%d attempts, want 2", tries)
		}
	})
}
