package kit

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// Runtime returns a runtime without a worker.
func Runtime(t *testing.T, s store.Store, o perdure.Options, flows ...perdure.Flow) *perdure.Runtime {
	t.Helper()
	o.Version = cmp.Or(o.Version, "test")
	return must(perdure.New(t.Context(), s, o, flows...))(t)
}

// Start starts a run, which has to work.
func Start(t *testing.T, rt *perdure.Runtime, q perdure.StartRequest) *perdure.Run {
	t.Helper()
	return must(rt.Start(t.Context(), q))(t)
}

// Kit is a runtime with a worker on a store, for use in a synctest bubble.
type Kit struct {
	*perdure.Runtime
	T     *testing.T
	Store store.Store
	Stop  func() // stops the worker and waits for it
}

// New starts a runtime and a worker on a store, a new one in memory if s is
// nil. They are stopped when the test ends. The lease is long unless the options
// say otherwise: few tests have a use for it, and in a flow that sleeps for a day
// nearly all the work would be to renew it.
func New(t *testing.T, s store.Store, o perdure.Options, flows ...perdure.Flow) *Kit {
	t.Helper()
	if s == nil {
		s = memstore.New()
	}
	o.Lease = cmp.Or(o.Lease, time.Minute)
	rt := Runtime(t, s, o, flows...)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- rt.Work(ctx) }()
	k := &Kit{Runtime: rt, T: t, Store: s}
	stopped := false
	k.Stop = func() {
		if !stopped {
			stopped = true
			cancel()
			if err := <-done; err != nil {
				t.Errorf("the worker: %v", err)
			}
		}
	}
	t.Cleanup(k.Stop)
	return k
}

// StartOn starts a run on a thread of that name.
func (k *Kit) StartOn(thread, flow string, in any) *perdure.Run {
	k.T.Helper()
	return k.MustStart(perdure.StartRequest{Thread: thread, Flow: flow, Input: in})
}

// WaitFor waits until the newest run of a thread stands, and expects a status. It
// gives up after a month of virtual time, so that a run that never stands
// fails the test instead of hanging it.
func (k *Kit) WaitFor(thread string, want perdure.Status) *perdure.Run {
	k.T.Helper()
	return k.waitFor(thread, "", want, 30*24*time.Hour)
}

// WaitForRun waits until a run of a thread stands, and expects a status. A minute
// of virtual time without that is a failure.
func (k *Kit) WaitForRun(thread, id string, want perdure.Status) *perdure.Run {
	k.T.Helper()
	return k.waitFor(thread, id, want, time.Minute)
}

func (k *Kit) waitFor(thread, id string, want perdure.Status, most time.Duration) *perdure.Run {
	k.T.Helper()
	ctx, cancel := context.WithTimeout(k.T.Context(), most)
	defer cancel()
	run, err := k.Wait(ctx, thread, id)
	if err != nil {
		k.T.Fatalf("waiting for run %s of %s to be %s: %v\n%s", id, thread, want, err, k.Trace(thread))
	}
	return k.expect(run, want)
}

// expect ends the test unless a run has a status.
func (k *Kit) expect(run *perdure.Run, want perdure.Status) *perdure.Run {
	k.T.Helper()
	if run.Status != want {
		k.T.Fatalf("run is %s, want %s (%s%s)\n%s", run.Status, want, run.Error, run.Diff, k.Trace(run.Thread))
	}
	return run
}

// AnswerAt answers the open ask at a path of a run.
func (k *Kit) AnswerAt(run *perdure.Run, path string, a perdure.Answer) {
	k.T.Helper()
	NoErr(k.T, k.AnswerAsk(k.AskAt(run, path).ID, a))
}

