package perdure_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
)

// A worker that comes when another has just died may meet the dead one in the
// journal while its lease is still there, and never see it on a roster, because
// a third one buries it first. It takes over all the same.
func TestTakeoverOfAWorkerThatAnotherBuried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lease = 3 * time.Second
		inner := specStore()
		calls := 0
		flow := specFlow(func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "step", func(ctx context.Context) (int, error) {
				if calls++; calls == 1 {
					<-ctx.Done()
				}
				return 0, ctx.Err()
			})
			return err
		})
		m := newSpecMortal(t, inner, perdure.Options{Lease: lease}, flow)
		m.start("t", flow.Name(), nil)
		synctest.Wait()
		m.die()
		k := newKit(t, inner, perdure.Options{Lease: lease}, flow)
		synctest.Wait() // it has looked at the thread
		for cell, err := range inner.List(t.Context(), "worker/", "") {
			holder := k.events("t")[2].Worker
			if err == nil && cell.Key == "worker/"+holder {
				err = inner.Delete(t.Context(), cell.Key, cell.Version)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		buried := time.Now()
		k.wait("t", perdure.Succeeded)
		if took := time.Since(buried); took > lease {
			t.Errorf("the takeover took %v, longer than the lease of %v", took, lease)
		}
	})
}
