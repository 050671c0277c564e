package perdure_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// kit is a runtime with a worker on a store, for use in a synctest bubble.
type kit struct {
	*perdure.Runtime
	t     *testing.T
	store store.Store
	stop  func() // stops the worker and waits for it
}

// newKit starts a runtime and a worker on a store, a new one in memory if s is
// nil. They are stopped when the test ends.
func newKit(t *testing.T, s store.Store, o perdure.Options, flows ...perdure.Flow) *kit {
	t.Helper()
	if s == nil {
		s = memstore.New()
	}
	if o.Version == "" {
		o.Version = "test"
	}
	rt, err := perdure.New(t.Context(), s, o, flows...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- rt.Work(ctx) }()
	k := &kit{Runtime: rt, t: t, store: s}
	stopped := false
	k.stop = func() {
		if !stopped {
			stopped = true
			cancel()
			if err := <-done; err != nil {
				t.Errorf("the worker: %v", err)
			}
		}
	}
	t.Cleanup(k.stop)
	return k
}

// start starts a run on a thread of that name.
func (k *kit) start(thread, flow string, in any) *perdure.Run {
	k.t.Helper()
	run, err := k.Start(k.t.Context(), perdure.StartRequest{Thread: thread, Flow: flow, Input: in})
	if err != nil {
		k.t.Fatal(err)
	}
	return run
}

// wait waits until the newest run of a thread stands, and expects a status. It
// gives up after six hours of virtual time, so that a run that never stands
// fails the test instead of hanging it.
func (k *kit) wait(thread string, want perdure.Status) *perdure.Run {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), 6*time.Hour)
	defer cancel()
	run, err := k.Wait(ctx, thread, "")
	if err != nil {
		k.t.Fatalf("waiting for %s: %v\n%s", want, err, k.trace(thread))
	}
	if run.Status != want {
		k.t.Fatalf("run is %s, want %s (%s%s)\n%s", run.Status, want, run.Error, run.Diff, k.trace(thread))
	}
	return run
}

// answer answers the open ask at a path of a run.
func (k *kit) answer(run *perdure.Run, path string, a perdure.Answer) {
	k.t.Helper()
	for _, ask := range run.Asks {
		if ask.Path == path {
			if err := k.Answer(k.t.Context(), perdure.AskAnswer{Ask: ask.ID, Answer: a}); err != nil {
				k.t.Fatal(err)
			}
			return
		}
	}
	k.t.Fatalf("no open ask at %s: %+v", path, run.Asks)
}

// trace returns the events of a thread, one a line: kind, path, value, error.
func (k *kit) trace(thread string) string {
	k.t.Helper()
	var b strings.Builder
	for e, err := range k.Events(context.Background(), thread, perdure.EventOptions{Replay: true}) {
		if err != nil {
			fmt.Fprintf(&b, "error: %v\n", err)
			break
		}
		b.WriteString(strings.TrimSpace(strings.Join(strings.Fields(fmt.Sprintln(e.Kind, e.Path, string(e.Value), e.Error, e.Decision, e.Status)), " ")) + "\n")
	}
	return b.String()
}