// Trace returns the events of a thread, one a line: kind, path, value, error.
func (k *Kit) Trace(thread string) string {
	k.T.Helper()
	var b strings.Builder
	for e, err := range k.Events(context.Background(), thread, perdure.EventOptions{Replay: true}) {
		if err != nil {
			fmt.Fprintf(&b, "error: %v\n", err)
			break
		}
		b.WriteString(strings.Join(strings.Fields(fmt.Sprintln(e.Kind, e.Path, string(e.Value), e.Error, e.Decision, e.Status)), " ") + "\n")
	}
	return b.String()
}

// MustStart starts a run as asked.
func (k *Kit) MustStart(q perdure.StartRequest) *perdure.Run {
	k.T.Helper()
	return Start(k.T, k.Runtime, q)
}

// AskAt returns the open ask at a path.
func (k *Kit) AskAt(run *perdure.Run, path string) perdure.AskInfo {
	k.T.Helper()
	for _, a := range run.Asks {
		if a.Path == path {
			return a
		}
	}
	k.T.Fatalf("no open ask at %s: %+v", path, run.Asks)
	return perdure.AskInfo{}
}

// AnswerAsk answers one ask and returns what came of it.
func (k *Kit) AnswerAsk(ask string, a perdure.Answer) error {
	return k.Answer(k.T.Context(), perdure.AskAnswer{Ask: ask, Answer: a})
}

// KindsOf returns how often each kind of event happened on a thread.
func (k *Kit) KindsOf(thread string) map[string]int {
	k.T.Helper()
	n := map[string]int{}
	for _, e := range k.EventsOf(thread) {
		n[e.Kind]++
	}
	return n
}

// EventsOf returns the events of a thread so far.
func (k *Kit) EventsOf(thread string) []perdure.Event {
	k.T.Helper()
	var all []perdure.Event
	for e, err := range k.Events(context.Background(), thread, perdure.EventOptions{Replay: true}) {
		NoErr(k.T, err)
		all = append(all, e)
	}
	return all
}

// ProblemsOf returns the texts of the problem events of a thread.
func (k *Kit) ProblemsOf(thread string) []string {
	var texts []string
	for _, e := range k.EventsOf(thread) {
		if e.Kind == string(journal.Problem) {
			texts = append(texts, e.Error)
		}
	}
	return texts
}

// RunOnce runs a flow on a thread t until it stands, and expects a status.
func RunOnce(t *testing.T, want perdure.Status, fn func(context.Context) error) (k *Kit, run *perdure.Run) {
	t.Helper()
	k = New(t, nil, perdure.Options{}, FlowOf(fn))
	k.StartOn("t", "f", struct{}{})
	return k, k.WaitFor("t", want)
}

// EndsAs waits until the newest run of a thread has ended or is blocked, and
// expects a status.
func (k *Kit) EndsAs(thread string, want perdure.Status) *perdure.Run {
	k.T.Helper()
	var run *perdure.Run
	k.Until("the run ends", func() bool {
		run = must(k.GetRun(k.T.Context(), thread, ""))(k.T)
		return run.Status.Final() || run.Status == perdure.Blocked
	})
	return k.expect(run, want)
}

// Until lets virtual time pass until something holds.
func (k *Kit) Until(what string, holds func() bool) {
	k.T.Helper()
	pause := 10 * time.Millisecond
	for range 1000 {
		synctest.Wait()
		if holds() {
			return
		}
		time.Sleep(pause)
		pause = min(2*pause, 2*time.Second)
	}
	k.T.Fatalf("never: %s\n%s", what, k.Trace("t"))
}

// WantLines expects lines in the trace of thread "t", in any order.
func (k *Kit) WantLines(want ...string) {
	k.T.Helper()
	trace := k.Trace("t")
	have := strings.Split(trace, "\n")
	for _, line := range want {
		if !slices.Contains(have, line) {
			k.T.Errorf("the journal lacks %q:\n%s", line, trace)
		}
	}
}

// AnswerYes answers the ask at a path of a run with true.
func (k *Kit) AnswerYes(run *perdure.Run, path string) {
	k.T.Helper()
	k.AnswerAt(run, path, perdure.Answer{Value: true})
}
