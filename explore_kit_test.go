package perdure_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/explore"
	"github.com/perdure/perdure/store"
)

// quietLease is a lease that is not renewed within an execution, so that the
// steps of a worker are those of its work.
const quietLease = 10 * time.Minute

// scene is one execution of an exploration: a thread "t" of one flow, which
// the test brings as far as it likes before the actors are let loose.
type scene struct {
	t    *testing.T
	w    *explore.World
	flow perdure.Flow
	rt   *perdure.Runtime // on the store itself, undisturbed
}

func newScene(t *testing.T, w *explore.World, flow perdure.Flow) *scene {
	t.Helper()
	sc := &scene{t: t, w: w, flow: flow}
	sc.rt = sc.runtime(context.Background(), w.Store(), quietLease)
	return sc
}

func (sc *scene) runtime(ctx context.Context, s store.Store, lease time.Duration) *perdure.Runtime {
	rt, err := perdure.New(ctx, s, perdure.Options{Version: "test", Lease: lease}, sc.flow)
	if err != nil && ctx.Err() == nil {
		sc.t.Error(err)
	}
	return rt
}

// start queues a run on the thread.
func (sc *scene) start() {
	sc.t.Helper()
	_, err := sc.rt.Start(context.Background(), perdure.StartRequest{Thread: "t", Flow: sc.flow.Name(), Input: "in"})
	sc.must(err)
}

// work runs an undisturbed worker until the run stands.
func (sc *scene) work() *perdure.Run {
	sc.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- sc.rt.Work(ctx) }()
	run, err := sc.rt.Wait(ctx, "t", "")
	cancel()
	sc.must(err)
	sc.must(<-done)
	return run
}

func (sc *scene) must(err error) {
	sc.t.Helper()
	if err != nil {
		sc.t.Fatal(err)
	}
}

// worker declares an actor that works until it is killed or all is over.
func (sc *scene) worker(name string, lease time.Duration) *explore.Actor {
	return sc.w.Actor(name, func(ctx context.Context, s store.Store) error {
		return sc.runtime(ctx, s, lease).Work(ctx)
	})
}

// outside declares an actor that calls the runtime from outside.
func (sc *scene) outside(name string, do func(context.Context, *perdure.Runtime) error) *explore.Actor {
	return sc.w.Actor(name, func(ctx context.Context, s store.Store) error {
		return do(ctx, sc.runtime(ctx, s, quietLease))
	}).Reliable()
}

// trace returns the kinds of the thread's entries.
func (sc *scene) trace() string {
	var kinds []string
	for e, err := range sc.rt.Events(context.Background(), "t", perdure.EventOptions{Replay: true}) {
		if err != nil {
			return fmt.Sprint(kinds, err)
		}
		kinds = append(kinds, e.Kind)
	}
	return strings.Join(kinds, " ")
}

// ended returns an error unless the run of the thread has the status.
func (sc *scene) ended(want ...perdure.Status) error {
	run, err := sc.rt.GetRun(context.Background(), "t", "")
	if err != nil {
		return err
	}
	for _, status := range want {
		if run.Status == status {
			return nil
		}
	}
	return fmt.Errorf("the run is %s, want %s: %s", run.Status, want, sc.trace())
}
