package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
)

func TestWorkersTellOfThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		began := time.Now()
		one := kit.New(t, s, perdure.Options{Version: "v1"}, kit.EchoFlow("b"), kit.EchoFlow("a"))
		synctest.Wait()
		one.StartOn("t", "a", "")
		one.WaitFor("t", perdure.Succeeded)
		id := ""
		for _, e := range one.EventsOf("t") {
			if e.Kind == "claimed" {
				id = e.Worker
			}
		}
		host, err := os.Hostname()
		if err != nil {
			host = ""
		}
		time.Sleep(time.Minute) // renewals
		got, err := one.Tenant("any").Workers(t.Context())
		want := []perdure.WorkerInfo{{ID: id, Host: host, PID: os.Getpid(), Version: "v1", Flows: []string{"a", "b"}, Started: began.UTC()}}
		for i := range got { // a lease that is renewed ends later than now, and not much later
			if left := time.Until(got[i].Until); left <= 0 || left > time.Minute {
				t.Errorf("the lease of %s lasts for %v", got[i].ID, left)
			}
			got[i].Until = time.Time{}
		}
		if d := cmp.Diff(want, got); d != "" || err != nil || id == "" {
			t.Error(err, d)
		}
		raw, err := json.Marshal(got[0])
		if err != nil || !strings.HasPrefix(string(raw), fmt.Sprintf(`{"id":%q,`, id)) {
			t.Errorf("as JSON it is %s, %v", raw, err)
		}

		var flows []perdure.Flow
		for i := range 100 {
			flows = append(flows, kit.EchoFlow(fmt.Sprintf("%0100d", i)))
		}
		two := kit.New(t, s, perdure.Options{}, flows...)
		synctest.Wait()
		if got, err = two.Workers(t.Context()); err != nil || len(got) != 2 {
			t.Errorf("there are %+v, %v", got, err)
		}
		for _, w := range got {
			if w.ID != id && len(w.Flows) != 40 {
				t.Errorf("%d flows are named", len(w.Flows))
			}
		}
		two.Stop()
		if got, err = one.Workers(t.Context()); err != nil || len(got) != 1 || got[0].ID != id {
			t.Errorf("after one has gone there are %+v, %v", got, err)
		}
		// What an older version wrote, and what is none.
		for name, value := range map[string]string{"old": `{"n":1,"ttl":3000000,"host":"h","key":"k"}`, "odd": `{"n":1,"host":"h","info":[1]}`} {
			if _, err := s.Put(t.Context(), "worker/"+name, []byte(value), ""); err != nil {
				t.Fatal(err)
			}
		}
		seen := 0
		got, err = one.Workers(t.Context())
		for _, w := range got {
			if w.ID == "old" || w.ID == "odd" {
				seen++
				w.Until = time.Time{}
				kit.NoDiff(t, cmp.Diff(perdure.WorkerInfo{ID: w.ID, Host: "h"}, w))
			}
		}
		if err != nil || seen != 2 {
			t.Errorf("there are %+v, %v", got, err)
		}
		time.Sleep(time.Hour) // the other one finds them dead
		if got, err = one.Workers(t.Context()); err != nil || len(got) != 1 {
			t.Errorf("long after there are %+v, %v", got, err)
		}
	})
}

// TestAKilledWorkerIsNotListedForEver: a runtime without a worker finds out
// too, even if it cannot remove the remains.
func TestAKilledWorkerIsNotListedForEver(t *testing.T) {
	for name, fault := range map[string]faulty.Fault{"and removed": faulty.None, "on a full disk": faulty.FailBefore} {
		kit.Bubble(t, name, func(t *testing.T) {
			s := memstore.New()
			live(t, s, time.Minute, kit.EchoFlow("a"))
			rt, err := perdure.New(t.Context(), faulty.New(s, func(c faulty.Call) faulty.Fault {
				if c.Op == store.OpDelete {
					return fault
				}
				return faulty.None
			}), perdure.Options{Version: "test"})
			kit.NoErr(t, err)
			for i, want := range []int{1, 1, 0, 0} {
				if got, err := rt.Workers(t.Context()); err != nil || len(got) != want {
					t.Errorf("after %d s there are %+v, %v", 2*i, got, err)
				}
				time.Sleep(2 * time.Second)
			}
			if left := keysOf(t, s, "worker/"); (len(left) == 0) != (fault == faulty.None) {
				t.Errorf("left are %q", left)
			}
		})
	}
}

// TestARunWhoseFlowNoWorkerHasSaysSo asks a runtime that has no worker.
func TestARunWhoseFlowNoWorkerHasSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const none = `no living worker has the flow "a"`
		s, ask := memstore.New(), kit.AskFlow("a", perdure.Question{})
		rt := kit.Runtime(t, s, perdure.Options{Version: "test"}, ask)
		expect := func(what string, status perdure.Status, idle string) {
			t.Helper()
			time.Sleep(5 * time.Second)
			run, err := rt.GetRun(t.Context(), "t", "")
			thread, getErr := rt.Get(t.Context(), "t")
			if err != nil || getErr != nil || run.Status != status || run.Idle != idle || thread.Runs[0].Idle != idle {
				t.Errorf("%s: it is %s, %q, %q; %v, %v", what, run.Status, run.Idle, thread.Runs[0].Idle, err, getErr)
			}
			if at, err := rt.StateAt(t.Context(), "t", 0); err != nil || at.Thread.Runs[0].Idle != "" {
				t.Errorf("%s: the state of a time tells of now: %+v, %v", what, at, err)
			}
		}
		run, err := rt.Start(t.Context(), perdure.StartRequest{Thread: "t", Flow: "a", Input: ""})
		if err != nil || run.Idle != none {
			t.Errorf("it was started as %+v, %v", run, err)
		}
		expect("without a worker", perdure.Queued, none)
		other := kit.New(t, s, perdure.Options{Lease: 3 * time.Second}, kit.EchoFlow("b"))
		expect("with another's worker", perdure.Queued, none)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := rt.Wait(ctx, "t", ""); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), none) {
			t.Errorf("waiting for it: %v", err)
		}
		live(t, s, 10*time.Second, ask)
		expect("when its worker was killed", perdure.Suspended, none)
		k := kit.New(t, s, perdure.Options{}, ask)
		expect("with a worker", perdure.Suspended, "")
		if run, err := k.GetRun(t.Context(), "t", ""); err != nil || run.Idle != "" {
			t.Errorf("the worker's own runtime says %+v, %v", run, err)
		}
		k.AnswerAt(k.WaitFor("t", perdure.Suspended), "/ask", perdure.Answer{Value: ""})
		k.WaitFor("t", perdure.Succeeded)
		k.Stop()
		other.Stop()
		expect("when it has ended", perdure.Succeeded, "")
	})
}
