package perdure

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/lease"
	"github.com/perdure/perdure/store/memstore"
)

// What a worker remembers of threads that others execute does not stay.
func TestAWorkerForgetsWhatOthersDid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		f := NewFlow("f", func(ctx context.Context, in string) (string, error) {
			return Step(ctx, "a", func(context.Context) (string, error) { time.Sleep(2 * time.Second); return "", nil })
		})
		r, err := New(t.Context(), s, Options{Version: "test"}, f)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		io, gone := context.WithCancel(context.Background())
		done := make(chan error, 2)
		go func() { done <- r.Work(ctx) }()
		time.Sleep(time.Second)
		w := newWorker(r.core, io)
		if w.lease, err = lease.Hold(io, s, w.id, time.Second); err != nil {
			t.Fatal(err)
		}
		for i := range 50 {
			if _, err := r.Start(t.Context(), StartRequest{Thread: fmt.Sprint(i), Flow: "f", Input: ""}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait() // the first worker executes them
		go func() { done <- w.loop(ctx) }()
		for i := range 50 {
			if _, err := r.Wait(t.Context(), fmt.Sprint(i), ""); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Minute)
		w.mu.Lock()
		if n := len(w.again) + len(w.early) + len(w.busy) + len(w.passes); n > 0 {
			t.Errorf("an idle worker remembers %d threads of others that have ended", n)
		}
		w.mu.Unlock()
		cancel()
		<-done
		<-done
		w.running.Wait()
		gone()
	})
}
